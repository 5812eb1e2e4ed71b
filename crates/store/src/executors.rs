//! The side of a store that knows which executors there are, and which of them take jobs.
//!
//! A session needs no executor here: those of a process that runs everything by itself have none.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use mayfly_core::{
    id::{ExecutorId, KeyId, SessionId},
    self_test::SelfTest,
};
use mayfly_dispatch::{message::ExecutorFacts, record::SessionState};

use crate::error::StoreError;

/// An executor at its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewExecutor {
    /// Its id.
    pub id: ExecutorId,
    /// What it is called: a [name](crate::accounts::is_name), and the only one of that name.
    pub name: String,
    /// Whose jobs it takes.
    pub pool: String,
}

/// An executor as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorRecord {
    /// Its id.
    pub id: ExecutorId,
    /// What it is called.
    pub name: String,
    /// Whose jobs it takes.
    pub pool: String,
    /// Since when it may take part.
    pub enrolled_at: DateTime<Utc>,
    /// Whether it is to take nothing new.
    pub cordoned: bool,
    /// Its newest session, where it has had one.
    pub session: Option<SessionView>,
}

/// A session as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    /// Its id.
    pub session: SessionId,
    /// Whether it is over.
    pub state: SessionState,
    /// The pool whose jobs it takes.
    pub pool: String,
    /// Attempts that it runs at a time.
    pub slots: u32,
    /// Slots that were free by its newest heartbeat.
    pub free_slots: u32,
    /// Attempts that it has started and that are not over.
    pub running: u64,
    /// The end of its lease.
    pub lease_end: DateTime<Utc>,
    /// When it began.
    pub opened_at: DateTime<Utc>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// Its host, with the images that it has now.
    pub facts: ExecutorFacts,
    /// The newest self-test that it has told of.
    pub self_test: Option<SelfTest>,
}

/// How an executor stands, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExecutorState {
    /// It has had no session.
    NeverSeen,
    /// It takes jobs.
    Live,
    /// It is there, and takes nothing new.
    Cordoned,
    /// It is there, and takes nothing new: it has failed its self-test.
    Unfit,
    /// Its newest session is over.
    Gone,
}

impl ExecutorRecord {
    /// How it stands.
    #[must_use]
    pub fn state(&self) -> ExecutorState {
        let Some(session) = &self.session else {
            return ExecutorState::NeverSeen;
        };
        match session.state {
            SessionState::Ended(_) => ExecutorState::Gone,
            SessionState::Live if session.self_test.as_ref().is_some_and(|test| !test.is_fit()) => {
                ExecutorState::Unfit
            }
            SessionState::Live if self.cordoned => ExecutorState::Cordoned,
            SessionState::Live => ExecutorState::Live,
        }
    }
}

/// Executors, by their names. `by` is the key by which a change is asked for, none where that is done at the server itself.
///
/// The time is the caller's; a store whose database has a clock of its own replaces it by that. Each change is one
/// transaction with its audit event, in the log of [`TenantId::LOCAL`](mayfly_core::id::TenantId::LOCAL).
#[async_trait]
pub trait ExecutorStore: Send + Sync {
    /// Lets an executor take part, with its `executor_enrolled` event.
    ///
    /// # Errors
    /// [`StoreError::ExecutorExists`] where one has this id or name; [`StoreError::Refused`] for a name that none may
    /// have; trouble with the database.
    async fn enroll_executor(
        &self,
        executor: NewExecutor,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError>;

    /// An executor.
    ///
    /// # Errors
    /// Trouble with the database, or a stored value that can't be read.
    async fn find_executor(&self, id: ExecutorId) -> Result<Option<ExecutorRecord>, StoreError>;

    /// The executor of a name.
    ///
    /// # Errors
    /// As [`ExecutorStore::find_executor`].
    async fn find_executor_by_name(&self, name: &str) -> Result<Option<ExecutorRecord>, StoreError>;

    /// Executors by their names, those after one of them where it is given. At most
    /// [`MAX_PAGE`](crate::seam::MAX_PAGE).
    ///
    /// # Errors
    /// As [`ExecutorStore::find_executor`].
    async fn list_executors(
        &self,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ExecutorRecord>, StoreError>;

    /// Makes an executor take nothing new, with its `executor_cordoned` event, or take jobs again, with its
    /// `executor_uncordoned` event; nothing changes where that is so. What it has goes on. Says whether anything has
    /// changed.
    ///
    /// A cordoned executor's slots are no room for jobs of its pool, and its session is told with each reply.
    ///
    /// # Errors
    /// [`StoreError::NoSuchExecutor`]; trouble with the database.
    async fn cordon(
        &self,
        id: ExecutorId,
        cordoned: bool,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError>;
}
