//! `mayfly bench control-plane`: all of a fleet but the sandboxes, on its real PostgreSQL and RabbitMQ, with the server and
//! each executor as processes of their own.
//!
//! ```text
//! bench (this process)       submits over HTTP, looks at the database as its owner, reads /proc
//! ├── mayfly server          API, scheduler, recorder, reconciler of a pool of the bench's own
//! └── bench null-executor ×n all of an executor but the engine (`null`)
//! ```
//!
//! `load` is the tenant, `processes` what is used, `found` the report. Jobs, tenant and image stay in the database, as
//! they do: a bench wants one of its own.

mod found;
mod load;
mod null;
mod processes;
mod view;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use mayfly_api::ApiKey;
use mayfly_client::{Client, ClientConfig, ServerUrl};
use mayfly_core::{
    account::Role as KeyRole,
    clock::Clock,
    digest::{Digest, Salt},
    id::{JobId, TenantId},
    image::ImagePin,
    job::JobSpec,
    policy::Policy,
};
use mayfly_dispatch::{ledger::Context, timing::Timing, token::TokenKey};
use mayfly_queue::rabbitmq::{Load, RabbitConfig, RabbitQueue};
use mayfly_settings::Settings;
use mayfly_store::{
    accounts::{AccountStore as _, NewKey, NewTenant, Quotas},
    records::NewJob,
    seam::{DispatchStore as _, JobStore as _},
};
use mayfly_store_postgres::{
    PostgresStore,
    bench::{BenchDatabase, Snapshot},
};
use mayfly_telemetry::SystemClock;
use tokio_util::sync::CancellationToken;

use self::processes::{Reading, Role, Watched};
pub(crate) use self::{
    found::{Bare, ControlPlane, Record, Size},
    null::{Seen, executor as null_executor},
    view::{line, markdown, text},
};
use super::{
    args::ControlPlaneArgs,
    interrupted,
    machine::Host,
    report::SCHEMA,
    stats::{Times, rounded},
};
use crate::{
    args::Common, context, embedded::secret, exit, failure::Failure, fleet::database, progress::Step,
};

/// The image's name in the catalog. No engine ever sees it.
const IMAGE: &str = "bench-null";
/// Jobs that wait for their turn at most, so that a slow machine is not measured by its backlog.
const AHEAD: u64 = 4000;
/// Submissions, and ticks, at each size.
const SAMPLES: u32 = 200;
/// How long what is under way may take to end, and a process to begin.
const SETTLE: Duration = Duration::from_secs(120);
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(100);
/// How long a process may take to end.
const STOP: Duration = Duration::from_secs(60);
/// Least and most jobs of the bare parts: enough to be more than a moment, not more than a minute.
const BARE_JOBS: (u64, u64) = (500, 40_000);

pub(crate) fn internal(error: impl Into<anyhow::Error>) -> Failure {
    Failure::new(exit::INTERNAL, error)
}

/// The bench's own part of a fleet.
struct Ground {
    settings: Settings,
    database: BenchDatabase,
    store: Arc<PostgresStore>,
    client: Client,
    broker: RabbitConfig,
    clock: SystemClock,
    tenant: TenantId,
    pool: String,
    spec: JobSpec,
    pin: ImagePin,
}

/// The processes of it.
struct Fleet {
    server: Role,
    executors: Vec<Role>,
}

/// What the load has come to.
struct Loaded {
    seconds: f64,
    jobs: u64,
    times: load::Times,
    used: Vec<processes::Used>,
    commits_per_job: f64,
    rows_per_job: f64,
}

pub(crate) async fn measure(
    common: &Common,
    args: &ControlPlaneArgs,
    stop: &CancellationToken,
) -> Result<ControlPlane, Failure> {
    let begun = Instant::now();
    let mut host = Host::look();
    let (ground, mut fleet) = Ground::lay(common, args).await?;
    let measured = ground.measure(args, &mut fleet, stop).await;
    let seen = fleet.stop().await;
    let (loaded, sizes, record) = measured?;
    let seen = seen?;
    let bare = if args.no_bare {
        None
    } else {
        Some(ground.bare(args, &loaded, seen, record.accepted).await?)
    };
    ground
        .queue()?
        .remove_pool(&ground.pool)
        .await
        .map_err(|error| internal(anyhow::anyhow!(error)))?;
    host.ended();
    if !record.is_whole() {
        return Err(internal(anyhow::anyhow!(
            "the record is not whole, and the figures are worth nothing: {record:?}"
        )));
    }
    Ok(ControlPlane {
        schema: SCHEMA,
        command: command(args),
        at: ground.clock.now(),
        seconds: rounded(begun.elapsed().as_secs_f64()),
        host,
        load_seconds: rounded(loaded.seconds),
        jobs: loaded.jobs,
        jobs_per_second: rounded(rate(loaded.jobs, loaded.seconds)),
        submit_many_ms: Times::of(&loaded.times.bulk),
        submit_ms: Times::of(&loaded.times.single),
        used: loaded.used,
        messages: seen,
        commits_per_job: loaded.commits_per_job,
        rows_per_job: loaded.rows_per_job,
        record,
        sizes,
        bare,
    })
}

fn command(args: &ControlPlaneArgs) -> String {
    let mut command = format!(
        "mayfly bench control-plane --seconds {} --executors {} --slots {} --submitters {} --bulk {}",
        args.seconds, args.executors, args.slots, args.submitters, args.bulk
    );
    if let Some(stored) = args.stored {
        command.push_str(&format!(" --stored {stored}"));
    }
    if args.old_snapshot {
        command.push_str(" --old-snapshot");
    }
    if args.no_bare {
        command.push_str(" --no-bare");
    }
    command
}

#[expect(clippy::cast_precision_loss, reason = "no bench has 2^52 jobs")]
fn rate(jobs: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { jobs as f64 / seconds } else { 0.0 }
}

impl Ground {
    /// A tenant, a key, an image and a pool of the bench's own, and the processes of the fleet.
    async fn lay(common: &Common, args: &ControlPlaneArgs) -> Result<(Self, Fleet), Failure> {
        let settings = context::settings(context::service(common))?;
        let amqp = settings.broker.amqp()?;
        let database = BenchDatabase::open(settings.database.owner()?.expose()).await?;
        let store = database::wait_for(&settings.database).await?;
        let clock = SystemClock;
        let now = clock.now();
        let (tenant, key) = (TenantId::new(), ApiKey::generate());
        let name = format!("bench-{}", &uuid::Uuid::new_v4().simple().to_string()[..12]);
        let new = NewTenant {
            id: tenant,
            name: name.clone(),
            weight: 1,
            quotas: Quotas::default(),
        };
        store.create_tenant(new, None, now).await?;
        let new = NewKey {
            id: key.id(),
            tenant: Some(tenant),
            role: KeyRole::Submitter,
            name: name.clone(),
            secret: key.digest(),
            expires_at: None,
        };
        store.create_key(new, None, now).await?;
        let pin = pin();
        store.pin_image(IMAGE, &pin, None, now).await?;
        let port = free_port()?;
        let fleet = Fleet::start(common, &name, port, args)?;
        let client = Client::new(ClientConfig {
            server: ServerUrl::parse(&format!("http://127.0.0.1:{port}"), true).map_err(internal)?,
            key: Some(mayfly_client::ApiKey::new(&key.reveal()).map_err(internal)?),
            ca: None,
            timeout: SETTLE,
            patience: SETTLE,
            max_answer: 64 << 20,
        })
        .map_err(internal)?;
        let spec = serde_json::json!({ "image": IMAGE, "source": { "language": "python", "text": "print(6 * 7)\n" } });
        let ground = Self {
            broker: RabbitConfig {
                name: "mayfly bench".to_owned(),
                ..RabbitConfig::new(amqp.expose().to_owned())
            },
            settings,
            database,
            store,
            client,
            clock,
            tenant,
            pool: name,
            spec: serde_json::from_value(spec).map_err(internal)?,
            pin,
        };
        Ok((ground, fleet))
    }

    fn queue(&self) -> Result<RabbitQueue, Failure> {
        RabbitQueue::connect(self.broker.clone()).map_err(internal)
    }

    async fn measure(
        &self,
        args: &ControlPlaneArgs,
        fleet: &mut Fleet,
        stop: &CancellationToken,
    ) -> Result<(Loaded, Vec<Size>, Record), Failure> {
        {
            let _step = Step::begin("warming up".to_owned());
            load::singly(&self.client, &self.spec, SAMPLES).await?;
            self.settled(fleet, stop).await?;
        }
        let mut sizes = vec![self.size(None, fleet, stop).await?];
        if let Some(stored) = args.stored {
            let _step = Step::begin(format!("copying jobs until there are {stored}"));
            self.database.fill_up(self.tenant, stored).await?;
            sizes.push(self.size(None, fleet, stop).await?);
        }
        let snapshot = if args.old_snapshot {
            Some(self.database.snapshot().await?)
        } else {
            None
        };
        let loaded = self.load(args, fleet, stop).await?;
        if let Some(snapshot) = snapshot {
            sizes.push(self.size(Some(&snapshot), fleet, stop).await?);
        }
        let record = stop.run_until_cancelled(self.record()).await;
        let record = record.ok_or_else(interrupted)??;
        Ok((loaded, sizes, record))
    }

    /// Waits until every job has its end.
    async fn settled(&self, fleet: &mut Fleet, stop: &CancellationToken) -> Result<(), Failure> {
        let begun = Instant::now();
        while self.database.open_jobs(&self.pool).await? > 0 {
            if stop.is_cancelled() {
                return Err(interrupted());
            }
            if fleet.is_broken() {
                return Err(internal(anyhow::anyhow!(
                    "a process of the bench has ended before its time"
                )));
            }
            if begun.elapsed() > SETTLE {
                return Err(internal(anyhow::anyhow!(
                    "jobs have not ended in {} s",
                    SETTLE.as_secs()
                )));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    async fn load(
        &self,
        args: &ControlPlaneArgs,
        fleet: &mut Fleet,
        stop: &CancellationToken,
    ) -> Result<Loaded, Failure> {
        let plan = load::Plan {
            spec: self.spec.clone(),
            seconds: Duration::from_secs(args.seconds.into()),
            submitters: args.submitters,
            bulk: args.bulk,
            ahead: AHEAD,
        };
        let _step = Step::begin(format!("{} s of load", args.seconds));
        let watched = self.watched(fleet)?;
        let before: Vec<Reading> = watched.iter().map(|one| Reading::of(one.pid)).collect();
        let (activity, from, begun) = (
            self.database.activity().await?,
            self.database.now().await?,
            Instant::now(),
        );
        let times = load::put_on(&self.client, &plan, &self.database, &self.pool, stop).await?;
        let (seconds, to) = (begun.elapsed().as_secs_f64(), self.database.now().await?);
        let after: Vec<Reading> = watched.iter().map(|one| Reading::of(one.pid)).collect();
        let since = self.database.activity().await?;
        self.settled(fleet, stop).await?;
        let jobs = self.database.ended_between(self.tenant, from, to).await?;
        let used = watched.iter().zip(before).zip(after);
        let per_job =
            |count: i64| rounded(rate(u64::try_from(count).unwrap_or(0), 1.0) / rate(jobs.max(1), 1.0));
        Ok(Loaded {
            seconds,
            jobs,
            times,
            used: used
                .map(|((one, before), after)| after.since(before, &one.name, jobs))
                .collect(),
            commits_per_job: per_job(since.commits - activity.commits),
            rows_per_job: per_job(since.rows - activity.rows),
        })
    }

    /// The processes whose use is told; those of the services where they are on this host.
    fn watched(&self, fleet: &Fleet) -> Result<Vec<Watched>, Failure> {
        let named = |name: &str, pid| Watched {
            name: name.to_owned(),
            pid,
        };
        let mut watched = vec![named("server", fleet.server.pid()?)];
        for (number, executor) in (1..).zip(&fleet.executors) {
            watched.push(named(&format!("executor {number}"), executor.pid()?));
        }
        let engine = self.settings.database.engine()?;
        for (name, url) in [
            ("postgres", engine.expose()),
            ("rabbitmq", self.broker.url.as_str()),
        ] {
            watched.extend(
                port_of(url)
                    .and_then(processes::listener)
                    .map(|pid| named(name, pid)),
            );
        }
        // Without its children, which are the others.
        Ok(watched)
    }

    /// How long a submission and a dispatch take, with nothing else going on.
    async fn size(
        &self,
        snapshot: Option<&Snapshot>,
        fleet: &mut Fleet,
        stop: &CancellationToken,
    ) -> Result<Size, Failure> {
        let _step = Step::begin("submissions and ticks without load".to_owned());
        let submitted = load::singly(&self.client, &self.spec, SAMPLES).await?;
        self.settled(fleet, stop).await?;
        let dispatched = self.ticks().await?;
        Ok(Size {
            stored_jobs: self.database.stored().await?,
            snapshot_seconds: snapshot.map(|snapshot| rounded(snapshot.age().as_secs_f64())),
            submit_ms: Times::of(&submitted),
            dispatch_ms: Times::of(&dispatched),
        })
    }

    /// Dispatches two jobs, as many as a pool without executors has room for, again and again.
    async fn ticks(&self) -> Result<Vec<Duration>, Failure> {
        let pool = format!("{}-tick", self.pool);
        let key = TokenKey::from_bytes(secret());
        let context = || Context::new(self.clock.now().into(), Timing::standard(), key.clone(), 0);
        let mut times = Vec::new();
        for _ in 0..SAMPLES {
            let jobs: Vec<NewJob> = (0..2).map(|_| self.job(&pool)).collect::<Result<_, _>>()?;
            let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
            self.store.submit_many(jobs, self.clock.now()).await?;
            let begun = Instant::now();
            let messages = self.store.dispatch(&pool, &context()).await?;
            times.push(begun.elapsed());
            if messages.len() != ids.len() {
                let made = messages.len();
                return Err(internal(anyhow::anyhow!(
                    "a tick made {made} attempts instead of 2"
                )));
            }
            for id in ids {
                self.store.cancel(TenantId::LOCAL, id, &context()).await?;
            }
        }
        Ok(times)
    }

    /// A job that the bench's record does not count.
    fn job(&self, pool: &str) -> Result<NewJob, Failure> {
        let resolved = self.spec.clone().resolve(
            &Policy::default(),
            self.pin.clone(),
            &mayfly_sandbox::baseline_digest(),
        );
        let resolved = resolved
            .map_err(|faults| internal(anyhow::anyhow!("the bench's own job is refused: {faults:?}")))?;
        Ok(NewJob {
            id: JobId::new(),
            tenant: TenantId::LOCAL,
            pool: pool.to_owned(),
            resolved: Arc::new(resolved),
            labels: std::collections::BTreeMap::new(),
            priority: 0,
            not_before: None,
            expires_at: None,
            retain_source: true,
            salt: Salt::from_bytes(secret()),
            batch: None,
            idempotency: None,
        })
    }

    async fn record(&self) -> Result<Record, Failure> {
        let _step = Step::begin("looking at every job's record".to_owned());
        let found = self.database.found(self.tenant).await?;
        let (fetched, fetched_succeeded) = load::fetch_back(&self.client).await?;
        Ok(Record {
            accepted: found.jobs,
            ended: found.ended,
            succeeded: found.succeeded,
            results: found.results,
            wrong: found.wrong,
            events: found.events,
            fetched,
            fetched_succeeded,
        })
    }

    /// The bare broker and the bare database, at the same time, with what a job has cost of each.
    async fn bare(
        &self,
        args: &ControlPlaneArgs,
        loaded: &Loaded,
        seen: Seen,
        all: u64,
    ) -> Result<Bare, Failure> {
        let _step = Step::begin("the bare broker and the bare database".to_owned());
        let jobs = loaded.jobs.clamp(BARE_JOBS.0, BARE_JOBS.1);
        let share = |count: u64| (count.saturating_mul(jobs) / all.max(1)).max(1);
        let length = |bytes: u64, messages: u64| {
            usize::try_from(bytes / messages.max(1))
                .unwrap_or(usize::MAX)
                .clamp(1, 1 << 20)
        };
        let job = Load {
            messages: share(seen.deliveries),
            bytes: length(seen.delivered_bytes, seen.deliveries),
            acked_together: 1,
        };
        let events = Load {
            messages: share(seen.batches),
            bytes: length(seen.batch_bytes, seen.batches),
            acked_together: 64,
        };
        let pool = format!("{}-bare", self.pool);
        let content = job.bytes;
        let broker = async {
            let took = RabbitQueue::bare(&self.broker, &pool, job, events).await;
            took.map_err(|error| internal(anyhow::anyhow!(error)))
        };
        let database = async { Ok::<_, Failure>(self.database.bare(jobs, args.bulk, content).await?) };
        let (broker, database) = tokio::try_join!(broker, database)?;
        let ceiling = rate(jobs, broker.max(database).as_secs_f64());
        Ok(Bare {
            jobs,
            batch: args.bulk,
            broker_seconds: rounded(broker.as_secs_f64()),
            database_seconds: rounded(database.as_secs_f64()),
            jobs_per_second: rounded(ceiling),
            ratio: rounded(rate(loaded.jobs, loaded.seconds) / ceiling.max(f64::MIN_POSITIVE)),
        })
    }
}

impl Fleet {
    fn start(common: &Common, pool: &str, port: u16, args: &ControlPlaneArgs) -> Result<Self, Failure> {
        let key: String = Digest::of(&secret()).to_string();
        let server = [
            ("MAYFLY_SERVER__LISTEN", format!("127.0.0.1:{port}")),
            ("MAYFLY_SERVER__POOLS", pool.to_owned()),
            ("MAYFLY_SERVER__TOKEN_KEY", key),
        ];
        let slots = args.slots.to_string();
        let executor = ["bench", "null-executor", "--pool", pool, "--slots", &slots];
        Ok(Self {
            server: Role::start(common, &["server"], &server)?,
            executors: (0..args.executors)
                .map(|_| Role::start(common, &executor, &[]))
                .collect::<Result<_, _>>()?,
        })
    }

    fn is_broken(&mut self) -> bool {
        self.server.has_ended() || self.executors.iter_mut().any(Role::has_ended)
    }

    /// Ends all of them, the executors first, and says what those have seen together.
    async fn stop(self) -> Result<Seen, Failure> {
        let ends = self.executors.into_iter().map(|executor| executor.stop(STOP));
        let mut all = Seen::default();
        for printed in futures_util::future::join_all(ends).await {
            let seen: Seen = serde_json::from_slice(&printed?).map_err(internal)?;
            all.deliveries += seen.deliveries;
            all.delivered_bytes += seen.delivered_bytes;
            all.batches += seen.batches;
            all.batch_bytes += seen.batch_bytes;
            all.events += seen.events;
        }
        self.server.stop(STOP).await?;
        Ok(all)
    }
}

/// A port that nothing listens on now.
fn free_port() -> Result<u16, Failure> {
    let socket = std::net::TcpListener::bind(("127.0.0.1", 0)).map_err(internal)?;
    Ok(socket.local_addr().map_err(internal)?.port())
}

/// The port of an address on this host.
fn port_of(url: &str) -> Option<u16> {
    let authority = url.split_once("://")?.1.split(['/', '?']).next()?;
    let (host, port) = authority
        .rsplit_once('@')
        .map_or(authority, |(_, place)| place)
        .rsplit_once(':')?;
    matches!(host, "127.0.0.1" | "localhost" | "[::1]").then(|| port.parse().ok())?
}

/// A digest that no image has.
fn pin() -> ImagePin {
    let digest = Digest::of(b"mayfly bench: no image");
    ImagePin {
        reference: "none: a bench".to_owned(),
        digest,
        config_digest: digest,
        platform: "linux/amd64".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_service_of_this_host_has_processes_here() {
        assert_eq!(port_of("postgres://a:b@127.0.0.1:5433/d?x=y"), Some(5433));
        assert_eq!(port_of("amqp://a:b%40@localhost:5672/%2f"), Some(5672));
        assert_eq!(port_of("amqp://a:b@broker:5672/%2f"), None);
        assert_eq!(port_of("amqp://localhost"), None);
    }
}
