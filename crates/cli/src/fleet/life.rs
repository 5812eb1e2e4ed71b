//! How a role that runs jobs ends: asked once it finishes what it holds, within a grace; asked twice, or past the grace, it
//! kills what runs. It is never waited for without a bound.

use std::{process::ExitCode, time::Duration};

use mayfly_core::chain::Chain;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{embedded::Requests, exit};

/// How long killing what runs, and telling the server, may take. Longer than a lease: whoever can't tell the server waits
/// until the server knows by itself.
const ABORT_LIMIT: Duration = Duration::from_secs(60);

/// A role that runs jobs, with what ends it.
pub(crate) struct Running {
    pub(crate) role: JoinHandle<()>,
    /// Nothing new is taken; what runs goes on to its end.
    pub(crate) drain: CancellationToken,
    /// What runs is killed.
    pub(crate) abort: CancellationToken,
    /// Between the two.
    pub(crate) grace: Duration,
}

impl Running {
    /// Waits for the role's end, which comes by itself, by a message of the server's, or by a request.
    pub(crate) async fn until_its_end(mut self, requests: &mut Requests) -> ExitCode {
        tokio::select! {
            ended = &mut self.role => return code(ended, exit::OK),
            () = requests.next() => {}
        }
        tracing::info!(
            grace_s = self.grace.as_secs(),
            "asked to stop: nothing new is taken, what runs goes on"
        );
        self.drain.cancel();
        tokio::select! {
            ended = &mut self.role => return code(ended, exit::OK),
            () = requests.next() => tracing::warn!("asked to stop again: what runs is killed"),
            () = tokio::time::sleep(self.grace) => tracing::warn!("the grace is over: what runs is killed"),
        }
        self.abort.cancel();
        match tokio::time::timeout(ABORT_LIMIT, &mut self.role).await {
            Ok(ended) => code(ended, exit::SOME_FAILED),
            Err(_) => {
                tracing::error!("what runs could not be ended in time; its sandboxes end with this process");
                ExitCode::from(exit::INTERNAL)
            }
        }
    }
}

fn code(ended: Result<(), JoinError>, in_order: u8) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::from(in_order),
        Err(error) => {
            tracing::error!(error = %Chain(&error), "the role has panicked");
            ExitCode::from(exit::INTERNAL)
        }
    }
}
