use mayfly_core::id::SessionId;
use serde::{Deserialize, Serialize};

use crate::time::ServerTime;

/// Most sessions that one tick judges; the others wait for the next one.
pub const MAX_JUDGED: usize = 1024;

/// A mark that the reconciler sends through the executors' own queue: once it is processed, so is everything that was
/// in the queue before it.
///
/// Ticks go out at regular times, also with nobody to judge: their numbers show whether the broker has lost messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tick {
    /// The message's version.
    pub v: u32,
    /// Which life of the queue it was sent into.
    pub epoch: u64,
    /// From 1 in each epoch, without a gap.
    pub number: u64,
    /// Sessions whose lease had ended when it was sent.
    pub judged: Vec<Judged>,
}

/// A session that a tick judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Judged {
    /// The session.
    pub session: SessionId,
    /// The end of its lease, by which the judgement is recognised: it moves with every heartbeat that is processed.
    pub lease_end: ServerTime,
}
