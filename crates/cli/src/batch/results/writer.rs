//! The thread that writes lines. A write may block for as long as a pipe's reader likes, and meanwhile jobs run and
//! Ctrl-C is heard. One line waits at most.

use std::{
    fs::File,
    io::{self, Write as _},
    thread::JoinHandle,
};

use tokio::sync::mpsc;

use super::Unwritable;

pub(super) struct Writer {
    lines: mpsc::Sender<Vec<u8>>,
    thread: JoinHandle<io::Result<()>>,
}

impl Writer {
    pub(super) fn to_file(mut file: File) -> Self {
        let (lines, mut from) = mpsc::channel::<Vec<u8>>(1);
        let thread = std::thread::spawn(move || {
            while let Some(line) = from.blocking_recv() {
                file.write_all(&line)?;
            }
            if file.metadata()?.is_file() {
                file.sync_all()?;
            }
            Ok(())
        });
        Self { lines, thread }
    }

    pub(super) fn to_stdout() -> Self {
        let (lines, mut from) = mpsc::channel::<Vec<u8>>(1);
        let thread = std::thread::spawn(move || {
            let mut stdout = io::stdout().lock();
            while let Some(line) = from.blocking_recv() {
                stdout.write_all(&line)?;
                stdout.flush()?;
            }
            Ok(())
        });
        Self { lines, thread }
    }

    /// Hands a line over.
    ///
    /// # Cancel safety
    /// The line is handed over whole, or not at all.
    pub(super) async fn write(&self, line: Vec<u8>) -> Result<(), Unwritable> {
        self.lines.send(line).await.map_err(|_| Unwritable)
    }

    pub(super) async fn broken(&self) {
        self.lines.closed().await;
    }

    pub(super) async fn finish(self) -> io::Result<()> {
        drop(self.lines);
        let ended = tokio::task::spawn_blocking(|| self.thread.join()).await;
        match ended {
            Ok(Ok(written)) => written,
            Ok(Err(_)) | Err(_) => Err(io::Error::other("the thread that writes results panicked")),
        }
    }
}
