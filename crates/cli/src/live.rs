//! A job's output on its way to our own stdout and stderr, while it runs.
//!
//! A thread of its own writes, since a write to a terminal or a pipe may block for as long as its reader likes; what
//! waits for it is bounded, and a job whose reader is slow is slowed, as by any pipe.

use std::{
    io::{self, IsTerminal as _},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::JoinHandle,
};

use async_trait::async_trait;
use mayfly_sandbox::seam::{LiveOutput, OutputStream};
use tokio::sync::Notify;

use crate::terminal::JobOutput;

/// Bytes that may wait for the writer before the job is slowed.
const MAX_WAITING: usize = 1 << 20;

/// What the writer takes; nothing is the end.
type Chunk = Option<(OutputStream, Vec<u8>)>;

/// Hears a job and passes it on to a [`Printer`].
pub(crate) struct Live {
    to: mpsc::Sender<Chunk>,
    waiting: Arc<Waiting>,
}

/// The thread that writes.
pub(crate) struct Printer {
    to: mpsc::Sender<Chunk>,
    thread: JoinHandle<io::Result<()>>,
}

#[derive(Default)]
struct Waiting {
    bytes: Mutex<usize>,
    room: Notify,
}

impl Waiting {
    fn change(&self, by: impl FnOnce(usize) -> usize) {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        *bytes = by(*bytes);
        if *bytes < MAX_WAITING {
            self.room.notify_waiters();
        }
    }

    fn has_room(&self) -> bool {
        *self.bytes.lock().unwrap_or_else(PoisonError::into_inner) < MAX_WAITING
    }
}

/// Starts the writer.
pub(crate) fn start() -> (Arc<Live>, Printer) {
    let (to, from) = mpsc::channel::<Chunk>();
    let waiting = Arc::new(Waiting::default());
    let written = Arc::clone(&waiting);
    let thread = std::thread::spawn(move || {
        let mut stdout = JobOutput::new(io::stdout().lock(), io::stdout().is_terminal());
        let mut stderr = JobOutput::new(io::stderr(), io::stderr().is_terminal());
        let mut result = Ok(());
        // After an error what comes is still taken, so that a job does not hang on a disk that is full.
        while let Ok(Some((stream, bytes))) = from.recv() {
            if result.is_ok() {
                result = match stream {
                    OutputStream::Stdout => stdout.write(&bytes),
                    OutputStream::Stderr => stderr.write(&bytes),
                };
            }
            written.change(|waiting| waiting.saturating_sub(bytes.len()));
        }
        result
            .and_then(|()| stdout.finish())
            .and_then(|()| stderr.finish())
    });
    (
        Arc::new(Live {
            to: to.clone(),
            waiting,
        }),
        Printer { to, thread },
    )
}

impl Printer {
    /// Waits until all that came before this call is written.
    ///
    /// # Errors
    /// The first write that failed, but for a reader that went away.
    pub(crate) fn finish(self) -> io::Result<()> {
        // It fails only where the thread has panicked, which the join tells.
        self.to.send(None).unwrap_or_default();
        self.thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that prints a job's output panicked")))
    }
}

#[async_trait]
impl LiveOutput for Live {
    fn output(&self, stream: OutputStream, bytes: &[u8]) {
        self.waiting.change(|waiting| waiting + bytes.len());
        // It fails only where the thread has panicked, which `finish` tells.
        self.to.send(Some((stream, bytes.to_vec()))).unwrap_or_default();
    }

    async fn ready(&self) {
        loop {
            // Registered before the check, so that room made in between is not missed.
            let room = self.waiting.room.notified();
            if self.waiting.has_room() {
                return;
            }
            room.await;
        }
    }
}
