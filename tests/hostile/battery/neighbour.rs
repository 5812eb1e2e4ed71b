//! A neighbour that was there before the programs and is there after them: another process, as another user of the host
//! would run it. It beats, and a beat that is late or says that something has changed is an effect.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{ground, table::Runtime};
use crate::{
    process::{Signal, await_until, send},
    support::Mayfly,
};

const PROGRAM: &str = include_str!("../programs/neighbour.py");
/// Longest time without a beat. Two processors are shared by five sandboxes, their runtimes and the engine here.
const LONGEST: Duration = Duration::from_secs(20);
/// How long it may take to be there, and to be gone.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running one.
pub(crate) struct Neighbour {
    mayfly: Child,
    secret: String,
    heard: Arc<Mutex<Heard>>,
}

#[derive(Debug)]
struct Heard {
    beats: u64,
    last: Instant,
    longest: Duration,
    changes: Vec<String>,
    over: bool,
}

impl Neighbour {
    /// Starts one, and waits for its first beat.
    pub(crate) fn start(mayfly: &Mayfly, runtime: Runtime, engine: &str) -> Self {
        let secret = ground::secret();
        let program = mayfly.file("neighbour.py", PROGRAM.as_bytes());
        let mut command: Command = mayfly.command([
            "run",
            "--quiet",
            "--max-attempts",
            "1",
            "--timeout",
            "1h",
            "--stdout",
            "1KiB",
            "--runtime",
            runtime.name(),
        ]);
        command
            .args(["--env", &format!("NEIGHBOUR_SECRET={secret}")])
            .arg(program)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if !engine.is_empty() {
            command.env("DOCKER_HOST", engine);
        }
        let mut child = command.spawn().expect("mayfly starts");
        let stdout = child.stdout.take().expect("a pipe was asked for");
        let heard = Heard {
            beats: 0,
            last: Instant::now(),
            longest: Duration::ZERO,
            changes: Vec::new(),
            over: false,
        };
        let heard = Arc::new(Mutex::new(heard));
        let listener = Arc::clone(&heard);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                lock(&listener).hear(&line);
            }
            lock(&listener).over = true;
        });
        let neighbour = Self {
            mayfly: child,
            secret,
            heard,
        };
        await_until("the neighbour's first beat", PATIENCE, || {
            let heard = lock(&neighbour.heard);
            assert!(!heard.over, "the neighbour has ended before it began");
            heard.beats > 0
        });
        neighbour
    }

    /// What must never be in any output but its own.
    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }

    /// What has happened to it since it was last asked.
    pub(crate) fn effects(&self) -> Vec<String> {
        let mut heard = lock(&self.heard);
        let mut effects = std::mem::take(&mut heard.changes);
        if heard.over {
            effects.push("the neighbour has ended".to_owned());
        }
        let silent = heard.last.elapsed().max(heard.longest);
        if silent > LONGEST {
            effects.push(format!("the neighbour did not beat for {silent:?}"));
        }
        effects
    }

    /// How often it has beaten, and the longest time without.
    pub(crate) fn beats(&self) -> (u64, Duration) {
        let heard = lock(&self.heard);
        (heard.beats, heard.longest)
    }

    /// Asks for its end, as a person does with Ctrl-C; what is wrong with that.
    pub(crate) fn end(mut self) -> Vec<String> {
        if self.mayfly.try_wait().is_ok_and(|ended| ended.is_none()) {
            send(self.mayfly.id(), Signal::TERM);
        }
        let mut code = None;
        await_until("the neighbour's end", PATIENCE, || {
            code = self.mayfly.try_wait().expect("the child is ours");
            code.is_some()
        });
        match code.and_then(|status| status.code()) {
            Some(120) => Vec::new(),
            other => vec![format!("the neighbour was not there to be canceled: {other:?}")],
        }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        if matches!(self.mayfly.try_wait(), Ok(None)) {
            self.mayfly.kill().ok();
            self.mayfly.wait().ok();
        }
    }
}

impl Heard {
    fn hear(&mut self, line: &str) {
        if line == format!("beat {}", self.beats) {
            if self.beats > 0 {
                self.longest = self.longest.max(self.last.elapsed());
            }
            self.beats += 1;
            self.last = Instant::now();
        } else {
            self.changes.push(format!("the neighbour says: {line}"));
        }
    }
}

fn lock(heard: &Mutex<Heard>) -> std::sync::MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_beat_that_is_missing_or_says_more_is_an_effect() {
    let mut heard = Heard {
        beats: 0,
        last: Instant::now(),
        longest: Duration::ZERO,
        changes: Vec::new(),
        over: false,
    };
    heard.hear("beat 0");
    heard.hear("beat 1");
    assert_eq!((heard.beats, heard.changes.len()), (2, 0));
    heard.hear("beat 3");
    heard.hear("changed: {'files': []}");
    assert_eq!((heard.beats, heard.changes.len()), (2, 2));
}
