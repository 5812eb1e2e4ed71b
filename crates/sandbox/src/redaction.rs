//! What is taken out of a job's output.

use std::sync::{Mutex, PoisonError};

use mayfly_core::{job::ResolvedJob, outcome::Redacted, policy::RedactionRules};
use mayfly_redact::{Counts, Secrets};
pub use mayfly_redact::{Matcher, SecretsError};

/// Makes matchers. One of rules alone is kept for the next job, since most jobs have no secrets and the same policy.
#[derive(Debug, Default)]
pub struct Matchers(Mutex<Option<(RedactionRules, Matcher)>>);

impl Matchers {
    /// What is looked for in the output of a job. With secrets it takes some milliseconds of one CPU.
    ///
    /// # Errors
    /// More secrets than can be looked for; no job that was checked has them.
    pub fn of(&self, job: &ResolvedJob) -> Result<Matcher, SecretsError> {
        if job.has_secrets() {
            let secrets = Secrets::new(job.secret_values())?;
            return Ok(Matcher::new(&job.redaction.resolve(), &secrets));
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((rules, matcher)) = &*kept
            && *rules == job.redaction
        {
            return Ok(matcher.clone());
        }
        let matcher = Matcher::new(&job.redaction.resolve(), &Secrets::default());
        *kept = Some((job.redaction.clone(), matcher.clone()));
        Ok(matcher)
    }
}

/// Takes out of a text that is here as a whole what is taken out of output. Bytes that are no UTF-8 any more come as U+FFFD.
pub(crate) fn clean(matcher: &Matcher, text: &mut String) {
    let (clean, counts) = matcher.redact(text.as_bytes());
    if !counts.is_empty() {
        *text = String::from_utf8_lossy(&clean).into_owned();
    }
}

/// The counts of a stream, for its record. A mark is `[redacted:NAME]`.
pub(crate) fn redacted(counts: &Counts) -> Redacted {
    let marks = counts.iter().map(|(name, count)| mark_bytes(name) * count);
    Redacted {
        counts: counts
            .iter()
            .map(|(name, count)| (name.to_owned(), count))
            .collect(),
        bytes: counts.bytes(),
        mark_bytes: marks.sum(),
    }
}

const fn mark_bytes(name: &str) -> u64 {
    "[redacted:]".len() as u64 + name.len() as u64
}

#[cfg(test)]
mod tests;
