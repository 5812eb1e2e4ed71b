//! Looks through an answer for credentials, in the forms in which programs write a value, before any of it goes on.

use std::io;

use mayfly_redact::{Matcher, Redactor};

/// One answer.
pub(crate) struct Screen {
    redactor: Redactor,
}

/// A credential is in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the credential is in the answer")]
pub(crate) struct Echo;

impl Echo {
    /// Whether that is what a body ended with.
    pub(crate) fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

impl From<Echo> for io::Error {
    fn from(echo: Echo) -> Self {
        Self::other(echo)
    }
}

impl Screen {
    pub(crate) fn new(matcher: &Matcher) -> Self {
        Self {
            redactor: Redactor::new(matcher),
        }
    }

    /// A text that is here as a whole: a head.
    pub(crate) fn judge(matcher: &Matcher, text: &[u8]) -> Result<(), Echo> {
        let (_, counts) = matcher.redact(text);
        if counts.is_empty() { Ok(()) } else { Err(Echo) }
    }

    /// Takes the next bytes of a body, and gives those that may go on. What may become a credential waits.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Echo> {
        let mut out = Vec::with_capacity(bytes.len());
        self.redactor.push(bytes, &mut out);
        // What was let out before the credential's place in these bytes stays here with it.
        if self.redactor.counts().is_empty() {
            Ok(out)
        } else {
            Err(Echo)
        }
    }

    /// The body has ended: gives the rest. A credential that was begun and not ended is one.
    pub(crate) fn finish(self) -> Result<Vec<u8>, Echo> {
        let mut out = Vec::new();
        let counts = self.redactor.finish(&mut out);
        if counts.is_empty() { Ok(out) } else { Err(Echo) }
    }
}
