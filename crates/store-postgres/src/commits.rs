//! Commits of other processes: told and heard by LISTEN and NOTIFY, beside the transactions and not inside them, where a
//! NOTIFY would make commits wait for each other.

use std::time::Duration;

use mayfly_store::error::{Source, StoreError};
use sqlx::postgres::PgListener;
use uuid::Uuid;

use crate::database::{Database, query};

const CHANNEL: &str = "mayfly_commits";
/// Commits within this time are told together.
const TOGETHER: Duration = Duration::from_millis(2);
/// Until the next try after trouble.
const AGAIN: Duration = Duration::from_secs(1);

/// Relays for as long as it is polled. Trouble is logged, and ends nothing.
pub(crate) async fn relay(database: &Database) {
    // By which this process knows its own word.
    let name = Uuid::new_v4().to_string();
    tokio::join!(hear(database, &name), tell(database, &name));
}

async fn hear(database: &Database, own: &str) {
    loop {
        if let Err(error) = listen(database, own).await {
            tracing::warn!(
                error = %mayfly_core::chain::Chain(&*error),
                "commits of other processes are not heard; listening again"
            );
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn listen(database: &Database, own: &str) -> Result<(), Source> {
    let mut listener = PgListener::connect_with(&database.relay).await?;
    listener.listen(CHANNEL).await?;
    loop {
        // Whatever was said while nobody listened is lost, so that everybody looks for himself.
        database.commits.send_modify(|count| *count += 1);
        while let Some(said) = listener.try_recv().await? {
            if said.payload() != own {
                database.commits.send_modify(|count| *count += 1);
            }
        }
    }
}

async fn tell(database: &Database, own: &str) {
    let mut commits = database.own_commits.subscribe();
    // The store is there for as long as it is borrowed here.
    while commits.changed().await.is_ok() {
        commits.borrow_and_update();
        if let Err(error) = notify(database, own).await {
            tracing::warn!(
                error = %mayfly_core::chain::Chain(&error),
                "other processes are not told of a commit; they find it by their timers"
            );
            tokio::time::sleep(AGAIN).await;
        }
        tokio::time::sleep(TOGETHER).await;
    }
}

async fn notify(database: &Database, own: &str) -> Result<(), StoreError> {
    // Nothing of it has to be on a disk.
    sqlx::query!(
        "/* notify */ SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)",
        CHANNEL,
        own
    )
    .fetch_one(&database.relay)
    .await
    .map_err(query("tell of a commit"))?;
    Ok(())
}
