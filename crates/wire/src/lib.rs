//! What travels over `/v1`: the bodies of requests and answers, problems, and the events of a stream, for the server and
//! its clients alike. No I/O.
//!
//! Start with [`job`]. Requests refuse fields that they don't know; answers may gain fields, so that readers ignore those
//! that they don't know. Every list has a bound and says where it goes on; every error is a [`problem::Problem`]. Types
//! of the domain (`mayfly_core`) stand here as they are, with their texts and units.

pub mod account;
pub mod artifact;
pub mod audit;
pub mod batch;
pub mod bytes;
pub mod dead_letter;
pub mod executor;
pub mod health;
pub mod image;
pub mod job;
pub mod problem;
pub mod secret;
pub mod stream;
pub mod upload;

/// Most jobs of one submission, and most entries of one list.
pub const MAX_PAGE: u32 = 1000;
/// Entries of a list where no number is asked for.
pub const USUAL_PAGE: u32 = 100;
/// Longest that a request waits for a job's end, in seconds.
pub const MAX_WAIT_SECONDS: u64 = 60;
/// The header of a submission by which it may be repeated: 1 to 255 visible ASCII characters, chosen by the client.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The header by which an answer and our log lines about it are found together.
pub const REQUEST_ID: &str = "x-request-id";
