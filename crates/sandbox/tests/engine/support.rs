//! An engine, an image, and jobs for it.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{File, OpenOptions},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use bollard::{Docker, query_parameters as query};
use chrono::{DateTime, Utc};
use mayfly_core::{
    clock::Clock,
    digest::Digest,
    id::{ExecutorId, SessionId},
    image::{ImageName, ImagePin},
    job::{Blob, InputFile, ResolvedJob, RetryPolicy},
    limits::{LimitRules, Limits, LimitsAsked},
    outcome::KilledFor,
    policy::{Network, OnOutputLimit},
    run::RunReport,
};
use mayfly_sandbox::{
    DockerSandbox, HostCheck,
    images::Images,
    redaction::{Matcher, Matchers},
    seam::{LiveOutput, NoLiveOutput, Run, RunEnd, Sandbox, SandboxConfig, SandboxRequest, UidRange},
};
use tokio::sync::watch;

/// How the build of our image names it.
const IMAGE: &str = "mayfly/python";

struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> DateTime<Utc> {
        let since_1970 = std::time::UNIX_EPOCH.elapsed().unwrap();
        DateTime::from_timestamp_nanos(i64::try_from(since_1970.as_nanos()).unwrap())
    }

    fn since_boot(&self) -> Duration {
        unreachable!("sandboxes judge nothing by it")
    }
}

/// One executor's sandboxes on the machine's engine, with labels of this test alone.
pub(crate) struct Bench {
    pub(crate) sandboxes: Arc<DockerSandbox>,
    pub(crate) image: ImagePin,
    pub(crate) deployment: String,
    executor: ExecutorId,
    session: SessionId,
    config: SandboxConfig,
    _uids: UidLock,
}

/// The engine's address, where the tests are told one.
pub(crate) fn address() -> Option<String> {
    std::env::var("DOCKER_HOST").ok()
}

/// The runtime, where the tests are told one.
pub(crate) fn runtime() -> String {
    std::env::var("MAYFLY_TEST_RUNTIME").unwrap_or_else(|_| "runc".to_owned())
}

/// Whether the suite runs on gVisor, whose expectations differ in places: each says why there.
pub(crate) fn on_gvisor() -> bool {
    runtime() == "runsc"
}

/// A client of the tests' own, to look at what is on the engine.
pub(crate) async fn docker() -> Docker {
    Docker::connect_with_defaults()
        .unwrap()
        .negotiate_version()
        .await
        .unwrap()
}

/// The same at this address of a socket.
async fn docker_at(address: &str) -> Docker {
    let path = address.strip_prefix("unix://").unwrap();
    Docker::connect_with_unix(path, 120, bollard::API_DEFAULT_VERSION)
        .unwrap()
        .negotiate_version()
        .await
        .unwrap()
}

/// Says that no engine answers. Where one answered when the run began (`scripts/test` says so), that is a failure: an
/// engine that hangs would otherwise turn every test into one that was left out.
pub(crate) fn no_engine(why: &str) {
    assert!(
        std::env::var_os("MAYFLY_TEST_ENGINE").is_none(),
        "the engine answered when the tests began, and does no more: {why}"
    );
    skipped(&format!("no container engine: {why}"));
}

/// Says that a test was not run, and why.
pub(crate) fn skipped(why: &str) {
    eprintln!("skipped: {why}");
    if let Some(log) = std::env::var_os("MAYFLY_SKIP_LOG") {
        use std::io::Write as _;
        let log = OpenOptions::new().append(true).create(true).open(log);
        writeln!(log.unwrap(), "sandbox: {why}").unwrap();
    }
}

/// An image of ours, if the engine has it.
async fn find_image(images: &Images, name: &str) -> Option<ImagePin> {
    let found = docker().await.list_images(Some(named(name))).await.unwrap();
    let id = found.first()?.id.clone();
    Some(images.pin(&id).await.unwrap())
}

fn named(image: &str) -> query::ListImagesOptions {
    query::ListImagesOptions {
        filters: Some(HashMap::from([("reference".to_owned(), vec![image.to_owned()])])),
        ..Default::default()
    }
}

impl Bench {
    /// The machine's engine with our image, or nothing where there is none; that is printed and counted.
    pub(crate) async fn set_up() -> Option<Self> {
        Self::at(address(), 128, None).await
    }

    /// The same with this many uids.
    pub(crate) async fn with_uids(uids: u32) -> Option<Self> {
        Self::at(address(), uids, None).await
    }

    /// The same with another guest than the one that was built in.
    pub(crate) async fn with_guest(guest: PathBuf) -> Option<Self> {
        Self::at(address(), 8, Some(guest)).await
    }

    /// A name of our image on the machine's engine.
    pub(crate) async fn image_name() -> Option<String> {
        let found = docker().await.list_images(Some(named(IMAGE))).await.ok()?;
        found.first()?.repo_tags.first().cloned()
    }

    /// The same at another address, with this many uids and maybe another guest.
    pub(crate) async fn at(engine: Option<String>, uids: u32, guest: Option<PathBuf>) -> Option<Self> {
        Self::of(engine, uids, guest, None).await
    }

    /// The same with another image of ours, or nothing where the engine does not have that, with what builds it.
    pub(crate) async fn with_image(name: &str, built_by: &str) -> Option<Self> {
        let mut bench = Self::set_up().await?;
        let images = Images::new(bench.sandboxes.engine().clone());
        let Some(image) = find_image(&images, name).await else {
            skipped(&format!("the engine has no image {name}; {built_by} builds it"));
            return None;
        };
        bench.image = image;
        Some(bench)
    }

    /// The same, where its host is judged by this.
    pub(crate) async fn with_check(check: HostCheck) -> Option<Self> {
        Self::of(address(), 8, None, Some(check)).await
    }

    async fn of(
        engine: Option<String>,
        uids: u32,
        guest: Option<PathBuf>,
        host_check: Option<HostCheck>,
    ) -> Option<Self> {
        let deployment = format!("test-{}", SessionId::new());
        let uids_lock = UidLock::take();
        let first = uids_lock.first;
        let config = SandboxConfig {
            engine,
            deployment: deployment.clone(),
            uids: UidRange { first, count: uids },
            guest,
            kill_grace: Duration::from_secs(2),
            host_check,
        };
        let sandboxes = match DockerSandbox::connect(config.clone(), Arc::new(SystemClock)).await {
            Ok(sandboxes) => sandboxes,
            Err(error) => {
                no_engine(&error.to_string());
                return None;
            }
        };
        let images = Images::new(sandboxes.engine().clone());
        let Some(image) = find_image(&images, IMAGE).await else {
            skipped("the engine has no image mayfly/python; `make image` builds it");
            return None;
        };
        Some(Self {
            sandboxes,
            image,
            deployment,
            executor: ExecutorId::new(),
            session: SessionId::new(),
            config,
            _uids: uids_lock,
        })
    }

    /// Sandboxes of the same deployment as another process has them.
    pub(crate) async fn another_process(&self) -> Arc<DockerSandbox> {
        let first = self.config.uids.first + self.config.uids.count;
        let config = SandboxConfig {
            uids: UidRange {
                first,
                ..self.config.uids
            },
            ..self.config.clone()
        };
        DockerSandbox::connect(config, Arc::new(SystemClock))
            .await
            .unwrap()
    }

    /// A job that runs this program, with the usual limits.
    pub(crate) fn python(&self, program: &str) -> ResolvedJob {
        self.job(&["python3", "main.py"], program)
    }

    /// A job that runs this command, with this text as `main.py` beside it.
    pub(crate) fn job(&self, argv: &[&str], program: &str) -> ResolvedJob {
        ResolvedJob {
            image: ImageName::Digest {
                repository: IMAGE.to_owned(),
                digest: self.image.digest,
            },
            pin: self.image.clone(),
            argv: argv.iter().map(|&arg| arg.to_owned()).collect(),
            files: vec![InputFile {
                path: "main.py".to_owned(),
                content: blob(program.as_bytes()),
                executable: false,
                mode: None,
            }],
            stdin: None,
            env: BTreeMap::new(),
            secrets: Default::default(),
            secret_files: Default::default(),
            fetched: Vec::new(),
            named_secrets: Default::default(),
            redaction: Default::default(),
            asked: LimitsAsked::default(),
            limits: LimitRules::default().defaults,
            network: Network::None,
            egress: None,
            runtime: runtime(),
            on_output_limit: OnOutputLimit::Truncate,
            artifacts: Vec::new(),
            artifacts_after: Default::default(),
            artifact_limits: None,
            retry: RetryPolicy::default(),
            policy_version: Digest::of(b"test"),
        }
    }

    /// What a sandbox for this job is asked for.
    pub(crate) fn request(&self, job: &ResolvedJob) -> SandboxRequest {
        SandboxRequest::for_job(job, self.executor, self.session, Duration::from_secs(60))
    }

    /// Runs a job, and makes sure that nothing of it is left.
    pub(crate) async fn run(&self, job: ResolvedJob) -> RunReport {
        self.run_with(job, Arc::new(NoLiveOutput), watch::channel(None).1)
            .await
    }

    /// Runs a job beside sandboxes that are still there.
    pub(crate) async fn run_keeping_others(&self, job: ResolvedJob) -> RunReport {
        let sandbox = self.sandboxes.prepare(self.request(&job)).await.unwrap();
        let run = Run {
            collect: None,
            fetched: None,
            egress: None,
            matcher: matcher(&job),
            job: Arc::new(job),
            stop: watch::channel(None).1,
            live: Arc::new(NoLiveOutput),
        };
        settled(sandbox.run(run).await).await
    }

    /// The same with a listener and a stop signal.
    pub(crate) async fn run_with(
        &self,
        job: ResolvedJob,
        live: Arc<dyn LiveOutput>,
        stop: watch::Receiver<Option<KilledFor>>,
    ) -> RunReport {
        let sandbox = self.sandboxes.prepare(self.request(&job)).await.unwrap();
        let run = Run {
            collect: None,
            fetched: None,
            egress: None,
            matcher: matcher(&job),
            job: Arc::new(job),
            stop,
            live,
        };
        let report = settled(sandbox.run(run).await).await;
        self.assert_nothing_is_left().await;
        report
    }

    /// A client of the tests' own on this bench's engine.
    pub(crate) async fn engine(&self) -> Docker {
        match &self.config.engine {
            Some(address) => docker_at(address).await,
            None => docker().await,
        }
    }

    /// Containers of this test's deployment.
    pub(crate) async fn containers(&self) -> Vec<String> {
        self.list(true).await
    }

    /// Those of them that run.
    pub(crate) async fn running(&self) -> Vec<String> {
        self.list(false).await
    }

    async fn list(&self, all: bool) -> Vec<String> {
        let options = query::ListContainersOptions {
            all,
            filters: Some(HashMap::from([(
                "label".to_owned(),
                vec![format!("mayfly.deployment={}", self.deployment)],
            )])),
            ..Default::default()
        };
        let found = self.engine().await.list_containers(Some(options)).await;
        let found = found.unwrap();
        found.into_iter().filter_map(|container| container.id).collect()
    }

    pub(crate) async fn assert_nothing_is_left(&self) {
        assert_eq!(self.containers().await, Vec::<String>::new());
    }
}

/// The report of a run whose container is gone, and whose end the engine does not contradict.
pub(crate) async fn settled(end: RunEnd) -> RunReport {
    let (report, contradictions) = end.settled().await;
    assert_eq!(contradictions, Vec::<String>::new());
    report
}

/// Uids that no other test and no `mayfly` on this host has meanwhile: by the lock files that `mayfly` takes for itself,
/// one for each 64 of them.
struct UidLock {
    first: u32,
    _files: Vec<File>,
}

impl UidLock {
    /// Room for two executors.
    fn take() -> Self {
        let folder = PathBuf::from("/run/lock");
        let folder = if folder.is_dir() {
            folder
        } else {
            std::env::temp_dir()
        };
        for first in (40_032..58_976).step_by(256) {
            let locked: Option<Vec<File>> = (first..first + 256)
                .step_by(64)
                .map(|part| {
                    let path = folder.join(format!("mayfly-uids-{part}.lock"));
                    let mut options = OpenOptions::new();
                    let file = options.write(true).create(true).truncate(false).open(path).ok()?;
                    file.try_lock().ok().map(|()| file)
                })
                .collect();
            if let Some(files) = locked {
                return Self { first, _files: files };
            }
        }
        panic!("other tests have all uids");
    }
}

pub(crate) fn blob(bytes: &[u8]) -> Blob {
    Blob::from(bytes.to_vec())
}

/// The usual limits with some changed.
pub(crate) fn limits(change: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = LimitRules::default().defaults;
    change(&mut limits);
    limits
}

/// A stream's text, where nothing of it was cut.
/// What is taken out of a job's output.
pub(crate) fn matcher(job: &ResolvedJob) -> Matcher {
    Matchers::default().of(job).unwrap()
}

pub(crate) fn text(stream: &mayfly_core::outcome::CapturedStream) -> String {
    assert!(!stream.count.truncated);
    String::from_utf8(stream.head.clone()).unwrap()
}
