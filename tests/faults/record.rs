//! What the database says of a batch, and whether that can be true.

use std::{collections::BTreeMap, path::Path};

use mayfly_core::{
    id::{AttemptId, BatchId, TenantId},
    outcome::{Cause, EndState},
};
use mayfly_store::{
    records::{AuditFilter, AuditRow, BatchRecord, JobDetails},
    seam::{JobStore as _, MAX_PAGE},
};
use mayfly_store_sqlite::SqliteStore;

use crate::{batch::Batch, support::Mayfly};

/// Everything that is recorded of a batch.
pub(crate) struct Record {
    pub(crate) batch: BatchRecord,
    pub(crate) jobs: Vec<Job>,
}

/// One job and its audit events, oldest first.
pub(crate) struct Job {
    pub(crate) item: String,
    pub(crate) details: JobDetails,
    audit: Vec<AuditRow>,
}

/// What was counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Figures {
    pub(crate) jobs: usize,
    pub(crate) attempts: usize,
    /// Starts that are on record.
    pub(crate) starts: usize,
    /// Starts whose session was lost or gave them up.
    pub(crate) lost_attempts: usize,
    /// Results that came too late to count.
    pub(crate) superseded: usize,
}

impl Record {
    /// Reads it; `None` where the batch is not there yet.
    pub(crate) fn read(database: &Path, batch: BatchId) -> Option<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let store = SqliteStore::open(database).await.expect("the database opens");
            let found = store
                .find_batch(TenantId::LOCAL, batch)
                .await
                .expect("a batch is read");
            let (mut jobs, mut after) = (Vec::new(), None);
            loop {
                let page = store
                    .list_batch_jobs(TenantId::LOCAL, batch, after, MAX_PAGE)
                    .await;
                let page = page.expect("jobs are read");
                let Some(last) = page.last() else { break };
                after = Some(last.position);
                for one in page {
                    let details = store
                        .find_job(TenantId::LOCAL, one.job.id)
                        .await
                        .expect("a job is read");
                    let filter = AuditFilter {
                        job: Some(one.job.id),
                        attempt: None,
                    };
                    let audit = store.list_audit(TenantId::LOCAL, filter, MAX_PAGE).await;
                    jobs.push(Job {
                        item: one.item,
                        details: details.expect("the job is there"),
                        audit: audit.expect("events are read"),
                    });
                }
            }
            Some(Self { batch: found?, jobs })
        })
    }

    /// P1 and P2: each item is there once, each job has one end, each attempt started at most once and has one end, and
    /// no result but one is the job's.
    pub(crate) fn assert_each_job_has_one_result(&self, items: usize) -> Figures {
        assert_eq!(
            self.batch.items,
            Some(items as u64),
            "every item was accepted, none of them twice"
        );
        assert_eq!(self.jobs.len(), items);
        let names: std::collections::BTreeSet<&str> = self.jobs.iter().map(|job| &*job.item).collect();
        assert_eq!(names.len(), items);
        let mut figures = Figures {
            jobs: items,
            ..Figures::default()
        };
        for job in &self.jobs {
            job.assert_one_result(&mut figures);
        }
        figures
    }

    /// P6: whatever happened to us, every program did what it does, and none is blamed.
    pub(crate) fn assert_all_succeeded(&self) {
        for job in &self.jobs {
            let outcome = job.details.job.outcome.as_ref().expect("the job is over");
            assert_eq!(
                (outcome.state, outcome.cause),
                (EndState::Succeeded, Cause::Exited),
                "{}: {outcome:?}; attempts ended by {:?}",
                job.item,
                job.causes()
            );
            let (last, earlier) = job
                .causes()
                .split_last()
                .map(|(last, rest)| (*last, rest.to_vec()))
                .expect("attempts");
            assert_eq!(last, Some(Cause::Exited));
            for cause in earlier {
                let ours = [Cause::ExecutorLost, Cause::Abandoned, Cause::EngineFailure];
                assert!(
                    cause.is_some_and(|cause| ours.contains(&cause)),
                    "{}: {cause:?}",
                    job.item
                );
            }
        }
    }

    /// Ids of the containers that reports name.
    pub(crate) fn containers(&self) -> std::collections::BTreeSet<String> {
        let attempts = self.jobs.iter().flat_map(|job| &job.details.attempts);
        let sandboxes = attempts.filter_map(|attempt| attempt.report.as_ref()?.sandbox.as_ref());
        sandboxes.map(|sandbox| sandbox.container_id.clone()).collect()
    }
}

impl Job {
    fn count(&self, kind: &str) -> usize {
        self.audit.iter().filter(|event| event.kind == kind).count()
    }

    fn starts(&self) -> usize {
        self.count("run_started")
    }

    pub(crate) fn causes(&self) -> Vec<Option<Cause>> {
        self.details
            .attempts
            .iter()
            .map(|attempt| attempt.cause)
            .collect()
    }

    fn assert_one_result(&self, figures: &mut Figures) {
        let (item, kinds) = (
            &self.item,
            self.audit.iter().map(|event| &*event.kind).collect::<Vec<_>>(),
        );
        assert!(
            self.details.job.state.end().is_some(),
            "{item} is not over: {kinds:?}"
        );
        assert!(self.details.job.outcome.is_some(), "{item} has no outcome");
        assert_eq!(
            (self.count("job_submitted"), self.count("job_ended")),
            (1, 1),
            "{item}: {kinds:?}"
        );
        assert_eq!(
            kinds.last(),
            Some(&"job_ended"),
            "{item}: nothing but what is superseded follows: {kinds:?}"
        );
        let mut of = BTreeMap::<AttemptId, BTreeMap<&str, usize>>::new();
        for event in &self.audit {
            if let Some(attempt) = event.attempt {
                *of.entry(attempt).or_default().entry(&event.kind).or_default() += 1;
            }
        }
        assert_eq!(of.len(), self.details.attempts.len(), "{item}: {kinds:?}");
        for (index, attempt) in self.details.attempts.iter().enumerate() {
            let count = |kind| {
                of.get(&attempt.id)
                    .and_then(|of| of.get(kind))
                    .copied()
                    .unwrap_or(0)
            };
            let (started, ended) = (
                count("run_started"),
                count("run_finished") + count("attempt_lost"),
            );
            assert_eq!(
                attempt.number as usize,
                index + 1,
                "{item}: attempts are numbered"
            );
            assert_eq!(count("attempt_dispatched"), 1, "{item}: {kinds:?}");
            assert_eq!(
                (started, ended),
                (1, 1),
                "{item}: each attempt started once and ended once: {kinds:?}"
            );
            assert!(attempt.ended_at.is_some() && attempt.cause.is_some(), "{item}");
            figures.lost_attempts += count("attempt_lost");
            figures.superseded += count("superseded");
        }
        figures.attempts += self.details.attempts.len();
        figures.starts += self.starts();
    }
}

/// Every job has one result, in the file and in the database, and nothing is left.
pub(crate) fn assert_whole(mayfly: &Mayfly, batch: &Batch<'_>) -> Record {
    let record = Record::read(&mayfly.database(), batch.id).expect("the batch is there");
    let figures = record.assert_each_job_has_one_result(batch.items);
    record.assert_all_succeeded();
    let results = batch.results();
    assert_eq!(results.len(), batch.items);
    for (item, lines) in &results {
        assert_eq!(lines.len(), 1, "{item} has one result");
    }
    batch.census.assert_no_orphans(&record.containers());
    eprintln!("{}", serde_json::json!({"figures": figures}));
    record
}
