//! Exit codes of the guest itself, which are the engine's exit code of the container.

/// Why a guest ended.
///
/// The job's own exit code is in [`crate::Exit`] and never here. A code from 128 up, or one not in
/// this list, means that something else ended the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GuestExit {
    /// The conversation is complete: `Exit` or `Refused` was written, or a guest without a job was
    /// told to go.
    Done,
    /// Its stdin or stdout was closed: the executor is gone.
    StdinClosed,
    /// No `Alive` came for longer than the limit.
    AliveMissing,
    /// The executor broke the protocol.
    ProtocolError,
    /// It could not become what it has to be before it takes a job.
    SetUpFailed,
    /// Its arguments are wrong.
    Usage,
    /// A system call failed that never fails in a working sandbox.
    Internal,
}

impl GuestExit {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Done,
        Self::StdinClosed,
        Self::AliveMissing,
        Self::ProtocolError,
        Self::SetUpFailed,
        Self::Usage,
        Self::Internal,
    ];

    /// The exit code.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::StdinClosed => 81,
            Self::AliveMissing => 82,
            Self::ProtocolError => 83,
            Self::SetUpFailed => 84,
            Self::Usage => 85,
            Self::Internal => 86,
        }
    }

    /// What a container's exit code says of its guest; `None` when the guest did not choose it.
    #[must_use]
    pub fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|exit| i64::from(exit.code()) == code)
    }
}
