//! A fleet of separate processes on one host: a server and executors on a PostgreSQL and a RabbitMQ of the test's own and
//! the engine that `DOCKER_HOST` names. What came of jobs is asked of PostgreSQL itself.

mod api;
mod role;
mod services;

use std::{
    collections::BTreeMap,
    io::Write as _,
    net::SocketAddr,
    path::PathBuf,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use mayfly_api::ApiKey;
use mayfly_core::{
    account::Role as KeyRole,
    clock::Clock as _,
    digest::Salt,
    id::{ExecutorId, JobId, TenantId},
    image::ImagePin,
    job::JobSpec,
    outcome::EndState,
    policy::Policy,
    state::JobState,
};
use mayfly_store::{
    accounts::{AccountStore as _, NewKey, NewTenant, Quotas},
    records::{JobDetails, NewJob},
    seam::JobStore as _,
};
use mayfly_store_postgres::{PostgresStore, Settings};
use mayfly_telemetry::SystemClock;
use serde_json::{Value, json};

pub use self::{
    api::Api,
    role::Role,
    services::{Do, Services},
};

/// Bound of everything that takes no longer than some seconds on a busy machine.
pub const SOON: Duration = Duration::from_secs(60);

/// What a fleet is made of beyond the usual.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plan<'a> {
    pub executors: usize,
    /// Further settings.
    pub of_executors: &'a [(&'a str, &'a str)],
    pub of_servers: &'a [(&'a str, &'a str)],
    /// Where servers, and each executor, find the broker, where that is not where it is.
    pub broker_of_servers: Option<SocketAddr>,
    pub broker_of_executors: &'a [SocketAddr],
    /// Where servers find the database.
    pub database: Option<SocketAddr>,
    /// The executors' engine, where that is not the one of `DOCKER_HOST`.
    pub engine: Option<&'a str>,
}

/// A fleet, running until this is dropped.
pub struct Fleet {
    pub executors: Vec<Role>,
    pub servers: Vec<Role>,
    pub services: Services,
    pub store: Arc<PostgresStore>,
    pub deployment: String,
    engine: Option<String>,
    tenant: TenantId,
    pin: ImagePin,
    folder: tempfile::TempDir,
}

impl Fleet {
    /// A server and executors with two slots each; nothing where that can't be had here, which is printed and counted.
    pub async fn start(executors: usize) -> Option<Self> {
        Self::start_with(executors, &[]).await
    }

    /// The same, with further settings of its executors.
    pub async fn start_with(executors: usize, of_executors: &[(&str, &str)]) -> Option<Self> {
        let pin = python()?;
        let services = Services::start()?;
        let plan = Plan {
            executors,
            of_executors,
            ..Plan::default()
        };
        Some(Self::on(services, pin, plan).await)
    }

    /// By a plan, on services that are there.
    pub async fn on(services: Services, pin: ImagePin, plan: Plan<'_>) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let [api_url, engine_url] = ["mayfly_api", "mayfly_engine"].map(|role| {
            let (_, place) = services
                .postgres()
                .split_once('@')
                .expect("an address has a host");
            format!("postgres://{role}:{role}-of-the-test@{place}")
        });
        let through = |url: &str| {
            plan.database
                .map_or_else(|| url.to_owned(), |by| elsewhere(url, by))
        };
        let mut fleet_settings = BTreeMap::from([
            ("MAYFLY_DATABASE__API_URL".to_owned(), through(&api_url)),
            ("MAYFLY_DATABASE__ENGINE_URL".to_owned(), through(&engine_url)),
        ]);
        migrate(services.postgres(), &fleet_settings);
        let settings = Settings {
            api_url,
            engine_url,
            connections: 4,
        };
        let store = PostgresStore::open(&settings)
            .await
            .expect("the database is set up");
        let tenant = store.create_tenant(
            NewTenant {
                id: TenantId::new(),
                name: "tester".to_owned(),
                weight: 1,
                quotas: Quotas::default(),
            },
            None,
            SystemClock.now(),
        );
        let tenant = tenant.await.expect("the tenant is new").id;
        store
            .pin_image("python", &pin, None, SystemClock.now())
            .await
            .expect("the image is pinned");
        let broker = services.amqp();
        let broker = plan
            .broker_of_servers
            .map_or_else(|| broker.to_owned(), |by| elsewhere(broker, by));
        fleet_settings.extend([
            ("MAYFLY_BROKER__URL".to_owned(), broker),
            (
                "MAYFLY_SERVER__TOKEN_KEY".to_owned(),
                "a secret of the test's own, not a short one".to_owned(),
            ),
        ]);
        fleet_settings.extend(owned(plan.of_servers));
        let mut fleet = Self {
            executors: Vec::new(),
            servers: Vec::new(),
            services,
            store: Arc::new(store),
            deployment: format!("fleet-{}", JobId::new()),
            engine: plan.engine.map(ToOwned::to_owned),
            tenant,
            pin,
            folder,
        };
        fleet.add_server(fleet_settings);
        for number in 1..=plan.executors {
            let broker = plan.broker_of_executors.get(number - 1).copied();
            fleet.add_executor_by(number, broker, plan.of_executors);
        }
        fleet
    }

    fn path(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    fn add_server(&mut self, mut settings: BTreeMap<String, String>) {
        let name = format!("server-{}", self.servers.len() + 1);
        settings
            .entry("MAYFLY_SERVER__LISTEN".to_owned())
            .or_insert_with(|| "127.0.0.1:0".to_owned());
        self.servers
            .push(Role::start(&self.path(), &name, "server", settings));
    }

    /// A further server beside the first, on the same database and broker.
    pub fn add_replica(&mut self) {
        let settings = self.servers[0].settings().clone();
        self.add_server(settings);
    }

    /// A further executor, with settings of its own.
    pub fn add_executor(&mut self, number: usize, further: &[(&str, &str)]) {
        self.add_executor_by(number, None, further);
    }

    fn add_executor_by(&mut self, number: usize, broker: Option<SocketAddr>, further: &[(&str, &str)]) {
        let name = format!("executor-{number}");
        let mut settings = self.enroll(&name);
        if let (Some(by), Some(url)) = (broker, settings.get_mut("MAYFLY_BROKER__URL")) {
            *url = elsewhere(url, by);
        }
        settings.extend([
            ("MAYFLY_SANDBOX__DEPLOYMENT".to_owned(), self.deployment.clone()),
            ("MAYFLY_EXECUTOR__POSTURE".to_owned(), "development".to_owned()),
            ("MAYFLY_EXECUTOR__ACCEPT".to_owned(), "self_test".to_owned()),
            (
                "MAYFLY_EXECUTOR__IMAGES__PYTHON".to_owned(),
                self.pin.config_digest.to_string(),
            ),
        ]);
        if let Some(engine) = &self.engine {
            settings.insert("MAYFLY_SANDBOX__ENGINE".to_owned(), engine.clone());
        }
        settings.extend(owned(further));
        self.executors
            .push(Role::start(&self.path(), &name, "executor", settings));
    }

    /// What `mayfly executor enroll` says that an executor needs.
    pub fn enroll(&self, name: &str) -> BTreeMap<String, String> {
        let output = Command::new(env!("CARGO_BIN_EXE_mayfly"))
            .args(["executor", "enroll", name])
            .env_remove("HOME")
            .env("MAYFLY_BROKER__URL", self.services.amqp())
            .env("MAYFLY_BROKER__MANAGEMENT_URL", self.services.management())
            .envs(
                self.servers[0]
                    .settings()
                    .iter()
                    .filter(|(name, _)| name.starts_with("MAYFLY_DATABASE__")),
            )
            .output()
            .expect("mayfly starts");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8(output.stdout).expect("settings are text");
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    /// The first server's API, once it is served, and a key that may submit.
    pub async fn api(&self) -> Api {
        self.api_of(0, KeyRole::Submitter).await
    }

    /// A server's API, once it is served, and a new key: an operator's is of the fleet, another one of the tenant.
    pub async fn api_of(&self, server: usize, role: KeyRole) -> Api {
        let server = &self.servers[server];
        let url = wait_for(SOON, "the API to be served", async || served_at(&server.log())).await;
        let client = reqwest::Client::builder().timeout(SOON).build();
        Api {
            client: client.expect("a client of HTTP"),
            url,
            key: self.key(role).await,
        }
    }

    /// A new key.
    pub async fn key(&self, role: KeyRole) -> String {
        let key = ApiKey::generate();
        let record = NewKey {
            id: key.id(),
            tenant: (role != KeyRole::Operator).then_some(self.tenant),
            role,
            name: "tester".to_owned(),
            secret: key.digest(),
            expires_at: None,
        };
        self.store
            .create_key(record, None, SystemClock.now())
            .await
            .expect("the key is new");
        key.reveal()
    }

    /// What a command prints that asks a server and must succeed.
    pub fn command(&self, api: &Api, args: &[&str]) -> String {
        let output = self.ask(api, args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {said}");
        String::from_utf8(output.stdout).expect("it prints text")
    }

    /// What a command says that asks a server and must fail.
    pub fn refused(&self, api: &Api, args: &[&str]) -> String {
        let output = self.ask(api, args);
        assert!(!output.status.success(), "{args:?}");
        String::from_utf8(output.stderr).expect("it says text")
    }

    fn ask(&self, api: &Api, args: &[&str]) -> std::process::Output {
        Command::new(env!("CARGO_BIN_EXE_mayfly"))
            .args(args)
            .env("HOME", self.folder.path())
            .env_remove("XDG_DATA_HOME")
            .env_remove("XDG_CONFIG_HOME")
            .env("MAYFLY_CLIENT__SERVER", &api.url)
            .env("MAYFLY_CLIENT__KEY", &api.key)
            .stdin(std::process::Stdio::null())
            .output()
            .expect("mayfly starts")
    }

    /// Accepts a Python program, as the API would.
    pub async fn submit(&self, program: &str, changes: Value) -> JobId {
        let mut spec = json!({ "image": "python", "source": { "language": "python", "text": program } });
        let (Value::Object(spec_fields), Value::Object(changes)) = (&mut spec, changes) else {
            panic!("changes are an object");
        };
        spec_fields.extend(changes);
        let spec: JobSpec = serde_json::from_value(spec).expect("it is a job");
        let (labels, priority) = (spec.labels.clone(), spec.priority);
        let resolved = spec
            .resolve(
                &Policy::default(),
                self.pin.clone(),
                &mayfly_sandbox::baseline_digest(),
            )
            .expect("the policy allows it");
        let id = JobId::new();
        let job = NewJob {
            id,
            tenant: self.tenant,
            pool: "default".to_owned(),
            resolved: Arc::new(resolved),
            labels,
            priority,
            expires_at: None,
            salt: Salt::from_bytes([7; 32]),
            batch: None,
            not_before: None,
            retain_source: true,
            idempotency: None,
        };
        self.store
            .submit(job, SystemClock.now())
            .await
            .expect("it is accepted");
        id
    }

    pub async fn details(&self, job: JobId) -> JobDetails {
        let found = self
            .store
            .find_job(self.tenant, job)
            .await
            .expect("the database answers");
        found.expect("it was accepted")
    }

    /// Waits until a job has started, and says which executor has it.
    pub async fn started(&self, job: JobId) -> ExecutorId {
        wait_for(SOON, "the start of the job", async || {
            let details = self.details(job).await;
            assert!(
                details.job.state.end().is_none(),
                "it ended before it was seen to run"
            );
            let attempt = details.attempts.last()?;
            (details.job.state == JobState::Started).then_some(attempt.executor?)
        })
        .await
    }

    /// Waits for the end of a job.
    pub async fn end_of(&self, job: JobId, limit: Duration) -> EndState {
        wait_for(limit, "the end of the job", async || {
            self.details(job).await.job.state.end()
        })
        .await
    }

    /// The executor of this id.
    pub fn executor(&mut self, id: ExecutorId) -> &mut Role {
        let id = id.to_string();
        let found = self
            .executors
            .iter_mut()
            .find(|role| role.settings().get("MAYFLY_EXECUTOR__ID") == Some(&id));
        found.expect("it is of this fleet")
    }

    /// A second process that is the same executor.
    pub fn second_of(&self, index: usize) -> Role {
        let settings = self.executors[index].settings().clone();
        Role::start(&self.path(), "second", "executor", settings)
    }

    /// Sandboxes of this fleet, by the engine's own client. What fills the volume of the guest is none: it never runs, and
    /// the reaper has it five minutes later where its executor was killed over it.
    pub fn containers(&self) -> usize {
        self.count_containers(&["--all"])
    }

    /// Those of them in which something runs.
    pub fn running_containers(&self) -> usize {
        self.count_containers(&[])
    }

    fn count_containers(&self, which: &[&str]) -> usize {
        let filter = format!("label=mayfly.deployment={}", self.deployment);
        let host = self.engine.iter().flat_map(|host| ["--host", host]);
        let listed = Command::new("docker")
            .args(host)
            .args(["ps", "--quiet", "--filter", &filter])
            .args(["--filter", "label=mayfly.sandbox"])
            .args(which)
            .output()
            .expect("docker starts");
        assert!(listed.status.success());
        String::from_utf8_lossy(&listed.stdout).lines().count()
    }

    /// Asserts that every job that was accepted has exactly one result, that no attempt started twice, and that the audit
    /// log says of each what became of it.
    pub fn every_job_has_one_result(&self) {
        let none = "SELECT count(*) FROM jobs WHERE state <> 'ended'";
        assert_eq!(self.services.count(none), 0, "jobs without an end");
        // A job's outcome is one column of one row; a report that is kept belongs to one attempt, and one of them made it.
        let others = "SELECT count(*) FROM (SELECT job_id FROM audit_events WHERE kind = 'job_ended' GROUP BY job_id \
                      HAVING count(*) > 1) t";
        assert_eq!(self.services.count(others), 0, "jobs that ended twice");
        // A run that ends by trouble of ours is reported too, and another attempt follows.
        let others = "SELECT count(*) FROM (SELECT attempt_id FROM audit_events WHERE kind = 'run_finished' GROUP BY \
                      attempt_id HAVING count(*) > 1) t";
        assert_eq!(self.services.count(others), 0, "attempts that finished twice");
        let twice = "SELECT count(*) FROM (SELECT attempt_id FROM audit_events WHERE kind = 'run_started' GROUP BY \
                     attempt_id HAVING count(*) > 1) t";
        assert_eq!(self.services.count(twice), 0, "attempts that started twice");
        let unsaid = "SELECT count(*) FROM jobs j WHERE NOT EXISTS (SELECT 1 FROM audit_events e WHERE e.job_id = j.job_id \
                      AND e.kind = 'job_submitted')";
        assert_eq!(
            self.services.count(unsaid),
            0,
            "jobs that the audit log does not know"
        );
    }

    /// Waits until the engine has no container of this fleet.
    pub async fn no_container_is_left(&self) {
        // One whose creation was under way when its executor was killed is seen by no sweep before it is a minute old.
        wait_for(3 * SOON, "no container to be left", async || {
            (self.containers() == 0).then_some(())
        })
        .await;
    }
}

/// Where a server serves its API, by its log lines.
pub fn served_at(log: &str) -> Option<String> {
    let (_, rest) = log.rsplit_once("the API is served url=")?;
    rest.split_whitespace().next().map(ToOwned::to_owned)
}

fn owned(settings: &[(&str, &str)]) -> impl Iterator<Item = (String, String)> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    settings.iter().map(owned)
}

/// The same address at another host and port.
fn elsewhere(url: &str, by: SocketAddr) -> String {
    let (before, rest) = url.rsplit_once('@').expect("an address has credentials");
    let (_, path) = rest.split_once('/').expect("an address has a path");
    format!("{before}@{by}/{path}")
}

pub fn migrate(owner: &str, settings: &BTreeMap<String, String>) {
    let output = Command::new(env!("CARGO_BIN_EXE_mayfly"))
        .arg("migrate")
        .env_remove("HOME")
        .env("MAYFLY_DATABASE__OWNER_URL", owner)
        .envs(settings)
        .output()
        .expect("mayfly starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The python image of the engine, as `mayfly image ensure` leaves it.
pub fn python() -> Option<ImagePin> {
    let home = tempfile::tempdir().expect("a folder for the test");
    let run = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_mayfly"))
            .args(args)
            .env("HOME", home.path())
            .env_remove("XDG_DATA_HOME")
            .env_remove("XDG_CONFIG_HOME")
            .env(
                "MAYFLY_IMAGE__RECIPES",
                concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/images"),
            )
            .output()
            .expect("mayfly starts")
    };
    let ensured = run(&["image", "ensure", "python"]);
    if ensured.status.code() == Some(69) {
        skip("no container engine answers");
        return None;
    }
    assert!(
        ensured.status.success(),
        "{}",
        String::from_utf8_lossy(&ensured.stderr)
    );
    let listed = run(&["image", "list", "--json"]);
    let text = String::from_utf8(listed.stdout).expect("JSON is UTF-8");
    let entry: Value =
        serde_json::from_str(text.lines().next().expect("python is in the catalog")).expect("JSON");
    Some(serde_json::from_value(entry["pin"].clone()).expect("a pin is JSON"))
}

/// Waits until something is there, within a bound.
pub async fn wait_for<T>(limit: Duration, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(begun.elapsed() < limit, "waited {limit:?} for {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Says that a case can't run here, and why; `make test` counts these.
pub fn skip(why: &str) {
    eprintln!("skipped: {why}");
    if let Some(log) = std::env::var_os("MAYFLY_SKIP_LOG") {
        let mut log = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(log)
            .expect("the log of skipped cases");
        writeln!(log, "{}: {why}", env!("CARGO_CRATE_NAME")).expect("the log of skipped cases");
    }
}
