//! What happened to jobs, recorded outside of mayfly, and what of it may not be.
//!
//! Starts are counted by the programs themselves. A [`program`] draws a number at random as its first act and says it, with
//! the test's token, on its standard output until it is over. [`Watch`](watch::Watch) hears that through the engine: it
//! attaches to each container as soon as the engine tells of its creation, beside the executor. A sandbox has neither a
//! network nor a folder of the host, so that its output is the one way out; and what is heard has passed through no
//! executor, server, broker or database, nor can any of them make the number up. A result shows by its number which start
//! it came of.
//!
//! [`History::check`] judges what it is given and asks nobody: submissions, results as the API showed them, rows of the audit
//! log, starts as they were heard, containers that are left.

mod judge;
mod recorder;
#[cfg(test)]
mod tests;
mod watch;

use serde_json::Value;

pub use self::{
    judge::{Counts, Struck},
    recorder::{Recorder, now_ms},
};

/// States that say that a program ran and ended, and how.
const RAN: [&str; 5] = [
    "succeeded",
    "failed",
    "timed_out",
    "out_of_memory",
    "limit_exceeded",
];
/// States of a job that is not over.
const ON_THE_WAY: [&str; 4] = ["queued", "dispatched", "started", "cancel_requested"];

/// What opens a line of a program's own, and what closes it.
const OPENS: &str = "history:";
const CLOSES: char = ';';

/// Of each start and end that the audit log knows: kind, job, attempt, session. For [`Row::parse`].
pub const AUDIT_ROWS: &str = "SELECT kind, job_id, attempt_id, coalesce(convert_from(body, 'UTF8')::json -> 'fact' ->> 'session', '') \
                              FROM audit_events WHERE kind IN ('run_started', 'run_finished', 'result_superseded', \
                              'job_ended') AND job_id IS NOT NULL";

/// A Python program that says when it has begun, that it goes on, and when it is over, so many milliseconds later.
///
/// It says the same number several times: a listener that comes late hears of the start all the same.
pub fn program(token: &str, run_ms: u64) -> String {
    assert!(
        !token.is_empty()
            && token
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'),
        "{token:?} is letters, digits and dashes"
    );
    let steps = (run_ms / 250).clamp(4, 240);
    format!(
        "import os, time\n\
         now = lambda: time.time_ns() // 1000000\n\
         number, begun = os.urandom(8).hex(), now()\n\
         def say(what): os.write(1, f'{OPENS}{{what}}:{token}:{{number}}:{{begun}}:{{now()}}{CLOSES}\\n'.encode())\n\
         say('begun')\n\
         for _ in range({steps}):\n    \
             time.sleep({run_ms} / 1000 / {steps})\n    \
             say('runs')\n\
         say('over')\n"
    )
}

/// All that is known of a run.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub submissions: Vec<Submission>,
    pub reads: Vec<Read>,
    pub audit: Vec<Row>,
    pub starts: Vec<Start>,
    pub faults: Vec<Fault>,
    /// Containers that the engine still has when all is over.
    pub containers_left: usize,
}

/// A job that the API accepted.
#[derive(Debug, Clone)]
pub struct Submission {
    /// What its program says.
    pub token: String,
    pub job: String,
}

/// A result, as the API showed it once. One job may be read several times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    pub job: String,
    pub state: String,
    /// What its output says which start it came of.
    pub number: Option<String>,
    /// When the answer had come, by this host's clock.
    pub at_ms: i64,
}

impl Read {
    /// From a job as `GET /v1/jobs/{job}` has it; nothing while it is not over.
    pub fn of(document: &Value, at_ms: i64) -> Option<Self> {
        let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str);
        let state = text("/state").expect("a job has a state");
        if ON_THE_WAY.contains(&state) {
            return None;
        }
        let mut numbers: Vec<String> = said(text("/stdout/text").unwrap_or("").as_bytes())
            .into_iter()
            .map(|line| line.number)
            .collect();
        numbers.dedup();
        Some(Self {
            job: text("/job").expect("a job has an id").to_owned(),
            state: state.to_owned(),
            // Two numbers in one output are no start's number.
            number: (!numbers.is_empty()).then(|| numbers.join("+")),
            at_ms,
        })
    }
}

/// One row of the audit log.
#[derive(Debug, Clone)]
pub struct Row {
    pub kind: String,
    pub job: String,
    /// Empty where it names none.
    pub attempt: String,
    /// The same.
    pub session: String,
}

impl Row {
    /// From a line that answers [`AUDIT_ROWS`].
    pub fn parse(line: &str) -> Self {
        let mut columns = line.split('|').map(ToOwned::to_owned);
        let mut next = || columns.next().expect("four columns");
        Self {
            kind: next(),
            job: next(),
            attempt: next(),
            session: next(),
        }
    }
}

/// A program that has begun, as it was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    pub token: String,
    pub number: String,
    pub container: String,
    /// By the container's labels.
    pub executor: String,
    pub session: String,
    pub begun_ms: i64,
    /// When it last said something.
    pub last_ms: i64,
    /// Whether that was that it is over.
    pub over: bool,
    /// When the engine said that the container had ended.
    pub gone_ms: Option<i64>,
}

/// Something that the test did to the fleet.
#[derive(Debug, Clone)]
pub struct Fault {
    pub what: String,
    /// Whom it concerned, where not everybody.
    pub executor: Option<String>,
    pub at_ms: i64,
}

impl Start {
    /// Whether it was under way at that time.
    pub fn runs_at(&self, at_ms: i64) -> bool {
        let ended = if self.over {
            Some(self.last_ms)
        } else {
            self.gone_ms
        };
        self.begun_ms <= at_ms && ended.is_none_or(|ended| ended > at_ms)
    }
}

impl Fault {
    /// Whether a program ran then, of the executor that it concerned.
    pub fn hit(&self, start: &Start) -> bool {
        self.executor
            .as_ref()
            .is_none_or(|executor| *executor == start.executor)
            && start.runs_at(self.at_ms)
    }

    /// Whether it has ended a program that ran then.
    pub fn cut(&self, start: &Start) -> bool {
        self.hit(start) && !start.over
    }
}

/// What a program said once.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    what: String,
    token: String,
    number: String,
    begun_ms: i64,
    now_ms: i64,
}

/// The whole lines in what was written.
fn said(bytes: &[u8]) -> Vec<Line> {
    let text = String::from_utf8_lossy(bytes);
    text.split(OPENS).skip(1).filter_map(line).collect()
}

/// One line, if all of it is there.
fn line(text: &str) -> Option<Line> {
    let (line, _) = text.split_once(CLOSES)?;
    let mut parts = line.split(':');
    let mut next = || parts.next().map(ToOwned::to_owned);
    Some(Line {
        what: next()?,
        token: next()?,
        number: next()?,
        begun_ms: next()?.parse().ok()?,
        now_ms: next()?.parse().ok()?,
    })
}
