//! Server and executors as separate processes, on real services and a real engine: what they promise when one of them, or
//! what they stand on, dies, is stopped, or is away for a while.
#![allow(
    unreachable_pub,
    clippy::print_stderr,
    reason = "a test says what it left out, and what processes said when it fails"
)]

mod ack_timeout;
mod artifacts;
mod away;
mod battery;
mod bench;
mod blobs;
mod ends;
mod enroll;
mod fitness;
mod history;
mod kills;
mod letters;
mod races;
mod redaction;
mod secrets;
mod support;
mod uploads;
mod whole;
