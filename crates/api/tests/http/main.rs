//! The API through real HTTP over loopback, on the embedded store. What executors do is done by the store's own bench,
//! which speaks their protocol.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "what is not there ends a test; a test that is left out says so"
)]

mod accounts;
mod archives;
mod artifacts;
mod blobs;
mod document;
mod ground;
mod jobs;
mod limits;
mod matrix;
mod output;
mod problems;
mod schemathesis;
mod secrets;
mod serving;
mod stream;
mod uploads;
