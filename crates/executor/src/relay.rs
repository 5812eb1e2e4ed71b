//! Live output, by the broker to whoever listens.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use mayfly_queue::seam::{EventPublisher, MAX_OUTPUT_BYTES, Output, Stream};
use mayfly_sandbox::seam::{LiveOutput, OutputStream};

use crate::{Listeners, RunId};

/// Publishes what runs write, on the newest connection. What the broker does not take at once is lost, and slows no job.
#[derive(Default, Clone)]
pub struct Relay(Arc<Mutex<Option<Arc<dyn EventPublisher>>>>);

impl Listeners for Relay {
    fn listener(&self, run: RunId) -> Arc<dyn LiveOutput> {
        Arc::new(OfRun {
            relay: self.clone(),
            run,
            stdout: AtomicU64::new(0),
            stderr: AtomicU64::new(0),
        })
    }

    fn connected(&self, publisher: Arc<dyn EventPublisher>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(publisher);
    }
}

struct OfRun {
    relay: Relay,
    run: RunId,
    /// Bytes so far.
    stdout: AtomicU64,
    stderr: AtomicU64,
}

#[async_trait]
impl LiveOutput for OfRun {
    fn output(&self, stream: OutputStream, bytes: &[u8]) {
        let (stream, so_far) = match stream {
            OutputStream::Stdout => (Stream::Stdout, &self.stdout),
            OutputStream::Stderr => (Stream::Stderr, &self.stderr),
        };
        let mut offset = so_far.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let publisher = self
            .relay
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let Some(publisher) = publisher else { return };
        for piece in bytes.chunks(MAX_OUTPUT_BYTES) {
            publisher.publish_output(Output {
                job: self.run.job,
                attempt: self.run.attempt,
                session: self.run.session,
                stream,
                offset,
                bytes: piece.to_vec(),
            });
            offset += piece.len() as u64;
        }
    }

    async fn ready(&self) {}
}
