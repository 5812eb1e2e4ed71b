//! The job's three streams, as seen from the guest.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mayfly_protocol::{FromGuest, MAX_DATA, STDIN_WINDOW, SendWindow, StreamId};

use crate::queue::Queue;
use crate::sys::{self, Errno};

/// Consumed stdin for which it is worth granting more.
const GRANT_FROM: u32 = STDIN_WINDOW / 4;

/// Stdout or stderr.
pub(crate) struct Outlet {
    stream: StreamId,
    pipe: Option<OwnedFd>,
    pub(crate) window: SendWindow,
    pub(crate) sent_bytes: u64,
}

impl Outlet {
    pub(crate) fn new(stream: StreamId) -> Self {
        Self {
            stream,
            pipe: None,
            window: SendWindow::new(stream, 0),
            sent_bytes: 0,
        }
    }

    pub(crate) fn open(&mut self, pipe: OwnedFd) {
        self.pipe = Some(pipe);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// The pipe, while there is credit and room for what it holds.
    pub(crate) fn wanted(&self, queue: &Queue) -> Option<BorrowedFd<'_>> {
        let wanted = self.window.available() > 0 && queue.room() > 0;
        self.pipe.as_ref().filter(|_| wanted).map(AsFd::as_fd)
    }

    /// For when no process is left that could write: an empty pipe is then at its end, without
    /// credit too, and also while the kernel still holds a copy of its writing end in a message that
    /// nobody will take.
    pub(crate) fn end_if_empty(&mut self) -> sys::Result<()> {
        if let Some(pipe) = &self.pipe
            && sys::bytes_waiting(pipe.as_fd())? == 0
        {
            self.pipe = None;
        }
        Ok(())
    }

    /// Moves at most one frame's worth from the pipe to the queue.
    pub(crate) fn pump(&mut self, queue: &mut Queue) -> sys::Result<()> {
        let Some(pipe) = self.wanted(queue) else {
            return Ok(());
        };
        let credit = usize::try_from(self.window.available()).unwrap_or(usize::MAX);
        let mut data = vec![0; MAX_DATA.min(credit).min(queue.room())];
        match sys::read(pipe, &mut data) {
            Ok(0) => self.pipe = None,
            Ok(got) => {
                data.truncate(got);
                let bytes = u32::try_from(got).map_err(|_| Errno(libc::EIO))?;
                self.window.spend(bytes).map_err(|_| Errno(libc::EIO))?;
                self.sent_bytes += u64::from(bytes);
                let frame = if self.stream == StreamId::STDOUT {
                    FromGuest::Stdout(data)
                } else {
                    FromGuest::Stderr(data)
                };
                queue.push(&frame).map_err(|_| Errno(libc::EMSGSIZE))?;
            }
            Err(Errno(libc::EAGAIN | libc::EINTR)) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    }
}

/// What waits for the job to read it.
pub(crate) struct Stdin {
    /// `None` once the job's stdin is at its end or the job has closed it.
    pipe: Option<OwnedFd>,
    waiting: Vec<u8>,
    /// No more will come.
    closed: bool,
    /// Taken by the job and not yet granted again.
    consumed: u32,
}

impl Stdin {
    /// `closed` when no stdin will come at all.
    pub(crate) fn new(pipe: OwnedFd, closed: bool) -> Self {
        let mut stdin = Self {
            pipe: Some(pipe),
            waiting: Vec::new(),
            closed,
            consumed: 0,
        };
        stdin.end_if_empty();
        stdin
    }

    /// Takes a frame's data; bounded by the window, which the order check has enforced.
    pub(crate) fn push(&mut self, data: &[u8]) {
        if self.pipe.is_some() {
            self.waiting.extend_from_slice(data);
        }
    }

    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.end_if_empty();
    }

    /// The pipe, while something waits for it.
    pub(crate) fn wanted(&self) -> Option<BorrowedFd<'_>> {
        self.pipe
            .as_ref()
            .filter(|_| !self.waiting.is_empty())
            .map(AsFd::as_fd)
    }

    /// Writes what the pipe takes.
    pub(crate) fn pump(&mut self) -> sys::Result<()> {
        let Some(pipe) = self.wanted() else { return Ok(()) };
        match sys::write(pipe, &self.waiting) {
            Ok(bytes) => {
                self.waiting.drain(..bytes);
                self.consumed = self.consumed.saturating_add(u32::try_from(bytes).unwrap_or(0));
                self.end_if_empty();
            }
            Err(Errno(libc::EAGAIN | libc::EINTR)) => {}
            // The job has closed it. No more credit: what it won't read needn't come.
            Err(Errno(libc::EPIPE)) => {
                self.pipe = None;
                self.waiting = Vec::new();
            }
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    /// Credit to give back now; 0 for none.
    pub(crate) fn take_grant(&mut self) -> u32 {
        let due = self.consumed >= GRANT_FROM || self.waiting.is_empty();
        if self.closed || self.pipe.is_none() || !due {
            0
        } else {
            std::mem::take(&mut self.consumed)
        }
    }

    fn end_if_empty(&mut self) {
        if self.closed && self.waiting.is_empty() {
            self.pipe = None;
        }
    }
}
