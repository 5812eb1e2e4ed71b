//! A job's output from the server to our own stdout and stderr.

use std::{sync::Arc, time::Duration};

use mayfly_client::{Client, ClientError, JobEvent};
use mayfly_core::id::{AttemptId, JobId};
use mayfly_sandbox::seam::{LiveOutput as _, OutputStream};
use mayfly_wire::{MAX_WAIT_SECONDS, job::StreamName, stream::EndEvent};

use crate::{live::Live, terminal::say};

/// How long a job that is followed is followed on while the server is away: a restart, an upgrade.
pub(super) const FOLLOW: Duration = Duration::from_secs(600);
/// Longest that one request waits for a job's end.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(MAX_WAIT_SECONDS);

/// How a job that was followed has ended.
pub(super) struct Followed {
    pub(super) end: EndEvent,
    /// Some of its output was not shown.
    pub(super) incomplete: bool,
}

/// Shows what a job writes, both streams or one of them, until its end.
pub(super) async fn follow(
    client: &Client,
    job: JobId,
    live: &Arc<Live>,
    only: Option<StreamName>,
) -> Result<Followed, ClientError> {
    let mut events = client.with_patience(FOLLOW.max(client.patience())).events(job);
    let (mut shown, mut incomplete) = (None::<AttemptId>, false);
    while let Some(event) = events.next().await? {
        match event {
            JobEvent::Output {
                attempt,
                stream,
                bytes,
                ..
            } => {
                if only.is_some_and(|only| only != stream) {
                    continue;
                }
                if shown.replace(attempt).is_some_and(|before| before != attempt) {
                    say("mayfly: the job was begun anew, and so is its output");
                    incomplete = false;
                }
                // A reader that is slow slows this, and in the end the server, and never fills the memory.
                live.ready().await;
                live.output(sandbox_stream(stream), &bytes);
            }
            JobEvent::Gap(gap) => {
                if only.is_none_or(|only| only == gap.stream) {
                    incomplete = true;
                    let (bytes, stream) = (gap.to.saturating_sub(gap.from), gap.stream.as_str());
                    say(&format!("mayfly: {bytes} bytes of {stream} are not shown here"));
                }
            }
            JobEvent::State(_) => {}
            JobEvent::End(end) => return Ok(Followed { end, incomplete }),
        }
    }
    unreachable!("a stream that ends without an error has ended with its job")
}

const fn sandbox_stream(stream: StreamName) -> OutputStream {
    match stream {
        StreamName::Stdout => OutputStream::Stdout,
        StreamName::Stderr => OutputStream::Stderr,
    }
}
