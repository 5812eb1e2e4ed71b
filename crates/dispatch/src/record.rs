//! What a store keeps of dispatching, as plain data, and the changes of it that are decided here.

use mayfly_core::{
    digest::Digest,
    id::{AttemptId, ExecutorId, JobId, SessionId, TenantId},
    job::RetryPolicy,
    outcome::{Cause, EndState, Outcome},
    run::RunReport,
    self_test::SelfTest,
    state::JobState,
};

use crate::{message::Opened, time::ServerTime};

mod attempt;

pub use attempt::{AttemptMove, AttemptState, IllegalAttemptMove};

/// A job, as far as dispatching looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRecord {
    /// The job.
    pub job: JobId,
    /// Whose.
    pub tenant: TenantId,
    /// Where it stands.
    pub state: JobState,
    /// When it is tried again.
    pub retry: RetryPolicy,
    /// Attempts made so far.
    pub attempts: u32,
    /// The newest attempt.
    pub current: Option<AttemptId>,
    /// A queued job is not dispatched before this.
    pub ready_at: ServerTime,
    /// A job that has not started by then, in any attempt, ends as expired.
    pub expires_at: Option<ServerTime>,
}

/// An attempt at a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRecord {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its job.
    pub job: JobId,
    /// Which try, from 1.
    pub number: u32,
    /// Where it stands.
    pub state: AttemptState,
    /// The newest publication, from 1; a scheduler that wants to publish takes the next one first.
    pub publication: u32,
    /// When the newest publication was decided.
    pub published_at: ServerTime,
    /// Whether the broker has confirmed the newest publication.
    pub confirmed: bool,
    /// How often a publication of it came back as a dead letter.
    pub dead_letters: u32,
}

/// A session. It is kept after its end for as long as its events may still arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// The session.
    pub session: SessionId,
    /// Its executor.
    pub executor: ExecutorId,
    /// Whether it is over.
    pub state: SessionState,
    /// Every event up to this number is processed.
    pub processed: u64,
    /// The end of its lease. It moves with every heartbeat that is processed, and never back.
    pub lease_end: ServerTime,
    /// The pool whose jobs it takes.
    pub pool: String,
    /// Attempts that it runs at a time.
    pub slots: u32,
    /// Slots that were free by its newest heartbeat.
    pub free_slots: u32,
    /// The newest message version that it reads.
    pub reads: u32,
    /// Whether its executor is to take nothing new.
    pub cordoned: bool,
}

/// Whether a session is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SessionState {
    /// It may hold attempts.
    Live,
    /// Over, for good.
    Ended(SessionEnd),
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SessionEnd {
    /// By its own word.
    Closed,
    /// Its lease had ended, and a tick behind everything that it had sent has been processed.
    LeaseEnded,
    /// The same executor began another session.
    SucceededByAnother,
}

/// What the server knows of the recorder's queue. One row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueRecord {
    /// Which life of the queue this is; each time that it has to be declared anew begins another one.
    pub epoch: u64,
    /// The number of the newest tick that was sent in this epoch.
    pub ticks_sent: u64,
    /// When that was decided.
    pub last_tick_at: ServerTime,
    /// The number of the newest tick that was processed in this epoch.
    pub ticks_processed: u64,
}

/// A change that has been decided, to be written in the transaction in which the records were read. The order of a list
/// of them counts. Next to each stands what has to be true of the row before, for stores that compare and set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A job gets its next attempt: the job is queued before, and dispatched after.
    Dispatched(AttemptRecord),
    /// An attempt is published, for the first time or again. The row is dispatched and has a smaller number.
    Published {
        /// The attempt.
        attempt: AttemptId,
        /// The number of this publication.
        publication: u32,
        /// When that was decided.
        at: ServerTime,
    },
    /// The broker has confirmed a publication. The row has the same number.
    PublicationConfirmed {
        /// The attempt.
        attempt: AttemptId,
        /// The number of the publication.
        publication: u32,
    },
    /// Somebody asked for the end of a job that has started. It is started before.
    CancelRequested {
        /// The job.
        job: JobId,
    },
    /// A job ends that has no attempt. It is queued before.
    JobEnded {
        /// The job.
        job: JobId,
        /// How.
        outcome: Outcome,
    },
    /// A session begins. There is no row of it.
    SessionOpened {
        /// The row.
        record: SessionRecord,
        /// What it says of itself.
        opened: Opened,
    },
    /// Events are processed. The row has a smaller number.
    EventsProcessed {
        /// The session.
        session: SessionId,
        /// The new number.
        processed: u64,
    },
    /// A lease moves. The session is live, and the row has an earlier end.
    LeaseMoved {
        /// The session.
        session: SessionId,
        /// The new end.
        lease_end: ServerTime,
        /// Slots that are free, where a heartbeat said so.
        free_slots: Option<u32>,
    },
    /// A session has these images now. It is live.
    Images {
        /// The session.
        session: SessionId,
        /// Their digests.
        images: Vec<Digest>,
    },
    /// A session has tried whether sandboxes hold on its host. It is live. Its slots are room for jobs only where they do.
    SelfTested {
        /// The session.
        session: SessionId,
        /// Its executor.
        executor: ExecutorId,
        /// What came of it.
        test: Box<SelfTest>,
    },
    /// A session ends. The row is live. What it held ends by changes of its own, in the same list.
    SessionEnded {
        /// The session.
        session: SessionId,
        /// Its executor.
        executor: ExecutorId,
        /// Why.
        end: SessionEnd,
    },
    /// An attempt starts: attempt and job are dispatched before, and started after. Its audit event belongs into the
    /// same transaction, which has to be committed before the reply goes out.
    Started {
        /// The attempt.
        attempt: AttemptId,
        /// Its job.
        job: JobId,
        /// The session that holds it from here on.
        session: SessionId,
        /// The session's executor.
        executor: ExecutorId,
        /// Which publication it had.
        publication: u32,
    },
    /// An attempt is over. It was not over before.
    AttemptEnded {
        /// The attempt.
        attempt: AttemptId,
        /// Its job.
        job: JobId,
        /// How.
        how: AttemptEnd,
        /// What becomes of the job. It was not over before.
        then: JobNext,
    },
    /// A result counts for nothing; it is kept as a fact of the audit log.
    Superseded {
        /// The attempt that it is about. There may be no such attempt.
        attempt: AttemptId,
        /// Its job, where there is such an attempt.
        job: Option<JobId>,
        /// Who sent it.
        session: SessionId,
        /// What it said.
        state: EndState,
        /// And why.
        cause: Cause,
    },
    /// The engine contradicts a report; it is kept as a fact of the audit log.
    Contradicted {
        /// The attempt that it is about. There may be no such attempt.
        attempt: AttemptId,
        /// Its job, where there is such an attempt.
        job: Option<JobId>,
        /// Who says so.
        session: SessionId,
        /// What, in words.
        contradictions: Vec<String>,
    },
    /// A publication of an unstarted attempt came back as a dead letter, and it is to be published again.
    DeadLettered {
        /// The attempt.
        attempt: AttemptId,
        /// How often that has happened now.
        times: u32,
    },
    /// A job that has not started moves to another pool: it is queued or dispatched before and after. The attempt that
    /// stands, if one does, moves with it and counts as published at that time and not confirmed.
    Adopted {
        /// The job.
        job: JobId,
        /// Its attempt that has not started.
        attempt: Option<AttemptId>,
        /// The new pool.
        pool: String,
        /// Long enough ago that the attempt is due for publication.
        published_at: ServerTime,
    },
    /// The row of the queue is this now.
    Queue(QueueRecord),
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptEnd {
    /// By the report of the session that held it.
    Reported {
        /// The session.
        session: SessionId,
        /// Its executor.
        executor: ExecutorId,
        /// What it reported, as it came.
        report: Box<RunReport>,
    },
    /// Without a report: its session died or gave it up.
    Lost {
        /// The session that held it.
        session: SessionId,
        /// `executor_lost` or `abandoned`; or `canceled_by_request`, of an attempt whose session had not heard yet that
        /// it may start.
        cause: Cause,
        /// Whether any of its code may have run.
        ran: bool,
    },
    /// Before any session had started it.
    NeverStarted {
        /// Why.
        cause: Cause,
    },
}

/// What becomes of a job whose attempt is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobNext {
    /// It is over, with this outcome.
    Ended(Outcome),
    /// It is queued again.
    Queued {
        /// And not dispatched before this.
        ready_at: ServerTime,
    },
}

impl SessionRecord {
    /// Whether it may hold attempts.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        matches!(self.state, SessionState::Live)
    }
}

impl QueueRecord {
    /// Before anything was sent.
    #[must_use]
    pub const fn new(now: ServerTime) -> Self {
        Self {
            epoch: 1,
            ticks_sent: 0,
            last_tick_at: now,
            ticks_processed: 0,
        }
    }
}
