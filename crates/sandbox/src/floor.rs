//! The engine's own floor: the same program in a container of the same settings, with no guest in it, no read-back and
//! no record. A bench compares sandboxes with it, and with the same by the engine's own command line; nothing else uses
//! it.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use bollard::{container::LogOutput, models::ContainerCreateBody};
use futures_util::StreamExt;
use mayfly_core::{
    id::{ExecutorId, SandboxId},
    job::ResolvedJob,
};

use crate::{
    baseline::{CreateInputs, WORK, create_body, job_environment, label},
    container::Container,
    docker::{DockerSandbox, Shared},
    engine::Attached,
    error::EngineError,
    seam::{PrepareError, SandboxRequest},
    uids::UidLease,
};

mod docker_run;

/// How long a program may take beyond its wall limit, which nobody enforces here.
const WAIT_MARGIN: Duration = Duration::from_secs(30);

/// One program in containers without a guest.
pub struct Floor {
    shared: Arc<Shared>,
    request: SandboxRequest,
    command: Vec<String>,
    environment: Vec<String>,
    guest_volume: String,
}

/// One run on the floor, and what each call to the engine took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FloorRun {
    /// Until the container was created.
    pub create: Duration,
    /// Until its streams were attached.
    pub attach: Duration,
    /// Until it was started.
    pub start: Duration,
    /// Until the program had ended, and its output had.
    pub wait: Duration,
    /// Until the container was removed.
    pub remove: Duration,
    /// The program's exit code.
    pub exit_code: i64,
    /// How much it wrote to its standard output.
    pub stdout_bytes: u64,
}

impl FloorRun {
    /// The whole of it.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.create + self.attach + self.start + self.wait + self.remove
    }
}

/// A run of the same program by the engine's command line.
#[derive(Debug)]
pub struct DockerRun {
    arguments: Vec<String>,
    lease: UidLease,
}

impl DockerRun {
    /// The arguments of the engine's command line.
    #[must_use]
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// The container has been removed.
    pub fn removed(self) {
        self.lease.free();
    }
}

impl DockerSandbox {
    /// The floor for a job: `command` is its program as a container's own command, since nobody puts files into a
    /// container without a guest. `executor` is whose containers they are, by their labels.
    ///
    /// # Errors
    /// An image that is not on the engine, trouble with it, or an engine whose command line can't be given the filter.
    pub async fn floor(
        &self,
        job: &ResolvedJob,
        command: Vec<String>,
        executor: ExecutorId,
    ) -> Result<Floor, PrepareError> {
        let shared = Arc::clone(&self.shared);
        let request =
            SandboxRequest::for_job(job, executor, mayfly_core::id::SessionId::new(), Duration::ZERO);
        let image = shared.image(&request).await?;
        let image_env = image.config.and_then(|config| config.env).unwrap_or_default();
        let environment = job_environment(&job.limits, request.loopback, &image_env, job.variables())
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let guest_volume = shared
            .guest_volume(&request)
            .await
            .map_err(PrepareError::Engine)?;
        Ok(Floor {
            shared,
            request,
            command,
            environment,
            guest_volume,
        })
    }

    /// How many containers of an executor are there, ended ones included.
    ///
    /// # Errors
    /// Where the engine does not list them.
    pub async fn containers_of(&self, executor: ExecutorId) -> Result<usize, EngineError> {
        Ok(self.ids_of(executor).await?.len())
    }

    /// Removes every container of an executor, whatever state it is in, and says how many. For those whose makers are
    /// known to be gone: a living sandbox of that executor would be killed.
    ///
    /// # Errors
    /// Where the engine does not list them, or one can't be removed.
    pub async fn remove_containers_of(&self, executor: ExecutorId) -> Result<usize, EngineError> {
        let ids = self.ids_of(executor).await?;
        let mut removed = Ok(ids.len());
        for id in &ids {
            // One that is stuck does not keep the others.
            if let Err(error) = self.shared.engine.remove(id).await {
                removed = Err(error);
            }
        }
        removed
    }

    async fn ids_of(&self, executor: ExecutorId) -> Result<Vec<String>, EngineError> {
        let (engine, executor) = (&self.shared.engine, executor.to_string());
        let found = engine.containers_labelled(label::EXECUTOR, &executor).await?;
        Ok(found.into_iter().filter_map(|found| found.id).collect())
    }
}

impl Floor {
    /// Creates a container, attaches to it, starts it, waits for its end and removes it: what any client of the engine
    /// has to do for a container of its own.
    ///
    /// # Errors
    /// The engine's. A container that was created is removed, or left to the reaper.
    ///
    /// # Cancel safety
    /// None: a container may be left, for [`DockerSandbox::remove_containers_of`].
    pub async fn run(&self) -> Result<FloorRun, EngineError> {
        let engine = &self.shared.engine;
        let lease = self.lease()?;
        let request = self.request();
        let body = self.body(&request, &lease);
        let name = format!("mayfly-{}", request.sandbox_id);
        let held = self.shared.held.add(request.sandbox_id);
        let begun = Instant::now();
        let id = engine.create_container(&name, body).await?;
        let create = begun.elapsed();
        let container = Container::new(id, lease, held);
        let ran = self.started(&container.id).await;
        let ended = Instant::now();
        container.remove(&self.shared).await;
        let remove = ended.elapsed();
        ran.map(|run| FloorRun {
            create,
            remove,
            ..run
        })
    }

    async fn started(&self, container: &str) -> Result<FloorRun, EngineError> {
        let engine = &self.shared.engine;
        let mut last = Instant::now();
        let mut lap = || std::mem::replace(&mut last, Instant::now()).elapsed();
        let Attached { mut output, input } = engine.attach(container).await?;
        let attach = lap();
        engine.start(container).await?;
        // The program reads nothing.
        drop(input);
        let start = lap();
        let limit = self.request.limits.wall.as_duration() + WAIT_MARGIN;
        let read = async {
            let mut stdout_bytes = 0;
            while let Some(Ok(chunk)) = output.next().await {
                if let LogOutput::StdOut { message } = chunk {
                    stdout_bytes += message.len() as u64;
                }
            }
            stdout_bytes
        };
        // A stream that does not end is bounded by the program's end.
        let (exit_code, stdout_bytes) = tokio::join!(
            engine.exit_code(container, limit),
            tokio::time::timeout(limit, read)
        );
        Ok(FloorRun {
            create: Duration::ZERO,
            attach,
            start,
            wait: lap(),
            remove: Duration::ZERO,
            exit_code: exit_code?,
            stdout_bytes: stdout_bytes.unwrap_or(0),
        })
    }

    /// The same run by the engine's command line; `filter` is where [`Floor::filter`] was put. What that command line
    /// has no words for is left out: the paths of `/proc` and `/sys` that are hidden beyond the engine's own.
    ///
    /// # Errors
    /// Where no uid is free.
    pub fn docker_run(&self, filter: &Path) -> Result<DockerRun, EngineError> {
        let lease = self.lease()?;
        let body = self.body(&self.request(), &lease);
        Ok(DockerRun {
            arguments: docker_run::arguments(&body, filter),
            lease,
        })
    }

    /// The syscall filter, as the engine's command line reads it from a file; `None` where it has another way.
    #[must_use]
    pub fn filter(&self) -> Option<&str> {
        (!self.shared.engine.facts().podman).then(|| self.shared.filters.of(self.request.loopback).value())
    }

    fn lease(&self) -> Result<UidLease, EngineError> {
        let uids = &self.shared.uids;
        uids.take(Instant::now()).ok_or(EngineError::NoUid(uids.pairs()))
    }

    fn request(&self) -> SandboxRequest {
        SandboxRequest {
            sandbox_id: SandboxId::new(),
            ..self.request.clone()
        }
    }

    /// The request for a sandbox, with the program in the guest's place, as the user that it would have.
    fn body(&self, request: &SandboxRequest, lease: &UidLease) -> ContainerCreateBody {
        let shared = &self.shared;
        let uids = lease.pair();
        let sandbox = create_body(&CreateInputs {
            request,
            engine: shared.engine.facts(),
            deployment: &shared.deployment,
            expires: shared.expires(request),
            uids,
            guest_volume: &self.guest_volume,
            filter: shared.filters.of(request.loopback).value(),
            image_env: &[],
        });
        ContainerCreateBody {
            entrypoint: Some(self.command.clone()),
            env: Some(self.environment.clone()),
            user: Some(format!("{0}:{0}", uids.job)),
            working_dir: Some(WORK.to_owned()),
            ..sandbox
        }
    }
}
