//! Files that come from elsewhere while they go into the sandbox: no more of them than two pieces is ever in memory.

use bytes::Bytes;
use tokio::sync::mpsc;

/// How many pieces may wait.
const AHEAD: usize = 1;

/// The content of the files that a job fetches, in their order and without a gap; no piece is of two files. Whoever sends it ends it in time, whatever
/// happens: with all that the files have, or with an error.
#[derive(Debug)]
pub struct Incoming(mpsc::Receiver<Result<Bytes, FetchError>>);

/// Sends the content of files. Nobody wants it any more once sending fails.
pub type Sender = mpsc::Sender<Result<Bytes, FetchError>>;

/// Why there is no more of it, in words of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FetchError(pub String);

impl Incoming {
    /// Both ends.
    #[must_use]
    pub fn new() -> (Sender, Self) {
        let (sender, receiver) = mpsc::channel(AHEAD);
        (sender, Self(receiver))
    }

    /// The next piece.
    ///
    /// # Errors
    /// What was sent in its place, or that nothing was.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn next(&mut self) -> Result<Bytes, FetchError> {
        let gone = || FetchError("whoever fetches the job's files has given up".to_owned());
        self.0.recv().await.unwrap_or_else(|| Err(gone()))
    }
}
