//! What a bench stands on: roles with databases of their own, the engine's floor, and the removal of all of it.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use mayfly_core::{
    digest::Digest,
    id::ExecutorId,
    image::ImageName,
    job::{Blob, JobSpec, Language, ResolvedJob, RetryPolicy, Source, Times},
    limits::LimitsAsked,
    outcome::EndState,
    run::Origin,
};
use mayfly_sandbox::{DockerSandbox, floor::Floor, seam::NoLiveOutput};
use mayfly_settings::{PoolImage, PoolSettings, ServerSettings};
use mayfly_store::{records::JobDetails, seam::JobStore as _};
use mayfly_store_sqlite::SqliteStore;
use tempfile::TempDir;

#[cfg(feature = "fleet")]
use super::http::Door;
use super::{args::SubjectArgs, machine::Machine, report::Subject};
use crate::{
    context::Session,
    embedded::{Embedded, Submission},
    exit,
    failure::Failure,
    run,
    uids::UidLock,
};

/// What runs where no program is named.
const BUILT_IN: &str = "print(6 * 7)\n";
/// Most of a program that is given to a container as a part of its command, which the kernel holds to 128 KiB.
const MAX_PROGRAM: usize = 96 << 10;
/// How long the machine may take to come to rest between two runs.
const REST_LIMIT: Duration = Duration::from_secs(120);
/// How often it is looked whether it has.
const REST_POLL: Duration = Duration::from_millis(25);

/// All that is run, and on what.
pub(crate) struct Ground {
    pub(crate) job: ResolvedJob,
    pub(crate) subject: Subject,
    pub(crate) machine: Machine,
    /// Where the engine is, if the settings say so.
    pub(crate) engine_address: Option<String>,
    sandboxes: Arc<DockerSandbox>,
    pub(crate) floor: Floor,
    /// Whose the containers of the floor and of the engine's command line are.
    floor_owner: ExecutorId,
    pub(crate) cold: Rig,
    /// Nothing where no pool was asked for.
    pub(crate) warm: Option<Rig>,
    /// The syscall filter as a file, where the engine's command line can be given one.
    pub(crate) filter: Option<PathBuf>,
    folder: TempDir,
    _uids: UidLock,
}

/// The roles of a fleet with a database of their own.
pub(crate) struct Rig {
    embedded: Embedded,
    /// Sandboxes that it keeps ready.
    pool: u32,
    /// By which it is reached over HTTP; nothing where it is not.
    #[cfg(feature = "fleet")]
    door: Option<Door>,
    _uids: UidLock,
}

/// One job that went the whole way.
pub(crate) struct Gone {
    /// From right before the submission until the committed outcome was read.
    pub(crate) took: Duration,
    details: JobDetails,
}

impl Gone {
    /// Whether its sandbox had waited for it.
    pub(crate) fn was_warm(&self) -> bool {
        let facts = self.details.report().and_then(|report| report.sandbox.as_ref());
        facts.is_some_and(|facts| matches!(facts.origin, Origin::Warm { .. }))
    }

    /// Whether it ran in an interpreter that was started before it was known.
    pub(crate) fn was_booted(&self) -> bool {
        let facts = self.details.report().and_then(|report| report.sandbox.as_ref());
        facts
            .and_then(|facts| facts.warm.as_ref())
            .is_some_and(|warm| warm.used)
    }

    /// What the program printed.
    pub(crate) fn stdout_bytes(&self) -> u64 {
        self.details
            .report()
            .map_or(0, |report| report.stdout.count.bytes)
    }

    /// Where the time went, by the stamps of the record.
    pub(crate) fn parts(&self) -> Vec<(&'static str, Duration)> {
        let submitted = self.details.job.submitted_at;
        let Some(granted) = self
            .details
            .attempts
            .last()
            .and_then(|attempt| attempt.started_at)
        else {
            return Vec::new();
        };
        let Some((sent, ended)) = self
            .details
            .report()
            .and_then(|report| Some((report.started_at?, report.ended_at)))
        else {
            return Vec::new();
        };
        // A wall clock may be set back meanwhile; nothing is then told of that part.
        let between = |from: DateTime<Utc>, to: DateTime<Utc>| (to - from).to_std().unwrap_or_default();
        vec![
            ("submit, dispatch, ask", between(submitted, granted)),
            ("grant, sandbox ready, send", between(granted, sent)),
            ("run", between(sent, ended)),
            (
                "report, commit, read",
                self.took.saturating_sub(between(submitted, ended)),
            ),
        ]
    }
}

/// What is to be run, known before anything is made.
pub(crate) struct Plan {
    spec: JobSpec,
    job: ResolvedJob,
    subject: Subject,
    command: Vec<String>,
}

impl Plan {
    /// Reads the program and finds the image, which is pulled or built where there is none, as for a run.
    pub(crate) async fn of(session: &Session, args: &SubjectArgs) -> Result<Self, Failure> {
        let program = Program::read(args.program.as_deref())?;
        let default = &session.settings.image.default;
        let image = match &args.image {
            Some(image) => image.clone(),
            None => default.parse::<ImageName>().map_err(Failure::usage)?,
        };
        let engine = session.engine().await?;
        let pin = session.catalog(&engine).resolve(&image).await?;
        let command = program.command();
        let subject = Subject {
            program: program.name.clone(),
            program_bytes: program.text.len(),
            program_digest: Digest::of(program.text.as_bytes()).to_string(),
            image: image.to_string(),
            image_digest: pin.digest.to_string(),
            runtime: String::new(),
            pool: args.pool,
        };
        let spec = program.spec(image, args.runtime.clone());
        let job = spec
            .clone()
            .resolve(&session.settings.policy, pin, &mayfly_sandbox::baseline_digest())
            .map_err(Failure::usage)?;
        let subject = Subject {
            runtime: job.runtime.clone(),
            ..subject
        };
        Ok(Self {
            spec,
            job,
            subject,
            command,
        })
    }
}

impl Ground {
    /// Makes everything that is needed. What was made is removed again where not all of it can be.
    pub(crate) async fn lay(session: &Session, plan: Plan, slots: u32) -> Result<Self, Failure> {
        let Plan {
            spec,
            job,
            subject,
            command,
        } = plan;
        let folder = folder_beside(&session.settings.store.path)?;
        let (sandboxes, uids) = session.sandboxes().await?;
        let floor_owner = ExecutorId::new();
        let floor = sandboxes
            .floor(&job, command, floor_owner)
            .await
            .map_err(|error| Failure::new(exit::INTERNAL, error))?;
        let filter = match floor.filter() {
            Some(filter) => Some(write(folder.path().join("filter.json"), filter)?),
            None => None,
        };
        let machine = Machine::look(sandboxes.engine().facts(), folder.path());
        let cold = Rig::start(session, folder.path(), slots, &job, 0, None).await?;
        let warm = match subject.pool {
            0 => None,
            pool => match Rig::start(session, folder.path(), slots, &job, pool, Some(spec)).await {
                Ok(warm) => Some(warm),
                Err(failure) => {
                    cold.end().await;
                    return Err(failure);
                }
            },
        };
        Ok(Self {
            job,
            subject,
            machine,
            engine_address: session.address().map(ToOwned::to_owned),
            sandboxes,
            floor,
            floor_owner,
            cold,
            warm,
            filter,
            folder,
            _uids: uids,
        })
    }

    /// Whether it is reached over HTTP, or why not.
    pub(crate) fn over_http(&self) -> Result<(), &'static str> {
        #[cfg(feature = "fleet")]
        return match &self.warm {
            None => Err("--pool 0"),
            Some(Rig { door: None, .. }) => Err("the API knows images by the catalog alone"),
            Some(_) => Ok(()),
        };
        #[cfg(not(feature = "fleet"))]
        Err("this mayfly has no API: it was built without the fleet")
    }

    /// Waits until nothing is going on: the pool is full, and nothing is being made or removed.
    pub(crate) async fn rest(&self) -> Result<(), Failure> {
        let full = |rig: &Rig| match rig.embedded.pool_counts() {
            Some(counts) => counts.ready == rig.pool && counts.starting == 0,
            None => true,
        };
        self.until(|there, pool| there == pool, full).await
    }

    /// Waits until no container is left of what was run. A pool may be on its way to be full again.
    pub(crate) async fn removed(&self) -> Result<(), Failure> {
        self.until(|there, pool| there <= pool, |_| true).await
    }

    /// Waits until this is so of how many containers each owner has and how many it keeps, and of each rig.
    async fn until(
        &self,
        containers: impl Fn(usize, usize) -> bool,
        rig: impl Fn(&Rig) -> bool,
    ) -> Result<(), Failure> {
        let limit = Instant::now() + REST_LIMIT;
        loop {
            let mut so = self.rigs().all(&rig);
            for (owner, keeps) in self.owners() {
                so = so && containers(self.sandboxes.containers_of(owner).await?, keeps);
            }
            if so {
                return Ok(());
            }
            if Instant::now() > limit {
                let error = anyhow::anyhow!(
                    "the engine did not come to rest within {} s: the pool is not full, or containers are not removed",
                    REST_LIMIT.as_secs()
                );
                return Err(Failure::new(exit::INTERNAL, error));
            }
            tokio::time::sleep(REST_POLL).await;
        }
    }

    fn rigs(&self) -> impl Iterator<Item = &Rig> {
        [Some(&self.cold), self.warm.as_ref()].into_iter().flatten()
    }

    /// Whose containers there are, and how many each keeps.
    fn owners(&self) -> Vec<(ExecutorId, usize)> {
        let rigs = self
            .rigs()
            .map(|rig| (rig.embedded.executor(), rig.pool as usize));
        rigs.chain([(self.floor_owner, 0)]).collect()
    }

    /// Ends the roles and removes everything that was made.
    pub(crate) async fn clear(self) -> Result<(), Failure> {
        let owners = self.owners();
        self.cold.end().await;
        if let Some(warm) = self.warm {
            warm.end().await;
        }
        // What the floor and the engine's command line leave where they are broken off; the roles leave nothing.
        let mut removed = Ok(());
        for (owner, _) in owners {
            if let Err(error) = self.sandboxes.remove_containers_of(owner).await {
                removed = Err(error);
            }
        }
        removed?;
        let path = self.folder.path().to_owned();
        self.folder.close().map_err(|error| {
            let error = anyhow::Error::new(error).context(format!("{} can't be removed", path.display()));
            Failure::new(exit::NO_STORE, error)
        })
    }
}

impl Rig {
    async fn start(
        session: &Session,
        folder: &Path,
        slots: u32,
        job: &ResolvedJob,
        pool: u32,
        over_http: Option<JobSpec>,
    ) -> Result<Self, Failure> {
        let path = folder.join(format!("pool-{pool}.db"));
        let store = Arc::new(SqliteStore::open(&path).await?);
        if let ImageName::Catalog(name) = &job.image {
            store.pin_image(name, &job.pin, None, session.clock.now()).await?;
        }
        let mut settings = session.settings.clone();
        settings.store.path = path;
        // On loopback, at a port that is free.
        settings.server = ServerSettings {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            ..ServerSettings::default()
        };
        // The pool keeps what a job gets that asks for nothing but its image, in the runtime that is usual.
        settings.policy.runtimes = vec![job.runtime.clone()];
        let kept = BTreeMap::from([(
            job.image.to_string(),
            PoolImage {
                min: pool,
                ..PoolImage::default()
            },
        )]);
        settings.pool = PoolSettings {
            size: pool,
            max: pool.max(1),
            images: kept,
            // A pool starts the interpreter for Python alone, and keeps its sandboxes for Python then.
            python: settings.pool.python && job.argv.first().is_some_and(|program| program == "python3"),
            ..settings.pool
        };
        let own = Session {
            settings,
            store,
            clock: Arc::clone(&session.clock),
        };
        let started = own
            .embedded(slots, Arc::new(NoLiveOutput), &own.settings.pool)
            .await;
        let (embedded, uids) = started?;
        #[cfg(not(feature = "fleet"))]
        let _ = over_http;
        #[cfg(feature = "fleet")]
        let door = match over_http {
            // The API knows images by the catalog alone.
            Some(spec) if matches!(job.image, ImageName::Catalog(_)) => {
                match Door::open(&own, &embedded, spec).await {
                    Ok(door) => Some(door),
                    Err(failure) => {
                        embedded.stop().await;
                        return Err(failure);
                    }
                }
            }
            _ => None,
        };
        Ok(Self {
            embedded,
            pool,
            #[cfg(feature = "fleet")]
            door,
            _uids: uids,
        })
    }

    async fn end(self) {
        #[cfg(feature = "fleet")]
        if let Some(door) = self.door {
            door.close().await;
        }
        self.embedded.stop().await;
    }

    /// Runs the same by one request over HTTP.
    #[cfg(feature = "fleet")]
    pub(crate) async fn run_over_http(&self) -> Result<Gone, Failure> {
        let door = self
            .door
            .as_ref()
            .expect("it is asked first whether there is one");
        let (took, id) = door.run().await?;
        let details = self.embedded.wait(id).await?;
        Ok(Gone { took, details })
    }

    #[cfg(not(feature = "fleet"))]
    pub(crate) async fn run_over_http(&self) -> Result<Gone, Failure> {
        unreachable!("it is asked first whether there is an API")
    }

    /// Runs a job: submitted, dispatched, granted, run in a sandbox that was read back twice, and its outcome committed.
    pub(crate) async fn run(&self, job: &ResolvedJob) -> Result<Gone, Failure> {
        let submission = Submission {
            resolved: job.clone(),
            labels: Default::default(),
            priority: 0,
            times: Times::default(),
            retain_source: true,
        };
        let begun = Instant::now();
        let id = self.embedded.submit(submission).await?;
        let details = self.embedded.wait(id).await?;
        let took = begun.elapsed();
        if details.job.outcome.as_ref().map(|outcome| outcome.state) != Some(EndState::Succeeded) {
            let outcome = details
                .job
                .outcome
                .as_ref()
                .map(|outcome| (outcome.state, outcome.cause));
            let error = anyhow::anyhow!("a job of the bench did not succeed: {outcome:?}");
            return Err(Failure::new(exit::INTERNAL, error));
        }
        Ok(Gone { took, details })
    }
}

/// The program.
struct Program {
    name: String,
    language: Language,
    text: String,
}

impl Program {
    fn read(file: Option<&Path>) -> Result<Self, Failure> {
        let Some(file) = file else {
            return Ok(Self {
                name: "built in, prints 6 * 7".to_owned(),
                language: Language::Python,
                text: BUILT_IN.to_owned(),
            });
        };
        let about = |why: &str| Failure::usage(format!("--program {}: {why}", file.display()));
        let bytes = run::read(file)?;
        if bytes.len() > MAX_PROGRAM {
            return Err(about("more than 96 KiB, which no container's command can hold"));
        }
        let text = String::from_utf8(bytes).map_err(|_| about("not UTF-8"))?;
        if text.contains('\0') {
            return Err(about("a NUL, which no container's command can hold"));
        }
        let shell = file.extension().is_some_and(|extension| extension == "sh");
        Ok(Self {
            // Its folder is nobody's business who reads the figures.
            name: file
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            language: if shell { Language::Shell } else { Language::Python },
            text,
        })
    }

    /// The job. It is tried once: a bench hides no failure.
    fn spec(&self, image: ImageName, runtime: Option<String>) -> JobSpec {
        JobSpec {
            image,
            source: Some(Source {
                language: self.language,
                text: Blob::from(self.text.clone().into_bytes()),
            }),
            command: None,
            files: Vec::new(),
            archives: Vec::new(),
            uploads: Vec::new(),
            args: Vec::new(),
            stdin: None,
            env: Default::default(),
            secrets: Default::default(),
            secret_files: Default::default(),
            limits: LimitsAsked::default(),
            network: None,
            egress: Vec::new(),
            runtime,
            artifacts: Vec::new(),
            artifacts_after: Default::default(),
            labels: Default::default(),
            retry: RetryPolicy {
                max_attempts: 1,
                on: Vec::new(),
            },
            expires_after: None,
            not_before: None,
            priority: 0,
            retain_source: true,
        }
    }

    /// The same as a container's own command.
    fn command(&self) -> Vec<String> {
        let interpreter = match self.language {
            Language::Python => "python3",
            Language::Shell => "sh",
        };
        [interpreter, "-c", &self.text].map(ToOwned::to_owned).to_vec()
    }
}

/// A folder beside the user's database, so that commits reach the same disk.
fn folder_beside(database: &Path) -> Result<TempDir, Failure> {
    let beside = database.parent().unwrap_or(Path::new("."));
    tempfile::Builder::new()
        .prefix("bench-")
        .tempdir_in(beside)
        .map_err(|error| {
            let error =
                anyhow::Error::new(error).context(format!("no folder can be made in {}", beside.display()));
            Failure::new(exit::NO_STORE, error)
        })
}

fn write(path: PathBuf, text: &str) -> Result<PathBuf, Failure> {
    match std::fs::write(&path, text) {
        Ok(()) => Ok(path),
        Err(error) => {
            let error = anyhow::Error::new(error).context(format!("{} can't be written", path.display()));
            Err(Failure::new(exit::NO_STORE, error))
        }
    }
}
