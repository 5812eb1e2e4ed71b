//! Databases that are not set up, not ours, not for us; roles that could do more than their part; a server that takes no
//! writes any more.

use std::sync::Arc;

use chrono::DateTime;
use mayfly_core::chain::Chain;
use mayfly_store::{
    contract::bench::{Bench, POOL, Plan},
    error::StoreError,
    seam::JobStore as _,
};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};

use super::{Server, texts};
use crate::{Passwords, PostgresStore, Settings, migrate, testing::TestDatabase};

async fn refusal(settings: &Settings) -> StoreError {
    match PostgresStore::open(settings).await {
        Ok(_) => panic!("it is refused"),
        Err(error) => error,
    }
}

/// No part of an address that is a secret stands in what is said of it.
fn assert_discreet(error: &StoreError, urls: &[&str]) {
    let text = format!("{} {error:?}", Chain(error));
    for url in urls {
        let password = url
            .split(':')
            .nth(2)
            .and_then(|rest| rest.split('@').next())
            .unwrap();
        assert!(!text.contains(password) && !text.contains(url), "{text}");
    }
}

#[tokio::test]
async fn an_empty_database_is_migrated_once_however_often_and_then_opens() {
    let Some(database) = TestDatabase::create_empty().await else {
        return;
    };
    let error = refusal(&database.settings()).await;
    assert!(
        Chain(&error).to_string().contains("mayfly migrate"),
        "{}",
        Chain(&error)
    );
    assert_discreet(&error, &[&database.api_url(), &database.engine_url()]);
    let passwords = Passwords::default();
    let owner = database.owner_url();
    let (one, two) = tokio::join!(migrate(&owner, &passwords), migrate(&owner, &passwords));
    one.unwrap();
    two.unwrap();
    migrate(&owner, &passwords).await.unwrap();
    let store = PostgresStore::open(&database.settings()).await.unwrap();
    let now = DateTime::UNIX_EPOCH;
    store.submit(Plan::once().job(now), now).await.unwrap();
    assert!(store.place().ends_with(database.name()));
    assert_eq!(store.make_partitions().await.unwrap(), 0, "they are there");
}

#[tokio::test]
async fn another_programs_database_is_refused_and_untouched() {
    let Some(database) = TestDatabase::create_empty().await else {
        return;
    };
    let mut owner = sqlx::PgConnection::connect(&database.owner_url()).await.unwrap();
    owner.execute("CREATE TABLE customers (name text)").await.unwrap();
    let error = migrate(&database.owner_url(), &Passwords::default())
        .await
        .unwrap_err();
    assert!(
        Chain(&error).to_string().contains("another program"),
        "{}",
        Chain(&error)
    );
    assert_discreet(&error, &[&database.owner_url()]);
    let tables = texts(
        &mut owner,
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace",
    )
    .await;
    assert_eq!(tables, ["customers"]);
}

#[tokio::test]
async fn a_schema_that_needs_a_newer_program_is_refused_and_one_that_serves_older_ones_is_not() {
    let Some(server) = Server::new().await else { return };
    let mut superuser = server.superuser().await;
    superuser
        .execute(
            "UPDATE schema_reader SET version = 99;
             INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
             VALUES (99990101000000, 'of a newer program', true, '\\x00', 0)",
        )
        .await
        .unwrap();
    PostgresStore::open(&server.database.settings()).await.unwrap();
    migrate(&server.database.owner_url(), &Passwords::default())
        .await
        .unwrap();
    superuser
        .execute("UPDATE schema_reader SET min_reader = 99")
        .await
        .unwrap();
    for error in [
        refusal(&server.database.settings()).await,
        migrate(&server.database.owner_url(), &Passwords::default())
            .await
            .unwrap_err(),
    ] {
        assert!(
            matches!(error, StoreError::NewerSchema { needed: 99, .. }),
            "{error:?}"
        );
    }
    superuser
        .execute("UPDATE schema_reader SET min_reader = 0, version = 0")
        .await
        .unwrap();
    let error = refusal(&server.database.settings()).await;
    assert!(
        Chain(&error).to_string().contains("mayfly migrate"),
        "{}",
        Chain(&error)
    );
}

#[tokio::test]
async fn a_role_that_could_do_more_than_its_part_is_refused() {
    let Some(server) = Server::new().await else { return };
    let own = server.database.settings();
    let mut superuser = server.superuser().await;
    let role = format!("r_{}", server.database.name());
    let url = own.api_url.replace("//mayfly_api:", &format!("//{role}:"));
    let password = url
        .split(':')
        .nth(2)
        .unwrap()
        .split('@')
        .next()
        .unwrap()
        .to_owned();
    let make = format!("CREATE ROLE {role} LOGIN PASSWORD '{password}'");
    superuser.execute(AssertSqlSafe(make)).await.unwrap();
    let strange = Settings {
        api_url: url.clone(),
        ..own.clone()
    };
    let swapped = Settings {
        api_url: own.engine_url.clone(),
        engine_url: own.api_url.clone(),
        ..own.clone()
    };
    let as_owner = Settings {
        engine_url: server.database.owner_url(),
        ..own.clone()
    };
    for settings in [&strange, &swapped, &as_owner] {
        let error = refusal(settings).await;
        assert!(matches!(error, StoreError::Open { .. }), "{error:?}");
        assert_discreet(&error, &[&own.api_url, &own.engine_url]);
    }
    // A login role of the operator's own, as a member of one of the two; of both; and above the policies.
    let grant = format!("GRANT mayfly_api TO {role}");
    superuser.execute(AssertSqlSafe(grant)).await.unwrap();
    let store = PostgresStore::open(&strange).await.unwrap();
    let now = DateTime::UNIX_EPOCH;
    store.submit(Plan::once().job(now), now).await.unwrap();
    for (more, why) in [
        (format!("GRANT mayfly_engine TO {role}"), "both"),
        (
            format!("REVOKE mayfly_engine FROM {role}; ALTER ROLE {role} BYPASSRLS"),
            "BYPASSRLS",
        ),
        (
            format!("ALTER ROLE {role} NOBYPASSRLS; ALTER ROLE {role} SET synchronous_commit = off"),
            "synchronous_commit",
        ),
    ] {
        superuser.execute(AssertSqlSafe(more)).await.unwrap();
        let error = Chain(&refusal(&strange).await).to_string();
        assert!(error.contains(why), "{error}");
    }
    drop(store);
    let remove = format!("DROP ROLE {role}");
    superuser.execute(AssertSqlSafe(remove)).await.unwrap();
}

#[tokio::test]
async fn what_is_no_address_or_no_server_is_said_without_its_secret() {
    let Some(server) = Server::new().await else { return };
    let own = server.database.settings();
    for api_url in [
        "postgres//mayfly_api:s3cr3t@127.0.0.1/mayfly".to_owned(),
        "postgres://mayfly_api:s3cr3t@127.0.0.1:1/mayfly".to_owned(),
        own.api_url.replace("//mayfly_api:", "//mayfly_api:s3cr3t"),
    ] {
        let error = refusal(&Settings {
            api_url,
            ..own.clone()
        })
        .await;
        assert!(matches!(error, StoreError::Open { .. }), "{error:?}");
        assert!(
            !format!("{} {error:?}", Chain(&error)).contains("s3cr3t"),
            "{}",
            Chain(&error)
        );
    }
    let error = migrate(
        "postgres://",
        &Passwords {
            api: Some("with space".to_owned()),
            engine: None,
        },
    )
    .await
    .unwrap_err();
    assert!(!format!("{error:?}").contains("with space"), "{error:?}");
}

/// As after a failover: connections that are there lead to one that takes no writes, and new ones to another that does.
#[tokio::test]
async fn connections_to_a_server_that_takes_no_writes_any_more_are_given_up() {
    let Some(server) = Server::new().await else { return };
    let bench = Bench::new(Arc::new(server.clone())).await;
    bench.session().await;
    let store = server.store().await;
    // Its connections were made while new transactions were read-only by a setting of the database, which is then taken
    // back: so they stay what they were, and new ones are not.
    for pool in [&store.database.engine, store.database.catalog()] {
        let mut held = Vec::new();
        for _ in 0..4 {
            let mut connection = pool.acquire().await.unwrap();
            connection
                .execute("SET default_transaction_read_only = on")
                .await
                .unwrap();
            held.push(connection);
        }
    }
    let mut failures = 0;
    for _ in 0..10 {
        let job = Plan::once().job(bench.date());
        match store.submit(job, bench.date()).await {
            Ok(_) => break,
            Err(error) => {
                assert!(error.is_temporary(), "{error:?}");
                failures += 1;
            }
        }
    }
    assert_eq!(
        failures, 1,
        "one call finds out, and the next has another connection"
    );
    use mayfly_store::seam::DispatchStore as _;
    assert_eq!(store.dispatch(POOL, &bench.context()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_server_that_is_away_is_trouble_that_passes() {
    let Some(server) = Server::new().await else { return };
    let bench = Bench::new(Arc::new(server.clone())).await;
    let store = server.store().await;
    let name = server.database.name().to_owned();
    let mut elsewhere = server
        .database
        .superuser()
        .database("postgres")
        .connect()
        .await
        .unwrap();
    let close = format!(
        "ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false;
         SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    );
    for statement in close.split(';') {
        elsewhere
            .execute(AssertSqlSafe(statement.to_owned()))
            .await
            .unwrap();
    }
    let error = store
        .submit(Plan::once().job(bench.date()), bench.date())
        .await
        .unwrap_err();
    assert!(error.is_temporary(), "{error:?}");
    let open = format!("ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true");
    elsewhere.execute(AssertSqlSafe(open)).await.unwrap();
    let mut tries = 0;
    while let Err(error) = store.submit(Plan::once().job(bench.date()), bench.date()).await {
        assert!(error.is_temporary() && tries < 5, "{error:?}");
        tries += 1;
    }
}
