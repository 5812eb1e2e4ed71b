//! `mayfly executor`: takes jobs of one pool from the broker, runs each in a sandbox of its own, reports.
//!
//! It has no database and no secret but its user of the broker, and the credentials that its operator gives it for its jobs' requests. Before it takes a job its images are here, its host is fit,
//! and no other process on this host is the same executor.

use std::{collections::BTreeMap, process::ExitCode, sync::Arc, time::Duration};

use mayfly_core::{chain::Chain, clock::Clock, id::ExecutorId, image::ImagePin};
use mayfly_dispatch::{
    executor::Config,
    message::{ExecutorFacts, VERSION},
};
use mayfly_executor::{Executor, ExecutorParts, HttpBlobs, Outside, Relay, SelfTests};
use mayfly_queue::seam::Queue;
use mayfly_sandbox::{DockerSandbox, pool::WarmPool, seam::Sandbox};
use mayfly_settings::Settings;
use mayfly_telemetry::SystemClock;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    broker,
    fitness::{self, Fitness},
    images,
    life::Running,
    lock,
};
use crate::{
    args::Common,
    context, credentials,
    embedded::Requests,
    exit,
    failure::Failure,
    own,
    pool::{self, PoolParts},
    uids::UidLock,
};

// The settings hold to a bound of the protocol, which they know nothing of.
const _: () = assert!(mayfly_settings::MOST_IMAGES == mayfly_dispatch::message::MAX_IMAGES);

/// How often what others have left behind is looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// A host that is ready to take jobs.
struct Host {
    sandbox: Arc<DockerSandbox>,
    images: BTreeMap<String, ImagePin>,
    /// Until the executor has them.
    self_tests: Option<SelfTests>,
    /// The uids of its sandboxes are this process's for as long as this is held.
    _uids: UidLock,
}

pub(crate) async fn executor(common: &Common) -> Result<ExitCode, Failure> {
    let mut requests = Requests::new();
    let settings = context::settings(context::service(common))?;
    let id = settings.executor.id()?;
    let address = settings.broker.amqp()?;
    // What is wrong with them is said before anything is begun.
    let credentials = credentials::of(&settings)?;
    let _lock = lock::take(id)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let host = tokio::select! {
        host = Host::prepare(&settings, &clock) => host?,
        // It has begun nothing that would have to end.
        () = requests.next() => return Ok(ExitCode::SUCCESS),
    };
    let broker = [address.expose()];
    let own = tokio::select! {
        own = own::addresses(&settings, &broker) => own?,
        () = requests.next() => return Ok(ExitCode::SUCCESS),
    };
    let outside = Outside::of_host(own).with_credentials(credentials);
    let queue = broker::connect(&address, "executor")?;
    let running = host.run(&settings, id, queue, (clock, outside))?;
    Ok(running.until_its_end(&mut requests).await)
}

impl Host {
    async fn prepare(settings: &Settings, clock: &Arc<dyn Clock>) -> Result<Self, Failure> {
        settings.pool.fits_beside(settings.executor.slots)?;
        let check = fitness::host_check(settings)?;
        let (sandbox, uids) = context::sandboxes(&settings.sandbox, check, clock).await?;
        let images = images::ready(settings, sandbox.engine()).await?;
        let fitness = Fitness::of(settings, &sandbox, clock, &images).await?;
        let self_tests = fitness.begin(settings).await;
        Ok(Self {
            sandbox,
            images,
            self_tests: Some(self_tests),
            _uids: uids,
        })
    }

    /// Where sandboxes come from: the engine, or a pool of warm ones on it.
    fn source(&self, settings: &Settings, executor: ExecutorId) -> Result<Arc<dyn Sandbox>, Failure> {
        if settings.pool.is_off() {
            return Ok(Arc::<DockerSandbox>::clone(&self.sandbox));
        }
        let config = pool::config(&PoolParts {
            pool: &settings.pool,
            policy: &settings.policy,
            engine: self.sandbox.engine(),
            executor,
            pins: &self.images,
        })?;
        Ok(WarmPool::start(
            Arc::<DockerSandbox>::clone(&self.sandbox),
            config,
        ))
    }

    fn facts(&self) -> ExecutorFacts {
        let engine = self.sandbox.engine().facts();
        ExecutorFacts {
            build: env!("CARGO_PKG_VERSION").to_owned(),
            reads: VERSION,
            host: engine.details.host_name.clone(),
            engine: format!("{} {}", engine.name, engine.version),
            kernel: engine.kernel.clone(),
            images: Some(self.images.values().map(|pin| pin.digest).collect()),
        }
    }

    /// Begins to take jobs.
    fn run(
        mut self,
        settings: &Settings,
        id: ExecutorId,
        queue: Arc<dyn Queue>,
        (clock, outside): (Arc<dyn Clock>, Outside),
    ) -> Result<Running, Failure> {
        let blobs = HttpBlobs::new().map_err(|error| Failure::new(exit::INTERNAL, error))?;
        let executor = Executor::new(ExecutorParts {
            blobs: Arc::new(blobs),
            config: Config {
                executor: id,
                pool: settings.executor.pool.clone(),
                slots: settings.executor.slots,
                facts: self.facts(),
                timing: super::timing(),
            },
            queue,
            sandbox: self.source(settings, id)?,
            clock,
            outside,
            listeners: Arc::new(Relay::default()),
            self_tests: self.self_tests.take(),
        });
        let (drain, abort) = (CancellationToken::new(), CancellationToken::new());
        tracing::info!(executor.id = %id, executor.pool = settings.executor.pool, "the executor begins");
        let tasks = TaskTracker::new();
        let role = tasks.spawn({
            let (drain, abort) = (drain.clone(), abort.clone());
            async move {
                let swept = CancellationToken::new();
                let sweeper =
                    tokio::task::JoinSet::from_iter([sweep(Arc::clone(&self.sandbox), swept.clone())]);
                executor.run(drain, abort).await;
                swept.cancel();
                sweeper.join_all().await;
                tracing::info!("the executor has ended");
                drop(self);
            }
        });
        Ok(Running {
            role,
            drain,
            abort,
            grace: settings.executor.grace.as_duration(),
        })
    }
}

/// Removes what executors of this deployment have left behind, now and then. A living one's are never touched.
async fn sweep(sandbox: Arc<DockerSandbox>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        match sandbox.sweep().await {
            Ok(swept) if swept.removed > 0 => tracing::info!(swept.removed, "removed what was left behind"),
            Ok(_) => {}
            Err(error) => tracing::warn!(error = %Chain(&error), "could not look for what was left behind"),
        }
        tokio::select! {
            () = tokio::time::sleep(SWEEP_EVERY) => {}
            () = stop.cancelled() => {}
        }
    }
}
