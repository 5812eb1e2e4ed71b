//! The events of a job's stream (`text/event-stream`, WHATWG HTML, section 9.2): what its data is, by the event's name.
//!
//! | event | data |
//! | --- | --- |
//! | `state` | [`StateEvent`], at once and whenever the job moves |
//! | `output` | [`OutputEvent`], while the job runs and for what is left at its end |
//! | `gap` | [`GapEvent`], where bytes of the output are passed over |
//! | `end` | [`EndEvent`], the last one |
//!
//! Each event has an id; a client that comes back with the newest one in `Last-Event-ID` goes on behind it. Comments
//! (`:`) keep the connection alive.

use mayfly_core::{
    id::{AttemptId, JobId},
    outcome::Cause,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    bytes::Bytes,
    job::{State, StreamName},
};

/// An event as it stands in the stream, each field on a line of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StreamEvent {
    /// What it is about.
    pub event: EventName,
    /// What a client comes back with.
    pub id: String,
    /// JSON of what its name says: `StateEvent`, `OutputEvent`, `GapEvent` or `EndEvent`.
    pub data: String,
}

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventName {
    /// The job has moved.
    State,
    /// The job has written.
    Output,
    /// Output is passed over.
    Gap,
    /// The job is over.
    End,
}

/// Where the job stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StateEvent {
    /// The job.
    pub job: JobId,
    /// Where it stands.
    pub state: State,
    /// Attempts so far.
    pub attempts: u32,
}

/// Output of the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutputEvent {
    /// The attempt that wrote it. Output of another attempt begins anew.
    pub attempt: AttemptId,
    /// Which stream.
    pub stream: StreamName,
    /// Where it begins, in bytes from the stream's beginning.
    pub offset: u64,
    /// The bytes.
    pub content: Bytes,
}

/// Output that is passed over: it was dropped on the way, or is not kept. What is kept is read by its own route once the
/// job has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GapEvent {
    /// The attempt that wrote it.
    pub attempt: AttemptId,
    /// Which stream.
    pub stream: StreamName,
    /// The first byte that is missing.
    pub from: u64,
    /// The first byte behind them.
    pub to: u64,
}

/// The job is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EndEvent {
    /// The job.
    pub job: JobId,
    /// Its terminal state.
    pub state: State,
    /// Why.
    pub cause: Cause,
    /// The program's exit code, where it has one.
    pub exit_code: Option<u8>,
    /// The signal that ended the program, where one did.
    pub signal: Option<u8>,
}
