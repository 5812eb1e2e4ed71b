//! One output stream as it is kept: secrets taken out of it, then bounded while it is read. What the program wrote is
//! counted and hashed whole.

use std::{collections::VecDeque, fmt};

use mayfly_core::{
    digest::Digest,
    outcome::{CapturedStream, StreamCount},
    units::ByteSize,
};
use mayfly_redact::{Matcher, Redactor};
use sha2::{Digest as _, Sha256};

use crate::redaction::redacted;

/// Takes a stream of any length, takes out of it what is looked for, and keeps head and tail of the rest.
///
/// A few bytes more than is kept are in memory: what may be the beginning of something to be taken out, and the newest
/// piece of what is left, at most some times as long as the piece that came (a mark can be longer than a short secret).
pub(crate) struct Capture {
    bytes: u64,
    hash: Sha256,
    redactor: Redactor,
    /// What is left of the newest bytes.
    clean: Vec<u8>,
    kept: Kept,
}

impl Capture {
    /// Of what is left of the stream, at most `limit` is kept.
    pub(crate) fn new(limit: ByteSize, matcher: &Matcher) -> Self {
        Self {
            bytes: 0,
            hash: Sha256::new(),
            redactor: Redactor::new(matcher),
            clean: Vec::new(),
            kept: Kept::new(limit),
        }
    }

    /// Takes the program's next bytes. Returns what may be shown by now: what is held back comes later, or never.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> &[u8] {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        self.hash.update(bytes);
        self.clean.clear();
        self.redactor.push(bytes, &mut self.clean);
        self.kept.keep(&self.clean);
        &self.clean
    }

    /// Whether the program wrote more than is kept.
    pub(crate) fn is_over(&self) -> bool {
        self.bytes > self.kept.limit as u64
    }

    /// The stream is over: what is left of what was held back, and the record of all of it.
    pub(crate) fn finish(mut self) -> (Vec<u8>, CapturedStream) {
        self.clean.clear();
        let counts = self.redactor.finish(&mut self.clean);
        self.kept.keep(&self.clean);
        let (truncated, head, tail) = self.kept.finish();
        let stream = CapturedStream {
            count: StreamCount {
                bytes: self.bytes,
                digest: Digest::from_bytes(self.hash.finalize().into()),
                truncated,
            },
            head,
            tail,
            redacted: Some(redacted(&counts)),
        };
        (self.clean, stream)
    }
}

/// Nothing of the stream.
impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// Three quarters of the limit are for the head, where most programs say what they are about, and the rest for the
/// tail, where they say how it ended. As long as all fits, nothing is cut.
struct Kept {
    limit: usize,
    head_limit: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// All that came.
    bytes: u64,
}

impl Kept {
    fn new(limit: ByteSize) -> Self {
        let limit = usize::try_from(limit.as_bytes()).unwrap_or(usize::MAX);
        Self {
            limit,
            head_limit: limit - limit / 4,
            head: Vec::new(),
            tail: VecDeque::new(),
            bytes: 0,
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        let room = self.head_limit - self.head.len();
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        let tail_limit = self.limit - self.head_limit;
        let rest = &rest[rest.len().saturating_sub(tail_limit)..];
        let surplus = (self.tail.len() + rest.len()).saturating_sub(tail_limit);
        self.tail.drain(..surplus);
        self.tail.extend(rest);
    }

    /// Whether something was cut, head and tail; without a cut all is head.
    fn finish(mut self) -> (bool, Vec<u8>, Vec<u8>) {
        let truncated = self.bytes > self.limit as u64;
        if !truncated {
            self.head.extend(self.tail.drain(..));
        }
        (truncated, self.head, self.tail.into())
    }
}

#[cfg(test)]
mod tests;
