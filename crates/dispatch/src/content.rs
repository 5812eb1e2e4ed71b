//! What travels beside a job's order where it is too long for it: the content of its files and its standard input.

use mayfly_core::job::{Blob, InputFile, ResolvedJob};
use serde::{Deserialize, Serialize};

/// The heavy parts of a job. Their encoding is a part of the protocol: an order names its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobContent {
    files: Vec<InputFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stdin: Option<Blob>,
}

/// Bytes that are no job's content.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// They can't be read.
    #[error("the content of the job can't be read")]
    Garbage(#[source] serde_json::Error),
    /// The order brings content of its own.
    #[error("the order has content beside the content that it names")]
    Twice,
}

impl JobContent {
    /// Takes the heavy parts out of a job.
    #[must_use]
    pub fn take(job: &mut ResolvedJob) -> Self {
        Self {
            files: std::mem::take(&mut job.files),
            stdin: job.stdin.take(),
        }
    }

    /// Whether there is any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.stdin.is_none()
    }

    /// Gives the heavy parts back to the job that they were taken out of.
    ///
    /// # Errors
    /// [`ContentError::Twice`] where the job has some.
    pub fn give_back(self, job: &mut ResolvedJob) -> Result<(), ContentError> {
        if !job.files.is_empty() || job.stdin.is_some() {
            return Err(ContentError::Twice);
        }
        (job.files, job.stdin) = (self.files, self.stdin);
        Ok(())
    }

    /// The bytes that an executor fetches.
    ///
    /// # Panics
    /// Never: a content has text keys.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a content has text keys")
    }

    /// Reads bytes that were fetched.
    ///
    /// # Errors
    /// [`ContentError::Garbage`].
    pub fn decode(bytes: &[u8]) -> Result<Self, ContentError> {
        serde_json::from_slice(bytes).map_err(ContentError::Garbage)
    }
}
