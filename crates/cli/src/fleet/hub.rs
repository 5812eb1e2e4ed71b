//! From the runs of this process to who listens to them through its API.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use mayfly_api::seams::{LiveOutput as Heard, LiveOutputSource, OutputPiece, SourceError};
use mayfly_core::id::{JobId, TenantId};
use mayfly_executor::{Listeners, RunId};
use mayfly_sandbox::seam::{LiveOutput, OutputStream};
use mayfly_wire::job::StreamName;
use tokio::sync::broadcast;

/// Pieces that a listener may be behind; older ones are gone for it, which shows in the offsets. A piece is as large as
/// what a run hands over at once, some tens of KiB.
const BEHIND: usize = 64;

/// Jobs that somebody listens to. A run slows down for nobody.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    jobs: Mutex<HashMap<JobId, broadcast::Sender<OutputPiece>>>,
}

impl Hub {
    fn jobs(&self) -> MutexGuard<'_, HashMap<JobId, broadcast::Sender<OutputPiece>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place that a hub has among the listeners of an executor.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedHub(Arc<Hub>);

impl Listeners for SharedHub {
    fn listener(&self, run: RunId) -> Arc<dyn LiveOutput> {
        Arc::new(OfRun {
            hub: Arc::clone(&self.0),
            run,
            stdout: AtomicU64::new(0),
            stderr: AtomicU64::new(0),
        })
    }
}

#[async_trait]
impl LiveOutputSource for SharedHub {
    async fn listen(&self, _: TenantId, job: JobId) -> Result<Box<dyn Heard>, SourceError> {
        let mut jobs = self.0.jobs();
        // Of those that nobody listens to any more nothing has to be kept.
        jobs.retain(|_, pieces| pieces.receiver_count() > 0);
        let pieces = jobs
            .entry(job)
            .or_insert_with(|| broadcast::channel(BEHIND).0)
            .subscribe();
        Ok(Box::new(Listening(pieces)))
    }
}

/// One run, heard by whoever listens at that moment.
struct OfRun {
    hub: Arc<Hub>,
    run: RunId,
    /// Bytes so far.
    stdout: AtomicU64,
    stderr: AtomicU64,
}

#[async_trait]
impl LiveOutput for OfRun {
    fn output(&self, stream: OutputStream, bytes: &[u8]) {
        let (stream, so_far) = match stream {
            OutputStream::Stdout => (StreamName::Stdout, &self.stdout),
            OutputStream::Stderr => (StreamName::Stderr, &self.stderr),
        };
        let offset = so_far.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if let Some(pieces) = self.hub.jobs().get(&self.run.job) {
            // That nobody hears it any more is no failure.
            pieces
                .send(OutputPiece {
                    attempt: self.run.attempt,
                    stream,
                    offset,
                    bytes: bytes.to_vec(),
                })
                .unwrap_or_default();
        }
    }

    async fn ready(&self) {}
}

struct Listening(broadcast::Receiver<OutputPiece>);

#[async_trait]
impl Heard for Listening {
    async fn next(&mut self) -> Option<OutputPiece> {
        loop {
            match self.0.recv().await {
                Ok(piece) => return Some(piece),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use mayfly_core::id::{AttemptId, SessionId};

    use super::*;

    fn run_of(job: JobId) -> RunId {
        RunId {
            job,
            attempt: AttemptId::new(),
            session: SessionId::new(),
        }
    }

    #[tokio::test]
    async fn whoever_listens_hears_the_job_from_then_on_and_no_other() {
        let hub = SharedHub::default();
        let job = JobId::new();
        let run = hub.listener(run_of(job));
        run.output(OutputStream::Stdout, b"unheard");
        let mut heard = hub.listen(TenantId::LOCAL, job).await.unwrap();
        hub.listener(run_of(JobId::new()))
            .output(OutputStream::Stdout, b"other");
        run.output(OutputStream::Stdout, b"one");
        run.output(OutputStream::Stderr, b"two");
        let piece = heard.next().await.unwrap();
        assert_eq!(
            (piece.stream, piece.offset, &piece.bytes[..]),
            (StreamName::Stdout, 7, &b"one"[..])
        );
        let piece = heard.next().await.unwrap();
        assert_eq!(
            (piece.stream, piece.offset, &piece.bytes[..]),
            (StreamName::Stderr, 0, &b"two"[..])
        );
    }

    #[tokio::test]
    async fn a_listener_that_is_slow_misses_the_oldest_and_slows_nobody() {
        let hub = SharedHub::default();
        let job = JobId::new();
        let run = hub.listener(run_of(job));
        let mut heard = hub.listen(TenantId::LOCAL, job).await.unwrap();
        for _ in 0..=BEHIND {
            run.output(OutputStream::Stdout, b"x");
        }
        assert_eq!(heard.next().await.unwrap().offset, 1, "the first is gone");
        drop(heard);
        let _other = hub.listen(TenantId::LOCAL, JobId::new()).await.unwrap();
        assert_eq!(
            hub.0.jobs().len(),
            1,
            "nothing is kept of a job that nobody listens to"
        );
    }
}
