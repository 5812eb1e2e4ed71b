//! PostgreSQL and RabbitMQ of one test's own, which it may stop, cut and begin again.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};

use super::skip;

/// Both, running until this is dropped.
pub struct Services {
    dir: PathBuf,
    addresses: HashMap<String, String>,
    _folder: tempfile::TempDir,
}

/// What is done with one of them.
#[derive(Debug, Clone, Copy)]
pub enum Do {
    Stop,
    /// At once, with whatever is under way.
    Kill,
    Start,
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../scripts")
        .join(name)
}

impl Services {
    /// Starts both, or says why they can't be had.
    pub fn start() -> Option<Self> {
        let folder = tempfile::Builder::new()
            .prefix("mayfly-fleet-")
            .tempdir()
            .expect("a folder for the test");
        let dir = folder.path().join("services");
        // The servers' own users look for their data below it.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(folder.path(), open).expect("the folder is ours");
        let possible = Command::new(script("services")).arg("possible").status();
        if !possible.expect("the script starts").success() {
            skip("PostgreSQL's and RabbitMQ's packages are not installed: scripts/services start --install");
            return None;
        }
        let started = Command::new(script("services"))
            .arg("start")
            .arg(&dir)
            // What a test stops, kills and begins again are processes of its own.
            .args(["--from", "packages"])
            .env_remove("MAYFLY_POSTGRES_PORT")
            .env_remove("MAYFLY_RABBITMQ_PORT")
            .stdin(Stdio::null())
            .output()
            .expect("the script starts");
        let said = String::from_utf8_lossy(&started.stderr);
        assert!(started.status.success(), "{said}");
        let text = String::from_utf8(started.stdout).expect("addresses are text");
        let addresses = text
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.trim_matches('\'').to_owned()))
            .collect();
        Some(Self {
            dir,
            addresses,
            _folder: folder,
        })
    }

    fn address(&self, name: &str) -> &str {
        self.addresses.get(name).expect("the script says where it is")
    }

    /// The database's owner, as whom `mayfly migrate` runs.
    pub fn postgres(&self) -> &str {
        self.address("DATABASE_URL")
    }

    /// The broker, as its administrator.
    pub fn amqp(&self) -> &str {
        self.address("AMQP_URL")
    }

    /// The broker's management API, as its administrator.
    pub fn management(&self) -> &str {
        self.address("AMQP_MANAGEMENT_URL")
    }

    /// What a query answers, without mayfly: one line a row, columns parted by `|`.
    pub fn ask(&self, query: &str) -> Vec<String> {
        let output = Command::new("psql")
            .args([
                self.postgres(),
                "--no-psqlrc",
                "--tuples-only",
                "--no-align",
                "--command",
                query,
            ])
            .output()
            .expect("psql starts");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8(output.stdout).expect("the answer is text");
        text.lines().map(ToOwned::to_owned).collect()
    }

    /// The number that a query answers.
    pub fn count(&self, query: &str) -> u64 {
        self.ask(query)[0].parse().expect("it is a number")
    }

    /// What the broker's administrator says to it.
    pub fn ctl(&self, args: &[&str]) -> String {
        let output = self.script("ctl", args);
        String::from_utf8(output.stdout).expect("the answer is text")
    }

    /// The names of the broker's queues.
    pub fn queues(&self) -> Vec<String> {
        let text = self.ctl(&["list_queues", "--quiet", "--no-table-headers", "name"]);
        text.lines().map(ToOwned::to_owned).collect()
    }

    /// Stops, kills or starts the broker, with its data.
    pub fn broker(&self, what: Do) {
        let action = match what {
            Do::Stop => "stop",
            Do::Kill => "kill",
            Do::Start => "start",
        };
        self.script("broker", &[action]);
    }

    fn script(&self, action: &str, args: &[&str]) -> Output {
        let output = Command::new(script("services"))
            .arg(action)
            .arg(&self.dir)
            .args(args)
            .stdin(Stdio::null())
            .output()
            .expect("the script starts");
        assert_ok(&output);
        output
    }

    /// Deletes everything that the broker has, as if its disk were lost, and lets everybody in again who was let in.
    pub async fn wipe_broker(&self) {
        let client = reqwest::Client::new();
        let ask = async |method: reqwest::Method, path: &str, body: Option<&Value>| {
            let mut request = client.request(method, format!("{}/api/{path}", self.management()));
            if let Some(body) = body {
                request = request.json(body);
            }
            let answer = request.send().await.expect("the broker answers");
            answer.error_for_status().expect("an administrator may do that")
        };
        let permissions = ask(reqwest::Method::GET, "permissions", None).await;
        let permissions: Vec<Value> = permissions.json().await.expect("it is a list");
        ask(reqwest::Method::DELETE, "vhosts/%2F", None).await;
        ask(reqwest::Method::PUT, "vhosts/%2F", Some(&json!({}))).await;
        for of in permissions {
            let user = of["user"].as_str().expect("they are somebody's");
            let path = format!("permissions/%2F/{user}");
            ask(reqwest::Method::PUT, &path, Some(&of)).await;
        }
    }

    /// Stops or starts the database, with its data.
    pub fn database(&self, what: Do) {
        let program = std::fs::read_dir("/usr/lib/postgresql")
            .expect("the package is here")
            .filter_map(|entry| Some(entry.ok()?.path().join("bin/pg_ctl")))
            .max()
            .expect("the package is here");
        let data = self.dir.join("postgres");
        let data_folder = data.join("data");
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]);
        if !rustix::process::geteuid().is_root() {
            command = Command::new(&program);
        } else {
            command.arg(&program);
        }
        command
            .arg("--wait")
            .arg("--pgdata")
            .arg(data_folder)
            .arg("--log")
            .arg(data.join("log"));
        match what {
            Do::Stop => command.args(["--mode=fast", "stop"]),
            Do::Kill => command.args(["--mode=immediate", "stop"]),
            Do::Start => command.arg("start"),
        };
        let output = command.stdin(Stdio::null()).output().expect("pg_ctl starts");
        assert_ok(&output);
    }
}

fn assert_ok(output: &Output) {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

impl Services {
    /// What the broker logged last.
    fn last_words(&self) -> String {
        let text = std::fs::read_to_string(self.dir.join("rabbitmq.log")).unwrap_or_default();
        let last: Vec<&str> = text.lines().rev().take(60).collect();
        last.join("\n")
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "--- last words of the broker, newest first\n{}",
                self.last_words()
            );
        }
        let stopped = Command::new(script("services"))
            .arg("stop")
            .arg(&self.dir)
            .stdin(Stdio::null())
            .output();
        if !stopped.is_ok_and(|output| output.status.success()) {
            eprintln!("the services in {} could not be stopped", self.dir.display());
        }
    }
}
