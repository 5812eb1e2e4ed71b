//! `mayfly server`: the API, and for each of its pools scheduler, recorder and reconciler. Any number of replicas may run
//! beside each other: what only one may do at a time is decided in the database and by the broker.
//!
//! ```text
//! server
//! ├── API                    ends first: what is under way is answered
//! ├── dispatch × pools       scheduler, recorder, reconciler, reader of dead letters
//! ├── commits                tells other replicas of what is committed here, and hears of theirs
//! └── partitions             of the audit log, made ahead
//! ```

use std::{process::ExitCode, sync::Arc, time::Duration};

use mayfly_core::{chain::Chain, clock::Clock};
use mayfly_dispatch::{message::BlobPlaces, token::TokenKey};
use mayfly_queue::{rabbitmq::RabbitQueue, seam::Queue};
use mayfly_server::{Server, ServerParts, keep_sweeping_uploads};
use mayfly_settings::Settings;
use mayfly_store::seam::Store;
use mayfly_store_postgres::PostgresStore;
use mayfly_telemetry::SystemClock;
use mayfly_vault::Vault;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{
    api, broker, database,
    letters::Letters,
    seams::{BrokerFleet, BrokerOutput},
    vault,
};
use crate::{args::Common, context, embedded::Requests, exit, failure::Failure};

/// How long the roles may take to end once they are asked to.
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// How often partitions of the audit log are made ahead.
const PARTITIONS_EVERY: Duration = Duration::from_secs(6 * 3600);
/// The wait after a broker that could not be declared on, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A part of the server that has ended, by its name.
type Part = &'static str;

/// What all parts of a server share.
struct Ground {
    settings: Settings,
    store: Arc<PostgresStore>,
    queue: Arc<RabbitQueue>,
    clock: Arc<dyn Clock>,
    key: TokenKey,
    blobs: Option<BlobPlaces>,
    vault: Option<Arc<Vault>>,
}

pub(crate) async fn server(common: &Common) -> Result<ExitCode, Failure> {
    let mut requests = Requests::new();
    let settings = context::settings(context::service(common))?;
    let key = settings.server.token_key()?;
    let key = TokenKey::from_bytes(*mayfly_core::digest::Digest::of(key.expose().as_bytes()).as_bytes());
    let vault = vault::of_server(&settings)?;
    let queue = broker::connect(&settings.broker.amqp()?, "server")?;
    let store = tokio::select! {
        store = database::wait_for(&settings.database) => store?,
        () = requests.next() => return Ok(ExitCode::SUCCESS),
    };
    tracing::info!(database = store.place(), "the database is open");
    let blobs = api::blobs(&settings.server, &key);
    if blobs.is_none() {
        tracing::warn!(
            "`server.public_url` is not set: what jobs bring and write travels through the broker, however long it is"
        );
    }
    let ground = Ground {
        blobs,
        vault,
        settings,
        store,
        queue,
        clock: Arc::new(SystemClock),
        key,
    };
    ground.run(&mut requests).await
}

impl Ground {
    async fn run(self, requests: &mut Requests) -> Result<ExitCode, Failure> {
        let (stop, stop_api, failed) = (
            CancellationToken::new(),
            CancellationToken::new(),
            CancellationToken::new(),
        );
        let servers: Vec<Arc<Server>> = self
            .settings
            .server
            .pools
            .iter()
            .map(|pool| self.of_pool(pool))
            .collect();
        let api = api::serve(self.api(&servers[0]), stop_api.clone(), failed.clone()).await?;
        let mut parts = JoinSet::new();
        for server in servers {
            parts.spawn(dispatch(server, stop.clone()));
        }
        parts.spawn(commits(Arc::clone(&self.store), stop.clone()));
        parts.spawn(uploads(
            Arc::<PostgresStore>::clone(&self.store),
            Arc::clone(&self.clock),
            self.settings.uploads.keep.as_duration(),
            stop.clone(),
        ));
        parts.spawn(partitions(Arc::clone(&self.store), stop.clone()));
        let code = tokio::select! {
            () = requests.next() => exit::OK,
            () = failed.cancelled() => exit::INTERNAL,
            Some(ended) = parts.join_next() => {
                match ended {
                    Ok(part) => tracing::error!(part, "a part of the server has ended although nobody asked it to"),
                    Err(error) => tracing::error!(error = %Chain(&error), "a part of the server has panicked"),
                }
                exit::INTERNAL
            }
        };
        tracing::info!("the server stops");
        // The API first: what was accepted is committed by then, and whoever takes over dispatches it.
        stop_api.cancel();
        let grace = self.settings.server.grace.as_duration();
        if tokio::time::timeout(grace, api.task).await.is_err() {
            tracing::warn!("requests that were under way have been cut off");
        }
        stop.cancel();
        let ends = async { while parts.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_LIMIT, ends).await.is_err() {
            tracing::warn!(
                "not everything has ended in time; what is not committed is done again by another replica"
            );
        }
        tracing::info!("the server has ended");
        Ok(ExitCode::from(code))
    }

    fn api(&self, server: &Arc<Server>) -> api::Parts<'_> {
        let pool = self.settings.server.pools[0].clone();
        api::Parts {
            settings: &self.settings,
            store: Arc::<PostgresStore>::clone(&self.store),
            clock: Arc::clone(&self.clock),
            pool,
            server: Arc::clone(server),
            live: Arc::new(BrokerOutput {
                queue: Arc::<RabbitQueue>::clone(&self.queue),
                store: Arc::<PostgresStore>::clone(&self.store),
            }),
            fleet: Arc::new(BrokerFleet(Arc::<RabbitQueue>::clone(&self.queue))),
            dead_letters: Arc::new(Letters {
                store: Arc::<PostgresStore>::clone(&self.store),
                server: Arc::clone(server),
            }),
            keeps_artifacts: self.blobs.is_some(),
            vault: self.vault.clone(),
            health: Arc::new(api::Health {
                store: Arc::<PostgresStore>::clone(&self.store),
                queue: Arc::<RabbitQueue>::clone(&self.queue),
            }),
        }
    }

    fn of_pool(&self, pool: &str) -> Arc<Server> {
        Arc::new(Server::new(ServerParts {
            store: Arc::<PostgresStore>::clone(&self.store) as Arc<dyn Store>,
            queue: Arc::<RabbitQueue>::clone(&self.queue) as Arc<dyn Queue>,
            clock: Arc::clone(&self.clock),
            pool: pool.to_owned(),
            timing: super::timing(),
            key: self.key.clone(),
            blobs: self.blobs.clone(),
        }))
    }
}

/// Scheduler, recorder and reconciler of one pool. The broker may be away at first: jobs are accepted meanwhile.
async fn dispatch(server: Arc<Server>, stop: CancellationToken) -> Part {
    let mut pause = FIRST_PAUSE;
    while let Err(error) = server.declare().await {
        tracing::warn!(error = %Chain(&error), "the broker is not there yet; jobs are accepted and wait");
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
            () = stop.cancelled() => return "dispatch",
        }
    }
    if let Err(error) = server.run(stop).await {
        tracing::error!(error = %Chain(&error), "a pool is dispatched to no more");
    }
    "dispatch"
}

async fn commits(store: Arc<PostgresStore>, stop: CancellationToken) -> Part {
    tokio::select! {
        () = store.relay_commits() => {}
        () = stop.cancelled() => {}
    }
    "commits"
}

async fn uploads(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    keep: Duration,
    stop: CancellationToken,
) -> Part {
    keep_sweeping_uploads(store, clock, keep, stop).await;
    "uploads"
}

async fn partitions(store: Arc<PostgresStore>, stop: CancellationToken) -> Part {
    while !stop.is_cancelled() {
        tokio::select! {
            () = tokio::time::sleep(PARTITIONS_EVERY) => {}
            () = stop.cancelled() => break,
        }
        match store.make_partitions().await {
            Ok(made) => tracing::info!(made, "partitions of the audit log were made ahead"),
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "no partitions of the audit log could be made")
            }
        }
    }
    "partitions"
}
