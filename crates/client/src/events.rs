//! A job's stream, followed until the job's end across lost connections.
//!
//! A connection that is lost is opened again behind the newest event (`Last-Event-ID`). Where bytes come twice all the
//! same they are dropped by their offsets, so that a reader never sees output twice; where bytes are missing that is a gap.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use mayfly_core::id::{AttemptId, JobId};
use mayfly_wire::{
    job::StreamName,
    stream::{EndEvent, GapEvent, OutputEvent, StateEvent},
};
use reqwest::Response;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::{
    body,
    call::{Call, Client, broken},
    error::ClientError,
    patience::{self, Repeat},
    sse::{Event, Parser},
};

const DOING: &str = "follow the job";
/// Longest silence on a connection, comments included, until it is taken for lost.
const SILENCE: Duration = Duration::from_secs(60);
/// Longest wait for the beginning of a stream.
const BEGIN: Duration = Duration::from_secs(30);

/// Something that happens to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEvent {
    /// It stands somewhere else.
    State(StateEvent),
    /// It has written something.
    Output {
        /// The attempt that wrote it.
        attempt: AttemptId,
        /// Which stream.
        stream: StreamName,
        /// Where it begins, in bytes from the stream's beginning.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Output is passed over.
    Gap(GapEvent),
    /// It is over. Nothing follows.
    End(EndEvent),
}

/// A job's stream.
#[derive(Debug)]
pub struct JobEvents {
    client: Client,
    job: JobId,
    connection: Option<Connection>,
    /// The newest event that was handed out, or is about to be.
    last: Option<String>,
    ready: VecDeque<JobEvent>,
    seen: Seen,
    is_over: bool,
    /// Connections that have failed since the last sign of life.
    failures: u32,
    /// When the first of them did.
    failing_since: Option<Instant>,
}

#[derive(Debug)]
struct Connection {
    response: Response,
    parser: Parser,
    heard_at: Instant,
}

/// How much of the newest attempt's output was handed out.
#[derive(Debug, Default)]
struct Seen {
    attempt: Option<AttemptId>,
    ends: HashMap<StreamName, u64>,
}

impl JobEvents {
    pub(crate) fn new(client: Client, job: JobId) -> Self {
        Self {
            client,
            job,
            connection: None,
            last: None,
            ready: VecDeque::new(),
            seen: Seen::default(),
            is_over: false,
            failures: 0,
            failing_since: None,
        }
    }

    /// What happens next; none after the job's end.
    ///
    /// # Errors
    /// The server says no, its answers can't be read, or it was away for longer than the client has patience.
    ///
    /// # Cancel safety
    /// No event is lost.
    pub async fn next(&mut self) -> Result<Option<JobEvent>, ClientError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if self.is_over {
                return Ok(None);
            }
            if let Err(error) = self.read().await {
                self.connection = None;
                let since = *self.failing_since.get_or_insert_with(Instant::now);
                let left = self.client.patience().saturating_sub(since.elapsed());
                let wait = patience::wait(&error, Repeat::Safe, self.failures, left).ok_or(error)?;
                self.failures += 1;
                tokio::time::sleep(wait).await;
            }
        }
    }

    /// Takes what has arrived, over a connection that is made where there is none.
    async fn read(&mut self) -> Result<(), ClientError> {
        if self.connection.is_none() {
            let response = self.connect().await?;
            self.connection = Some(Connection {
                response,
                parser: Parser::default(),
                heard_at: Instant::now(),
            });
        }
        let Some(connection) = &mut self.connection else {
            return Ok(());
        };
        let silent_until = connection.heard_at + SILENCE;
        let silent = ClientError::TimedOut {
            doing: DOING,
            after: SILENCE,
        };
        let arrived = tokio::time::timeout_at(silent_until, body::next(&mut connection.response));
        let bytes = match arrived.await.map_err(|_| silent)? {
            Ok(Some(bytes)) => bytes,
            // An end without the job's end: the server stops, or a proxy has had enough.
            Ok(None) => return Err(ended_early()),
            Err(error) => return Err(broken(DOING, error, usize::MAX)),
        };
        connection.heard_at = Instant::now();
        (self.failing_since, self.failures) = (None, 0);
        let mut events = Vec::new();
        let fed = connection.parser.feed(&bytes, &mut events);
        for event in events {
            self.take(event)?;
        }
        fed.map_err(unreadable)
    }

    async fn connect(&self) -> Result<Response, ClientError> {
        let job = self.job.to_string();
        let path = ["v1", "jobs", &job, "events"];
        let mut call = Call {
            accept: "text/event-stream",
            ..Call::get(DOING, &path)
        };
        if let Some(last) = &self.last {
            call = call.header("last-event-id", last.clone());
        }
        let opened = tokio::time::timeout(BEGIN, self.client.open(&call));
        opened.await.unwrap_or(Err(ClientError::TimedOut {
            doing: DOING,
            after: BEGIN,
        }))
    }

    fn take(&mut self, event: Event) -> Result<(), ClientError> {
        match event.name.as_str() {
            "state" => self.ready.push_back(JobEvent::State(data(&event)?)),
            "output" => {
                let output: OutputEvent = data(&event)?;
                let bytes = output.content.into_bytes().map_err(unreadable)?;
                self.ready.extend(
                    self.seen
                        .output(output.attempt, output.stream, output.offset, bytes),
                );
            }
            "gap" => {
                let gap: GapEvent = data(&event)?;
                self.ready.extend(self.seen.gap(gap).map(JobEvent::Gap));
            }
            "end" => {
                self.ready.push_back(JobEvent::End(data(&event)?));
                (self.is_over, self.connection) = (true, None);
            }
            // Of a server that is newer than this.
            _ => {}
        }
        self.last = event
            .id
            .filter(|id| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_graphic()));
        Ok(())
    }
}

impl Seen {
    /// Where what was handed out of an attempt's stream ends; none for an attempt that another one has followed. Their
    /// ids sort by their creation.
    fn end(&mut self, attempt: AttemptId, stream: StreamName) -> Option<&mut u64> {
        if self.attempt.is_none_or(|newest| newest < attempt) {
            self.attempt = Some(attempt);
            self.ends.clear();
        }
        (self.attempt == Some(attempt)).then(|| self.ends.entry(stream).or_default())
    }

    /// What of some output is new, and what is missing before it.
    fn output(
        &mut self,
        attempt: AttemptId,
        stream: StreamName,
        offset: u64,
        mut bytes: Vec<u8>,
    ) -> Vec<JobEvent> {
        let Some(end) = self.end(attempt, stream) else {
            return Vec::new();
        };
        let (seen, to) = (*end, offset.saturating_add(bytes.len() as u64));
        if to <= seen {
            return Vec::new();
        }
        *end = to;
        let gap = (offset > seen).then_some(JobEvent::Gap(GapEvent {
            attempt,
            stream,
            from: seen,
            to: offset,
        }));
        let known = usize::try_from(seen.saturating_sub(offset)).unwrap_or(usize::MAX);
        bytes.drain(..known.min(bytes.len()));
        let output = JobEvent::Output {
            attempt,
            stream,
            offset: offset.max(seen),
            bytes,
        };
        gap.into_iter().chain([output]).collect()
    }

    /// What of a gap is new.
    fn gap(&mut self, gap: GapEvent) -> Option<GapEvent> {
        let end = self.end(gap.attempt, gap.stream)?;
        let from = gap.from.max(*end);
        *end = gap.to.max(*end);
        (from < gap.to).then_some(GapEvent { from, ..gap })
    }
}

fn data<T: DeserializeOwned>(event: &Event) -> Result<T, ClientError> {
    serde_json::from_str(&event.data).map_err(unreadable)
}

fn unreadable(source: impl std::error::Error + Send + Sync + 'static) -> ClientError {
    ClientError::Unreadable {
        doing: DOING,
        source: Box::new(source),
    }
}

fn ended_early() -> ClientError {
    ClientError::Cut {
        doing: DOING,
        source: "the stream ended before the job".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_that_comes_twice_is_handed_out_once_and_what_is_missing_is_a_gap() {
        let (mut seen, attempt) = (Seen::default(), AttemptId::new());
        let mut hear = |attempt, stream, offset, bytes: &[u8]| {
            let events = seen.output(attempt, stream, offset, bytes.to_vec());
            let text = |event: &JobEvent| match event {
                JobEvent::Output { offset, bytes, .. } => {
                    format!("{offset} {}", String::from_utf8_lossy(bytes))
                }
                JobEvent::Gap(gap) => format!("gap {}-{}", gap.from, gap.to),
                other => format!("{other:?}"),
            };
            events.iter().map(text).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(hear(attempt, StreamName::Stdout, 0, b"abc"), "0 abc");
        assert_eq!(hear(attempt, StreamName::Stdout, 0, b"abc"), "");
        assert_eq!(hear(attempt, StreamName::Stdout, 1, b"bcde"), "3 de");
        assert_eq!(hear(attempt, StreamName::Stderr, 0, b"x"), "0 x");
        assert_eq!(hear(attempt, StreamName::Stdout, 9, b"j"), "gap 5-9, 9 j");
        assert_eq!(hear(attempt, StreamName::Stdout, 10, b""), "");
        let next = AttemptId::new();
        assert_eq!(hear(next, StreamName::Stdout, 0, b"abc"), "0 abc");
        assert_eq!(hear(attempt, StreamName::Stdout, 10, b"late"), "");
        let gap = |from, to| GapEvent {
            attempt: next,
            stream: StreamName::Stdout,
            from,
            to,
        };
        assert_eq!(seen.gap(gap(3, 9)), Some(gap(3, 9)));
        assert_eq!(seen.gap(gap(3, 9)), None);
        assert_eq!(seen.gap(gap(5, 12)), Some(gap(9, 12)));
    }
}
