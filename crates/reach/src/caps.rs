//! How much of everything one job may have.

use std::time::Duration;

/// Bounds of one job's egress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caps {
    /// Connections at a time; one more is answered with 503 where none of them ends within a second.
    pub connections: usize,
    /// Requests that are decided on in the whole run; further ones are answered with 503.
    pub requests: u64,
    /// Bytes in the whole run, both ways together. Then every connection is cut.
    pub bytes: u64,
    /// Bytes of one head of a request or response.
    pub head_bytes: usize,
    /// Names that wildcards of the policy let through in the whole run: each is a question that its owner's name server
    /// hears, whatever comes of it.
    pub wildcard_names: usize,
    /// From the beginning of a connection, or the end of a request, to the end of the next head.
    pub head_time: Duration,
    /// For looking a name up, and again for reaching a server.
    pub dial_time: Duration,
    /// Without a byte in either direction.
    pub idle_time: Duration,
    /// For one request and its answer, or one CONNECT.
    pub request_time: Duration,
    /// Decisions that are listed, of those that let something through and of the others each; further ones are counted.
    pub listed: usize,
}

impl Caps {
    /// The usual bounds.
    #[must_use]
    pub const fn usual() -> Self {
        Self {
            connections: 64,
            requests: 10_000,
            bytes: 1 << 30,
            head_bytes: 32 * 1024,
            wildcard_names: 64,
            head_time: Duration::from_secs(30),
            dial_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(60),
            request_time: Duration::from_secs(3600),
            listed: 1000,
        }
    }
}
