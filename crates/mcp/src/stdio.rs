//! The protocol on stdin and stdout of this process, for a client that has started it. Nothing else may be written to stdout.

use std::time::Duration;

use mayfly_tools::Toolbox;
use rmcp::service::{QuitReason, ServerInitializeError, serve_server_with_ct};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::handler::{By, Handler, OpenJobs};

/// How long calls may take, once nobody waits for them, to cancel what they have started.
const CANCEL_LIMIT: Duration = Duration::from_secs(15);

/// A client that can't be served.
#[derive(Debug, thiserror::Error)]
pub enum StdioError {
    /// It does not begin as the protocol has it.
    #[error("what comes on stdin is not the beginning of an MCP session: is this started by an MCP client?")]
    Begin(#[source] Box<ServerInitializeError>),
    /// The part that serves it has panicked.
    #[error("the MCP session has ended in the middle")]
    Part(#[source] tokio::task::JoinError),
}

/// What becomes of jobs that the client was told to wait for, and that have not ended when it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtEnd {
    /// They are canceled: they could not go on without this process.
    Cancel,
    /// They go on: whoever knows their ids can wait for them elsewhere.
    Leave,
}

/// Serves the client at the other end of stdin and stdout, until it closes them or `stop` is canceled. Calls that are under
/// way then are canceled, and their jobs with them.
///
/// # Errors
/// A client that does not speak the protocol.
pub async fn stdio(toolbox: Toolbox, at_end: AtEnd, stop: CancellationToken) -> Result<(), StdioError> {
    let (calls, open) = (TaskTracker::new(), OpenJobs::default());
    let handler = Handler {
        toolbox: toolbox.clone(),
        by: By::Itself,
        calls: calls.clone(),
        open: Some(open.clone()),
    };
    let transport = (tokio::io::stdin(), tokio::io::stdout());
    let session = match serve_server_with_ct(handler, transport, stop).await {
        Ok(session) => session,
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => return Ok(()),
        Err(error) => return Err(StdioError::Begin(Box::new(error))),
    };
    let ended = session.waiting().await;
    calls.close();
    if tokio::time::timeout(CANCEL_LIMIT, calls.wait()).await.is_err() {
        tracing::warn!("a call could not be canceled in time; its job goes on to its limits");
    }
    if at_end == AtEnd::Cancel {
        for job in open.take() {
            let canceled = tokio::time::timeout(CANCEL_LIMIT, toolbox.cancel(job)).await;
            if !canceled.is_ok_and(|answer| answer.structured.is_some()) {
                tracing::warn!(job.id = %job, "a job could not be canceled in time");
            }
        }
    }
    match ended {
        Ok(QuitReason::JoinError(error)) | Err(error) => Err(StdioError::Part(error)),
        Ok(_) => Ok(()),
    }
}
