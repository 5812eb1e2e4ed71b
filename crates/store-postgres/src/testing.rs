//! Databases for tests: one for each case, on the server that `MAYFLY_TEST_POSTGRES` names by a superuser's address.
//!
//! Each is a copy of one that was migrated once, owned by a role that is no superuser. The roles are of the whole server,
//! so that every suite that uses it gets them here: their passwords follow from the server's address.

use std::{io::Write as _, str::FromStr as _};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection,
    postgres::PgConnectOptions,
};
use uuid::Uuid;

use crate::{
    Passwords, Settings,
    migrate::{MIGRATIONS, make, migrate},
};

const OWNER: &str = "mayfly_test_owner";
/// Held while the template and the roles are made.
const LOCK: i64 = 0x6d61_7966;

/// A database that is removed when this is dropped.
pub struct TestDatabase {
    server: PgConnectOptions,
    url: String,
    name: String,
}

impl TestDatabase {
    /// A database with the schema; none where there is no server, which is printed and counted as a case that was
    /// skipped.
    ///
    /// # Panics
    /// There is a server, and it does not do what is asked of it.
    pub async fn create() -> Option<Self> {
        let database = Self::reserve()?;
        let mut connection = database.server.connect().await.expect("the server answers");
        let template = database.template(&mut connection).await;
        let create = format!(
            "CREATE DATABASE {} TEMPLATE {template} OWNER {OWNER}",
            database.name
        );
        run(&mut connection, create).await;
        connection.close().await.expect("a connection can be closed");
        Some(database)
    }

    /// An empty database, to be migrated by the case.
    ///
    /// # Panics
    /// As above.
    pub async fn create_empty() -> Option<Self> {
        let database = Self::reserve()?;
        let mut connection = database.server.connect().await.expect("the server answers");
        database.template(&mut connection).await;
        let create = format!("CREATE DATABASE {} OWNER {OWNER}", database.name);
        run(&mut connection, create).await;
        connection.close().await.expect("a connection can be closed");
        Some(database)
    }

    fn reserve() -> Option<Self> {
        let Some(url) = std::env::var_os("MAYFLY_TEST_POSTGRES").and_then(|url| url.into_string().ok())
        else {
            skip("MAYFLY_TEST_POSTGRES names no PostgreSQL server");
            return None;
        };
        Some(Self {
            server: PgConnectOptions::from_str(&url)
                .expect("MAYFLY_TEST_POSTGRES is an address")
                .log_statements(tracing::log::LevelFilter::Off),
            url,
            name: format!("mayfly_test_{}", Uuid::new_v4().simple()),
        })
    }

    /// The database that all are copied from, made by whoever needs it first.
    async fn template(&self, connection: &mut PgConnection) -> String {
        let checksums = MIGRATIONS
            .iter()
            .flat_map(|migration| migration.checksum.iter().copied());
        let checksums: Vec<u8> = checksums.collect();
        let name = format!("mayfly_template_{}", &self.derive(&checksums)[..16]);
        run(connection, format!("SELECT pg_advisory_lock({LOCK})")).await;
        let there = sqlx::query!(
            r#"SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1) AS "there!""#,
            name
        );
        if !there
            .fetch_one(&mut *connection)
            .await
            .expect("the server answers")
            .there
        {
            for role in ["mayfly_api", "mayfly_engine", OWNER] {
                let password = self.derive(role.as_bytes());
                make(connection, role, Some(&password))
                    .await
                    .expect("the role is made");
            }
            let unfinished = format!("{name}_unfinished");
            run(connection, format!("DROP DATABASE IF EXISTS {unfinished}")).await;
            run(connection, format!("CREATE DATABASE {unfinished} OWNER {OWNER}")).await;
            let url = self.address(OWNER, &unfinished);
            migrate(&url, &Passwords::default())
                .await
                .expect("the template is migrated");
            run(
                connection,
                format!("ALTER DATABASE {unfinished} RENAME TO {name}"),
            )
            .await;
        }
        run(connection, format!("SELECT pg_advisory_unlock({LOCK})")).await;
        name
    }

    /// What the store is opened with.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings {
            api_url: self.api_url(),
            engine_url: self.engine_url(),
            connections: 4,
        }
    }

    /// As `mayfly_api`.
    #[must_use]
    pub fn api_url(&self) -> String {
        self.address("mayfly_api", &self.name)
    }

    /// As `mayfly_engine`.
    #[must_use]
    pub fn engine_url(&self) -> String {
        self.address("mayfly_engine", &self.name)
    }

    /// As the owner of its tables, who is no superuser.
    #[must_use]
    pub fn owner_url(&self) -> String {
        self.address(OWNER, &self.name)
    }

    /// Its name on the server.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// As the superuser, in this database.
    #[must_use]
    pub(crate) fn superuser(&self) -> PgConnectOptions {
        self.server.clone().database(&self.name)
    }

    fn address(&self, role: &str, database: &str) -> String {
        let (host, port) = (self.server.get_host(), self.server.get_port());
        format!(
            "postgres://{role}:{}@{host}:{port}/{database}",
            self.derive(role.as_bytes())
        )
    }

    fn derive(&self, of: &[u8]) -> String {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(self.url.as_bytes()).expect("HMAC takes keys of any length");
        mac.update(of);
        let bytes = mac.finalize().into_bytes();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        // Whoever drops it may be inside a runtime.
        let removing = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let Ok(runtime) = runtime else { return };
            runtime.block_on(async {
                if let Ok(mut connection) = server.connect().await {
                    let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                    // One that stays is left to whoever stops the server.
                    connection.execute(AssertSqlSafe(drop)).await.ok();
                }
            });
        });
        removing.join().ok();
    }
}

async fn run(connection: &mut PgConnection, statement: String) {
    let done = connection.execute(AssertSqlSafe(statement.clone())).await;
    done.unwrap_or_else(|error| panic!("{statement}: {error}"));
}

#[expect(clippy::print_stderr, reason = "a case that is skipped says so where it runs")]
pub(crate) fn skip(why: &str) {
    let name = std::thread::current().name().unwrap_or("a case").to_owned();
    eprintln!("skipped: {name}: {why}");
    if let Some(log) = std::env::var_os("MAYFLY_SKIP_LOG") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(log);
        let line = format!("mayfly-store-postgres {name}: {why}\n");
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|error| panic!("the case is not counted as skipped: {error}"));
    }
}
