//! The broker of the tests, and a place of its own in it for each.

use std::{
    io::Write as _,
    net::{SocketAddr, ToSocketAddrs as _},
    num::NonZeroU16,
    path::PathBuf,
    process::Command,
    sync::Arc,
    time::Duration,
};

use mayfly_core::id::{ExecutorId, JobId};
use mayfly_queue::rabbitmq::{
    Permissions, QueueLimits, RabbitConfig, RabbitQueue, executor_permissions, user_name,
};
use mayfly_testkit::proxy::FaultProxy;
use serde_json::{Value, json};

/// A pool's queue is full at this length.
pub(crate) const JOBS_LIMIT: u32 = 200;

/// The broker, as the environment names it.
#[derive(Clone)]
pub(crate) struct Broker {
    /// `user:password` of its administrator.
    credentials: (String, String),
    pub(crate) address: SocketAddr,
    management: String,
    /// A command line that runs `rabbitmqctl` for it.
    ctl: Option<String>,
    http: reqwest::Client,
}

/// Says that a test can't run here.
#[expect(clippy::print_stderr, reason = "a test says why it can't run")]
pub(crate) fn skip(why: &str) {
    eprintln!("skipped: {why}");
    if let Some(log) = std::env::var_os("MAYFLY_SKIP_LOG") {
        let log = std::fs::OpenOptions::new().append(true).create(true).open(log);
        writeln!(log.expect("the log of skipped cases"), "RabbitMQ: {why}")
            .expect("the log of skipped cases");
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::vars().find_map(|(found, value)| (found == name && !value.is_empty()).then_some(value))
}

fn client() -> reqwest::Client {
    let client = reqwest::Client::builder()
        .timeout(Duration::from_secs(20))
        .build();
    client.expect("an HTTP client")
}

impl Broker {
    /// The broker that the environment names; where there is none that is said and counted.
    pub(crate) fn of_environment() -> Option<Self> {
        let (Some(amqp), Some(management)) = (
            variable("MAYFLY_TEST_AMQP"),
            variable("MAYFLY_TEST_AMQP_MANAGEMENT"),
        ) else {
            skip("MAYFLY_TEST_AMQP and MAYFLY_TEST_AMQP_MANAGEMENT name no broker");
            return None;
        };
        Some(Self::at(&amqp, &management, variable("MAYFLY_TEST_AMQP_CTL")))
    }

    pub(crate) fn at(amqp: &str, management: &str, ctl: Option<String>) -> Self {
        let amqp = amqp.strip_prefix("amqp://").expect("an address of AMQP");
        let (credentials, host) = amqp.split_once('@').expect("an address with credentials");
        let (user, password) = credentials.split_once(':').expect("a user and a password");
        let host = host.split('/').next().expect("a host");
        let (_, management) = management.split_once('@').expect("an address with credentials");
        Self {
            credentials: (user.into(), password.into()),
            address: host
                .to_socket_addrs()
                .expect("a host and a port")
                .next()
                .expect("an address"),
            management: format!("http://{management}"),
            ctl,
            http: client(),
        }
    }

    /// Asks the management API.
    pub(crate) async fn ask(&self, method: reqwest::Method, path: &str, body: Option<Value>) -> Value {
        let (user, password) = &self.credentials;
        let mut request = self
            .http
            .request(method.clone(), format!("{}/api/{path}", self.management))
            .basic_auth(user, Some(password));
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.expect("the management API answers");
        let status = answer.status();
        let text = answer.text().await.expect("the management API answers");
        assert!(
            status.is_success() || method == reqwest::Method::DELETE,
            "{method} {path}: {status}: {text}"
        );
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    pub(crate) fn password(&self) -> &str {
        &self.credentials.1
    }

    pub(crate) async fn put(&self, path: &str, body: Value) {
        self.ask(reqwest::Method::PUT, path, Some(body)).await;
    }

    pub(crate) async fn delete(&self, path: &str) {
        self.ask(reqwest::Method::DELETE, path, None).await;
    }

    pub(crate) async fn permit(&self, vhost: &str, user: &str, permissions: &Permissions) {
        let Permissions {
            configure,
            write,
            read,
        } = permissions;
        let body = json!({"configure": configure, "write": write, "read": read});
        self.put(&format!("permissions/{vhost}/{user}"), body).await;
    }

    /// Runs `rabbitmqctl`; `false` where it can't be run here, which is said.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> bool {
        let Some(ctl) = &self.ctl else {
            skip("MAYFLY_TEST_AMQP_CTL does not say how to run rabbitmqctl");
            return false;
        };
        let mut words = ctl.split_whitespace();
        let output = Command::new(words.next().expect("a command"))
            .args(words)
            .args(arguments)
            .output()
            .expect("rabbitmqctl can be run");
        assert!(
            output.status.success(),
            "rabbitmqctl {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        true
    }
}

/// A broker of one test's own, from the machine's packages, which may do to it what it likes.
pub(crate) struct OwnBroker {
    pub(crate) broker: Broker,
    folder: PathBuf,
}

/// The script that starts and stops brokers.
const SERVICES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/services");

impl OwnBroker {
    /// Starts one; where that can't be done it is said and counted.
    pub(crate) async fn start() -> Option<Self> {
        if !std::path::Path::new("/usr/lib/rabbitmq/bin/rabbitmq-server").exists() {
            skip("a broker of a test's own takes the package rabbitmq-server");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("mayfly-broker-{}", JobId::new()));
        let started = services(&[
            "start".into(),
            folder.clone().into(),
            "--only".into(),
            "rabbitmq".into(),
            "--from".into(),
            "packages".into(),
        ])
        .await;
        let named = |name: &str| {
            let line = started
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            line.expect("what the script prints")
                .trim_matches('\'')
                .to_owned()
        };
        let ctl = named("AMQP_CTL");
        let broker = Broker::at(&named("AMQP_URL"), &named("AMQP_MANAGEMENT_URL"), Some(ctl));
        Some(Self { broker, folder })
    }

    /// Runs `rabbitmqctl`.
    pub(crate) async fn ctl(&self, arguments: &[&str]) {
        let broker = self.broker.clone();
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let run = move || broker.ctl(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(tokio::task::spawn_blocking(run).await.expect("rabbitmqctl ends"));
    }

    /// `stop`, `kill` or `start`.
    pub(crate) async fn broker_does(&self, what: &str) {
        services(&["broker".into(), self.folder.clone().into(), what.into()]).await;
    }
}

/// Runs the script and returns what it prints.
async fn services(arguments: &[std::ffi::OsString]) -> String {
    let arguments = arguments.to_vec();
    let run = move || {
        let output = Command::new(SERVICES)
            .args(arguments)
            .stdin(std::process::Stdio::null())
            .output();
        let output = output.expect("the script can be run");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("text")
    };
    tokio::task::spawn_blocking(run).await.expect("the script ends")
}

impl Drop for OwnBroker {
    fn drop(&mut self) {
        // A folder that is left is seen by whoever looks for it.
        Command::new(SERVICES).arg("stop").arg(&self.folder).status().ok();
    }
}

/// A virtual host, with a proxy in front of the broker. It is deleted in the end.
pub(crate) struct Place {
    pub(crate) broker: Broker,
    pub(crate) vhost: String,
    pub(crate) proxy: FaultProxy,
    heartbeat_seconds: NonZeroU16,
    users: std::sync::Mutex<Vec<String>>,
    /// The proxy's own, so that it works while a test's is at its end.
    runtime: Option<tokio::runtime::Runtime>,
}

/// The password of every executor's user here.
const PASSWORD: &str = "of a test";

impl Place {
    pub(crate) async fn new(broker: Broker) -> Arc<Self> {
        Self::with_heartbeat(broker, NonZeroU16::new(10).expect("10 is not zero")).await
    }

    /// One whose connections are noticed to be dead after about twice this.
    pub(crate) async fn with_heartbeat(broker: Broker, heartbeat_seconds: NonZeroU16) -> Arc<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let proxy = runtime.spawn(FaultProxy::to(broker.address));
        let proxy = proxy.await.expect("the proxy's task ends").expect("a proxy");
        let place = Self {
            broker,
            vhost: format!("mayfly-test-{}", JobId::new()),
            proxy,
            heartbeat_seconds,
            users: std::sync::Mutex::default(),
            runtime: Some(runtime),
        };
        place.make().await;
        Arc::new(place)
    }

    /// Makes the virtual host.
    pub(crate) async fn make(&self) {
        self.broker
            .put(&format!("vhosts/{}", self.vhost), json!({}))
            .await;
        let all = Permissions {
            configure: ".*".into(),
            write: ".*".into(),
            read: ".*".into(),
        };
        self.broker
            .permit(&self.vhost, &self.broker.credentials.0, &all)
            .await;
    }

    /// Loses the virtual host with everything in it.
    pub(crate) async fn lose(&self) {
        self.broker.delete(&format!("vhosts/{}", self.vhost)).await;
    }

    fn url(&self, (user, password): (&str, &str), address: SocketAddr) -> String {
        let password = password.replace(' ', "%20");
        format!("amqp://{user}:{password}@{address}/{}", self.vhost)
    }

    fn config(&self, credentials: (&str, &str), address: SocketAddr) -> RabbitConfig {
        RabbitConfig {
            heartbeat_seconds: self.heartbeat_seconds,
            limits: QueueLimits {
                jobs: JOBS_LIMIT,
                ..QueueLimits::standard()
            },
            ..RabbitConfig::new(self.url(credentials, address))
        }
    }

    /// A queue of the server, through the proxy.
    pub(crate) fn server(&self) -> RabbitQueue {
        let (user, password) = &self.broker.credentials;
        let config = self.config((user, password), self.proxy.address());
        RabbitQueue::connect(config).expect("an address")
    }

    /// A queue of the server as a fleet has it, past the proxy.
    pub(crate) fn server_of_a_fleet(&self) -> RabbitQueue {
        let (user, password) = &self.broker.credentials;
        let config = RabbitConfig::new(self.url((user, password), self.broker.address));
        RabbitQueue::connect(config).expect("an address")
    }

    /// Makes the user of an executor, if it is not there, and says what it may do.
    pub(crate) async fn enroll(&self, pool: &str, executor: ExecutorId) -> String {
        let user = user_name(executor, pool);
        let body = json!({"password": PASSWORD, "tags": ""});
        self.broker.put(&format!("users/{user}"), body).await;
        self.broker
            .permit(&self.vhost, &user, &executor_permissions(pool))
            .await;
        self.users
            .lock()
            .expect("no test has panicked with it")
            .push(user.clone());
        user
    }

    /// A queue of an executor that is enrolled, through the proxy.
    pub(crate) fn executor(&self, pool: &str, executor: ExecutorId) -> RabbitQueue {
        let user = user_name(executor, pool);
        let config = self.config((&user, PASSWORD), self.proxy.address());
        RabbitQueue::connect(config).expect("an address")
    }

    /// The same past the proxy.
    pub(crate) fn executor_direct(&self, pool: &str, executor: ExecutorId) -> RabbitQueue {
        let user = user_name(executor, pool);
        let config = self.config((&user, PASSWORD), self.broker.address);
        RabbitQueue::connect(config).expect("an address")
    }

    /// The address of an executor that may be enrolled elsewhere.
    pub(crate) fn url_of(&self, (pool, executor): (&str, ExecutorId)) -> String {
        self.url((&user_name(executor, pool), PASSWORD), self.broker.address)
    }

    /// A bare connection past the proxy, of an executor or the server.
    pub(crate) async fn bare(&self, executor: Option<(&str, ExecutorId)>) -> lapin::Connection {
        let user = executor.map(|(pool, executor)| user_name(executor, pool));
        let credentials = match &user {
            Some(user) => (user.as_str(), PASSWORD),
            None => (
                self.broker.credentials.0.as_str(),
                self.broker.credentials.1.as_str(),
            ),
        };
        let url = self.url(credentials, self.broker.address);
        lapin::Connection::connect(&url, lapin::ConnectionProperties::default())
            .await
            .expect("the broker can be reached")
    }

    /// The name of the server's user.
    pub(crate) fn server_user(&self) -> &str {
        &self.broker.credentials.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The broker waits for goodbyes when it deletes a virtual host.
        self.proxy.refuse(true);
        self.proxy.cut();
        let (mut broker, vhost) = (self.broker.clone(), self.vhost.clone());
        // Connections of the other one are the test's.
        broker.http = client();
        let users = std::mem::take(&mut *self.users.lock().expect("no test has panicked with it"));
        let clean = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                broker.delete(&format!("vhosts/{vhost}")).await;
                for user in users {
                    broker.delete(&format!("users/{user}")).await;
                }
            });
        };
        // A test that has failed says why; what it leaves is its broker's matter then.
        std::thread::spawn(clean).join().ok();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
