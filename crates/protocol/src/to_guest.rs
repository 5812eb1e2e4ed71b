//! What the executor sends.

use crate::decoder::Incoming;
use crate::frame::{self, Bounds};
use crate::kind;
use crate::tunnel;
use crate::{
    CollectOrder, EncodeError, FileHeader, Job, MAX_DATA, MAX_PAYLOAD, MAX_SMALL, ProtocolError, StreamId,
    Tunnel, WarmOrder,
};

/// A frame from the executor to the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToGuest {
    /// Start this process now and let it wait for the job. At most once, before the job.
    Warm(WarmOrder),
    /// The job. Its files follow, then `Start`.
    Job(Job),
    /// A file of the job; `FileData` and `FileEnd` follow.
    File(FileHeader),
    /// Bytes of the file, 1 to [`MAX_PAYLOAD`].
    FileData(Vec<u8>),
    /// The file is complete.
    FileEnd,
    /// All files are in: run the job.
    Start,
    /// Bytes for the job's stdin, 1 to [`MAX_DATA`], within the credit.
    Stdin(Vec<u8>),
    /// The job's stdin ends here.
    StdinClose,
    /// Send these files, now that the job is over. Once, after `Exit`.
    Collect(CollectOrder),
    /// Kill the job, or give it up before its start, or send no more files.
    Kill,
    /// The executor lives. Sent every second; a guest without one for 10 s kills its job and exits.
    Alive,
    /// More credit for the job's stdout or stderr, or for its files.
    Credit {
        /// [`StreamId::STDOUT`], [`StreamId::STDERR`] or [`StreamId::ARTIFACTS`].
        stream: StreamId,
        /// At least 1; at most [`crate::MAX_WINDOW`] may be outstanding.
        bytes: u32,
    },
    /// A frame of a connection of the job's.
    Tunnel {
        /// Which, from [`StreamId::FIRST_TUNNEL`] on.
        stream: StreamId,
        /// What of it.
        frame: Tunnel,
    },
}

impl ToGuest {
    /// The frame's name, for messages and logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Warm(_) => "warm",
            Self::Job(_) => "job",
            Self::File(_) => "file",
            Self::FileData(_) => "file data",
            Self::FileEnd => "file end",
            Self::Start => "start",
            Self::Stdin(_) => "stdin",
            Self::StdinClose => "stdin close",
            Self::Collect(_) => "collect",
            Self::Kill => "kill",
            Self::Alive => "alive",
            Self::Credit { .. } => "credit",
            Self::Tunnel { frame, .. } => frame.name(),
        }
    }

    /// Appends the frame to `out`.
    ///
    /// # Errors
    /// [`EncodeError`] when the payload is out of the bounds of its kind; `out` is then unchanged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let name = self.name();
        let none = StreamId::NONE;
        let (kind, stream) = match self {
            Self::Warm(_) => (kind::WARM, none),
            Self::Job(_) => (kind::JOB, none),
            Self::File(_) => (kind::FILE, none),
            Self::FileData(_) => (kind::FILE_DATA, none),
            Self::FileEnd => (kind::FILE_END, none),
            Self::Start => (kind::START, none),
            Self::Stdin(_) => (kind::STDIN, StreamId::STDIN),
            Self::StdinClose => (kind::STDIN_CLOSE, StreamId::STDIN),
            Self::Collect(_) => (kind::COLLECT, none),
            Self::Kill => (kind::KILL, none),
            Self::Alive => (kind::ALIVE, none),
            Self::Credit { stream, .. } => (kind::CREDIT_TO_GUEST, *stream),
            Self::Tunnel { stream, frame } => return frame.encode(0, *stream, out),
        };
        let bounds = bounds(kind).unwrap_or(frame::EMPTY);
        let header = frame::Header {
            name,
            kind,
            stream,
            bounds,
        };
        match self {
            Self::Warm(order) => header.json(order, out),
            Self::Job(job) => header.json(job, out),
            Self::File(file) => header.json(file, out),
            Self::Collect(order) => header.json(order, out),
            Self::FileData(bytes) | Self::Stdin(bytes) => header.bytes(bytes, out),
            Self::Credit { bytes, .. } => header.bytes(&bytes.to_be_bytes(), out),
            Self::FileEnd
            | Self::Start
            | Self::StdinClose
            | Self::Kill
            | Self::Alive
            | Self::Tunnel { .. } => header.bytes(&[], out),
        }
    }
}

fn bounds(kind: u8) -> Option<Bounds> {
    Some(match kind {
        kind::JOB | kind::WARM | kind::COLLECT => (2, MAX_PAYLOAD),
        kind::FILE => (2, MAX_SMALL),
        kind::FILE_DATA => (1, MAX_PAYLOAD),
        kind::STDIN => (1, MAX_DATA),
        kind::CREDIT_TO_GUEST => frame::CREDIT,
        kind::FILE_END | kind::START | kind::STDIN_CLOSE | kind::KILL | kind::ALIVE => frame::EMPTY,
        _ => return tunnel::bounds(kind),
    })
}

impl Incoming for ToGuest {
    const FROM_GUEST: bool = false;

    fn payload_bounds(kind: u8) -> Option<(usize, usize)> {
        bounds(kind)
    }

    fn parse(kind: u8, stream: StreamId, payload: Vec<u8>) -> Result<Self, ProtocolError> {
        let on = |expected: StreamId| frame::expect_stream(kind, stream, expected);
        Ok(match kind {
            kind::WARM => {
                on(StreamId::NONE)?;
                Self::Warm(frame::parse_json(kind, &payload)?)
            }
            kind::JOB => {
                on(StreamId::NONE)?;
                Self::Job(frame::parse_json(kind, &payload)?)
            }
            kind::FILE => {
                on(StreamId::NONE)?;
                let file: FileHeader = frame::parse_json(kind, &payload)?;
                if !file.is_valid() {
                    return Err(ProtocolError::Payload {
                        kind,
                        line: 1,
                        column: 0,
                    });
                }
                Self::File(file)
            }
            kind::FILE_DATA => {
                on(StreamId::NONE)?;
                Self::FileData(payload)
            }
            kind::STDIN => {
                on(StreamId::STDIN)?;
                Self::Stdin(payload)
            }
            kind::STDIN_CLOSE => {
                on(StreamId::STDIN)?;
                Self::StdinClose
            }
            kind::CREDIT_TO_GUEST => {
                if ![StreamId::STDOUT, StreamId::STDERR, StreamId::ARTIFACTS].contains(&stream) {
                    return Err(ProtocolError::Stream { kind, stream });
                }
                Self::Credit {
                    stream,
                    bytes: frame::parse_credit(kind, stream, &payload)?,
                }
            }
            kind::COLLECT => {
                on(StreamId::NONE)?;
                Self::Collect(frame::parse_json(kind, &payload)?)
            }
            kind::FILE_END => on(StreamId::NONE).map(|()| Self::FileEnd)?,
            kind::START => on(StreamId::NONE).map(|()| Self::Start)?,
            kind::KILL => on(StreamId::NONE).map(|()| Self::Kill)?,
            kind::ALIVE => on(StreamId::NONE).map(|()| Self::Alive)?,
            _ => Self::Tunnel {
                stream,
                frame: Tunnel::parse(kind, stream, payload)?,
            },
        })
    }
}
