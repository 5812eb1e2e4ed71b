use mayfly_core::id::{AttemptId, SessionId};
use serde::{Deserialize, Serialize};

/// The recorder's one answer to a batch. It is transient: what it says is said again when the session asks again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reply {
    /// The message's version.
    pub v: u32,
    /// The session that it is for.
    pub session: SessionId,
    /// The receipt: every event up to this number is processed. It is no answer to an ask.
    pub processed: u64,
    /// Events after `processed` are missing: the batch stood behind a gap.
    pub gap: bool,
    /// Answers to asks.
    pub answers: Vec<Answer>,
    /// Attempts that the session must end.
    pub stops: Vec<Stop>,
    /// The session is over for the server, for good.
    pub dead: bool,
    /// The executor is to take nothing new, and goes on with what it has. Each reply says so anew. Since version 2; a
    /// session that reads less is not told, and gets nothing new all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cordoned: bool,
}

/// The answer to one ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The attempt.
    pub attempt: AttemptId,
    /// The number of the event that asked. An answer to an earlier ask is ignored.
    pub ask: u64,
    /// The answer.
    pub verdict: Verdict,
}

/// Whether a session may start an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It may: the start is committed.
    Grant,
    /// It may not, and never will.
    Deny(DenyReason),
}

/// Why a session may not start an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DenyReason {
    /// Another session has started it.
    Duplicate,
    /// Its job is canceled, or will be.
    Canceled,
    /// It is over.
    Superseded,
    /// There is no such attempt.
    Unknown,
    /// The token is not the attempt's.
    Token,
}

/// An attempt that a session names and must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// The attempt.
    pub attempt: AttemptId,
    /// Why.
    pub why: StopReason,
}

/// Why a session must end an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Somebody asked for its end; what it wrote until then is wanted.
    Canceled,
    /// It is over, or another session's: nothing that it does counts.
    NotYours,
}
