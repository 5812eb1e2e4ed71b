//! The seam to what a model may call.

use async_trait::async_trait;
use mayfly_core::id::JobId;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::model::{ToolCall, ToolSpec};

/// Something that a model may call.
#[async_trait]
pub trait Tool: Send + Sync {
    /// What a model is told of it. Its name is no other tool's of the same run.
    fn spec(&self) -> &ToolSpec;

    /// Whether somebody has to say yes first, where a run wants that.
    fn is_held(&self) -> bool;

    /// Does it. What goes wrong is an outcome too, in words from which a model can mend its call. When `stop` is canceled
    /// it comes to its end soon, and leaves nothing running.
    async fn call(&self, arguments: Map<String, Value>, stop: &CancellationToken) -> ToolOutcome;
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutcome {
    /// For the model. What a job wrote is in it as data, within a bound, and marked as such.
    pub text: String,
    /// Whether the call was wrong, or what it did has failed.
    pub is_error: bool,
    /// The job that did it.
    pub job: Option<JobId>,
}

/// Says whether a call may be carried out, before it is.
#[async_trait]
pub trait Approval: Send + Sync {
    /// Asks for it. It is asked for one call after the other, and given up where the run ends meanwhile.
    async fn asked(&self, call: &ToolCall) -> Verdict;
}

/// What was said to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It may be carried out.
    Approved,
    /// It may not.
    Refused,
}
