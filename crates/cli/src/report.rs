//! A job's record for people and for programs.

mod facts;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::{DateTime, SecondsFormat, Utc};
use mayfly_core::{
    artifact::Artifacts,
    outcome::{CapturedStream, Outcome},
    state::JobState,
};
use mayfly_dispatch::waiting::Waiting;
use mayfly_store::records::{JobDetails, JobRecord};
use serde_json::{Map, Value, json};

pub(crate) use self::facts::{AttemptFacts, Facts, StreamFacts};

/// The one JSON object of a job, as the API has it. `waiting`: why it has not started.
pub(crate) fn to_json(details: &JobDetails, waiting: Option<&Waiting>) -> Value {
    let JobDetails {
        job,
        resolved,
        attempts,
    } = details;
    let outcome = job.outcome.as_ref();
    let report = details.report();
    let sandbox = report.and_then(|report| report.sandbox.as_ref());
    json!({
        "job": job.id,
        "state": state_word(job),
        "waiting_for": waiting.map(waiting_json),
        "cause": outcome.map(|outcome| outcome.cause),
        "exit_code": outcome.and_then(|outcome| outcome.exit_code),
        "signal": outcome.and_then(|outcome| outcome.signal),
        "image": job.image.to_string(),
        "image_digest": job.image_digest,
        "policy_version": job.policy_version,
        "stdout": report.map(|report| stream_json(&report.stdout)),
        "stderr": report.map(|report| stream_json(&report.stderr)),
        "artifacts": report.and_then(|report| report.artifacts.as_ref()).map(artifacts_json),
        "egress": report.and_then(|report| report.egress.as_ref()),
        "limits": {
            "asked": resolved.as_ref().map(|resolved| resolved.asked),
            "exact": resolved.as_ref().map(|resolved| resolved.limits),
            "in_force": sandbox.map(|sandbox| sandbox.in_force),
        },
        "source_erased": resolved.is_none(),
        "evidence": outcome.map(|outcome| &outcome.evidence),
        "usage": report.and_then(|report| report.usage),
        "sandbox": sandbox,
        "labels": job.labels,
        "batch": job.batch,
        "attempts": attempts.len(),
        "attempt": attempts.last().map(|attempt| attempt.id),
        "executor": attempts.last().and_then(|attempt| attempt.executor),
        "submitted_at": time(job.submitted_at),
        "started_at": attempts.last().and_then(|attempt| attempt.started_at).map(time),
        "ended_at": job.ended_at.map(time),
    })
}

fn waiting_json(waiting: &Waiting) -> Value {
    let mut object = Map::new();
    object.insert("reason".to_owned(), waiting.reason.word().into());
    object.insert("detail".to_owned(), waiting.sentence().into());
    if let Some(until) = waiting.reason.until() {
        object.insert("until".to_owned(), time(until.into()).into());
    }
    if let Some(place) = waiting.place {
        object.insert("ahead".to_owned(), place.ahead.into());
        object.insert("other_tenants".to_owned(), place.other_tenants.into());
    }
    object.into()
}

/// A job in a list, as one JSON object.
pub(crate) fn to_json_line(job: &JobRecord) -> Value {
    json!({
        "job": job.id,
        "state": state_word(job),
        "cause": job.outcome.as_ref().map(|outcome| outcome.cause),
        "exit_code": job.outcome.as_ref().and_then(|outcome| outcome.exit_code),
        "image": job.image.to_string(),
        "image_digest": job.image_digest,
        "attempts": job.attempts,
        "labels": job.labels,
        "batch": job.batch,
        "submitted_at": time(job.submitted_at),
        "ended_at": job.ended_at.map(time),
    })
}

/// Where a job stands, in the word of the record.
pub(crate) fn state_word(job: &JobRecord) -> String {
    match job.state {
        JobState::Queued => "queued".to_owned(),
        JobState::Dispatched => "dispatched".to_owned(),
        JobState::Started => "started".to_owned(),
        JobState::CancelRequested => "cancel_requested".to_owned(),
        JobState::Ended(end) => word(end),
    }
}

/// A value of an enum without fields, in the word that the record has for it.
pub(crate) fn word(value: impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        other => format!("{other:?}"),
    }
}

pub(crate) fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

fn stream_json(stream: &CapturedStream) -> Value {
    let mut object = Map::new();
    object.insert("bytes".to_owned(), stream.count.bytes.into());
    object.insert("sha256".to_owned(), stream.count.digest.to_hex().into());
    object.insert("truncated".to_owned(), stream.count.truncated.into());
    if let Some(redacted) = &stream.redacted {
        object.insert("redacted".to_owned(), json!(redacted));
    }
    if stream.count.truncated {
        object.insert("omitted_bytes".to_owned(), stream.omitted().as_bytes().into());
        object.insert("head".to_owned(), bytes_json(&stream.head));
        object.insert("tail".to_owned(), bytes_json(&stream.tail));
    } else if let Value::Object(content) = bytes_json(&stream.head) {
        object.extend(content);
    }
    object.into()
}

/// As `mayfly_wire::artifact::ArtifactList`, which is there only where servers are.
fn artifacts_json(artifacts: &Artifacts) -> Value {
    let mut object = Map::new();
    object.insert("collected".to_owned(), true.into());
    let files = (0_u32..).zip(&artifacts.files).map(|(index, file)| {
        let mut line = json!({
            "index": index,
            "name": bytes_json(file.name.as_bytes()),
            "bytes": file.bytes,
            "sha256": file.digest.to_hex(),
            "is_text": file.is_text,
        });
        if !file.redacted.is_nothing() {
            line["redacted"] = json!(file.redacted);
        }
        line
    });
    object.insert("files".to_owned(), files.collect());
    let left_out = artifacts.left_out.iter().map(|file| {
        let mut line = json!({"name": bytes_json(file.name.as_bytes()), "why": file.why});
        if let Some(bytes) = file.bytes {
            line["bytes"] = bytes.into();
        }
        line
    });
    object.insert("left_out".to_owned(), left_out.collect());
    object.insert("not_named".to_owned(), artifacts.not_named.into());
    if let Some(why) = &artifacts.incomplete {
        object.insert("incomplete".to_owned(), why.as_str().into());
    }
    object.into()
}

/// Text where it is text, base64 where it is not.
pub(crate) fn bytes_json(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({"text": text}),
        Err(_) => json!({"base64": STANDARD.encode(bytes)}),
    }
}

impl From<&JobDetails> for Facts {
    fn from(details: &JobDetails) -> Self {
        let (job, attempts) = (&details.job, &details.attempts);
        let (report, resolved) = (details.report(), details.resolved.as_ref());
        let stream = |stream: &CapturedStream| StreamFacts {
            bytes: stream.count.bytes,
            sha256: stream.count.digest.to_hex(),
            omitted: stream.count.truncated.then(|| stream.omitted()),
            redacted: stream.redacted.clone(),
        };
        Self {
            job: job.id,
            state: state_word(job),
            waiting: None,
            image: job.image.to_string(),
            image_digest: job.image_digest,
            policy_version: job.policy_version,
            is_erased: resolved.is_none(),
            asked: resolved.map(|resolved| resolved.asked),
            exact: resolved.map(|resolved| resolved.limits),
            batch: job.batch,
            outcome: job.outcome.clone(),
            sandbox: report.and_then(|report| report.sandbox.clone()),
            streams: report.map(|report| [stream(&report.stdout), stream(&report.stderr)]),
            usage: report.and_then(|report| report.usage),
            artifacts: report.and_then(|report| report.artifacts.clone()),
            egress: report.and_then(|report| report.egress.clone()),
            attempts: attempts
                .iter()
                .map(|attempt| AttemptFacts {
                    number: attempt.number,
                    id: attempt.id,
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
}

/// The one line after `mayfly run`.
pub(crate) fn summary(details: &JobDetails, outcome: &Outcome) -> String {
    Facts::from(details).summary(outcome)
}

/// A job's record for a person: a line for each fact.
pub(crate) fn to_text(details: &JobDetails, waiting: Option<&Waiting>) -> String {
    let facts = Facts {
        waiting: waiting.map(Waiting::sentence),
        ..Facts::from(details)
    };
    facts.text()
}

#[cfg(test)]
mod tests {
    use mayfly_core::{digest::Digest, outcome::StreamCount};

    use super::*;

    fn stream(bytes: u64, head: &[u8], tail: &[u8]) -> Value {
        let kept = (head.len() + tail.len()) as u64;
        let count = StreamCount {
            bytes,
            digest: Digest::of(b""),
            truncated: kept < bytes,
        };
        stream_json(&CapturedStream {
            count,
            head: head.to_vec(),
            tail: tail.to_vec(),
            redacted: None,
        })
    }

    #[test]
    fn a_whole_stream_is_text_or_base64() {
        assert_eq!(stream(3, b"a\0b", b"")["text"], "a\0b");
        assert_eq!(stream(2, b"\xff\xfe", b"")["base64"], "//4=");
        assert_eq!(stream(2, b"\xff\xfe", b"").get("text"), None);
    }

    #[test]
    fn a_cut_stream_says_what_is_missing() {
        let cut = stream(100, b"head", b"tail");
        assert_eq!(
            (&cut["truncated"], &cut["omitted_bytes"]),
            (&true.into(), &92.into())
        );
        assert_eq!(
            (&cut["head"]["text"], &cut["tail"]["text"]),
            (&"head".into(), &"tail".into())
        );
        assert_eq!(cut.get("text"), None);
    }
}
