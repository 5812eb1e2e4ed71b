//! One kind, once: jobs under way, the fault, its undoing, every job to its end, the judgement.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use super::{
    client::{Client, Wish},
    ground::{EXECUTORS, Ground},
    kinds::Kind,
};
use crate::{
    history::{AUDIT_ROWS, Counts, History, Recorder},
    support::SOON,
};

/// As long as most faults take.
const RUNS_MS: u64 = 1_000;
const SHORT_MS: u64 = 200;
/// At the beginning: every slot is taken, and one waits.
const AT_FIRST: usize = 5;
/// The first of them, so that something runs still when the others are over.
const ANCHOR_MS: u64 = 2_000;
/// How often a fault is done at most until it comes while a job runs.
const TRIES: u32 = 4;
/// Enough for whatever befalls a job here.
const ATTEMPTS: u32 = 10;
/// Until every job of a kind is over.
const PATIENCE: Duration = Duration::from_secs(180);

/// The jobs of a kind.
pub struct Jobs {
    prefix: String,
    /// Those of other kinds.
    faults_before: usize,
    attempts: u32,
    count: usize,
    /// How often the fault came while no job ran.
    missed: u32,
    client: Client,
    /// By what was asked for.
    accepted: BTreeMap<String, Wish>,
    /// Submissions that are not accepted yet.
    meanwhile: JoinSet<(String, Wish)>,
    /// Jobs that may end in another way than by success: how.
    excused: BTreeMap<String, &'static [&'static str]>,
}

/// What came of a kind.
#[derive(Debug, Clone)]
pub struct Ran {
    pub counts: Counts,
    /// Jobs whose end is not the truth about their program.
    pub wrong: Vec<String>,
    pub seconds: f64,
}

impl Jobs {
    fn new(ground: &Ground, kind: &Kind, prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            faults_before: ground.recorder.history(&[], 0).faults.len(),
            attempts: if kind.harms_nothing { 1 } else { ATTEMPTS },
            count: 0,
            missed: 0,
            client: ground.client.clone(),
            accepted: BTreeMap::new(),
            meanwhile: JoinSet::new(),
            excused: BTreeMap::new(),
        }
    }

    fn wish(&mut self, run_ms: u64) -> Wish {
        self.count += 1;
        Wish {
            token: format!("{}{}", self.prefix, self.count),
            run_ms,
            attempts: self.attempts,
        }
    }

    /// Submits one, and returns when it is accepted.
    pub async fn submit(&mut self, recorder: &Recorder, run_ms: u64) -> String {
        self.submit_with(recorder, run_ms, self.attempts).await
    }

    /// The same, with so many attempts.
    pub async fn submit_with(&mut self, recorder: &Recorder, run_ms: u64, attempts: u32) -> String {
        let wish = Wish {
            attempts,
            ..self.wish(run_ms)
        };
        let job = self.client.submit(&wish).await;
        recorder.accepted(&wish.token, &job);
        self.accepted.insert(job.clone(), wish);
        job
    }

    /// Submits some while something is away; whoever takes that long, they are accepted in the end.
    pub fn submit_meanwhile(&mut self, count: usize) {
        for _ in 0..count {
            let (client, wish) = (self.client.clone(), self.wish(SHORT_MS));
            self.meanwhile
                .spawn(async move { (client.submit(&wish).await, wish) });
        }
    }

    /// A job that may also end like this.
    pub fn excuse(&mut self, job: &str, ends: &'static [&'static str]) {
        self.excused.insert(job.to_owned(), ends);
    }

    /// What the program of a job says.
    pub fn token(&self, job: &str) -> String {
        self.accepted[job].token.clone()
    }

    /// Whether this program runs for longer than any grace.
    pub fn is_long(&self, token: &str) -> bool {
        let long = |wish: &Wish| wish.token == token && wish.run_ms > 5_000;
        self.accepted.values().any(long)
    }

    /// How long the jobs at first run. How long a fault takes to come is up to the machine: where it came too late there are
    /// some that last twice as long as before, and end one after the other, so that one outlives both a slot that gets free
    /// and the end of its executor.
    fn at_first(&self) -> [u64; AT_FIRST] {
        let mut run_ms = [RUNS_MS; AT_FIRST];
        let anchor = ANCHOR_MS << self.missed;
        if self.missed == 0 {
            run_ms[0] = anchor;
        } else {
            run_ms[..3].copy_from_slice(&[anchor, 2 * anchor, 3 * anchor]);
        }
        run_ms
    }

    /// Until both executors have something to do.
    pub async fn get_under_way(&mut self, ground: &Ground) {
        for run_ms in self.at_first() {
            self.submit(&ground.recorder, run_ms).await;
        }
        let begun = Instant::now();
        while ground.busy() < EXECUTORS {
            assert!(begun.elapsed() < 2 * SOON, "an executor takes no job");
            tokio::time::sleep(Duration::from_millis(20)).await;
            // What was there at first may be over before an executor is back.
            if ground.recorder.under_way().is_empty() && begun.elapsed() > Duration::from_secs(2) {
                for _ in 0..AT_FIRST {
                    self.submit(&ground.recorder, RUNS_MS).await;
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    }

    /// How many of the faults so far came while a job ran.
    fn hits(&self, recorder: &Recorder) -> usize {
        let history = recorder.history(&[], 0);
        let faults = history.faults.iter().skip(self.faults_before);
        faults
            .filter(|fault| history.starts.iter().any(|start| fault.hit(start)))
            .count()
    }

    /// Reads every job until it is over, and once more.
    async fn end(&mut self, recorder: &Recorder) -> Vec<String> {
        while let Some(submitted) = self.meanwhile.join_next().await {
            let (job, wish) = submitted.expect("it does not panic");
            recorder.accepted(&wish.token, &job);
            self.accepted.insert(job, wish);
        }
        let (begun, mut open, mut wrong) = (Instant::now(), self.accepted.clone(), Vec::new());
        while !open.is_empty() && begun.elapsed() < PATIENCE {
            for job in open.keys().cloned().collect::<Vec<_>>() {
                let document = self.client.job(&job).await;
                if recorder.read(&document) {
                    open.remove(&job);
                    let state = document["state"].as_str().unwrap_or("?");
                    let excused = self.excused.get(&job).is_some_and(|ends| ends.contains(&state));
                    if state != "succeeded" && !excused {
                        wrong.push(format!("{job}: {document:#}"));
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for job in self.accepted.keys() {
            recorder.read(&self.client.job(job).await);
        }
        wrong
    }
}

/// Goes through one kind.
pub async fn run(ground: &mut Ground, kind: &Kind, prefix: &str) -> Ran {
    let begun = Instant::now();
    let mut jobs = Jobs::new(ground, kind, prefix);
    // On a slow machine jobs may be over before a point is come to: then it is done again.
    for tries in 0..TRIES {
        jobs.missed = tries;
        jobs.get_under_way(ground).await;
        kind.fault.strike(ground, &mut jobs).await;
        if jobs.hits(&ground.recorder) > 0 {
            break;
        }
    }
    for _ in 0..2 {
        jobs.submit(&ground.recorder, SHORT_MS).await;
    }
    let wrong = jobs.end(&ground.recorder).await;
    let left = ground.comes_to_rest().await;
    Ran {
        counts: of_kind(ground, &jobs, left).check(),
        wrong,
        seconds: begun.elapsed().as_secs_f64(),
    }
}

/// What the history has of these jobs.
fn of_kind(ground: &Ground, jobs: &Jobs, containers_left: usize) -> History {
    let audit = ground.fleet.services.ask(AUDIT_ROWS);
    let mut history = ground.recorder.history(&audit, containers_left);
    let ours = |job: &String| jobs.accepted.contains_key(job);
    history.submissions.retain(|submission| ours(&submission.job));
    history.reads.retain(|read| ours(&read.job));
    history.audit.retain(|row| ours(&row.job));
    history
        .starts
        .retain(|start| start.token.starts_with(&jobs.prefix));
    history.faults.drain(..jobs.faults_before);
    history
}

impl Ran {
    /// Faults, and those of them that came while a job ran.
    pub fn faults(&self) -> (usize, usize) {
        let struck = self.counts.faults.values();
        struck.fold((0, 0), |(faults, hits), of| (faults + of.faults, hits + of.hits))
    }

    /// What speaks against it.
    pub fn verdict(&self) -> Result<(), String> {
        self.counts.verdict()?;
        if self.wrong.is_empty() {
            return Ok(());
        }
        Err(format!(
            "{} jobs did not end as their programs did: {}",
            self.wrong.len(),
            self.wrong.join("\n")
        ))
    }

    /// For whoever watches.
    pub fn line(&self) -> String {
        let (faults, hits) = self.faults();
        format!(
            "{:>5.1} s, {} jobs, {hits} of {faults} faults hit",
            self.seconds, self.counts.jobs
        )
    }
}
