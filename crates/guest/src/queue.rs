//! What waits to be written to the executor. Bounded, so that a job whose output nobody takes waits
//! in its own pipe and not in the guest's memory.

use std::os::fd::BorrowedFd;

use mayfly_protocol::{EncodeError, FromGuest, HEADER_BYTES};

use crate::sys::{self, Errno};

/// Bytes that may wait before the job's pipes are left alone. A few small frames may come on top.
const CAPACITY: usize = 256 * 1024;

/// Room below which it is not worth reading a pipe.
const LEAST_ROOM: usize = 4 * 1024;

pub(crate) struct Queue {
    bytes: Vec<u8>,
    written: usize,
}

impl Queue {
    pub(crate) fn new() -> Self {
        // Touched now: a job that fills the sandbox's memory must not make the guest need more.
        let mut bytes = vec![1; CAPACITY + 64 * 1024];
        bytes.clear();
        Self { bytes, written: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.written == self.bytes.len()
    }

    /// Bytes of data for which there is room in one more frame; 0 when it is too little to bother.
    pub(crate) fn room(&self) -> usize {
        let waiting = self.bytes.len() - self.written;
        let room = CAPACITY.saturating_sub(waiting + HEADER_BYTES);
        if room < LEAST_ROOM { 0 } else { room }
    }

    pub(crate) fn push(&mut self, frame: &FromGuest) -> Result<(), EncodeError> {
        if self.written > CAPACITY / 2 || self.is_empty() {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
        frame.encode(&mut self.bytes)
    }

    /// Writes what the descriptor takes without blocking.
    pub(crate) fn flush(&mut self, to: BorrowedFd<'_>) -> sys::Result<()> {
        while !self.is_empty() {
            match sys::write(to, &self.bytes[self.written..]) {
                Ok(bytes) => self.written += bytes,
                Err(Errno(libc::EAGAIN)) => return Ok(()),
                Err(Errno(libc::EINTR)) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}
