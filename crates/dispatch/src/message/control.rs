use serde::{Deserialize, Serialize};

/// What the server says to an executor out of turn. It is transient, and nothing depends on it alone: what lasts is on
/// record, and replies say it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Control {
    /// The message's version.
    pub v: u32,
    /// What is to be done.
    pub order: Order,
}

/// What an executor is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Take nothing new; what is held goes on.
    Cordon,
    /// Take jobs again.
    Uncordon,
    /// Take nothing new, and end once everything that is held is delivered.
    Drain,
    /// The same, but kill what runs.
    Stop,
}
