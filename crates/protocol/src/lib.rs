//! The frames that an executor and the guest of one sandbox exchange over the guest's stdin and
//! stdout: encoding, decoding, bounds and order. No I/O and no async.
//!
//! A frame is an 8 byte header and a payload of at most [`MAX_PAYLOAD`] bytes:
//!
//! ```text
//! 0      1      2        4            8
//! +------+------+--------+------------+-----------
//! | kind | 0    | stream | length     | payload …      all integers big-endian
//! +------+------+--------+------------+-----------
//! ```
//!
//! Bit `0x80` of the kind says that the guest sent it. A kind with bit `0x40` is advisory: a reader
//! that doesn't know it skips it, up to [`MAX_SKIPPED_FRAMES`] times. Any other unknown kind ends
//! the conversation. Both ends must speak the same [`VERSION`].
//!
//! A conversation:
//!
//! ```text
//! guest                                     executor
//! Ready(report)                       ->
//!                                     <-    Alive, every second, from the beginning
//!                                     <-    Warm, if a process is to be started before the job
//! Warmed | WarmFailed                 ->
//!                                     <-    Job, (File, FileData*, FileEnd)*, Credit(stdout),
//!                                           Credit(stderr), Start, Stdin*, StdinClose
//! Started | Refused                   ->
//! TunnelOpen*, and for each           ->    where the job has egress
//!                                     <->   Data*, Credit*, End, Reset of that connection
//! Stdout*, Stderr*, Credit(stdin)*    ->
//!                                     <-    Credit*, Kill
//! Exit                                ->    and nothing after it, unless the job has files to collect:
//!                                     <-    Collect, Credit(artifacts)*
//! (Artifact, ArtifactData*, ArtifactEnd)*, LeftOut*
//!                                     ->
//! Collected                           ->    and nothing after it
//! ```
//!
//! The executor may send all of its side in one burst: stdin has an implied first window of
//! [`STDIN_WINDOW`] bytes, which opens with `Start`. A job waits for the answer to `Warm`.
//!
//! Start reading at [`ToGuest`] and [`FromGuest`], then [`Decoder`] and [`GuestSession`]. Every byte
//! that comes from a guest is hostile: the decoder holds at most one frame, every list in a report is
//! bounded while it is parsed, and [`GuestSession`] is the one place that knows what may follow what.
//! Absent on purpose: what the executor expects of a report, and output limits.

mod bounded;
mod collect;
mod credit;
mod decoder;
mod end;
mod error;
mod frame;
mod from_guest;
mod guest_exit;
mod job;
mod kind;
mod order;
mod paths;
mod probe;
mod report;
mod session;
#[cfg(test)]
mod testing;
mod to_guest;
mod tunnel;
mod warm;

pub use collect::{
    ArtifactEnd, ArtifactHeader, CollectOrder, Collected, FileName, LeftOut, LeftOutWhy, MAX_ARTIFACTS,
    MAX_GLOBS,
};
pub use credit::{ReceiveWindow, SendWindow};
pub use decoder::{Decoder, Incoming};
pub use end::{CgroupCounts, Ended, Exit, Refused, Stage, Usage};
pub use error::{EncodeError, ProtocolError};
pub use from_guest::FromGuest;
pub use guest_exit::GuestExit;
pub use job::{FileHeader, Job, JobRlimit, Resource};
pub use kind::StreamId;
pub use order::CommandOrder;
pub use paths::{MASKED_PATHS, READ_ONLY_PATHS, guarded_paths};
pub use probe::{Answer, Probe, ProbeResult};
pub use report::{
    Capabilities, CgroupLimits, Filesystem, IdRange, Identity, Ids, Kernel, Mount, ReadyReport, Rlimit,
};
pub use session::{GuestSession, SessionState};
pub use to_guest::ToGuest;
pub use tunnel::{MAX_TUNNELS, TUNNEL_PORT, TUNNEL_WINDOW, Tunnel};
pub use warm::{Started, WarmFailed, WarmOrder, WarmUse, Warmed};

/// Version of this protocol; the guest reports it in `Ready`, the executor repeats it in `Job`.
pub const VERSION: u16 = 4;

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 8;

/// Largest payload of any frame.
pub const MAX_PAYLOAD: usize = 64 * 1024;

/// Largest payload of a `Stdin`, `Stdout`, `Stderr` or `ArtifactData` frame, or of a connection's data.
pub const MAX_DATA: usize = 32 * 1024;

/// Largest payload of a frame that is neither data nor a report, a job or an order: `Exit`, `Refused`, `File` and
/// their like.
pub const MAX_SMALL: usize = 8 * 1024;

/// Unknown advisory frames that a reader skips in one conversation before it gives up.
pub const MAX_SKIPPED_FRAMES: u32 = 1024;

/// Most credit that may be outstanding on one stream.
pub const MAX_WINDOW: u32 = 1024 * 1024;

/// Credit that the executor holds for stdin when it sends `Start`, without being granted it.
pub const STDIN_WINDOW: u32 = 64 * 1024;

/// Most files of one job.
pub const MAX_FILES: u32 = 4096;

/// Longest path of a file, in bytes.
pub const MAX_PATH_BYTES: usize = 1024;

/// Argument of `personality(2)` that the seccomp profile answers with [`MARKER_ERRNO`].
///
/// The profile's own answer to this one value is how the guest shows that this very profile is in
/// force, rather than another one or none.
pub const MARKER_PERSONA: u32 = 0x6d61_7966;

/// `EL2HLT`, which no kernel gives for `personality(2)`: the profile's answer to the marker.
pub const MARKER_ERRNO: i32 = 51;
