//! What the guest sends. All of it is hostile until [`crate::GuestSession`] has passed it, and the
//! job's output stays so.

use crate::decoder::Incoming;
use crate::frame::{self, Bounds};
use crate::kind;
use crate::tunnel;
use crate::{
    ArtifactEnd, ArtifactHeader, Collected, EncodeError, Exit, LeftOut, MAX_DATA, MAX_PAYLOAD, MAX_SMALL,
    ProtocolError, ReadyReport, Refused, Started, StreamId, Tunnel, WarmFailed, Warmed,
};

/// A frame from the guest to the executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromGuest {
    /// The guest waits for its job; what the kernel says of the sandbox. Once, first.
    Ready(Box<ReadyReport>),
    /// The process of the order waits for its job.
    Warmed(Warmed),
    /// The process of the order could not be had, and nothing of it is left.
    WarmFailed(WarmFailed),
    /// The job's `execve(2)` has succeeded, or the process that waited for it has taken it.
    Started(Started),
    /// Bytes of the job's stdout, 1 to [`MAX_DATA`], within the credit.
    Stdout(Vec<u8>),
    /// Bytes of the job's stderr, 1 to [`MAX_DATA`], within the credit.
    Stderr(Vec<u8>),
    /// The job has ended. Last, unless the job has files to collect.
    Exit(Exit),
    /// A file leaves; `ArtifactData` and `ArtifactEnd` follow.
    Artifact(ArtifactHeader),
    /// Bytes of the file, 1 to [`MAX_DATA`], within the credit.
    ArtifactData(Vec<u8>),
    /// The file's bytes end here.
    ArtifactEnd(ArtifactEnd),
    /// A file that was wanted does not leave.
    LeftOut(LeftOut),
    /// All that may leave has left. Last.
    Collected(Collected),
    /// The job did not start. Last.
    Refused(Refused),
    /// More credit for the job's stdin, at least 1 byte.
    Credit {
        /// Bytes granted.
        bytes: u32,
    },
    /// The job has made a connection.
    TunnelOpen {
        /// The number after the last one's, from [`StreamId::FIRST_TUNNEL`] on.
        stream: StreamId,
    },
    /// A frame of such a connection.
    Tunnel {
        /// Which.
        stream: StreamId,
        /// What of it.
        frame: Tunnel,
    },
}

impl FromGuest {
    /// The frame's name, for messages and logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ready(_) => "ready",
            Self::Warmed(_) => "warmed",
            Self::WarmFailed(_) => "warm failed",
            Self::Started(_) => "started",
            Self::Stdout(_) => "stdout",
            Self::Stderr(_) => "stderr",
            Self::Exit(_) => "exit",
            Self::Artifact(_) => "artifact",
            Self::ArtifactData(_) => "artifact data",
            Self::ArtifactEnd(_) => "artifact end",
            Self::LeftOut(_) => "left out",
            Self::Collected(_) => "collected",
            Self::Refused(_) => "refused",
            Self::Credit { .. } => "credit",
            Self::TunnelOpen { .. } => "tunnel open",
            Self::Tunnel { frame, .. } => frame.name(),
        }
    }

    /// Appends the frame to `out`.
    ///
    /// # Errors
    /// [`EncodeError`] when the payload is out of the bounds of its kind; `out` is then unchanged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let name = self.name();
        let (kind, stream) = match self {
            Self::Ready(_) => (kind::READY, StreamId::NONE),
            Self::Warmed(_) => (kind::WARMED, StreamId::NONE),
            Self::WarmFailed(_) => (kind::WARM_FAILED, StreamId::NONE),
            Self::Started(_) => (kind::STARTED, StreamId::NONE),
            Self::Stdout(_) => (kind::STDOUT, StreamId::STDOUT),
            Self::Stderr(_) => (kind::STDERR, StreamId::STDERR),
            Self::Exit(_) => (kind::EXIT, StreamId::NONE),
            Self::Artifact(_) => (kind::ARTIFACT, StreamId::NONE),
            Self::ArtifactData(_) => (kind::ARTIFACT_DATA, StreamId::ARTIFACTS),
            Self::ArtifactEnd(_) => (kind::ARTIFACT_END, StreamId::NONE),
            Self::LeftOut(_) => (kind::LEFT_OUT, StreamId::NONE),
            Self::Collected(_) => (kind::COLLECTED, StreamId::NONE),
            Self::Refused(_) => (kind::REFUSED, StreamId::NONE),
            Self::Credit { .. } => (kind::CREDIT_FROM_GUEST, StreamId::STDIN),
            Self::TunnelOpen { stream } => (kind::TUNNEL_OPEN, *stream),
            Self::Tunnel { stream, frame } => return frame.encode(kind::FROM_GUEST, *stream, out),
        };
        let bounds = bounds(kind).unwrap_or(frame::EMPTY);
        let header = frame::Header {
            name,
            kind,
            stream,
            bounds,
        };
        match self {
            Self::Ready(report) => header.json(report, out),
            Self::Warmed(warmed) => header.json(warmed, out),
            Self::WarmFailed(failed) => header.json(failed, out),
            Self::Started(started) => header.json(started, out),
            Self::Exit(exit) => header.json(exit, out),
            Self::Artifact(file) => header.json(file, out),
            Self::ArtifactEnd(end) => header.json(end, out),
            Self::LeftOut(file) => header.json(file, out),
            Self::Collected(collected) => header.json(collected, out),
            Self::Refused(refused) => header.json(refused, out),
            Self::Stdout(bytes) | Self::Stderr(bytes) | Self::ArtifactData(bytes) => header.bytes(bytes, out),
            Self::Credit { bytes } => header.bytes(&bytes.to_be_bytes(), out),
            Self::TunnelOpen { .. } | Self::Tunnel { .. } => header.bytes(&[], out),
        }
    }
}

fn bounds(kind: u8) -> Option<Bounds> {
    Some(match kind {
        kind::READY => (2, MAX_PAYLOAD),
        kind::STDOUT | kind::STDERR | kind::ARTIFACT_DATA => (1, MAX_DATA),
        kind::EXIT | kind::REFUSED | kind::STARTED | kind::WARMED | kind::WARM_FAILED => (2, MAX_SMALL),
        kind::ARTIFACT | kind::ARTIFACT_END | kind::LEFT_OUT | kind::COLLECTED => (2, MAX_SMALL),
        kind::CREDIT_FROM_GUEST => frame::CREDIT,
        kind::TUNNEL_OPEN => frame::EMPTY,
        _ => return tunnel::bounds(kind),
    })
}

impl Incoming for FromGuest {
    const FROM_GUEST: bool = true;

    fn payload_bounds(kind: u8) -> Option<(usize, usize)> {
        bounds(kind)
    }

    fn parse(kind: u8, stream: StreamId, payload: Vec<u8>) -> Result<Self, ProtocolError> {
        if tunnel::bounds(kind).is_some() {
            let frame = Tunnel::parse(kind, stream, payload)?;
            return Ok(Self::Tunnel { stream, frame });
        }
        if kind == kind::TUNNEL_OPEN {
            return if stream >= StreamId::FIRST_TUNNEL {
                Ok(Self::TunnelOpen { stream })
            } else {
                Err(ProtocolError::Stream { kind, stream })
            };
        }
        let expected = match kind {
            kind::STDOUT => StreamId::STDOUT,
            kind::STDERR => StreamId::STDERR,
            kind::ARTIFACT_DATA => StreamId::ARTIFACTS,
            kind::CREDIT_FROM_GUEST => StreamId::STDIN,
            _ => StreamId::NONE,
        };
        frame::expect_stream(kind, stream, expected)?;
        Ok(match kind {
            kind::READY => Self::Ready(frame::parse_json(kind, &payload)?),
            kind::WARMED => Self::Warmed(frame::parse_json(kind, &payload)?),
            kind::WARM_FAILED => Self::WarmFailed(frame::parse_json(kind, &payload)?),
            kind::STARTED => Self::Started(frame::parse_json(kind, &payload)?),
            kind::STDOUT => Self::Stdout(payload),
            kind::STDERR => Self::Stderr(payload),
            kind::EXIT => Self::Exit(frame::parse_json(kind, &payload)?),
            kind::ARTIFACT => Self::Artifact(frame::parse_json(kind, &payload)?),
            kind::ARTIFACT_DATA => Self::ArtifactData(payload),
            kind::ARTIFACT_END => Self::ArtifactEnd(frame::parse_json(kind, &payload)?),
            kind::LEFT_OUT => Self::LeftOut(frame::parse_json(kind, &payload)?),
            kind::COLLECTED => Self::Collected(frame::parse_json(kind, &payload)?),
            kind::REFUSED => Self::Refused(frame::parse_json(kind, &payload)?),
            kind::CREDIT_FROM_GUEST => Self::Credit {
                bytes: frame::parse_credit(kind, stream, &payload)?,
            },
            _ => return Err(ProtocolError::UnknownKind { kind }),
        })
    }
}
