//! Jobs: submitted, shown, listed, canceled. The body of a submission is `mayfly_core::job::JobSpec`.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use mayfly_core::{
    digest::Digest,
    egress::EgressRecord,
    id::{AttemptId, BatchId, ExecutorId, JobId, SessionId},
    image::ImageName,
    job::JobSpec,
    limits::{Limits, LimitsAsked},
    outcome::{CapturedStream, Cause, EndState, Evidence, Redacted, Usage},
    run::SandboxFacts,
    state::JobState,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    artifact::ArtifactList,
    bytes::{Bytes, NotBase64},
};

/// Where a job stands, in one word. The first four are on the way; the others are final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Accepted; no attempt stands.
    Queued,
    /// An attempt is on its way to an executor.
    Dispatched,
    /// An attempt has started.
    Started,
    /// It has started, and somebody has asked for its end.
    CancelRequested,
    /// The program ended by itself with exit code 0.
    Succeeded,
    /// The program ended with another exit code, or by a signal.
    Failed,
    /// The wall-clock limit passed first.
    TimedOut,
    /// The kernel killed the program for memory.
    OutOfMemory,
    /// The program passed a limit that its policy kills on.
    LimitExceeded,
    /// Somebody asked for its end.
    Canceled,
    /// It may not run.
    Rejected,
    /// It waited longer than it may.
    Expired,
    /// Trouble of ours, after all attempts.
    Error,
    /// Its executor died and it may not be tried again.
    Lost,
}

impl From<JobState> for State {
    fn from(state: JobState) -> Self {
        match state {
            JobState::Queued => Self::Queued,
            JobState::Dispatched => Self::Dispatched,
            JobState::Started => Self::Started,
            JobState::CancelRequested => Self::CancelRequested,
            JobState::Ended(EndState::Succeeded) => Self::Succeeded,
            JobState::Ended(EndState::Failed) => Self::Failed,
            JobState::Ended(EndState::TimedOut) => Self::TimedOut,
            JobState::Ended(EndState::OutOfMemory) => Self::OutOfMemory,
            JobState::Ended(EndState::LimitExceeded) => Self::LimitExceeded,
            JobState::Ended(EndState::Canceled) => Self::Canceled,
            JobState::Ended(EndState::Rejected) => Self::Rejected,
            JobState::Ended(EndState::Expired) => Self::Expired,
            JobState::Ended(EndState::Error) => Self::Error,
            JobState::Ended(EndState::Lost) => Self::Lost,
        }
    }
}

impl From<State> for JobState {
    fn from(state: State) -> Self {
        match state {
            State::Queued => Self::Queued,
            State::Dispatched => Self::Dispatched,
            State::Started => Self::Started,
            State::CancelRequested => Self::CancelRequested,
            State::Succeeded => Self::Ended(EndState::Succeeded),
            State::Failed => Self::Ended(EndState::Failed),
            State::TimedOut => Self::Ended(EndState::TimedOut),
            State::OutOfMemory => Self::Ended(EndState::OutOfMemory),
            State::LimitExceeded => Self::Ended(EndState::LimitExceeded),
            State::Canceled => Self::Ended(EndState::Canceled),
            State::Rejected => Self::Ended(EndState::Rejected),
            State::Expired => Self::Ended(EndState::Expired),
            State::Error => Self::Ended(EndState::Error),
            State::Lost => Self::Ended(EndState::Lost),
        }
    }
}

impl State {
    /// Whether nothing can change it any more.
    #[must_use]
    pub fn is_over(self) -> bool {
        JobState::from(self).end().is_some()
    }
}

/// What a submission came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Submitted {
    /// The job.
    pub job: JobId,
    /// Whether it had been accepted before, by the same idempotency key or as the same item, and stays as it is.
    pub existing: bool,
}

/// Many jobs at once: all of them are accepted, or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitMany {
    /// The jobs, at least one and at most 1000.
    #[schema(min_items = 1, max_items = 1000)]
    pub jobs: Vec<JobSpec>,
}

/// What the submission of many came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubmittedMany {
    /// One for each job, in their order.
    pub jobs: Vec<Submitted>,
}

/// A job with all that is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Its id.
    pub job: JobId,
    /// Where it stands.
    pub state: State,
    /// Why it has not started, where it has not and is not over.
    #[serde(default)]
    pub waiting_for: Option<WaitingFor>,
    /// Why it ended so.
    pub cause: Option<Cause>,
    /// The program's exit code, where it has one.
    pub exit_code: Option<u8>,
    /// The signal that ended the program, where one did.
    pub signal: Option<u8>,
    /// The image as it was named.
    pub image: ImageName,
    /// What that meant at submission.
    pub image_digest: Digest,
    /// The policy that was applied.
    pub policy_version: Digest,
    /// Standard output of the run that its outcome comes from.
    pub stdout: Option<Stream>,
    /// Standard error of the same.
    pub stderr: Option<Stream>,
    /// What came of the files that it asked to keep; none where nothing was collected.
    #[serde(default)]
    pub artifacts: Option<ArtifactList>,
    /// What it asked of hosts outside, and what was decided of each request; none where it had no egress.
    #[serde(default)]
    pub egress: Option<EgressRecord>,
    /// Limits as asked for, as resolved, and as read back from the sandbox.
    pub limits: LimitsShown,
    /// Whether what the job brought is erased.
    pub source_erased: bool,
    /// What was observed of its end.
    pub evidence: Option<Evidence>,
    /// What it used.
    pub usage: Option<Usage>,
    /// The sandbox that it ran in.
    pub sandbox: Option<SandboxFacts>,
    /// The tenant's labels.
    pub labels: BTreeMap<String, String>,
    /// The batch that it is one of.
    pub batch: Option<BatchId>,
    /// Attempts so far.
    pub attempts: u32,
    /// The newest attempt.
    pub attempt: Option<AttemptId>,
    /// Who started it.
    pub executor: Option<ExecutorId>,
    /// When the job was accepted.
    pub submitted_at: DateTime<Utc>,
    /// When the newest attempt's start was committed.
    pub started_at: Option<DateTime<Utc>>,
    /// When the job ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// Its attempts, in order.
    #[serde(default)]
    pub history: Vec<Attempt>,
}

/// Why a job that has not started waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitingFor {
    /// The first thing that has to come.
    pub reason: WaitWord,
    /// The same as a sentence.
    pub detail: String,
    /// When it comes, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<DateTime<Utc>>,
    /// Jobs of the tenant that go first, where the job waits for its turn: 1000 are so many or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u64>,
    /// Other tenants that want slots of the pool as well, and get their shares of them meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_tenants: Option<u64>,
}

/// What a job waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitWord {
    /// The time before which it may not start.
    NotBefore,
    /// The time of its next attempt.
    Retry,
    /// An executor of its pool that takes jobs.
    NoExecutor,
    /// Its image, which not every executor of its pool has yet.
    Image,
    /// An end of something that its tenant has in flight, which has as much as it may.
    Quota,
    /// Its turn: others go first, by the shares of their tenants, by priority, by age.
    Turn,
    /// Nothing more: it is on its way to an executor.
    Dispatched,
}

/// Limits of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LimitsShown {
    /// What it asked for; nothing where its content is erased.
    pub asked: Option<LimitsAsked>,
    /// What its policy made of that.
    pub exact: Option<Limits>,
    /// What was read back from its sandbox.
    pub in_force: Option<Limits>,
}

/// One scheduled try at a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    /// Its id.
    pub attempt: AttemptId,
    /// From 1.
    pub number: u32,
    /// Who started it.
    pub executor: Option<ExecutorId>,
    /// In which session.
    pub session: Option<SessionId>,
    /// When its start was committed.
    pub started_at: Option<DateTime<Utc>>,
    /// When its end was.
    pub ended_at: Option<DateTime<Utc>>,
    /// Why it is over.
    pub cause: Option<Cause>,
}

/// An output stream: how much there was, and what is kept of it. Where all of it is kept it is `text` or `base64`; where
/// the middle was cut, `head` and `tail`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stream {
    /// Every byte that the program wrote.
    pub bytes: u64,
    /// SHA-256 over every byte that the program wrote, in hexadecimal digits.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub sha256: String,
    /// Whether less than that is kept, what was taken out of it not counted.
    pub truncated: bool,
    /// What was taken out of it before anything was kept or shown; none where nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted: Option<Redacted>,
    /// Bytes that were cut between head and tail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted_bytes: Option<u64>,
    /// The first bytes, where something was cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Bytes>,
    /// The last bytes, where something was cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<Bytes>,
    /// All bytes, where none was cut and they are UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// All bytes, where none was cut and they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
}

impl Stream {
    /// A stream as it is kept.
    #[must_use]
    pub fn new(stream: &CapturedStream) -> Self {
        let cut = stream.count.truncated;
        let all = (!cut).then(|| Bytes::new(&stream.head));
        let (text, base64) = match all {
            Some(Bytes::Text { text }) => (Some(text), None),
            Some(Bytes::Base64 { base64 }) => (None, Some(base64)),
            None => (None, None),
        };
        Self {
            bytes: stream.count.bytes,
            sha256: stream.count.digest.to_hex(),
            truncated: cut,
            redacted: stream.redacted.clone(),
            omitted_bytes: cut.then(|| stream.omitted().as_bytes()),
            head: cut.then(|| Bytes::new(&stream.head)),
            tail: cut.then(|| Bytes::new(&stream.tail)),
            text,
            base64,
        }
    }

    /// What is kept: the first bytes, and the last ones where something between them was cut.
    ///
    /// # Errors
    /// Text that is no base64.
    pub fn into_kept(self) -> Result<(Vec<u8>, Vec<u8>), NotBase64> {
        let bytes = |part: Option<Bytes>| part.map_or(Ok(Vec::new()), Bytes::into_bytes);
        let all = match (self.text, self.base64) {
            (Some(text), _) => Some(Bytes::Text { text }),
            (None, Some(base64)) => Some(Bytes::Base64 { base64 }),
            (None, None) => self.head,
        };
        Ok((bytes(all)?, bytes(self.tail)?))
    }
}

/// A job in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobLine {
    /// Its id.
    pub job: JobId,
    /// Where it stands.
    pub state: State,
    /// Why it ended so.
    pub cause: Option<Cause>,
    /// The program's exit code, where it has one.
    pub exit_code: Option<u8>,
    /// The image as it was named.
    pub image: ImageName,
    /// What that meant at submission.
    pub image_digest: Digest,
    /// Attempts so far.
    pub attempts: u32,
    /// The tenant's labels.
    pub labels: BTreeMap<String, String>,
    /// The batch that it is one of.
    pub batch: Option<BatchId>,
    /// When it was accepted.
    pub submitted_at: DateTime<Utc>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
}

/// Jobs, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobList {
    /// The jobs.
    pub jobs: Vec<JobLine>,
    /// Where the list goes on: the `cursor` of the next request. None at its end.
    pub next: Option<String>,
}

/// What a request to cancel came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cancel {
    /// The job.
    pub job: JobId,
    /// What became of the request.
    pub answer: CancelWord,
}

/// What became of a request to cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CancelWord {
    /// It had not started, and is over.
    Canceled,
    /// It has started; its run is being ended, and `canceled` is the only outcome from here.
    Requested,
    /// It was over already, and stays as it was.
    Over,
}

/// A part of what is kept of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutputPart {
    /// Which stream.
    pub stream: StreamName,
    /// Where this part begins, in what is kept.
    pub offset: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// How many bytes are kept.
    pub kept_bytes: u64,
    /// How many bytes the program wrote.
    pub written_bytes: u64,
    /// Where in what is kept the cut is, where something was cut.
    pub cut_at: Option<u64>,
    /// The bytes.
    pub content: Bytes,
    /// The offset of the next part; none at the end.
    pub next: Option<u64>,
}

/// One of the two streams that a program writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StreamName {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl StreamName {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

#[cfg(test)]
mod tests {
    use mayfly_core::outcome::StreamCount;

    use super::*;

    fn captured(head: &[u8], tail: &[u8], bytes: u64) -> CapturedStream {
        let count = StreamCount {
            bytes,
            digest: Digest::of(head),
            truncated: bytes > (head.len() + tail.len()) as u64,
        };
        CapturedStream {
            count,
            head: head.to_vec(),
            tail: tail.to_vec(),
            redacted: None,
        }
    }

    #[test]
    fn every_state_has_its_word_and_comes_back() {
        let words = [
            State::Queued,
            State::Dispatched,
            State::Started,
            State::CancelRequested,
            State::Succeeded,
            State::Failed,
            State::TimedOut,
            State::OutOfMemory,
            State::LimitExceeded,
            State::Canceled,
            State::Rejected,
            State::Expired,
            State::Error,
            State::Lost,
        ];
        for (index, state) in words.into_iter().enumerate() {
            let job = JobState::from(state);
            assert_eq!(State::from(job), state);
            assert_eq!(state.is_over(), index >= 4);
            if let Some(end) = job.end() {
                assert_eq!(
                    serde_json::to_value(state).unwrap(),
                    serde_json::to_value(end).unwrap()
                );
            }
        }
    }

    #[test]
    fn what_is_kept_of_a_stream_comes_back_from_its_json() {
        for stream in [
            captured(b"", b"", 0),
            captured(b"42\n", b"", 3),
            captured(b"\xff", b"", 1),
            captured(b"ab", b"\xff", 100),
        ] {
            let json = serde_json::to_string(&Stream::new(&stream)).unwrap();
            let back: Stream = serde_json::from_str(&json).unwrap();
            assert_eq!(back.bytes, stream.count.bytes);
            assert_eq!(back.truncated, stream.count.truncated);
            assert_eq!(back.into_kept().unwrap(), (stream.head, stream.tail), "{json}");
        }
    }
}
