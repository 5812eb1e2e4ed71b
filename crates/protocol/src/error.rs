//! What can be wrong with a conversation, and with a frame of our own.

use crate::StreamId;

/// The other end broke the protocol. The conversation is over: nothing that it sends afterwards is
/// to be believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A kind that this reader must know and doesn't, or one of the wrong direction.
    #[error("unknown frame kind {kind:#04x}")]
    UnknownKind {
        /// The kind as sent.
        kind: u8,
    },
    /// Flags are reserved and must be zero.
    #[error("frame kind {kind:#04x} has flags {flags:#04x}, which are reserved")]
    Flags {
        /// The kind as sent.
        kind: u8,
        /// The flags as sent.
        flags: u8,
    },
    /// The payload's length is out of the bounds of its kind.
    #[error("frame kind {kind:#04x} announces {bytes} bytes, out of its bounds")]
    Length {
        /// The kind as sent.
        kind: u8,
        /// The length as announced.
        bytes: u32,
    },
    /// A frame names a stream that its kind doesn't go with.
    #[error("frame kind {kind:#04x} names stream {}", stream.0)]
    Stream {
        /// The kind as sent.
        kind: u8,
        /// The stream as sent.
        stream: StreamId,
    },
    /// A payload that doesn't parse. The text names the place, and never quotes the payload.
    #[error("frame kind {kind:#04x} has a bad payload at line {line} column {column}")]
    Payload {
        /// The kind as sent.
        kind: u8,
        /// Line of the payload, from 1; 0 where it is not text.
        line: usize,
        /// Column of the payload.
        column: usize,
    },
    /// More unknown advisory frames than a reader skips.
    #[error("too many unknown advisory frames")]
    TooManySkipped,
    /// The other end speaks another version.
    #[error("protocol version {theirs} where {ours} was expected", ours = crate::VERSION)]
    Version {
        /// The version as sent.
        theirs: u16,
    },
    /// A frame where it may not stand.
    #[error("{frame} while {state}")]
    Order {
        /// Which frame.
        frame: &'static str,
        /// What the conversation was at.
        state: &'static str,
    },
    /// More data than credit was given for.
    #[error("{bytes} bytes on stream {} exceed the credit by {excess}", stream.0)]
    CreditExceeded {
        /// Which stream.
        stream: StreamId,
        /// Bytes of the frame.
        bytes: u32,
        /// By how much they exceed the credit.
        excess: u32,
    },
    /// A grant of nothing, or one that makes more credit outstanding than a window may hold.
    #[error("a grant of {bytes} bytes on stream {} is out of bounds", stream.0)]
    Grant {
        /// Which stream.
        stream: StreamId,
        /// Bytes of the grant.
        bytes: u32,
    },
    /// More or fewer bytes of a file than its header announced.
    #[error("a file has not the size that its header announced")]
    FileSize,
    /// More files than were asked for, or larger ones.
    #[error("the files that are sent exceed what was asked for")]
    Artifacts,
    /// The byte counts of `Exit` are not those of the frames that came.
    #[error("the exit frame counts {claimed} bytes on stream {}, and {received} came", stream.0)]
    ByteCount {
        /// Which stream.
        stream: StreamId,
        /// What `Exit` says.
        claimed: u64,
        /// What came.
        received: u64,
    },
}

/// A frame of our own that can't be sent.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The payload is out of the bounds of its kind.
    #[error("{frame} would have {bytes} bytes, out of its bounds (at most {limit})")]
    Length {
        /// Which frame.
        frame: &'static str,
        /// Bytes that it would have.
        bytes: usize,
        /// Most that it may have.
        limit: usize,
    },
    /// The payload can't be written as JSON.
    #[error("{frame} can't be written as JSON")]
    Json {
        /// Which frame.
        frame: &'static str,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}
