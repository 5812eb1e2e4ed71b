use mayfly_core::{
    digest::Digest,
    id::{AttemptId, ExecutorId, SessionId},
    outcome::Cause,
    run::RunReport,
    self_test::SelfTest,
};
use serde::{Deserialize, Serialize};

use super::{ARTIFACTS_SINCE, BLOBS_SINCE, EGRESS_SINCE, VERSION};
use crate::token::ResultToken;

/// Most events in one batch.
pub const MAX_BATCH_EVENTS: usize = 64;

/// A batch takes no further event once its events have this many bytes. One event alone may have more.
pub const MAX_BATCH_BYTES: usize = 256 * 1024;

/// Most contradictions that are told of one run.
pub const MAX_CONTRADICTIONS: usize = 8;

/// Longest text of one of them.
pub const MAX_CONTRADICTION_BYTES: usize = 512;

/// Most images that a session names.
pub const MAX_IMAGES: usize = 256;

/// Most attempts in one heartbeat: slots of an executor, and what has finished and waits for its receipt.
pub(super) const MAX_HELD: usize = 4096;

/// What a session has to say: numbered events, and perhaps a heartbeat after the last of them.
///
/// Events are numbered from 1 through the life of a session, without a gap; an event that is sent again has the same
/// number and content. A heartbeat has no number and is never sent again: it stands after all events with numbers below
/// `first + events.len()`, and counts for what it names only where exactly those have been processed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventBatch {
    /// The message's version.
    pub v: u32,
    /// The executor.
    pub executor: ExecutorId,
    /// Its session.
    pub session: SessionId,
    /// The number of the first event; where there is none, the number that the next one will have.
    pub first: u64,
    /// The events, in order. At most [`MAX_BATCH_EVENTS`].
    pub events: Vec<SessionEvent>,
    /// Keeps the lease, and names what is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<Heartbeat>,
}

/// One thing that happened in a session. Its number in the session is its name: an ask is answered by that number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SessionEvent {
    /// The session begins; always its first event. The containers of its predecessor are gone.
    Opened(Opened),
    /// The executor asks to start an attempt that was delivered to it.
    Starting {
        /// The attempt.
        attempt: AttemptId,
        /// The publication that was delivered.
        publication: u32,
        /// From the dispatch message.
        token: ResultToken,
    },
    /// The run of an attempt has ended: no process of it is left. Its container is gone, or is being destroyed.
    Finished {
        /// The attempt.
        attempt: AttemptId,
        /// How it ended.
        report: Box<RunReport>,
    },
    /// The container of a run that has been reported is gone now, and what the engine said of its end contradicts the
    /// report. For the record alone.
    Contradicted {
        /// The attempt.
        attempt: AttemptId,
        /// At most [`MAX_CONTRADICTIONS`] of at most [`MAX_CONTRADICTION_BYTES`] each.
        contradictions: Vec<String>,
    },
    /// The images that the executor's host has now, in place of those that the session named before. Since version 2.
    Images {
        /// Their digests, as jobs are pinned to them. At most [`MAX_IMAGES`].
        images: Vec<Digest>,
    },
    /// The executor has tried whether sandboxes hold on its host; also as the second event of a session, by what it had
    /// tried before. Since version 4.
    SelfTested(Box<SelfTest>),
    /// The session gives up an attempt that it has asked for; if there was a container, it is gone.
    Abandoned {
        /// The attempt.
        attempt: AttemptId,
        /// Why.
        why: AbandonReason,
        /// Whether any of its code may have run.
        ran: bool,
    },
    /// The session ends in order, and holds nothing.
    Closed,
}

/// What a session says of itself when it begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opened {
    /// Attempts that it runs at a time.
    pub slots: u32,
    /// The pool whose jobs it takes.
    pub pool: String,
    /// The host, for people and for the record.
    pub facts: ExecutorFacts,
}

/// What is put on record of an executor's host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecutorFacts {
    /// The version of the executor's build.
    pub build: String,
    /// The newest message version that it reads.
    pub reads: u32,
    /// The host's name.
    pub host: String,
    /// The engine's name and version.
    pub engine: String,
    /// The host's kernel.
    pub kernel: String,
    /// The images that the host has, by the digests that jobs are pinned to, at most [`MAX_IMAGES`]; none where the
    /// executor makes sure of each image by itself before a run. Since version 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<Vec<Digest>>,
}

/// Why a session gave an attempt up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AbandonReason {
    /// Its lease was about to end, or the server had declared it dead.
    LeaseEnding,
    /// The executor was told to stop at once.
    Stopped,
}

/// Keeps the lease of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// Everything that has been asked for and is neither denied nor covered, as over, by a receipt.
    pub held: Vec<Held>,
    /// Slots that could take a job now.
    pub free_slots: u32,
}

/// An attempt that a session holds, or asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// The attempt.
    pub attempt: AttemptId,
    /// How far it is.
    pub phase: Phase,
}

/// How far an attempt is that a session names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Asked for, not answered.
    Asked,
    /// Granted; its job has not been sent to a sandbox.
    Granted,
    /// Its job has been sent to a sandbox.
    Running,
    /// Over, and no receipt covers that yet.
    Finished,
}

impl EventBatch {
    /// The number of the last event that stands before the heartbeat.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.first
            .saturating_add(self.events.len() as u64)
            .saturating_sub(1)
    }
}

impl SessionEvent {
    /// The attempt that it is about.
    #[must_use]
    pub const fn attempt(&self) -> Option<AttemptId> {
        match self {
            Self::Starting { attempt, .. }
            | Self::Finished { attempt, .. }
            | Self::Contradicted { attempt, .. }
            | Self::Abandoned { attempt, .. } => Some(*attempt),
            Self::Opened(_) | Self::Images { .. } | Self::SelfTested(_) | Self::Closed => None,
        }
    }

    /// The images that it names.
    pub(super) fn images(&self) -> Option<&[Digest]> {
        match self {
            Self::Opened(opened) => opened.facts.images.as_deref(),
            Self::Images { images } => Some(images),
            Self::Starting { .. }
            | Self::Finished { .. }
            | Self::Contradicted { .. }
            | Self::SelfTested(_)
            | Self::Abandoned { .. }
            | Self::Closed => None,
        }
    }

    /// The version of a message that has it.
    #[must_use]
    pub fn version(&self) -> u32 {
        if let Self::Finished { report, .. } = self
            && report.egress.is_some()
        {
            return EGRESS_SINCE;
        }
        if let Self::Finished { report, .. } = self
            && report.artifacts.is_some()
        {
            return ARTIFACTS_SINCE;
        }
        if let Self::Finished { report, .. } = self
            && (report.uploaded.is_some() || report.outcome.cause == Cause::ContentUnavailable)
        {
            return BLOBS_SINCE;
        }
        if matches!(self, Self::SelfTested(_)) {
            4
        } else if self.images().is_some() {
            2
        } else {
            VERSION
        }
    }
}
