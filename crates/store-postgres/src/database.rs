//! The server: two pools of connections, one for each role, and what is demanded of them.
//!
//! A connection serves whole transactions and nothing of it outlives one: the tenant is named anew in each. Every wait has
//! a bound, on the server's side too, so that the transaction of a peer that froze or vanished holds others up for seconds
//! and no longer.

use std::{
    str::FromStr as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use mayfly_core::id::TenantId;
use mayfly_dispatch::ledger::Context;
use mayfly_store::error::{Source, StoreError};
use sqlx::{
    PgConnection, PgPool, Postgres, SqlSafeStr, Transaction,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::sync::watch;

use crate::{Settings, columns::Column};

/// The schema that this program reads and writes. A database whose `min_reader` is above it is refused, and one that is
/// older has to be migrated first.
pub(crate) const SCHEMA: i64 = 1;

/// How long a call waits for a connection.
const CONNECTION_WAIT: Duration = Duration::from_secs(10);
/// A connection that nobody has used for so long is looked at before it is used.
const IDLE_UNSEEN: Duration = Duration::from_secs(5);
/// One that listens and one that tells.
const RELAY_CONNECTIONS: u32 = 2;
/// How long a call may take as a whole. Statements are bounded by the server; this bounds the wait for one that has gone.
const CALL: Duration = Duration::from_secs(60);

/// Begins a transaction that reads what is there at one moment.
pub(crate) const ONE_MOMENT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";

/// What each connection asks of the server.
pub(crate) const SESSION: &[(&str, &str)] = &[
    ("statement_timeout", "30s"),
    ("lock_timeout", "10s"),
    // A recorder or scheduler that is frozen inside a transaction loses it, and the locks with it.
    ("idle_in_transaction_session_timeout", "15s"),
    // The server notices a client that is gone while it works for it, or while nothing is sent.
    ("client_connection_check_interval", "5s"),
    ("tcp_keepalives_idle", "10"),
    ("tcp_keepalives_interval", "5"),
    ("tcp_keepalives_count", "3"),
    ("tcp_user_timeout", "25000"),
    // Every statement has its index. Plans are made once, and one that was made while a table was small must not read it
    // whole once it is large.
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("jit", "off"),
    ("timezone", "UTC"),
];

/// Whose clock says what time it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    /// The server's.
    Database,
    /// The caller's, in cases that let time pass.
    #[cfg(test)]
    Caller,
}

pub(crate) struct Database {
    /// As `mayfly_api`.
    api: PgPool,
    /// As `mayfly_engine`.
    pub(crate) engine: PgPool,
    pub(crate) place: String,
    clock: Clock,
    /// Counts the transactions that were committed, here or, once they are relayed, elsewhere.
    pub(crate) commits: watch::Sender<u64>,
    /// Counts those of this process alone.
    pub(crate) own_commits: watch::Sender<u64>,
    /// What commits are relayed by, so that no other call waits for it.
    pub(crate) relay: PgPool,
    suspicion: Arc<Suspicion>,
}

/// A transaction that writes.
pub(crate) struct Write<'a> {
    pub(crate) tx: Transaction<'static, Postgres>,
    database: &'a Database,
}

/// Since when connections are suspected to be of no use: to a server that is gone, or that takes no writes any more.
#[derive(Debug)]
struct Suspicion {
    begin: Instant,
    /// Microseconds from the beginning; older connections are looked at before they are used.
    at: AtomicU64,
}

impl Suspicion {
    fn new() -> Self {
        Self {
            begin: Instant::now(),
            at: AtomicU64::new(0),
        }
    }

    fn raise(&self) {
        self.at.store(micros(self.begin.elapsed()), Ordering::Relaxed);
    }

    fn is_about(&self, age: Duration) -> bool {
        let born = self.begin.elapsed().saturating_sub(age);
        micros(born) <= self.at.load(Ordering::Relaxed)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Database {
    pub(crate) async fn open(settings: &Settings, clock: Clock) -> Result<Self, StoreError> {
        let (api, engine) = (options(&settings.api_url)?, options(&settings.engine_url)?);
        let place = place(&engine);
        let suspicion = Arc::new(Suspicion::new());
        let database = Self {
            api: pool(api, settings.connections, &suspicion),
            relay: pool(engine.clone(), RELAY_CONNECTIONS, &suspicion),
            engine: pool(engine, settings.connections, &suspicion),
            place: place.clone(),
            clock,
            commits: watch::Sender::new(0),
            own_commits: watch::Sender::new(0),
            suspicion,
        };
        check(&database.api, &place, "mayfly_api", "mayfly_engine").await?;
        check(&database.engine, &place, "mayfly_engine", "mayfly_api").await?;
        Ok(database)
    }

    /// Bounds a call, and takes note of what its error says of the connections.
    pub(crate) async fn call<T>(
        &self,
        doing: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let Ok(result) = tokio::time::timeout(CALL, call).await else {
            self.suspicion.raise();
            return Err(StoreError::Query {
                doing,
                source: format!("the database has not answered for {} s", CALL.as_secs()).into(),
            });
        };
        if let Err(StoreError::Query { source, .. }) = &result
            && source
                .downcast_ref::<sqlx::Error>()
                .is_some_and(is_of_the_connection)
        {
            self.suspicion.raise();
        }
        result
    }

    /// Begins a transaction across tenants, in which the context has the time that decisions are made by.
    pub(crate) async fn begin(&self) -> Result<Write<'_>, StoreError> {
        let tx = begin(&self.engine, None, "begin a transaction").await?;
        Ok(Write { tx, database: self })
    }

    /// Begins a transaction that writes as a tenant, or as several: the next step is [`Write::act_for`].
    pub(crate) async fn begin_for_tenants(&self) -> Result<Write<'_>, StoreError> {
        let tx = begin(&self.api, None, "begin a transaction").await?;
        Ok(Write { tx, database: self })
    }

    /// Begins a transaction that sees accounts, and the audit log of one tenant; and says what time it is.
    pub(crate) async fn begin_on_accounts(
        &self,
        tenant: TenantId,
        caller: DateTime<Utc>,
    ) -> Result<(Write<'_>, DateTime<Utc>), StoreError> {
        let mut write = self.begin_for_tenants().await?;
        let now = write.act_for(tenant, caller).await?;
        sqlx::query!(r#"/* begin_on_accounts */ SELECT set_config('app.accounts', 'on', true) AS "on!""#)
            .fetch_one(&mut *write.tx)
            .await
            .map_err(query("turn to the accounts"))?;
        Ok((write, now))
    }

    /// Begins a transaction that sees one moment of one tenant's rows.
    pub(crate) async fn read_as(
        &self,
        tenant: TenantId,
    ) -> Result<Transaction<'static, Postgres>, StoreError> {
        let mut tx = begin(&self.api, Some(ONE_MOMENT), "begin to read").await?;
        act_for(&mut tx, tenant).await?;
        Ok(tx)
    }

    /// Where what belongs to no tenant is read.
    pub(crate) const fn catalog(&self) -> &PgPool {
        &self.api
    }

    /// Whether the caller's time counts, and not the server's.
    pub(crate) fn goes_by_caller(&self) -> bool {
        self.clock != Clock::Database
    }

    /// The context with the time by the clock that counts.
    pub(crate) fn at(&self, context: &Context, now: DateTime<Utc>) -> Context {
        let mut context = context.clone();
        context.now = self.now(now, context.now.into()).into();
        context
    }

    /// Which of two times counts: the database's or the caller's.
    pub(crate) const fn now(&self, database: DateTime<Utc>, caller: DateTime<Utc>) -> DateTime<Utc> {
        match self.clock {
            Clock::Database => {
                let _ = caller;
                database
            }
            #[cfg(test)]
            Clock::Caller => caller,
        }
    }
}

impl<'a> Write<'a> {
    /// Names whose rows the transaction sees from here on, and says what time it is.
    pub(crate) async fn act_for(
        &mut self,
        tenant: TenantId,
        caller: DateTime<Utc>,
    ) -> Result<DateTime<Utc>, StoreError> {
        let now = act_for(&mut self.tx, tenant).await?;
        Ok(self.database.now(now, caller))
    }

    /// What time it is.
    pub(crate) async fn now(&mut self, caller: DateTime<Utc>) -> Result<DateTime<Utc>, StoreError> {
        let now = sqlx::query_scalar!(r#"/* now */ SELECT clock_timestamp() AS "now!""#)
            .fetch_one(&mut *self.tx)
            .await
            .map_err(query("ask for the time"))?;
        Ok(self.database.now(now, caller))
    }

    /// The context with the time of now.
    pub(crate) async fn context(&mut self, context: &Context) -> Result<Context, StoreError> {
        let mut context = context.clone();
        context.now = self.now(context.now.into()).await?.into();
        Ok(context)
    }

    /// Waits for one's turn at something that one transaction does at a time, and takes it until the end of this one. The
    /// context has the time after that.
    pub(crate) async fn turn(&mut self, of: Turn<'_>, context: &Context) -> Result<Context, StoreError> {
        let name = match of {
            Turn::Recorder(queue) => format!("mayfly recorder {queue}"),
            Turn::Scheduler(pool) => format!("mayfly scheduler {pool}"),
        };
        let now = sqlx::query_scalar!(
            r#"/* turn */
             WITH turn AS MATERIALIZED (SELECT pg_advisory_xact_lock(hashtextextended($1, 0)) AS taken)
             SELECT clock_timestamp() AS "now!" FROM turn"#,
            name
        )
        .fetch_one(&mut *self.tx)
        .await
        .map_err(query("wait for the turn"))?;
        Ok(self.database.at(context, now))
    }

    pub(crate) async fn commit(self) -> Result<(), StoreError> {
        self.tx.commit().await.map_err(query("commit"))?;
        self.database.commits.send_modify(|count| *count += 1);
        self.database.own_commits.send_modify(|count| *count += 1);
        Ok(())
    }

    /// Commits what nobody waits for.
    pub(crate) async fn commit_quietly(self) -> Result<(), StoreError> {
        self.tx.commit().await.map_err(query("commit"))
    }
}

/// What one transaction does at a time. Two names that share a hash take turns too, which costs time alone.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Turn<'a> {
    /// Whatever comes out of a queue, in its order: also with a second recorder, that was frozen and has gone on.
    Recorder(&'a str),
    /// Whose turn it is in a pool.
    Scheduler(&'a str),
}

/// Begins a transaction, by its own statement where it needs one.
///
/// A caller that gives up while the server begins would leave the transaction open on a connection of the pool: sqlx 0.9.0
/// rolls back only what it knows to have begun. So a task of its own waits for the server, and rolls back what nobody wants.
pub(crate) async fn begin(
    pool: &PgPool,
    statement: Option<&'static str>,
    doing: &'static str,
) -> Result<Transaction<'static, Postgres>, StoreError> {
    let connection = pool.acquire().await.map_err(query(doing))?;
    let beginning = Transaction::begin(connection, statement.map(SqlSafeStr::into_sql_str));
    #[expect(
        clippy::disallowed_methods,
        reason = "its end is awaited here, or is of no interest to anybody"
    )]
    let begun = tokio::spawn(beginning).await;
    match begun {
        Ok(begun) => begun.map_err(query(doing)),
        Err(source) => Err(StoreError::Query {
            doing,
            source: source.into(),
        }),
    }
}

async fn act_for(connection: &mut PgConnection, tenant: TenantId) -> Result<DateTime<Utc>, StoreError> {
    let row = sqlx::query!(
        r#"/* act_for */ SELECT set_config('app.tenant_id', $1, true) AS "tenant!", clock_timestamp() AS "now!""#,
        tenant.to_string()
    );
    let row = row
        .fetch_one(connection)
        .await
        .map_err(query("name the tenant"))?;
    Ok(row.now)
}

fn options(url: &str) -> Result<PgConnectOptions, StoreError> {
    // The reason would quote the address, with its password.
    let options = PgConnectOptions::from_str(url).map_err(|_| StoreError::Open {
        place: "of the settings".to_owned(),
        source: "its address is not of the form postgres://USER:PASSWORD@HOST:PORT/DATABASE".into(),
    })?;
    Ok(options
        .application_name("mayfly")
        .options(SESSION.iter().copied())
        .statement_cache_capacity(256))
}

/// Where a database is, without credentials.
pub(crate) fn place(options: &PgConnectOptions) -> String {
    format!(
        "{}:{}/{}",
        options.get_host(),
        options.get_port(),
        options.get_database().unwrap_or_else(|| options.get_username())
    )
}

fn pool(options: PgConnectOptions, connections: u32, suspicion: &Arc<Suspicion>) -> PgPool {
    let suspicion = Arc::clone(suspicion);
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(CONNECTION_WAIT)
        .test_before_acquire(false)
        .after_connect(|connection, _| {
            Box::pin(async move {
                if takes_writes(connection).await? {
                    Ok(())
                } else {
                    Err(sqlx::Error::Configuration(READ_ONLY.into()))
                }
            })
        })
        .before_acquire(move |connection, seen| {
            let suspicion = Arc::clone(&suspicion);
            Box::pin(async move {
                if seen.idle_for < IDLE_UNSEEN && !suspicion.is_about(seen.age) {
                    return Ok(true);
                }
                // One that can't answer is given up, and another is taken.
                let answered = tokio::time::timeout(CONNECTION_WAIT / 2, takes_writes(connection)).await;
                Ok(matches!(answered, Ok(Ok(true))))
            })
        })
        .connect_lazy_with(options)
}

const READ_ONLY: &str = "it takes no writes: it is a standby, or was made read-only";

async fn takes_writes(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"/* takes_writes */
         SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off' AS "writable!""#
    )
    .fetch_one(connection)
    .await
}

/// Refuses a database that is not for this program, and a role that could do more than its own part.
async fn check(pool: &PgPool, place: &str, role: &'static str, other: &str) -> Result<(), StoreError> {
    let failed = |source: Source| StoreError::Open {
        place: place.to_owned(),
        source,
    };
    let mut connection = pool.acquire().await.map_err(|error| failed(error.into()))?;
    let server = sqlx::query!(
        r#"/* check */
         SELECT current_user::text AS "name!", r.rolsuper OR r.rolbypassrls AS "above!",
                current_setting('synchronous_commit') AS "synchronous_commit!",
                to_regclass('public.schema_reader') IS NOT NULL AS "migrated!",
                (SELECT count(*) FROM pg_roles WHERE rolname IN ('mayfly_api', 'mayfly_engine')) AS "roles!"
           FROM pg_roles r WHERE r.rolname = current_user"#
    )
    .fetch_one(&mut *connection)
    .await
    .map_err(|error| failed(error.into()))?;
    if !server.migrated || server.roles < 2 {
        return Err(failed(
            "it is not set up: run `mayfly migrate` as its owner first".into(),
        ));
    }
    let name = server.name;
    if server.above {
        let why = format!(
            "the role {name} is a superuser or has BYPASSRLS, and row-level security would not bind it"
        );
        return Err(failed(why.into()));
    }
    if server.synchronous_commit == "off" {
        let why = "synchronous_commit is off: what is accepted could be lost";
        return Err(failed(why.into()));
    }
    let rights = sqlx::query!(
        r#"/* check */
         SELECT pg_has_role(current_user, $1, 'USAGE') AS "own!", pg_has_role(current_user, $2, 'USAGE') AS "other!",
                EXISTS (SELECT 1 FROM pg_class c
                         WHERE c.relnamespace = 'public'::regnamespace AND pg_has_role(current_user, c.relowner, 'USAGE'))
                    AS "owner!""#,
        role,
        other
    )
    .fetch_one(&mut *connection)
    .await
    .map_err(|error| failed(error.into()))?;
    if !rights.own {
        return Err(failed(
            format!("the role {name} is neither {role} nor a member of it").into(),
        ));
    }
    if rights.other {
        return Err(failed(
            format!("the role {name} is both of {role} and of {other}").into(),
        ));
    }
    if rights.owner {
        return Err(failed(
            format!("the role {name} owns tables, and could change what guards them").into(),
        ));
    }
    refuse_schema(&mut connection, place).await
}

async fn refuse_schema(connection: &mut PgConnection, place: &str) -> Result<(), StoreError> {
    let schema = sqlx::query!("/* refuse_schema */ SELECT version, min_reader FROM schema_reader")
        .fetch_one(connection)
        .await
        .map_err(|error| StoreError::Open {
            place: place.to_owned(),
            source: error.into(),
        })?;
    if schema.min_reader > SCHEMA {
        return Err(StoreError::NewerSchema {
            place: place.to_owned(),
            needed: schema.min_reader,
            ours: SCHEMA,
        });
    }
    if schema.version < SCHEMA {
        return Err(StoreError::Open {
            place: place.to_owned(),
            source: format!(
                "it has schema {}, and this program needs {SCHEMA}: run `mayfly migrate` as its owner first",
                schema.version
            )
            .into(),
        });
    }
    Ok(())
}

/// Whether a connection of before this is no longer to be trusted: cut, ended by the server, or to one that takes no
/// writes (25006), as after a failover.
fn is_of_the_connection(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::Tls(_) => true,
        sqlx::Error::Database(error) => error
            .code()
            .is_some_and(|code| code == "25006" || code.starts_with("57P") || code.starts_with("08")),
        _ => false,
    }
}

/// Names what a failed statement was for, and whether it was the statement that is at fault.
pub(crate) fn query(doing: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
    move |source| {
        if is_refusal(&source) {
            StoreError::Refused {
                doing,
                source: source.into(),
            }
        } else {
            StoreError::Query {
                doing,
                source: source.into(),
            }
        }
    }
}

/// Whether the database refuses these very values, so that trying again is of no use (PostgreSQL, Appendix A): data
/// exceptions (class 22), integrity constraints and our triggers (23), limits of a value (54). All else is trouble of the
/// database, a missing right included, which an operator mends.
fn is_refusal(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| ["22", "23", "54"].iter().any(|class| code.starts_with(class)))
}

/// A write that must change so many rows: each has what has to be true of its row before. The records that it was decided
/// on were read under the locks of the same transaction, so that anything else is a fault of ours, and rolls it back.
pub(crate) fn expect_rows(
    done: Result<sqlx::postgres::PgQueryResult, sqlx::Error>,
    rows: usize,
    doing: &'static str,
) -> Result<(), StoreError> {
    let done = done.map_err(query(doing))?;
    if usize::try_from(done.rows_affected()) == Ok(rows) {
        return Ok(());
    }
    Err(refused(
        doing,
        format!(
            "{} rows were as the change takes for granted, instead of {rows}",
            done.rows_affected()
        ),
    ))
}

pub(crate) fn refused(doing: &'static str, why: String) -> StoreError {
    StoreError::Refused {
        doing,
        source: why.into(),
    }
}

/// Text that was stored as bytes, since it may hold U+0000.
pub(crate) fn text(column: Column, bytes: Vec<u8>) -> Result<String, StoreError> {
    String::from_utf8(bytes).map_err(|error| column.corrupt(error))
}
