//! The one implementation of the seam: sandboxes on a container engine.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bollard::models::{ContainerCreateBody, ImageInspect};
use mayfly_core::{
    clock::Clock,
    digest::{Digest, canonical_json},
    id::ExecutorId,
    outcome::{Mismatch, MismatchSource},
    run::{Origin, SandboxFacts},
};
use mayfly_failpoints::{Point, reach};
use mayfly_protocol::{FromGuest, ReadyReport};
use tokio_util::task::TaskTracker;

use crate::{
    baseline::{CreateInputs, create_body},
    channel::{Channel, ChannelError},
    container::{Container, Owed},
    engine::{Engine, EngineFacts},
    error::{EngineError, chain},
    guest_binary::GuestBinary,
    guest_volume,
    host::{FoundHost, Host},
    ready::ReadyContainer,
    reaper::{self, Held, Leftovers, Swept},
    seam::{PrepareError, ReadySandbox, Sandbox, SandboxConfig, SandboxRequest},
    syscalls::Filters,
    uids::Uids,
    verify::{Findings, inspect, report},
    warm::{self, Warmth},
};

/// How long a guest may take from the container's start to its report.
const READY_LIMIT: Duration = Duration::from_secs(10);
/// How long a sandbox may wait for one that is being destroyed to give its uids back.
const UID_LIMIT: Duration = Duration::from_secs(20);
/// Longest time between a container's creation and the end that its label says, beside idling and running: preparing,
/// killing and removing.
const LABEL_MARGIN_S: i64 = 300;

/// Sandboxes on one container engine.
///
/// Tasks: one per living sandbox, which writes to its guest's stdin (see the crate's `channel`), and one that waits for the
/// engine's words about itself (see `host`).
pub struct DockerSandbox {
    pub(crate) shared: Arc<Shared>,
}

/// What all sandboxes of an executor share.
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) kill_grace: Duration,
    pub(crate) tasks: TaskTracker,
    pub(crate) deployment: String,
    pub(crate) uids: Arc<Uids>,
    pub(crate) held: Arc<Held>,
    /// What is still to be removed.
    pub(crate) owed: Owed,
    pub(crate) host: Host,
    guest: GuestBinary,
    /// Name of the guest's volume, once it is known to hold the guest; none again when a start fails.
    volume: tokio::sync::Mutex<Option<String>>,
    pub(crate) filters: Filters,
}

impl std::fmt::Debug for DockerSandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DockerSandbox")
            .field("engine", self.engine().facts())
            .finish_non_exhaustive()
    }
}

impl DockerSandbox {
    /// Connects to the engine. Nothing is created on it before the first sandbox.
    ///
    /// # Errors
    /// [`EngineError::Unreachable`] and [`EngineError::TimedOut`] where no engine answers, [`EngineError::NoGuest`] and
    /// [`EngineError::GuestFile`] where there is no guest for its architecture.
    pub async fn connect(config: SandboxConfig, clock: Arc<dyn Clock>) -> Result<Arc<Self>, EngineError> {
        let engine = Engine::connect(config.engine.as_deref()).await?;
        let guest = GuestBinary::select(engine.facts(), config.guest.as_deref())?;
        let filters = Filters::for_engine(engine.facts())?;
        let host = Host::begin(engine.clone(), config.host_check, Arc::clone(&clock)).await;
        Ok(Arc::new(Self {
            shared: Arc::new(Shared {
                engine,
                clock,
                kill_grace: config.kill_grace,
                tasks: TaskTracker::new(),
                deployment: config.deployment,
                uids: Uids::new(config.uids),
                held: Arc::default(),
                owed: Owed::default(),
                host,
                guest,
                volume: tokio::sync::Mutex::new(None),
                filters,
            }),
        }))
    }

    /// The engine, for what is not about sandboxes: images, facts for a record.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    /// What the host is now, by its engine's newest word, and what the check makes of it.
    ///
    /// # Errors
    /// [`EngineError::TimedOut`] where an engine that is back has not said in time what it is.
    pub async fn host(&self) -> Result<Arc<FoundHost>, EngineError> {
        self.shared.host.now().await
    }

    /// Looks at the host at once.
    ///
    /// # Errors
    /// Where the engine does not say what it is.
    pub async fn look_at_host(&self) -> Result<Arc<FoundHost>, EngineError> {
        self.shared.host.look().await
    }

    /// Resolves when the host is known to be another than this one: its engine is back as another version, with another
    /// configuration, or the check comes to something else.
    ///
    /// # Cancel safety
    /// Call it again: it goes on.
    pub async fn host_differs_from(&self, host: &FoundHost) {
        self.shared.host.differs_from(host).await;
    }

    /// Digest of the guest's binary and the files beside it.
    #[must_use]
    pub fn guest_digest(&self) -> Digest {
        self.shared.guest.digest()
    }

    /// Removes what executors of this deployment left behind: containers past the end that their label says, ended for
    /// over 30 s, or created and not started for over 60 s. Safe beside living executors. Call it at the start and on
    /// a timer.
    ///
    /// # Errors
    /// Where the engine does not list its containers. One that can't be removed is counted, and no error.
    pub async fn sweep(&self) -> Result<Swept, EngineError> {
        let shared = &self.shared;
        reaper::sweep(&shared.engine, &shared.deployment, shared.clock.now()).await
    }

    /// What of this deployment is on the engine, without touching any of it.
    ///
    /// # Errors
    /// Where the engine does not list its containers.
    pub async fn leftovers(&self) -> Result<Leftovers, EngineError> {
        let shared = &self.shared;
        reaper::look(&shared.engine, &shared.deployment, shared.clock.now()).await
    }

    /// Waits until the tasks of all sandboxes have ended. Sandboxes that are still held keep it waiting.
    pub async fn drained(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

#[async_trait]
impl Sandbox for DockerSandbox {
    async fn prepare(&self, request: SandboxRequest) -> Result<Box<dyn ReadySandbox>, PrepareError> {
        let shared = &self.shared;
        let host = shared.host.now().await.map_err(PrepareError::Engine)?;
        host.admits().map_err(PrepareError::Engine)?;
        let facts = &host.engine;
        if !facts.runtimes.contains(&request.runtime) {
            return Err(PrepareError::RuntimeUnavailable(request.runtime));
        }
        refuse_rootless_without_limits(facts)?;
        refuse_more_cpus_than_there_are(facts, &request)?;
        let image = shared.image(&request).await?;
        let volume = shared
            .guest_volume(&request)
            .await
            .map_err(PrepareError::Engine)?;
        // Last of all, so that no pair has to rest for a container that was never made.
        let lease = shared.uids.wait(UID_LIMIT).await;
        let lease = lease.ok_or(PrepareError::Engine(EngineError::NoUid(shared.uids.pairs())))?;
        let image_env = image.config.and_then(|config| config.env).unwrap_or_default();
        let body = create_body(&CreateInputs {
            request: &request,
            engine: facts,
            deployment: &shared.deployment,
            expires: shared.expires(&request),
            uids: lease.pair(),
            guest_volume: &volume,
            filter: shared.filters.of(request.loopback).value(),
            image_env: &image_env,
        });
        let name = format!("mayfly-{}", request.sandbox_id);
        let held = shared.held.add(request.sandbox_id);
        let created = shared.engine.create_container(&name, body.clone()).await;
        let container = match created {
            Ok(id) => Container::new(id, lease, held),
            Err(error) => {
                // A creation that was not answered may yet have happened.
                let unknown = Container::new(name, lease, held);
                unknown.remove(shared).await;
                return Err(PrepareError::Engine(error));
            }
        };
        let begun = match shared.begin(&container, &request, &body, &volume, &host).await {
            Ok((mut channel, mut facts)) => {
                reach(Point::ContainerStarted);
                match warm::boot(&mut channel, &request, &image_env).await {
                    Ok(warm) => {
                        facts.warm = warm.as_ref().map(Warmth::facts);
                        Ok((channel, facts, warm))
                    }
                    Err(error) => Err(PrepareError::Engine(error)),
                }
            }
            Err(error) => Err(error),
        };
        match begun {
            Ok((channel, facts, warm)) => Ok(Box::new(ReadyContainer {
                shared: Arc::clone(shared),
                container,
                channel,
                facts,
                loopback: request.loopback,
                image_env,
                warm,
            })),
            Err(error) => {
                container.remove(shared).await;
                Err(error)
            }
        }
    }

    /// It keeps none ready; what an engine that did not answer has not removed is given some more time.
    async fn drain(&self) {
        self.shared.owed.paid().await;
    }

    async fn remove_all_of(&self, executor: ExecutorId) -> Result<Swept, EngineError> {
        let shared = &self.shared;
        reaper::remove_all_of(&shared.engine, &shared.deployment, executor, &shared.held).await
    }
}

impl Shared {
    /// The pinned image, if it is on the engine and still the one that was pinned.
    pub(crate) async fn image(&self, request: &SandboxRequest) -> Result<ImageInspect, PrepareError> {
        let id = request.image.config_digest.to_string();
        let found = self.engine.find_image(&id).await.map_err(PrepareError::Engine)?;
        found.ok_or_else(|| PrepareError::ImageUnavailable(request.image.clone()))
    }

    pub(crate) async fn guest_volume(&self, request: &SandboxRequest) -> Result<String, EngineError> {
        let mut known = self.volume.lock().await;
        if let Some(name) = known.as_ref() {
            return Ok(name.clone());
        }
        let image = request.image.config_digest.to_string();
        let expires = self.clock.now().timestamp() + LABEL_MARGIN_S;
        let name = guest_volume::ensure(&self.engine, &self.guest, &image, &self.deployment, expires).await?;
        Ok(known.insert(name).clone())
    }

    /// When a container of this request is past its end, in seconds since 1970.
    pub(crate) fn expires(&self, request: &SandboxRequest) -> i64 {
        let longest = request.longest_idle + request.limits.wall.as_duration() + self.kill_grace;
        let longest = i64::try_from(longest.as_secs()).unwrap_or(i64::MAX / 2);
        self.clock
            .now()
            .timestamp()
            .saturating_add(longest)
            .saturating_add(LABEL_MARGIN_S)
    }

    /// Attaches, starts, and reads every setting back, twice.
    async fn begin(
        &self,
        container: &Container,
        request: &SandboxRequest,
        body: &ContainerCreateBody,
        volume: &str,
        host: &FoundHost,
    ) -> Result<(Channel, SandboxFacts), PrepareError> {
        reach(Point::ContainerCreated);
        let attached = self
            .engine
            .attach(&container.id)
            .await
            .map_err(PrepareError::Engine)?;
        let mut channel = Channel::open(attached, &self.tasks);
        // A container that was not made as asked for is not even started.
        let refuse = |findings: Findings| match findings.mismatches {
            mismatches if mismatches.is_empty() => Ok(()),
            mismatches => Err(PrepareError::Mismatch(mismatches)),
        };
        refuse(
            self.read_back(container, request, body, volume, &host.engine)
                .await?,
        )?;
        if let Err(error) = self.engine.start(&container.id).await {
            // The volume may have been pruned under us: look at it anew before the next start.
            *self.volume.lock().await = None;
            return Err(PrepareError::Engine(error));
        }
        let (report, by_engine) = tokio::join!(
            guest_report(&mut channel),
            self.read_back(container, request, body, volume, &host.engine)
        );
        refuse(by_engine?)?;
        let report = report.map_err(PrepareError::Engine)?;
        let expected = report::Expected {
            request,
            engine: &host.engine,
            uids: container.lease.pair(),
            build: self.guest.build(),
        };
        let by_guest = report::check(&expected, &report);
        let not_enforceable = by_guest.not_enforceable.clone();
        let user_namespace = report::user_namespace(&expected, &report);
        refuse(by_guest)?;
        let facts = SandboxFacts {
            sandbox_id: request.sandbox_id,
            origin: Origin::Cold,
            container_id: container.id.clone(),
            image: request.image.clone(),
            runtime: request.runtime.clone(),
            engine: host.engine.engine(),
            kernel: format!("{} {}", report.kernel.sysname, report.kernel.release),
            host: host.on_record(&request.runtime),
            user_namespace,
            in_force: request.limits,
            enforced_digest: Digest::of(&canonical_json(body)),
            filter_digest: self.filters.of(request.loopback).digest(),
            guest_digest: self.guest.digest(),
            not_enforceable,
            warm: None,
        };
        Ok((channel, facts))
    }

    /// What the engine says of the container, compared with what it was asked for.
    async fn read_back(
        &self,
        container: &Container,
        request: &SandboxRequest,
        body: &ContainerCreateBody,
        volume: &str,
        engine: &EngineFacts,
    ) -> Result<Findings, PrepareError> {
        let found = self
            .engine
            .inspect(&container.id)
            .await
            .map_err(PrepareError::Engine)?;
        Ok(inspect::check(body, &request.image, volume, engine, &found))
    }
}

/// The guest's first frame, in the time that it has for it.
async fn guest_report(channel: &mut Channel) -> Result<ReadyReport, EngineError> {
    let first = tokio::time::timeout(READY_LIMIT, channel.receive()).await;
    let failed = |channel: &Channel, what: String| {
        let complaint = channel.complaint();
        let more = if complaint.is_empty() {
            String::new()
        } else {
            format!("; it wrote: {complaint}")
        };
        Err(EngineError::Guest(format!("{what}{more}")))
    };
    match first {
        Ok(Ok(FromGuest::Ready(report))) => Ok(*report),
        // The conversation refuses any other frame first; this is how a new kind would show.
        Ok(Ok(frame)) => failed(channel, format!("it began with {}", frame.name())),
        Ok(Err(error @ (ChannelError::Closed | ChannelError::Broken(_)))) => failed(
            channel,
            format!("it ended before it was ready: {}", chain(&error)),
        ),
        Ok(Err(error)) => failed(channel, chain(&error)),
        Err(_) => failed(
            channel,
            format!("it was not ready within {} s", READY_LIMIT.as_secs()),
        ),
    }
}

/// Engines refuse that themselves, each in its own words and as a fault of the call; it is a limit that can't be had.
fn refuse_more_cpus_than_there_are(
    facts: &EngineFacts,
    request: &SandboxRequest,
) -> Result<(), PrepareError> {
    let millis = request.limits.cpu.as_millis();
    if facts.cpus == 0 || millis <= facts.cpus.saturating_mul(1000) {
        return Ok(());
    }
    Err(PrepareError::Mismatch(vec![Mismatch {
        source: MismatchSource::Inspect,
        field: "HostConfig.NanoCpus".to_owned(),
        asked: format!("{} CPUs", request.limits.cpu),
        found: format!("a host of {} CPUs", facts.cpus),
    }]))
}

/// Before anything is made: such an engine makes the container, with none of its limits.
fn refuse_rootless_without_limits(facts: &EngineFacts) -> Result<(), PrepareError> {
    let lacks = facts.rootless_lacks();
    if lacks.is_empty() {
        return Ok(());
    }
    let mismatches = lacks.into_iter().map(|lack| Mismatch {
        source: MismatchSource::Inspect,
        field: format!("info.{}", lack.field),
        asked: lack.needed.to_owned(),
        found: lack.found,
    });
    Err(PrepareError::Mismatch(mismatches.collect()))
}
