//! The owner's part: tables and roles.

use std::str::FromStr as _;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use mayfly_store::error::{Source, StoreError};
use sha2::{Digest as _, Sha256};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection,
    migrate::{MigrateError, Migrator},
    postgres::PgConnectOptions,
};
use uuid::Uuid;

use crate::database::{SCHEMA, place};

pub(crate) static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations/postgres");

/// As often as PostgreSQL's own (RFC 7677 asks for that at least).
const ITERATIONS: u32 = 4096;

/// What the two roles log in with.
///
/// A role without a password is made so that nobody can log in as it, and is otherwise left as it is: then the operator
/// makes login roles of his own and grants it to them (`GRANT mayfly_api TO …`), one of the two to each.
#[derive(Default, Clone)]
pub struct Passwords {
    /// Of `mayfly_api`.
    pub api: Option<String>,
    /// Of `mayfly_engine`.
    pub engine: Option<String>,
}

impl std::fmt::Debug for Passwords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Passwords(..)")
    }
}

/// Brings a database up to date, as its owner: the schema, and the two roles that serve it. Calling it again changes
/// nothing but the passwords that are given; calls at once wait for each other. A password goes to the server as what it
/// is checked by (SCRAM-SHA-256) and never in clear.
///
/// The owner needs the right to make roles (CREATEROLE) as long as they are not there, or to set their passwords.
///
/// # Errors
/// A database that can't be reached, is another program's, or needs a newer program; a password that is not printable
/// ASCII. Each migration that was made stays made.
pub async fn migrate(owner_url: &str, passwords: &Passwords) -> Result<(), StoreError> {
    let options = PgConnectOptions::from_str(owner_url).map_err(|_| StoreError::Open {
        place: "of the settings".to_owned(),
        source: "its address is not of the form postgres://USER:PASSWORD@HOST:PORT/DATABASE".into(),
    })?;
    let place = place(&options);
    let failed = |source: Source| StoreError::Open {
        place: place.clone(),
        source,
    };
    let roles = [
        ("mayfly_api", &passwords.api),
        ("mayfly_engine", &passwords.engine),
    ];
    for password in roles.iter().filter_map(|(_, password)| password.as_deref()) {
        if password.is_empty() || !password.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(failed(
                "a password of a role has to be printable ASCII, without spaces".into(),
            ));
        }
    }
    let mut connection = options
        .application_name("mayfly migrate")
        .connect()
        .await
        .map_err(|error| failed(error.into()))?;
    sqlx::query!(
        r#"/* migrate */ SELECT pg_advisory_lock(hashtextextended('mayfly migrate', 0)) IS NULL AS "taken!""#
    )
    .fetch_one(&mut connection)
    .await
    .map_err(|error| failed(error.into()))?;
    refuse(&mut connection, &place).await?;
    for (role, password) in roles {
        make(&mut connection, role, password.as_deref())
            .await
            .map_err(|error| failed(error.into()))?;
    }
    match MIGRATIONS.run(&mut connection).await {
        // It has migrations of a newer program; `min_reader` allows us to go on.
        Ok(()) | Err(MigrateError::VersionMissing(_)) => {}
        Err(error) => return Err(failed(error.into())),
    }
    connection.close().await.map_err(|error| failed(error.into()))
}

/// Refuses a database that is not for this program, before anything of it is changed.
async fn refuse(connection: &mut PgConnection, place: &str) -> Result<(), StoreError> {
    let failed = |source: Source| StoreError::Open {
        place: place.to_owned(),
        source,
    };
    let known = sqlx::query!(
        r#"/* refuse */
         SELECT count(*) AS "tables!", count(*) FILTER (WHERE relname = 'schema_reader') AS "ours!",
                count(*) FILTER (WHERE relname = '_sqlx_migrations') AS "begun!"
           FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')"#
    )
    .fetch_one(&mut *connection)
    .await
    .map_err(|error| failed(error.into()))?;
    if known.ours == 0 {
        // New, or a first migration that was interrupted; anything else is somebody else's.
        return if known.tables == 0 || known.begun > 0 {
            Ok(())
        } else {
            Err(failed("it is a database of another program".into()))
        };
    }
    let needed = sqlx::query_scalar!("/* refuse */ SELECT min_reader FROM schema_reader")
        .fetch_one(connection)
        .await
        .map_err(|error| failed(error.into()))?;
    if needed > SCHEMA {
        return Err(StoreError::NewerSchema {
            place: place.to_owned(),
            needed,
            ours: SCHEMA,
        });
    }
    Ok(())
}

/// Makes a role where it is not there. Roles are of the whole server: another database of it may be making them too.
pub(crate) async fn make(
    connection: &mut PgConnection,
    role: &str,
    password: Option<&str>,
) -> Result<(), sqlx::Error> {
    let create = format!(
        "DO $$ BEGIN
             IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = '{role}') THEN
                 CREATE ROLE {role} NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS;
             END IF;
         EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
         END $$"
    );
    connection.execute(AssertSqlSafe(create)).await?;
    if let Some(password) = password {
        let alter = format!("ALTER ROLE {role} LOGIN PASSWORD '{}'", verifier(password));
        connection.execute(AssertSqlSafe(alter)).await?;
    }
    Ok(())
}

/// What a server checks a password by (RFC 5802, in PostgreSQL's notation): base64 and punctuation alone.
fn verifier(password: &str) -> String {
    let salt = Uuid::new_v4();
    let salted = salted(password.as_bytes(), salt.as_bytes());
    let stored: [u8; 32] = Sha256::digest(mac(&salted, b"Client Key")).into();
    let server = mac(&salted, b"Server Key");
    format!(
        "SCRAM-SHA-256${ITERATIONS}:{}${}:{}",
        BASE64_STANDARD.encode(salt.as_bytes()),
        BASE64_STANDARD.encode(stored),
        BASE64_STANDARD.encode(server)
    )
}

fn salted(password: &[u8], salt: &[u8]) -> [u8; 32] {
    let mut block = mac(password, &[salt, &1_u32.to_be_bytes()].concat());
    let mut salted = block;
    for _ in 1..ITERATIONS {
        block = mac(password, &block);
        for (sum, byte) in salted.iter_mut().zip(block) {
            *sum ^= byte;
        }
    }
    salted
}

fn mac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(message);
    mac.finalize().into_bytes().into()
}
