//! What of a history may not be.

use std::collections::{BTreeMap, BTreeSet};

use super::{History, RAN, Read, Row, Start};

/// What was counted. Of the five after `results` each must be 0.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Jobs that were accepted.
    pub jobs: usize,
    /// Those that have a result.
    pub results: usize,
    /// Accepted, without a result.
    pub lost: usize,
    /// Second results of a job, and starts beyond those that were granted.
    pub double: usize,
    /// Programs that said something after their job's result had been read.
    pub resurrected: usize,
    /// Results and starts that no submission, and results that no start, stands behind.
    pub phantom: usize,
    /// Containers that are left.
    pub orphan: usize,
    /// Jobs whose program ran to its end.
    pub done: usize,
    /// Programs that were heard to begin.
    pub starts: usize,
    /// Results that the audit log has as superseded.
    pub superseded: usize,
    /// What was done to the fleet, by what it was.
    pub faults: BTreeMap<String, Struck>,
    /// What each of the five counts is made of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
}

/// Faults of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Struck {
    pub faults: usize,
    /// Those that came while a program ran of the executor concerned.
    pub hits: usize,
    /// Those that ended a program that ran.
    pub cuts: usize,
}

impl Counts {
    /// Whether the run says anything and nothing was found.
    ///
    /// # Errors
    /// What speaks against it.
    pub fn verdict(&self) -> Result<(), String> {
        let found = self.lost + self.double + self.resurrected + self.phantom + self.orphan;
        if found > 0 {
            return Err(format!("{} things that may not be: {:#?}", found, self.findings));
        }
        if self.done * 2 < self.jobs || self.jobs == 0 {
            return Err(format!(
                "{} of {} jobs were done: such a run shows nothing",
                self.done, self.jobs
            ));
        }
        if self.faults.values().all(|of| of.hits == 0) {
            return Err("no fault hit a running job: such a run shows nothing".to_owned());
        }
        Ok(())
    }
}

impl History {
    /// Counts what is there and what may not be.
    pub fn check(&self) -> Counts {
        let mut counts = Counts {
            jobs: self.submissions.len(),
            starts: self.starts.len(),
            superseded: self.rows("result_superseded").count(),
            ..Counts::default()
        };
        for fault in &self.faults {
            let of = counts.faults.entry(fault.what.clone()).or_default();
            of.faults += 1;
            of.hits += usize::from(self.starts.iter().any(|start| fault.hit(start)));
            of.cuts += usize::from(self.starts.iter().any(|start| fault.cut(start)));
        }
        let mut reads = BTreeMap::<&str, Vec<&Read>>::new();
        for read in &self.reads {
            reads.entry(&read.job).or_default().push(read);
        }
        let jobs: BTreeMap<&str, &str> = self
            .submissions
            .iter()
            .map(|submission| (&*submission.token, &*submission.job))
            .collect();
        self.results(&reads, &mut counts);
        self.double(&reads, &jobs, &mut counts);
        self.phantom(&reads, &jobs, &mut counts);
        for start in &self.starts {
            let read = jobs.get(&*start.token).and_then(|job| reads.get(job));
            let first = read.and_then(|reads| reads.iter().map(|read| read.at_ms).min());
            if first.is_some_and(|first| start.last_ms > first) {
                counts.resurrected += 1;
                counts
                    .findings
                    .push(format!("resurrected: ran after its result was read: {start:?}"));
            }
        }
        counts.orphan = self.containers_left;
        if counts.orphan > 0 {
            counts
                .findings
                .push(format!("orphan: {} containers are left", counts.orphan));
        }
        counts
    }

    fn rows<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Row> {
        self.audit.iter().filter(move |row| row.kind == kind)
    }

    fn results(&self, reads: &BTreeMap<&str, Vec<&Read>>, counts: &mut Counts) {
        for submission in &self.submissions {
            let Some(found) = reads.get(&*submission.job) else {
                counts.lost += 1;
                counts.findings.push(format!("lost: no result of {submission:?}"));
                continue;
            };
            counts.results += 1;
            counts.done += usize::from(found.iter().all(|read| RAN.contains(&&*read.state)));
        }
    }

    /// Two results of one job, by what was read and by what is recorded; and more starts of a job under one session than that
    /// session was granted. A start that nobody granted is one too many.
    fn double(&self, reads: &BTreeMap<&str, Vec<&Read>>, jobs: &BTreeMap<&str, &str>, counts: &mut Counts) {
        for (job, reads) in reads {
            let results: BTreeSet<(&str, Option<&str>)> = reads
                .iter()
                .map(|read| (&*read.state, read.number.as_deref()))
                .collect();
            if results.len() > 1 {
                counts.double += 1;
                counts
                    .findings
                    .push(format!("double: job {job} was read as {results:?}"));
            }
        }
        // A run that ends by trouble of ours is reported too, and another attempt follows: each attempt has one report.
        for kind in ["run_finished", "job_ended"] {
            let mut of = BTreeMap::<(&str, &str), usize>::new();
            for row in self.rows(kind) {
                let attempt = if kind == "run_finished" { &*row.attempt } else { "" };
                *of.entry((&row.job, attempt)).or_default() += 1;
            }
            for ((job, _), times) in of.into_iter().filter(|(_, times)| *times > 1) {
                counts.double += 1;
                counts
                    .findings
                    .push(format!("double: job {job} has {times} records of {kind}"));
            }
        }
        let mut granted = BTreeMap::<(&str, &str), usize>::new();
        for row in self.rows("run_started") {
            *granted.entry((&row.job, &row.session)).or_default() += 1;
        }
        let mut heard = BTreeMap::<(&str, &str), Vec<&Start>>::new();
        for start in &self.starts {
            if let Some(job) = jobs.get(&*start.token) {
                heard.entry((job, &start.session)).or_default().push(start);
            }
        }
        for (of, starts) in heard {
            let granted = granted.get(&of).copied().unwrap_or(0);
            if starts.len() > granted {
                counts.double += starts.len() - granted;
                counts.findings.push(format!(
                    "double: {granted} starts were granted, and these were heard: {starts:?}"
                ));
            }
        }
    }

    fn phantom(&self, reads: &BTreeMap<&str, Vec<&Read>>, jobs: &BTreeMap<&str, &str>, counts: &mut Counts) {
        let submitted: BTreeMap<&str, &str> = jobs.iter().map(|(token, job)| (*job, *token)).collect();
        for (job, reads) in reads {
            let Some(token) = submitted.get(job) else {
                counts.phantom += 1;
                counts
                    .findings
                    .push(format!("phantom: a result of job {job}, which nobody submitted"));
                continue;
            };
            let unheard = reads.iter().find(|read| match &read.number {
                Some(number) => !self
                    .starts
                    .iter()
                    .any(|start| start.token == *token && start.number == *number),
                None => RAN.contains(&&*read.state),
            });
            if let Some(read) = unheard {
                counts.phantom += 1;
                counts.findings.push(format!(
                    "phantom: no start of `{token}` was heard behind {read:?}"
                ));
            }
        }
        for start in self
            .starts
            .iter()
            .filter(|start| !jobs.contains_key(&*start.token))
        {
            counts.phantom += 1;
            counts
                .findings
                .push(format!("phantom: nobody submitted {start:?}"));
        }
    }
}
