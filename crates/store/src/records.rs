//! What a store takes and gives.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use mayfly_core::{
    digest::{Digest, Salt},
    id::{AttemptId, AuditEventId, BatchId, ExecutorId, JobId, SessionId, TenantId},
    image::{ImageName, ImagePin},
    job::ResolvedJob,
    outcome::{Cause, EndState, Outcome},
    run::RunReport,
    state::JobState,
};

mod filter;

pub use filter::{JobFilter, JobPage, Lead};

/// A set of executors with the same runtime, posture and images, by its name.
pub type Pool = str;

/// A job on its way into the store.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// Its id.
    pub id: JobId,
    /// Whose.
    pub tenant: TenantId,
    /// Which executors may take it.
    pub pool: String,
    /// All that it is.
    pub resolved: Arc<ResolvedJob>,
    /// The tenant's labels.
    pub labels: BTreeMap<String, String>,
    /// Among the tenant's own jobs the higher goes first.
    pub priority: i16,
    /// It is not dispatched before this.
    pub not_before: Option<DateTime<Utc>>,
    /// When it has waited too long.
    pub expires_at: Option<DateTime<Utc>>,
    /// Whether its content is kept after its end.
    pub retain_source: bool,
    /// 32 random bytes, of this job alone.
    pub salt: Salt,
    /// Which of which batch it is, where it is one of any.
    pub batch: Option<BatchPlace>,
    /// What its submission is known by, so that it may be repeated.
    pub idempotency: Option<Idempotency>,
}

/// How long a submission is known by its idempotency key, from then on. Later the key means nothing, and may be used for
/// another job.
pub const IDEMPOTENCY_KEPT: Duration = Duration::from_hours(24);

/// Most bytes that an idempotency key has.
pub const MAX_KEY_BYTES: usize = 255;

/// What a submission is known by. Whoever does not know what came of one repeats it under the same key, and gets the job
/// that it has made; the same key with another body is refused.
#[derive(Clone, PartialEq, Eq)]
pub struct Idempotency {
    key: String,
    body: Digest,
}

/// A text that can be no idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an idempotency key has 1 to {MAX_KEY_BYTES} bytes, not {0}")]
pub struct BadKey(usize);

impl Idempotency {
    /// A key of the tenant's, and the digest of all that the submission asks for.
    ///
    /// # Errors
    /// The key is empty, or longer than [`MAX_KEY_BYTES`].
    pub fn new(key: impl Into<String>, body: Digest) -> Result<Self, BadKey> {
        let key = key.into();
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(BadKey(key.len()));
        }
        Ok(Self { key, body })
    }

    /// What is stored for the key. Nothing of a tenant stands there in clear.
    #[must_use]
    pub fn name(&self) -> Digest {
        Digest::of(self.key.as_bytes())
    }

    /// What is stored for the body: a commitment under the key, which itself is not stored. So whoever reads the row of a
    /// job whose source is erased can't tell it by guessing, where the key can't be guessed.
    #[must_use]
    pub fn commitment(&self) -> Digest {
        let under = Digest::of(&[b"mayfly idempotency ", self.key.as_bytes()].concat());
        Salt::from_bytes(*under.as_bytes()).commit(&self.body)
    }
}

impl fmt::Debug for Idempotency {
    /// Without the key, which is content of the tenant.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Idempotency(…)")
    }
}

/// Most bytes that the name of an item has.
pub const MAX_ITEM_BYTES: usize = 255;

/// Which of which batch a job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchPlace {
    /// The batch.
    pub batch: BatchId,
    /// The name of the item that it is made from: not empty, at most [`MAX_ITEM_BYTES`], and the only one of that name in
    /// the batch. Content of the tenant.
    pub item: String,
}

/// What a submission came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    /// It is accepted.
    Accepted,
    /// The item, or what the idempotency key stands for, was accepted before, as this job, which stays as it is; nothing
    /// of the new one is kept.
    Existing(JobId),
}

/// A batch at its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBatch {
    /// Its id.
    pub id: BatchId,
    /// Whose.
    pub tenant: TenantId,
    /// What it is made from, for people. Content of the tenant.
    pub input: String,
}

/// A batch as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchRecord {
    /// Its id.
    pub id: BatchId,
    /// Whose.
    pub tenant: TenantId,
    /// What it was made from, for people; empty once that is erased.
    pub input: String,
    /// When it began.
    pub created_at: DateTime<Utc>,
    /// How many jobs it has, once all of them are accepted; a batch without it was interrupted before.
    pub items: Option<u64>,
    /// Its jobs that have not started, or wait for a further attempt.
    pub waiting: u64,
    /// Its jobs that have started.
    pub running: u64,
    /// Its jobs that are over, by how they ended.
    pub ended: BTreeMap<EndState, u64>,
}

impl BatchRecord {
    /// How many of its jobs are accepted.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.waiting + self.running + self.over()
    }

    /// How many of its jobs are over.
    #[must_use]
    pub fn over(&self) -> u64 {
        self.ended.values().sum()
    }
}

/// A job of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchJob {
    /// Its place, from 1, in the order in which the batch's jobs were accepted.
    pub position: u64,
    /// The name of its item; empty once it is erased.
    pub item: String,
    /// The job.
    pub job: JobRecord,
}

/// A moment in the order in which ends of jobs are committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndMark(u64);

impl EndMark {
    /// The mark that a store counts so.
    #[must_use]
    pub const fn from_count(count: u64) -> Self {
        Self(count)
    }

    /// How the store counts it.
    #[must_use]
    pub const fn count(self) -> u64 {
        self.0
    }
}

/// Jobs of a batch that have ended one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchEnds {
    /// The jobs, in the order in which their ends were committed.
    pub jobs: Vec<BatchJob>,
    /// Up to here there are no others.
    pub upto: EndMark,
}

/// A job as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRecord {
    /// Its id.
    pub id: JobId,
    /// Whose.
    pub tenant: TenantId,
    /// Where it stands.
    pub state: JobState,
    /// The image as it was named.
    pub image: ImageName,
    /// What that meant at submission.
    pub image_digest: Digest,
    /// The policy that was applied.
    pub policy_version: Digest,
    /// The tenant's labels.
    pub labels: BTreeMap<String, String>,
    /// Attempts so far.
    pub attempts: u32,
    /// The batch that it is one of, where it is one of any.
    pub batch: Option<BatchId>,
    /// When it was accepted.
    pub submitted_at: DateTime<Utc>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// How it ended.
    pub outcome: Option<Outcome>,
}

/// How a job stands, in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobStanding {
    /// The job.
    pub id: JobId,
    /// Where it stands.
    pub state: JobState,
    /// Attempts so far.
    pub attempts: u32,
}

/// An attempt as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptSummary {
    /// Its id.
    pub id: AttemptId,
    /// From 1.
    pub number: u32,
    /// Who started it.
    pub executor: Option<ExecutorId>,
    /// In which session.
    pub session: Option<SessionId>,
    /// When its start was committed.
    pub started_at: Option<DateTime<Utc>>,
    /// When its end was.
    pub ended_at: Option<DateTime<Utc>>,
    /// Why it is over.
    pub cause: Option<Cause>,
    /// What its run reported, outputs included.
    pub report: Option<RunReport>,
}

/// A job with everything that is known of it.
#[derive(Debug, Clone, PartialEq)]
pub struct JobDetails {
    /// The job.
    pub job: JobRecord,
    /// All that it is; none once that is erased.
    pub resolved: Option<ResolvedJob>,
    /// Its attempts, in order.
    pub attempts: Vec<AttemptSummary>,
}

impl JobDetails {
    /// The report of the run that the job's outcome comes from.
    #[must_use]
    pub fn report(&self) -> Option<&RunReport> {
        self.attempts.last().and_then(|attempt| attempt.report.as_ref())
    }
}

/// Which audit events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Those of one job.
    pub job: Option<JobId>,
    /// Those of one attempt.
    pub attempt: Option<AttemptId>,
}

/// An audit event as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// Its id.
    pub id: AuditEventId,
    /// When.
    pub at: DateTime<Utc>,
    /// On which job.
    pub job: Option<JobId>,
    /// On which attempt.
    pub attempt: Option<AttemptId>,
    /// What kind of fact.
    pub kind: String,
    /// The canonical bytes.
    pub body: Vec<u8>,
}

/// An entry of the image catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageEntry {
    /// The name that jobs use.
    pub name: String,
    /// What it means.
    pub pin: ImagePin,
    /// Since when.
    pub pinned_at: DateTime<Utc>,
}

/// A pool in which something is left that somebody has to end: a session, or a job that nobody else will run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenPool {
    /// Its name.
    pub pool: String,
    /// Its sessions that are not over.
    pub sessions: Vec<OpenSession>,
    /// Whether it has jobs of no batch that are not over.
    pub has_jobs: bool,
}

/// A session that is not over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenSession {
    /// Its id.
    pub session: SessionId,
    /// Whose life it is.
    pub executor: ExecutorId,
    /// The end of its lease.
    pub lease_end: DateTime<Utc>,
}

/// What a request to cancel came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelAnswer {
    /// It had not started, and is over.
    Canceled,
    /// It has started; its run is being ended.
    Requested,
    /// It was over already.
    Over,
}
