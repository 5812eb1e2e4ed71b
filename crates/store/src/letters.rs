//! The side of a store that keeps what the broker or a role has set aside, for a person to look at.
//!
//! Dead letters are kept here and not at the broker, where one reader has what no other one sees: each server lists all of
//! them, and any of them replays one.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use mayfly_core::{
    digest::Digest,
    id::{AttemptId, JobId, KeyId, TenantId},
};
use mayfly_dispatch::{ledger::Context, message::DispatchMessage};

use crate::error::StoreError;

/// Most letters about attempts that are kept; the oldest go. What became of their jobs is on the jobs' own record.
pub const MOST_ABOUT_ATTEMPTS: u32 = 10_000;
/// Most letters that are kept with what they hold, since nothing else says what that was. No further ones are taken.
pub const MOST_WITH_CONTENT: u32 = 1_000;
/// Most bytes that those hold together, the last one aside.
pub const MOST_CONTENT_BYTES: u64 = 64 << 20;

/// The queue that a message was in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LetterOrigin {
    /// The jobs of its pool.
    Jobs,
    /// The events of its pool.
    Events,
}

impl LetterOrigin {
    /// The word that is stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Events => "events",
        }
    }

    /// What a stored word means.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        [Self::Jobs, Self::Events]
            .into_iter()
            .find(|origin| origin.as_str() == word)
    }
}

/// Why a message was set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LetterCause {
    /// An executor could not read it.
    Rejected,
    /// It was delivered and came back too often.
    DeliveryLimit,
    /// The recorder set it aside.
    SetAside,
}

impl LetterCause {
    /// The word that is stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::DeliveryLimit => "delivery_limit",
            Self::SetAside => "set_aside",
        }
    }

    /// What a stored word means.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        [Self::Rejected, Self::DeliveryLimit, Self::SetAside]
            .into_iter()
            .find(|cause| cause.as_str() == word)
    }
}

/// The attempt that a dispatch message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AboutAttempt {
    /// Whose.
    pub tenant: TenantId,
    /// Its job.
    pub job: JobId,
    /// Which.
    pub attempt: AttemptId,
}

/// What a letter holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LetterContent {
    /// A dispatch message. Nothing of it is kept: the attempt and its job are on record.
    Attempt(AboutAttempt),
    /// Something else, kept whole, and who had published it, as the queue names that.
    Bytes {
        /// The message.
        bytes: Vec<u8>,
        /// Who had published it.
        sender: String,
    },
}

/// A message that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLetter {
    /// The digest of the message.
    pub id: Digest,
    /// The queue that it was in.
    pub origin: LetterOrigin,
    /// The pool of that queue.
    pub pool: String,
    /// Why it was set aside.
    pub cause: LetterCause,
    /// What whoever set it aside gave as the reason.
    pub reason: Option<String>,
    /// How long the message is.
    pub bytes: u64,
    /// What it holds.
    pub content: LetterContent,
}

/// A letter as it is listed, without what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterRecord {
    /// The digest of the message.
    pub id: Digest,
    /// When it was set aside; the last time, where that happened again.
    pub at: DateTime<Utc>,
    /// The queue that it was in.
    pub origin: LetterOrigin,
    /// The pool of that queue.
    pub pool: String,
    /// Why it was set aside.
    pub cause: LetterCause,
    /// What whoever set it aside gave as the reason.
    pub reason: Option<String>,
    /// How long the message is.
    pub bytes: u64,
    /// The attempt that it is about, where it is about one.
    pub about: Option<AboutAttempt>,
}

/// What is to be published for a letter to be replayed.
#[derive(Debug, Clone)]
pub enum Replay {
    /// The next publication of an attempt, which has been taken, to this pool. The letter is gone: one whose publication
    /// fails is published again in its time, as every attempt is.
    Attempt {
        /// The pool.
        pool: String,
        /// The message.
        message: Box<DispatchMessage>,
    },
    /// The message itself. The letter stays until it is [forgotten](LetterStore::forget_letter).
    Bytes {
        /// The queue that it was in.
        origin: LetterOrigin,
        /// The pool of that queue.
        pool: String,
        /// The message.
        bytes: Vec<u8>,
        /// Who had published it, as the queue names that.
        sender: String,
    },
    /// Nothing: the attempt that it is about waits for its start no more, and a job has one result. The letter stays.
    NotWaiting,
    /// Nothing: there is no such letter.
    NoSuchLetter,
}

/// Dead letters, by the digests of their messages.
#[async_trait]
pub trait LetterStore: Send + Sync {
    /// Keeps a letter, or takes note that it was set aside again; false where it holds something and there is no room for
    /// it until somebody replays or discards others ([`MOST_WITH_CONTENT`], [`MOST_CONTENT_BYTES`]). Of letters about
    /// attempts the oldest make room ([`MOST_ABOUT_ATTEMPTS`]).
    ///
    /// # Errors
    /// Trouble with the database; the letter is not kept.
    async fn keep_letter(&self, letter: &NewLetter, now: DateTime<Utc>) -> Result<bool, StoreError>;

    /// The oldest letters. At most [`MAX_PAGE`](crate::seam::MAX_PAGE) and one, so that whoever lists a whole page knows
    /// whether there are more.
    ///
    /// # Errors
    /// Trouble with the database, or a stored value that can't be read.
    async fn list_letters(&self, limit: u32) -> Result<Vec<LetterRecord>, StoreError>;

    /// Decides to publish a letter again, with its `dead_letter_replayed` event: in the log of the tenant whose attempt it
    /// is about, else in that of [`TenantId::LOCAL`]. An attempt takes its next publication, where it waits for its start
    /// still. Nothing changes, and nothing is recorded, where nothing is to be published.
    ///
    /// # Errors
    /// Trouble with the database, or a stored value that can't be read; nothing is decided.
    async fn replay_letter(
        &self,
        id: Digest,
        by: Option<KeyId>,
        context: &Context,
    ) -> Result<Replay, StoreError>;

    /// Removes a letter whose message is published again. Nothing changes where that was done before.
    ///
    /// # Errors
    /// Trouble with the database; the letter stays.
    async fn forget_letter(&self, id: Digest) -> Result<(), StoreError>;

    /// Removes a letter for good, with its `dead_letter_discarded` event in the same log; false where there is none.
    ///
    /// # Errors
    /// Trouble with the database; the letter stays.
    async fn discard_letter(
        &self,
        id: Digest,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError>;
}
