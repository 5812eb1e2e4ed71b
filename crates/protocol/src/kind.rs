//! Kinds of frames and the streams that they belong to.

/// Set in the kind of every frame that the guest sends.
pub(crate) const FROM_GUEST: u8 = 0x80;
/// Set in the kind of a frame that a reader may skip when it doesn't know it.
pub(crate) const ADVISORY: u8 = 0x40;

pub(crate) const JOB: u8 = 0x01;
pub(crate) const FILE: u8 = 0x02;
pub(crate) const FILE_DATA: u8 = 0x03;
pub(crate) const FILE_END: u8 = 0x04;
pub(crate) const START: u8 = 0x05;
pub(crate) const STDIN: u8 = 0x06;
pub(crate) const STDIN_CLOSE: u8 = 0x07;
pub(crate) const KILL: u8 = 0x08;
pub(crate) const ALIVE: u8 = 0x09;
pub(crate) const CREDIT_TO_GUEST: u8 = 0x0a;
pub(crate) const WARM: u8 = 0x0b;
pub(crate) const COLLECT: u8 = 0x0c;

/// Of connections: the same in both directions, but for [`FROM_GUEST`].
pub(crate) const TUNNEL_DATA: u8 = 0x10;
pub(crate) const TUNNEL_END: u8 = 0x11;
pub(crate) const TUNNEL_RESET: u8 = 0x12;
pub(crate) const TUNNEL_CREDIT: u8 = 0x13;

pub(crate) const READY: u8 = FROM_GUEST | 0x01;
pub(crate) const STARTED: u8 = FROM_GUEST | 0x02;
pub(crate) const STDOUT: u8 = FROM_GUEST | 0x03;
pub(crate) const STDERR: u8 = FROM_GUEST | 0x04;
pub(crate) const EXIT: u8 = FROM_GUEST | 0x05;
pub(crate) const REFUSED: u8 = FROM_GUEST | 0x06;
pub(crate) const CREDIT_FROM_GUEST: u8 = FROM_GUEST | 0x07;
pub(crate) const WARMED: u8 = FROM_GUEST | 0x08;
pub(crate) const WARM_FAILED: u8 = FROM_GUEST | 0x09;
pub(crate) const ARTIFACT: u8 = FROM_GUEST | 0x0a;
pub(crate) const ARTIFACT_DATA: u8 = FROM_GUEST | 0x0b;
pub(crate) const ARTIFACT_END: u8 = FROM_GUEST | 0x0c;
pub(crate) const LEFT_OUT: u8 = FROM_GUEST | 0x0d;
pub(crate) const COLLECTED: u8 = FROM_GUEST | 0x0e;
pub(crate) const TUNNEL_OPEN: u8 = FROM_GUEST | 0x0f;

/// Number of the stream that a frame belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u16);

impl StreamId {
    /// Stdin of the job; also the number in frames that belong to no stream.
    pub const STDIN: Self = Self(0);
    /// Stdout of the job.
    pub const STDOUT: Self = Self(1);
    /// Stderr of the job.
    pub const STDERR: Self = Self(2);
    /// Bytes of the files that leave when the job is over.
    pub const ARTIFACTS: Self = Self(3);
    /// The first connection of the job's; all numbers from here on are connections.
    pub const FIRST_TUNNEL: Self = Self(16);
    /// What frames that belong to no stream carry.
    pub const NONE: Self = Self(0);
}
