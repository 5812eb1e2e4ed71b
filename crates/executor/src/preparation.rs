//! Making a sandbox for an attempt, on an engine that may be away for a while: restarted, frozen, cut off. An attempt
//! that could not even be prepared is not ended and costs no try; it waits here, bounded, for the engine to answer.

use std::time::Duration;

use mayfly_core::{chain::Chain, id::SandboxId};
use mayfly_sandbox::seam::{PrepareError, ReadySandbox, Sandbox, SandboxRequest};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::pauses::Pauses;

/// The wait between two tries, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long an attempt waits for its engine before it ends as trouble of ours, which its retry policy then judges.
const ENGINE_LIMIT: Duration = Duration::from_secs(600);

/// Makes a sandbox. While the engine does not answer it tries again, until the sandbox is not wanted any more or the
/// limit has passed; `delayed` is called once, before the first of these waits.
///
/// # Errors
/// What no further try would mend, or the newest trouble.
pub(crate) async fn prepare(
    sandbox: &dyn Sandbox,
    mut request: SandboxRequest,
    unwanted: &CancellationToken,
    delayed: impl FnOnce() + Send,
) -> Result<Box<dyn ReadySandbox>, PrepareError> {
    let mut pauses = Pauses::new(FIRST_PAUSE, LONGEST_PAUSE);
    let (mut delayed, mut until) = (Some(delayed), None);
    loop {
        let error = match sandbox.prepare(request.clone()).await {
            Ok(ready) => {
                if until.is_some() {
                    tracing::info!("the engine answers again");
                }
                return Ok(ready);
            }
            Err(error) => error,
        };
        let now = Instant::now();
        let until = *until.get_or_insert(now + ENGINE_LIMIT);
        if !error.may_pass() || now >= until || unwanted.is_cancelled() {
            return Err(error);
        }
        if let Some(delayed) = delayed.take() {
            delayed();
            tracing::warn!(error = %Chain(&error), "the engine does not answer; its jobs wait for it");
        } else {
            tracing::debug!(error = %Chain(&error), "the engine still does not answer");
        }
        tokio::select! {
            () = tokio::time::sleep(pauses.next()) => {}
            () = unwanted.cancelled() => return Err(error),
        }
        // A creation that was not answered may yet have happened, under the name that the id makes.
        request.sandbox_id = SandboxId::new();
    }
}
