//! What is said while it happens and kept by nobody: the output of runs, and the state of the connection.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use mayfly_core::id::{AttemptId, ExecutorId, JobId, SessionId};

use super::Closed;

/// Longest piece of live output, in bytes. What is longer is dropped.
pub const MAX_OUTPUT_BYTES: usize = 64 * 1024;

/// Pieces that wait for one listener. What comes while so many wait is lost, or the oldest ones are.
pub const MAX_OUTPUT_WAITING: usize = 1024;

/// A piece of what a run has written, after redaction.
#[derive(Clone, PartialEq, Eq)]
pub struct Output {
    /// The job.
    pub job: JobId,
    /// Its attempt.
    pub attempt: AttemptId,
    /// The session that says so. Whether it holds the attempt is for whoever shows the output to check.
    pub session: SessionId,
    /// Where it was written to.
    pub stream: Stream,
    /// Bytes of the stream before it; a gap is what was lost.
    pub offset: u64,
    /// The bytes, at most [`MAX_OUTPUT_BYTES`].
    pub bytes: Vec<u8>,
}

impl fmt::Debug for Output {
    /// Without the bytes, which are the tenant's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output")
            .field("attempt", &self.attempt)
            .field("stream", &self.stream)
            .field("offset", &self.offset)
            .field("bytes", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

/// Where a run writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A piece of output, and whose credentials published it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// The executor; the broker has checked it. `None` is the server, or an executor with its credentials.
    pub by: Option<ExecutorId>,
    /// What it says.
    pub output: Output,
}

/// Listens to the live output of one job, until it is dropped.
#[async_trait]
pub trait OutputListener: Send {
    /// Waits for the next piece. Pieces of one stream come in their order; any of them may be missing.
    ///
    /// # Errors
    /// [`Closed`]; listen again.
    ///
    /// # Cancel safety
    /// A call that is dropped has taken nothing.
    async fn next(&mut self) -> Result<Heard, Closed>;
}

/// How it stands with the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Every connection that there should be stands. Before the first call there should be none, and this is `false`.
    pub connected: bool,
    /// Why the broker takes no messages at present, if it doesn't: it is short of memory or disk.
    pub blocked: Option<String>,
    /// How long it has been like this.
    pub since: Duration,
}
