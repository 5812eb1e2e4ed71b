//! A job as it goes: its states from the store's commits, its output from whoever runs it, until its end.
//!
//! Live output may be lost on its way, and is not stored before the end. What a client has not seen by then is sent from
//! the record, and what is not there either shows as a gap, so that what a client has put together is always either
//! whole or known not to be.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    http::HeaderMap,
    response::{
        IntoResponse as _, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::stream;
use mayfly_core::{
    chain::Chain,
    id::{AttemptId, JobId, KeyId, TenantId},
    outcome::CapturedStream,
};
use mayfly_store::records::JobStanding;
use mayfly_wire::{
    bytes::Bytes,
    job::{State as Word, StreamName},
    problem::Code,
    stream::{GapEvent, OutputEvent, StateEvent, StreamEvent},
};
use serde::Serialize;
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    time::{Instant, Interval, MissedTickBehavior},
};

use super::{
    jobs::{details, exists},
    output::whole_characters,
};
use crate::{
    access::Caller,
    app::Shared,
    auth::{Tenant, still_valid},
    error::{ApiError, ApiResult},
    extract::InPath,
    seams::{LiveOutput, OutputPiece, SourceError},
    show,
    waiters::Seen,
};

/// Most bytes of output in one event.
const LARGEST_EVENT: usize = 32 << 10;
/// How long until a source of live output that went away is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// A job as it goes.
///
/// Events are `state`, `output`, `gap` and, last, `end`; the stream ends with it. A client that comes back with
/// `Last-Event-ID` goes on behind that event.
#[utoipa::path(
    get,
    path = "/v1/jobs/{job}/events",
    tag = "output",
    params(
        ("job" = uuid::Uuid, Path, description = "The job's id."),
        ("Last-Event-ID" = Option<String>, Header, description = "The id of the newest event that the client has seen."),
    ),
    responses((status = 200, description = "The events.", content_type = "text/event-stream", body = StreamEvent)),
)]
pub(crate) async fn events(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
    caller: Caller,
    InPath(job): InPath<JobId>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    exists(&app, tenant, job).await?;
    let Ok(permit) = Arc::clone(&app.streams).try_acquire_owned() else {
        return Err(ApiError::new(Code::Overloaded)
            .detail("the server has too many streams at once")
            .retry_after(Duration::from_secs(5)));
    };
    let seen_last = headers
        .get("last-event-id")
        .and_then(|id| id.to_str().ok())
        .and_then(Place::parse);
    // Listening first: what is written between the two is heard, or shows as a gap.
    let live = Live::begin(&app, tenant, job).await;
    let seen = app.waiters.join(tenant, job);
    let every = app.parts.limits.look_again;
    let mut look_again = tokio::time::interval_at(Instant::now() + every, every);
    look_again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let follower = Follower {
        key: caller.key,
        tenant,
        job,
        place: seen_last.unwrap_or_default(),
        app,
        live,
        seen,
        look_again,
        queue: VecDeque::new(),
        over: false,
        _permit: permit,
    };
    let events = stream::unfold(follower, |mut follower| async move {
        let event = follower.next().await?;
        Some((Ok::<_, Infallible>(event), follower))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

/// How far a client has come: what its next event begins behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Place {
    /// The newest state that it has seen.
    state: Option<(Word, u32)>,
    /// The attempt whose output it sees.
    attempt: Option<AttemptId>,
    /// Bytes of each stream that it has seen or knows to be missing.
    stdout: u64,
    stderr: u64,
}

impl Place {
    /// The text of it, for an event's id.
    fn id(&self) -> String {
        let (state, attempts) = match self.state {
            Some((state, attempts)) => (show_word(state), attempts),
            None => ("-".to_owned(), 0),
        };
        let attempt = self
            .attempt
            .map_or_else(|| "-".to_owned(), |attempt| attempt.to_string());
        format!("{state}.{attempts}.{attempt}.{}.{}", self.stdout, self.stderr)
    }

    /// None where it is none of ours; the stream begins at the beginning then.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let mut next = || parts.next();
        let (state, attempts) = (next()?, next()?.parse().ok()?);
        let state = match state {
            "-" => None,
            word => Some((serde_json::from_value(word.into()).ok()?, attempts)),
        };
        let attempt = match next()? {
            "-" => None,
            id => Some(id.parse().ok()?),
        };
        let place = Self {
            state,
            attempt,
            stdout: next()?.parse().ok()?,
            stderr: next()?.parse().ok()?,
        };
        next().is_none().then_some(place)
    }

    fn of(&mut self, stream: StreamName) -> &mut u64 {
        match stream {
            StreamName::Stdout => &mut self.stdout,
            StreamName::Stderr => &mut self.stderr,
        }
    }

    /// Goes over to an attempt. False where it is older than the one whose output was seen.
    fn go_to(&mut self, attempt: AttemptId) -> bool {
        if self.attempt.is_none_or(|seen| seen < attempt) {
            *self = Self {
                state: self.state,
                attempt: Some(attempt),
                ..Self::default()
            };
        }
        self.attempt == Some(attempt)
    }
}

fn show_word(state: Word) -> String {
    match serde_json::to_value(state) {
        Ok(serde_json::Value::String(word)) => word,
        other => unreachable!("a state is a word: {other:?}"),
    }
}

/// Where live output comes from.
enum Live {
    On(Box<dyn LiveOutput>),
    /// It went away, or could not be had.
    Off {
        ask_at: Instant,
    },
    /// There is none.
    Never,
}

impl Live {
    async fn begin(app: &Shared, tenant: TenantId, job: JobId) -> Self {
        match app.parts.live.listen(tenant, job).await {
            Ok(live) => Self::On(live),
            Err(SourceError::NotSupported | SourceError::NoSuchThing | SourceError::Over) => Self::Never,
            Err(error @ SourceError::Unavailable(_)) => {
                tracing::debug!(job.id = %job, error = %Chain(&error), "live output can't be had");
                Self::off()
            }
        }
    }

    fn off() -> Self {
        Self::Off {
            ask_at: Instant::now() + ASK_AGAIN,
        }
    }

    /// The next piece; none when it is time to ask again.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    async fn next(&mut self) -> Option<OutputPiece> {
        match self {
            Self::On(live) => live.next().await,
            Self::Off { ask_at } => {
                tokio::time::sleep_until(*ask_at).await;
                None
            }
            Self::Never => std::future::pending().await,
        }
    }
}

/// One client's stream.
struct Follower {
    app: Shared,
    key: KeyId,
    tenant: TenantId,
    job: JobId,
    place: Place,
    live: Live,
    seen: watch::Receiver<Seen>,
    look_again: Interval,
    /// Events that are made and not taken yet: those of one step.
    queue: VecDeque<Event>,
    over: bool,
    _permit: OwnedSemaphorePermit,
}

/// What a stream waits for.
enum Heard {
    Standing(JobStanding),
    Piece(Option<OutputPiece>),
    LookAgain,
    Stop,
}

impl Follower {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Some(event);
            }
            if self.over {
                return None;
            }
            self.step().await;
        }
    }

    async fn step(&mut self) {
        match self.hear().await {
            Heard::Standing(standing) => {
                let state = Word::from(standing.state);
                if self.place.state != Some((state, standing.attempts)) {
                    self.place.state = Some((state, standing.attempts));
                    let event = StateEvent {
                        job: self.job,
                        state,
                        attempts: standing.attempts,
                    };
                    self.push("state", &event);
                }
                if state.is_over() {
                    self.finish().await;
                }
            }
            Heard::Piece(Some(piece)) => self.piece(&piece),
            Heard::Piece(None) => {
                self.live = match &self.live {
                    Live::On(_) => Live::off(),
                    Live::Off { .. } | Live::Never => Live::begin(&self.app, self.tenant, self.job).await,
                };
            }
            Heard::LookAgain => self.over = !still_valid(&self.app, self.key).await,
            Heard::Stop => self.over = true,
        }
    }

    async fn hear(&mut self) -> Heard {
        let news = async {
            loop {
                let standing = *self.seen.borrow_and_update();
                if let Some(standing) = standing
                    && self.place.state != Some((standing.state.into(), standing.attempts))
                {
                    return Heard::Standing(standing);
                }
                // A job that was over when the client came back.
                if let Some(standing) = standing
                    && standing.state.end().is_some()
                {
                    return Heard::Standing(standing);
                }
                if self.seen.changed().await.is_err() {
                    return Heard::Stop;
                }
            }
        };
        tokio::select! {
            // What was written before a state is seen before it, as far as it has come.
            biased;
            () = self.app.stop.cancelled() => Heard::Stop,
            _ = self.look_again.tick() => Heard::LookAgain,
            piece = self.live.next() => Heard::Piece(piece),
            heard = news => heard,
        }
    }

    /// Sends live output, less what was sent already.
    fn piece(&mut self, piece: &OutputPiece) {
        if self.place.go_to(piece.attempt) {
            self.bytes(piece.attempt, piece.stream, piece.offset, &piece.bytes);
        }
    }

    fn bytes(&mut self, attempt: AttemptId, stream: StreamName, offset: u64, bytes: &[u8]) {
        let next = *self.place.of(stream);
        let end = offset.saturating_add(bytes.len() as u64);
        if end <= next {
            return;
        }
        if offset > next {
            self.gap(attempt, stream, offset);
        }
        let known = usize::try_from(next.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut rest = &bytes[known.min(bytes.len())..];
        while !rest.is_empty() {
            let part = whole_characters(rest, 0..rest.len().min(LARGEST_EVENT));
            let (now, later) = rest.split_at(part.end);
            rest = later;
            let offset = *self.place.of(stream);
            *self.place.of(stream) = offset + now.len() as u64;
            let event = OutputEvent {
                attempt,
                stream,
                offset,
                content: Bytes::new(now),
            };
            self.push("output", &event);
        }
    }

    /// Says that what is between here and there will not come.
    fn gap(&mut self, attempt: AttemptId, stream: StreamName, to: u64) {
        let from = std::mem::replace(self.place.of(stream), to);
        let event = GapEvent {
            attempt,
            stream,
            from,
            to,
        };
        self.push("gap", &event);
    }

    /// Sends what is on record and was not seen, then the end.
    async fn finish(&mut self) {
        let details = match details(&self.app, self.tenant, self.job).await {
            Ok(details) => details,
            Err(error) => {
                // The client comes back, and goes on here.
                tracing::warn!(job.id = %self.job, code = error.code.as_str(), "a stream's end could not be read");
                self.over = true;
                return;
            }
        };
        let last = details.attempts.last();
        if let Some((attempt, report)) = last.and_then(|last| Some((last.id, last.report.as_ref()?)))
            && self.place.go_to(attempt)
        {
            self.rest(attempt, StreamName::Stdout, &report.stdout);
            self.rest(attempt, StreamName::Stderr, &report.stderr);
        }
        if let Some(end) = show::end(&details.job) {
            self.push("end", &end);
        }
        self.over = true;
    }

    fn rest(&mut self, attempt: AttemptId, stream: StreamName, kept: &CapturedStream) {
        self.bytes(attempt, stream, 0, &kept.head);
        let end = kept.shown_bytes();
        let tail_at = end.saturating_sub(kept.tail.len() as u64);
        self.bytes(attempt, stream, tail_at, &kept.tail);
        if *self.place.of(stream) < end {
            self.gap(attempt, stream, end);
        }
    }

    fn push(&mut self, name: &str, data: &impl Serialize) {
        let event = Event::default().event(name).id(self.place.id());
        match event.json_data(data) {
            Ok(event) => self.queue.push_back(event),
            Err(error) => tracing::error!(error = %Chain(&error), "an event could not be written"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_reads_back_from_its_id_and_nothing_else_is_one() {
        let attempt = AttemptId::new();
        for place in [
            Place::default(),
            Place {
                state: Some((Word::CancelRequested, 2)),
                attempt: Some(attempt),
                stdout: 7,
                stderr: u64::MAX,
            },
        ] {
            assert_eq!(Place::parse(&place.id()), Some(place));
        }
        for text in [
            "",
            "-",
            "started.1.-.0",
            "started.1.-.0.0.0",
            "gone.1.-.0.0",
            "-.0.x.0.0",
            "-.0.-.-1.0",
        ] {
            assert_eq!(Place::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_older_attempt_is_passed_over_and_a_newer_one_begins_anew() {
        let (older, newer) = (AttemptId::new(), AttemptId::new());
        let mut place = Place::default();
        assert!(place.go_to(older));
        place.stdout = 5;
        assert!(place.go_to(older) && place.stdout == 5);
        assert!(place.go_to(newer) && place.stdout == 0);
        assert!(!place.go_to(older));
    }
}
