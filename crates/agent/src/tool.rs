//! The seam to what a model may call.

use async_trait::async_trait;
use mayfly_core::id::JobId;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::model::ToolSpec;

/// Something that a model may call.
#[async_trait]
pub trait Tool: Send + Sync {
    /// What a model is told of it. Its name is no other tool's of the same run.
    fn spec(&self) -> &ToolSpec;

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
