//! What can go wrong on the way to the server and back, in words that say what to do about it.

use std::{fmt, time::Duration};

use mayfly_wire::problem::{Code, Problem};

use crate::address::AddressError;

/// Why there is no answer, or not the one that was hoped for.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server's address can't be used.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The certificates that are to be trusted can't be read.
    #[error("the certificates of `client.ca_file` can't be read: it must hold PEM")]
    Certificate(#[source] reqwest::Error),
    /// No HTTP client can be made here: the host has no usable root certificates, for example.
    #[error("no HTTPS connection can be made from this host")]
    Build(#[source] reqwest::Error),
    /// The request can't be put together. Nothing was sent.
    #[error("could not {doing}: the request can't be put together")]
    Request {
        /// What was being done.
        doing: &'static str,
        /// Why not.
        #[source]
        source: Source,
    },
    /// No connection to the server. Nothing was sent.
    #[error(
        "could not {doing}: no connection to {server}; is `client.server` right, and does the server run?"
    )]
    Unreachable {
        /// What was being done.
        doing: &'static str,
        /// Where.
        server: String,
        /// Why not.
        #[source]
        source: Source,
    },
    /// The server took too long. It may have done what was asked.
    #[error("could not {doing}: the server has not answered within {} s", .after.as_secs())]
    TimedOut {
        /// What was being done.
        doing: &'static str,
        /// How long was waited.
        after: Duration,
    },
    /// The connection was lost before the end of the answer. The server may have done what was asked.
    #[error("could not {doing}: the connection was lost before the end of the answer")]
    Cut {
        /// What was being done.
        doing: &'static str,
        /// How.
        #[source]
        source: Source,
    },
    /// The server said no.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// The answer is larger than answers may be.
    #[error("could not {doing}: the answer is larger than {limit} bytes")]
    TooLarge {
        /// What was being done.
        doing: &'static str,
        /// The bound.
        limit: usize,
    },
    /// An answer of success that is not what the API answers.
    #[error(
        "could not {doing}: the answer can't be read; the server's version may be too far from this program's"
    )]
    Unreadable {
        /// What was being done.
        doing: &'static str,
        /// Why not.
        #[source]
        source: Source,
    },
    /// Something answers that is not the API.
    #[error(
        "could not {doing}: what answers at {server} is not mayfly's API (status {status}); is `client.server` right?"
    )]
    NotTheApi {
        /// What was being done.
        doing: &'static str,
        /// Where.
        server: String,
        /// The answer's status.
        status: u16,
    },
}

/// A cause of another library's.
pub type Source = Box<dyn std::error::Error + Send + Sync>;

/// The server's no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What was being done.
    pub doing: &'static str,
    /// The answer's status.
    pub status: u16,
    /// What the server says of it; none where something on the way answered in its place.
    pub problem: Option<Problem>,
    /// When to come back.
    pub retry_after: Option<Duration>,
}

impl ClientError {
    /// What the server said, where it said no.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// The code of the server's no.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        self.refusal().and_then(Refusal::code)
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.refusal().and_then(|refusal| refusal.retry_after)
    }
}

impl Refusal {
    /// What programs decide by.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        self.problem.as_ref().map(|problem| problem.code)
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "could not {}: ", self.doing)?;
        let Some(problem) = &self.problem else {
            let status = self.status;
            return write!(
                f,
                "the answer has the status {status}, and comes from something before the server"
            );
        };
        f.write_str(&problem.title)?;
        if let Some(detail) = &problem.detail {
            write!(f, ": {detail}")?;
        }
        for fault in &problem.faults {
            match fault.path.as_str() {
                "" => write!(f, "; {}", fault.message)?,
                path => write!(f, "; {path}: {}", fault.message)?,
            }
        }
        if let Some(what) = self.what_to_do() {
            write!(f, " ({what})")?;
        }
        if matches!(self.status, 500..) {
            write!(f, " (request {})", problem.request_id)?;
        }
        Ok(())
    }
}

impl Refusal {
    /// What whoever has asked can do about it, where the problem itself does not say.
    fn what_to_do(&self) -> Option<String> {
        let words = match self.code()? {
            Code::Unauthenticated => {
                "the server does not know the key, or its time is over: see `client.key` or `client.key_file`"
            }
            Code::Forbidden => "another role is needed: `mayfly key list` shows which key has which",
            Code::IdempotencyConflict => "take another key, or send the same job",
            Code::ImageNotPinned => {
                "`mayfly image list` shows which images there are; an admin adds one with `mayfly image pin`"
            }
            Code::NoSuchRoute | Code::MethodNotAllowed => {
                "the server's version may be too far from this program's"
            }
            Code::RateLimited | Code::OverQuota | Code::Unavailable | Code::Overloaded => {
                let seconds = self.retry_after?.as_secs();
                return Some(format!("try again in {seconds} s"));
            }
            _ => return None,
        };
        Some(words.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use mayfly_wire::problem::FaultShown;

    use super::*;

    fn refusal(code: Code) -> Refusal {
        Refusal {
            doing: "submit a job",
            status: code.status(),
            problem: Some(Problem::new(code, "r-1")),
            retry_after: None,
        }
    }

    #[test]
    fn every_fault_is_said_with_its_field() {
        let mut refusal = refusal(Code::InvalidJob);
        let fault = |path: &str, message: &str| FaultShown {
            path: path.to_owned(),
            code: "c".to_owned(),
            message: message.to_owned(),
        };
        let faults = vec![fault("limits.memory", "too much"), fault("", "no program")];
        refusal.problem.as_mut().unwrap().faults = faults;
        assert_eq!(
            refusal.to_string(),
            "could not submit a job: The job breaks rules of its policy; limits.memory: too much; no program"
        );
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        assert!(refusal(Code::Unauthenticated).to_string().contains("client.key"));
        let mut later = refusal(Code::OverQuota);
        later.retry_after = Some(Duration::from_secs(9));
        assert!(later.to_string().contains("in 9 s"));
        assert!(refusal(Code::Internal).to_string().contains("request r-1"));
        let proxy = Refusal {
            problem: None,
            ..refusal(Code::Internal)
        };
        assert!(proxy.to_string().contains("500"));
    }
}
