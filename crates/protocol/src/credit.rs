//! Windows of one stream: how much may be sent, how much may come.

use crate::{MAX_WINDOW, ProtocolError, StreamId};

/// The sender's side of a stream: the credit that it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendWindow {
    stream: StreamId,
    available: u32,
}

impl SendWindow {
    /// A window that holds `available` bytes, at most [`MAX_WINDOW`].
    #[must_use]
    pub fn new(stream: StreamId, available: u32) -> Self {
        Self {
            stream,
            available: available.min(MAX_WINDOW),
        }
    }

    /// Bytes that may be sent now.
    #[must_use]
    pub fn available(&self) -> u32 {
        self.available
    }

    /// Takes a grant of the receiver's.
    ///
    /// # Errors
    /// [`ProtocolError::Grant`] for a grant of nothing or one past [`MAX_WINDOW`]; nothing changes.
    pub fn grant(&mut self, bytes: u32) -> Result<(), ProtocolError> {
        self.available = widened(self.stream, self.available, bytes)?;
        Ok(())
    }

    /// Uses credit for data that is about to be sent.
    ///
    /// # Errors
    /// [`ProtocolError::CreditExceeded`] when the window holds less; nothing changes.
    pub fn spend(&mut self, bytes: u32) -> Result<(), ProtocolError> {
        self.available = narrowed(self.stream, self.available, bytes)?;
        Ok(())
    }
}

/// The receiver's side of a stream: the credit that it has given and that is not used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveWindow {
    stream: StreamId,
    outstanding: u32,
}

impl ReceiveWindow {
    /// A window of which `outstanding` bytes, at most [`MAX_WINDOW`], are given.
    #[must_use]
    pub fn new(stream: StreamId, outstanding: u32) -> Self {
        Self {
            stream,
            outstanding: outstanding.min(MAX_WINDOW),
        }
    }

    /// Bytes that the sender may still send.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Notes a grant that is about to be sent.
    ///
    /// # Errors
    /// [`ProtocolError::Grant`] for a grant of nothing or one past [`MAX_WINDOW`]; nothing changes.
    pub fn grant(&mut self, bytes: u32) -> Result<(), ProtocolError> {
        self.outstanding = widened(self.stream, self.outstanding, bytes)?;
        Ok(())
    }

    /// Takes data of the sender's.
    ///
    /// # Errors
    /// [`ProtocolError::CreditExceeded`] when it had less credit; nothing changes.
    pub fn receive(&mut self, bytes: u32) -> Result<(), ProtocolError> {
        self.outstanding = narrowed(self.stream, self.outstanding, bytes)?;
        Ok(())
    }
}

fn widened(stream: StreamId, held: u32, bytes: u32) -> Result<u32, ProtocolError> {
    held.checked_add(bytes)
        .filter(|sum| bytes > 0 && *sum <= MAX_WINDOW)
        .ok_or(ProtocolError::Grant { stream, bytes })
}

fn narrowed(stream: StreamId, held: u32, bytes: u32) -> Result<u32, ProtocolError> {
    held.checked_sub(bytes)
        .ok_or_else(|| ProtocolError::CreditExceeded {
            stream,
            bytes,
            excess: bytes - held,
        })
}
