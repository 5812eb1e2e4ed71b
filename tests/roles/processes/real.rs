//! Real processes on the machine's engine, killed and stopped as a person or the kernel would.

use std::{
    io::{BufRead as _, BufReader},
    os::unix::fs::MetadataExt as _,
    path::Path,
    process::{Child, ChildStdout, Command, Output, Stdio},
};

use serde_json::Value;

use super::support::{Mayfly, skip};

/// Prints a line, then does not end by itself.
const HANGS: &[u8] = b"import time\nprint('begun', flush=True)\ntime.sleep(3600)\n";
/// Prints a line, takes some time, and prints another.
const TAKES_A_WHILE: &[u8] = b"import time\nprint('begun', flush=True)\ntime.sleep(3)\nprint('done')\n";

/// A deployment of the test's own, so that what is on the engine can be counted.
struct Ground {
    mayfly: Mayfly,
    deployment: String,
}

/// `mayfly run`, whose program has begun.
struct Running {
    child: Child,
    /// Read on by whoever waits for its end.
    stdout: BufReader<ChildStdout>,
    job: String,
}

impl Ground {
    fn new() -> Option<Self> {
        let mayfly = Mayfly::with_python()?;
        if Command::new("docker").arg("version").output().is_err() {
            skip("the engine's own client is not here, to count containers with");
            return None;
        }
        Some(Self {
            mayfly,
            deployment: format!("processes-{}", mayfly_core::id::JobId::new()),
        })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.mayfly.command(args);
        command
            .env("MAYFLY_SANDBOX__DEPLOYMENT", &self.deployment)
            .stdin(Stdio::null());
        command
    }

    fn start(&self, program: &str, label: &str) -> Running {
        let mut child = self
            .command(&["run", "--max-attempts", "1", "--timeout", "10m", "--label", label])
            .arg(program)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("mayfly starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe was asked for"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("its output can be read");
        assert_eq!(line, "begun\n");
        let (name, value) = label.split_once('=').expect("a label has a name");
        let is_it = |job: &Value| job["labels"][name] == value;
        let job = self.jobs().into_iter().find(is_it).expect("it was accepted");
        let job = job["job"].as_str().expect("a job has an id").to_owned();
        Running { child, stdout, job }
    }

    fn lines(&self, args: &[&str]) -> Vec<Value> {
        let output = self.command(args).output().expect("mayfly starts");
        let text = String::from_utf8(output.stdout).expect("JSON is UTF-8");
        text.lines()
            .map(|line| serde_json::from_str(line).expect("a line is JSON"))
            .collect()
    }

    fn jobs(&self) -> Vec<Value> {
        self.lines(&["job", "list", "--json"])
    }

    fn state(&self, job: &str) -> (String, String) {
        let jobs = self.jobs();
        let found = jobs
            .iter()
            .find(|found| found["job"] == job)
            .expect("it is there");
        let word = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
        (word("state"), word("cause"))
    }

    fn events(&self, job: &str) -> Vec<String> {
        let events = self.lines(&["audit", "list", "--job", job, "--json"]);
        let kind = |event: &Value| event["fact"]["kind"].as_str().unwrap_or_default().to_owned();
        events.iter().map(kind).collect()
    }

    fn run(&self, program: &str) -> Output {
        self.command(&["run", program]).output().expect("mayfly starts")
    }

    fn containers(&self) -> usize {
        let filter = format!("label=mayfly.deployment={}", self.deployment);
        let listed = Command::new("docker")
            .args(["ps", "--all", "--quiet", "--filter", &filter])
            .output()
            .expect("docker starts");
        assert!(listed.status.success());
        String::from_utf8_lossy(&listed.stdout).lines().count()
    }
}

impl Running {
    fn signal(&self, name: &str) {
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -{name} {}", self.child.id())])
            .status()
            .expect("sh starts");
        assert!(sent.success());
    }

    /// Stops it at a moment at which it does not hold up everybody: the file's one writer is whoever writes, and a person
    /// who stops that one has stopped the others as well.
    fn stop(&self, database: &Path) {
        loop {
            self.signal("STOP");
            if !self.writes(database) {
                return;
            }
            self.signal("CONT");
        }
    }

    /// Whether it is inside a transaction that writes (SQLite, "WAL-mode File Format", 2.3: a lock on the shared memory).
    fn writes(&self, database: &Path) -> bool {
        let shared = database.with_extension("db-shm");
        let inode = std::fs::metadata(shared).expect("the database is in use").ino();
        let locks = std::fs::read_to_string("/proc/locks").expect("a list of locks");
        let holder = self.child.id().to_string();
        locks.lines().any(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.contains(&"WRITE")
                && words.contains(&holder.as_str())
                && words.iter().any(|word| word.ends_with(&format!(":{inode}")))
        })
    }

    fn kill(mut self) -> String {
        self.child.kill().expect("the process is ours");
        self.child.wait().expect("the process is ours");
        self.job
    }

    /// The rest of its output, and its exit code.
    fn ended(mut self) -> (String, Option<i32>) {
        let rest = std::io::read_to_string(&mut self.stdout).expect("its output can be read");
        let status = self.child.wait().expect("the process is ours");
        (rest, status.code())
    }
}

#[test]
fn of_three_that_overlap_one_is_killed_and_one_is_stopped_and_each_has_its_own_end() {
    let Some(ground) = Ground::new() else { return };
    ground.mayfly.file("hangs.py", HANGS);
    ground.mayfly.file("takes.py", TAKES_A_WHILE);
    ground.mayfly.file("ok.py", b"print('ok')\n");
    let killed = ground.start("hangs.py", "name=killed");
    let stopped = ground.start("hangs.py", "name=stopped");
    let neighbour = ground.start("takes.py", "name=neighbour");
    let survivor = neighbour.job.clone();
    let killed = killed.kill();
    assert_eq!(ground.state(&killed).0, "started", "nobody has seen to it yet");
    stopped.stop(&ground.mayfly.database());

    let next = ground.run("ok.py");
    assert_eq!((next.status.code(), &next.stdout[..]), (Some(0), &b"ok\n"[..]));

    // The killed one's job has its one end, and its trail is whole.
    let lost = ("lost".to_owned(), "executor_lost".to_owned());
    assert_eq!(ground.state(&killed), lost);
    let trail = [
        "job_submitted",
        "attempt_dispatched",
        "run_started",
        "attempt_lost",
        "job_ended",
    ];
    assert_eq!(ground.events(&killed), trail);
    // One that is merely stopped holds its lock: what becomes of its job is its own affair.
    assert_eq!(ground.state(&stopped.job).0, "started");
    let (rest, code) = neighbour.ended();
    assert_eq!((rest.as_str(), code), ("done\n", Some(0)));
    assert_eq!(ground.state(&survivor).0, "succeeded");

    let frozen = stopped.job.clone();
    stopped.signal("CONT");
    stopped.signal("INT");
    stopped.ended();
    let kinds = ground.events(&frozen);
    assert_eq!(
        kinds.iter().filter(|kind| *kind == "job_ended").count(),
        1,
        "{kinds:?}"
    );
    assert!(!kinds.contains(&"attempt_lost".to_owned()), "{kinds:?}");

    // Whoever comes later finds nothing left to be done.
    assert_eq!(ground.run("ok.py").status.code(), Some(0));
    assert_eq!(ground.events(&killed), trail);
    assert_eq!(ground.containers(), 0);
    let open = ground
        .jobs()
        .into_iter()
        .filter(|job| job["ended_at"].is_null())
        .count();
    assert_eq!(open, 0);
    let folder = ground.mayfly.database().with_file_name("processes");
    assert_eq!(std::fs::read_dir(folder).expect("a folder").count(), 0);
}
