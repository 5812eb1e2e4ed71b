//! Whether the files that a guest sends are what it was asked for.

use crate::{
    ArtifactEnd, ArtifactHeader, CollectOrder, Collected, MAX_ARTIFACTS, ProtocolError, ReceiveWindow,
    StreamId,
};

/// One collection, as the executor sees it: counts and sizes stay within the order.
#[derive(Debug, Clone)]
pub(super) struct Collection {
    files: u32,
    file_bytes: u64,
    bytes: u64,
    named: u32,
    entries: u32,
    /// Bytes that are missing of the file that is being sent.
    missing: Option<u64>,
    pub(super) window: ReceiveWindow,
}

impl Collection {
    pub(super) fn new(order: &CollectOrder) -> Self {
        Self {
            files: order.max_files.min(MAX_ARTIFACTS),
            file_bytes: order.max_file_bytes,
            bytes: order.max_bytes,
            named: order.max_named.min(MAX_ARTIFACTS),
            entries: order.max_entries,
            missing: None,
            window: ReceiveWindow::new(StreamId::ARTIFACTS, 0),
        }
    }

    pub(super) fn begin(&mut self, file: &ArtifactHeader) -> Result<(), ProtocolError> {
        self.between("artifact")?;
        let (files, bytes) = (self.files.checked_sub(1), self.bytes.checked_sub(file.size));
        let (Some(files), Some(bytes), true) = (files, bytes, file.size <= self.file_bytes) else {
            return Err(ProtocolError::Artifacts);
        };
        (self.files, self.bytes, self.missing) = (files, bytes, Some(file.size));
        Ok(())
    }

    pub(super) fn data(&mut self, data: &[u8]) -> Result<(), ProtocolError> {
        let missing = self
            .missing
            .ok_or(misplaced("artifact data", "no file is sent"))?;
        let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
        self.window.receive(bytes)?;
        let missing = missing
            .checked_sub(u64::from(bytes))
            .ok_or(ProtocolError::FileSize)?;
        self.missing = Some(missing);
        Ok(())
    }

    pub(super) fn end(&mut self, end: &ArtifactEnd) -> Result<(), ProtocolError> {
        match self.missing.take() {
            None => Err(misplaced("artifact end", "no file is sent")),
            Some(0) => Ok(()),
            Some(_) if end.errno.is_some() => Ok(()),
            Some(_) => Err(ProtocolError::FileSize),
        }
    }

    pub(super) fn left_out(&mut self) -> Result<(), ProtocolError> {
        self.between("left out")?;
        self.named = self.named.checked_sub(1).ok_or(ProtocolError::Artifacts)?;
        Ok(())
    }

    pub(super) fn over(&self, collected: &Collected) -> Result<(), ProtocolError> {
        self.between("collected")?;
        if collected.entries > self.entries {
            return Err(ProtocolError::Artifacts);
        }
        Ok(())
    }

    fn between(&self, frame: &'static str) -> Result<(), ProtocolError> {
        match self.missing {
            None => Ok(()),
            Some(_) => Err(misplaced(frame, "a file is sent")),
        }
    }
}

fn misplaced(frame: &'static str, state: &'static str) -> ProtocolError {
    ProtocolError::Order { frame, state }
}
