use std::io;

use mayfly_core::{
    artifact::MAX_FILES,
    egress::{MAX_DECISION_TEXT, MAX_DECISIONS},
    outcome::{MAX_REDACTION_NAME_BYTES, MAX_REDACTION_NAMES},
    self_test::{MAX_NAMED, MAX_TEXT_BYTES},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{Control, DispatchMessage, EventBatch, Reply, Tick};

/// The version of a message that has nothing in it which came later: every build reads it.
pub const VERSION: u32 = 1;

/// The newest version that this build reads.
///
/// | since | what came |
/// | --- | --- |
/// | 2 | the images of a session ([`SessionEvent::Images`](super::SessionEvent::Images), and among its facts), and that it is cordoned ([`Reply::cordoned`]) |
/// | 3 | what lies on the server and not in the message: [`DispatchMessage::input`] and [`DispatchMessage::output`], what reports say of them, and of trouble with them |
/// | 4 | self-tests ([`SessionEvent::SelfTested`](super::SessionEvent::SelfTested)) |
/// | 5 | jobs with secrets, which executors take out of their output: an order for one is no order for an older executor |
/// | 6 | files with modes, and orders for such jobs likewise |
/// | 7 | files that are kept of a run: orders for such jobs likewise, [`DispatchMessage::artifacts`], and what reports say of them |
/// | 8 | jobs that may reach something outside: orders for such jobs likewise, and what reports say of it |
/// | 9 | secrets that are not in the order: orders for jobs with secret files or named secrets likewise, and [`DispatchMessage::secrets`] |
/// | 10 | files that an order only names: orders for such jobs likewise, and [`DispatchMessage::fetched`] |
pub const READS: u32 = 10;

/// Longest message that is looked at, in bytes. Content travels in the message, as base64: 32 MiB of output or 16 MiB
/// of input, the ceilings of the default policy, fit.
pub const MAX_MESSAGE_BYTES: usize = 48 * 1024 * 1024;

/// Why bytes are no message.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// A message of a newer build: it is handed back, for a peer that can read it. It is not broken.
    #[error("the message has version {found}, and this build reads up to {READS}")]
    NewerVersion {
        /// The version it says.
        found: u32,
    },
    /// No version ever looked like this.
    #[error("the message has version 0")]
    NoVersion,
    /// Longer than any message may be.
    #[error("the message has {bytes} bytes, and at most {MAX_MESSAGE_BYTES} are read")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Within its length, but with more in it than the kind of message allows.
    #[error("the message holds {found} {what}, and at most {most} are read")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How much there is.
        found: usize,
        /// How much is read.
        most: usize,
    },
    /// Not JSON, or not of this shape.
    #[error("the message can't be read")]
    Garbage(#[source] serde_json::Error),
}

/// A message that can be written and read.
pub trait Wire: Serialize + DeserializeOwned {
    /// The bytes that are sent.
    ///
    /// # Panics
    /// Never: our messages have text keys and finite numbers.
    #[must_use]
    fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a message has text keys and finite numbers")
    }

    /// Reads bytes that came from elsewhere. Never panics, and takes no more memory than a small multiple of them.
    ///
    /// # Errors
    /// [`DecodeError::NewerVersion`] for a message of a newer build, whatever else is in it; any other variant means
    /// that nobody will ever read it.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        check_version(bytes)?;
        let message: Self = serde_json::from_slice(bytes).map_err(DecodeError::Garbage)?;
        message.check_bounds()?;
        Ok(message)
    }

    /// Whether the counts in it are within its bounds.
    ///
    /// # Errors
    /// [`DecodeError::TooMany`], with the first that isn't.
    fn check_bounds(&self) -> Result<(), DecodeError>;
}

/// How long something is on the wire, without making it.
pub(crate) fn encoded_bytes(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value).expect("our messages have text keys and finite numbers");
    count.0
}

/// Refuses what is too long or of another version, before anything else is read of it.
fn check_version(bytes: &[u8]) -> Result<(), DecodeError> {
    #[derive(Deserialize)]
    struct Version {
        v: u32,
    }
    if bytes.len() > MAX_MESSAGE_BYTES {
        return Err(DecodeError::TooLong { bytes: bytes.len() });
    }
    match serde_json::from_slice(bytes).map_err(DecodeError::Garbage)? {
        Version { v: 0 } => Err(DecodeError::NoVersion),
        Version { v } if v > READS => Err(DecodeError::NewerVersion { found: v }),
        Version { .. } => Ok(()),
    }
}

pub(super) fn at_most(what: &'static str, found: usize, most: usize) -> Result<(), DecodeError> {
    if found > most {
        return Err(DecodeError::TooMany { what, found, most });
    }
    Ok(())
}

/// What the recorder finds in its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inbound {
    /// From an executor.
    Batch(Box<EventBatch>),
    /// From the reconciler.
    Tick(Tick),
}

impl Inbound {
    /// Reads bytes from the recorder's queue. The two kinds have different fields, and each refuses the other's.
    ///
    /// # Errors
    /// As [`Wire::decode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        check_version(bytes)?;
        match Tick::decode(bytes) {
            Ok(tick) => Ok(Self::Tick(tick)),
            Err(DecodeError::Garbage(_)) => {
                EventBatch::decode(bytes).map(|batch| Self::Batch(Box::new(batch)))
            }
            Err(other) => Err(other),
        }
    }
}

impl Wire for DispatchMessage {
    fn check_bounds(&self) -> Result<(), DecodeError> {
        let bytes = self.input.as_ref().map_or(0, |input| input.bytes);
        at_most(
            "bytes of content",
            usize::try_from(bytes).unwrap_or(usize::MAX),
            MAX_MESSAGE_BYTES,
        )
    }
}

impl Wire for Control {
    fn check_bounds(&self) -> Result<(), DecodeError> {
        Ok(())
    }
}

impl Wire for EventBatch {
    fn check_bounds(&self) -> Result<(), DecodeError> {
        at_most("events", self.events.len(), super::MAX_BATCH_EVENTS)?;
        for event in &self.events {
            if let super::SessionEvent::Contradicted { contradictions, .. } = event {
                at_most("contradictions", contradictions.len(), super::MAX_CONTRADICTIONS)?;
                let longest = contradictions.iter().map(String::len).max().unwrap_or(0);
                at_most(
                    "bytes of a contradiction",
                    longest,
                    super::MAX_CONTRADICTION_BYTES,
                )?;
            }
            if let super::SessionEvent::SelfTested(test) = event {
                at_most("names of a self-test", test.most_named(), MAX_NAMED)?;
                at_most(
                    "bytes of a text of a self-test",
                    test.longest_text(),
                    MAX_TEXT_BYTES,
                )?;
            }
            if let super::SessionEvent::Finished { report, .. } = event {
                if let Some(egress) = &report.egress {
                    at_most("decisions about egress", egress.decisions.len(), MAX_DECISIONS)?;
                    let texts = egress.decisions.iter().flat_map(|one| {
                        let credential = one.credential.as_ref().map_or(0, String::len);
                        [one.name.len(), one.method.len(), credential]
                    });
                    at_most(
                        "bytes of a name that was asked for",
                        texts.max().unwrap_or(0),
                        MAX_DECISION_TEXT,
                    )?;
                }
                if let Some(artifacts) = &report.artifacts {
                    at_most("files", artifacts.files.len(), MAX_FILES)?;
                    at_most("files that are left out", artifacts.left_out.len(), MAX_FILES)?;
                }
                for redacted in [&report.stdout.redacted, &report.stderr.redacted]
                    .into_iter()
                    .flatten()
                {
                    let names = redacted.counts.keys();
                    at_most("names of redactions", names.len(), MAX_REDACTION_NAMES)?;
                    let longest = names.map(String::len).max().unwrap_or(0);
                    at_most(
                        "bytes of the name of a redaction",
                        longest,
                        MAX_REDACTION_NAME_BYTES,
                    )?;
                }
            }
            let images = event.images().map_or(0, <[_]>::len);
            at_most("images", images, super::MAX_IMAGES)?;
        }
        let held = self.heartbeat.as_ref().map_or(0, |beat| beat.held.len());
        at_most("held attempts", held, super::batch::MAX_HELD)
    }
}

impl Wire for Reply {
    fn check_bounds(&self) -> Result<(), DecodeError> {
        at_most("answers", self.answers.len(), super::MAX_BATCH_EVENTS)?;
        at_most("stops", self.stops.len(), super::batch::MAX_HELD)
    }
}

impl Wire for Tick {
    fn check_bounds(&self) -> Result<(), DecodeError> {
        at_most("judged sessions", self.judged.len(), super::MAX_JUDGED)
    }
}
