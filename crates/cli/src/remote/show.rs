//! A server's job for people.

use mayfly_core::{outcome::Outcome, state::JobState, units::ByteSize};
use mayfly_wire::job::{Job, Stream};

use crate::report::{AttemptFacts, Facts, StreamFacts, word};

/// How it has ended; none where it has not.
pub(super) fn outcome(job: &Job) -> Option<Outcome> {
    Some(Outcome {
        state: JobState::from(job.state).end()?,
        cause: job.cause?,
        exit_code: job.exit_code,
        signal: job.signal,
        evidence: job.evidence.clone().unwrap_or_default(),
    })
}

/// The one line after `mayfly run`.
pub(super) fn summary(job: &Job, outcome: &Outcome) -> String {
    facts(job).summary(outcome)
}

/// The record, a line for each fact.
pub(super) fn text(job: &Job) -> String {
    facts(job).text()
}

fn facts(job: &Job) -> Facts {
    Facts {
        job: job.job,
        state: word(job.state),
        waiting: job.waiting_for.as_ref().map(|waiting| waiting.detail.clone()),
        image: job.image.to_string(),
        image_digest: job.image_digest,
        policy_version: job.policy_version,
        is_erased: job.source_erased,
        asked: job.limits.asked,
        exact: job.limits.exact,
        batch: job.batch,
        outcome: outcome(job),
        sandbox: job.sandbox.clone(),
        streams: job
            .stdout
            .as_ref()
            .zip(job.stderr.as_ref())
            .map(|(out, err)| [stream(out), stream(err)]),
        usage: job.usage,
        // What can't be read is shown to nobody; `mayfly job artifacts` says so.
        artifacts: job.artifacts.clone().and_then(|list| list.try_into().ok()),
        egress: job.egress.clone(),
        attempts: job
            .history
            .iter()
            .map(|attempt| AttemptFacts {
                number: attempt.number,
                id: attempt.attempt,
                session: attempt.session,
                cause: attempt.cause,
                started_at: attempt.started_at,
            })
            .collect(),
        submitted_at: job.submitted_at,
        ended_at: job.ended_at,
        labels: job.labels.clone(),
    }
}

fn stream(stream: &Stream) -> StreamFacts {
    StreamFacts {
        bytes: stream.bytes,
        sha256: stream.sha256.clone(),
        omitted: stream.omitted_bytes.map(ByteSize::bytes),
        redacted: stream.redacted.clone(),
    }
}
