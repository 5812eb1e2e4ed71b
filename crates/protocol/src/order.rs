//! What the executor may send, and when. The guest checks with it what comes; [`crate::GuestSession`]
//! checks with it what its owner is about to send.

use crate::tunnel::{Sender, Tunnels};
use crate::{
    FromGuest, MAX_FILES, ProtocolError, STDIN_WINDOW, SendWindow, StreamId, ToGuest, VERSION, WarmUse,
};

/// Order and credit of the frames from the executor to the guest.
#[derive(Debug, Clone)]
pub struct CommandOrder {
    phase: Phase,
    warm: Warm,
    has_job: bool,
    has_start: bool,
    stdin_expected: bool,
    takes_warm: bool,
    collects: bool,
    stdin: SendWindow,
    /// Where the job has egress.
    tunnels: Option<Tunnels>,
}

/// What became of the order for a process that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Warm {
    NotSent,
    Sent,
    Failed,
    Ready,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No job yet.
    Idle,
    /// A job, and this many files still to come.
    Files { left: u32 },
    /// Inside a file, and this many bytes of it still to come.
    File { left: u32, missing: u64 },
    /// The job runs and its stdin is open.
    Running,
    /// The job runs and its stdin has ended.
    StdinClosed,
    /// Killed: nothing but `Alive`, more `Kill`s, credit and, once, `Collect` makes sense.
    Killed,
    /// The job's files are to be sent.
    Collecting,
}

impl Default for CommandOrder {
    fn default() -> Self {
        Self::new()
    }
}

impl CommandOrder {
    /// The beginning: no job yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            phase: Phase::Idle,
            warm: Warm::NotSent,
            has_job: false,
            has_start: false,
            stdin_expected: false,
            takes_warm: false,
            collects: false,
            stdin: SendWindow::new(StreamId::STDIN, STDIN_WINDOW),
            tunnels: None,
        }
    }

    /// Takes the next frame of the executor's.
    ///
    /// # Errors
    /// [`ProtocolError::Order`], [`ProtocolError::Version`], [`ProtocolError::FileSize`] or
    /// [`ProtocolError::CreditExceeded`]; nothing changes then.
    pub fn accept(&mut self, frame: &ToGuest) -> Result<(), ProtocolError> {
        let next = match (self.phase, frame) {
            (phase, ToGuest::Alive) => phase,
            (Phase::Idle, ToGuest::Warm(_)) if self.warm == Warm::NotSent => Phase::Idle,
            (Phase::Idle, ToGuest::Job(_)) if self.warm == Warm::Sent => {
                return Err(self.misplaced(frame.name()));
            }
            (Phase::Idle, ToGuest::Job(job)) => {
                if job.version != VERSION {
                    return Err(ProtocolError::Version { theirs: job.version });
                }
                if job.files > MAX_FILES {
                    return Err(self.misplaced("job with too many files"));
                }
                self.has_job = true;
                self.stdin_expected = job.stdin;
                self.takes_warm = job.warm;
                self.collects = job.collects;
                self.tunnels = job.egress.then(Tunnels::default);
                Phase::Files { left: job.files }
            }
            (Phase::Files { left }, ToGuest::File(file)) => {
                let left = left.checked_sub(1).ok_or_else(|| self.misplaced(frame.name()))?;
                Phase::File {
                    left,
                    missing: file.size,
                }
            }
            (Phase::File { left, missing }, ToGuest::FileData(bytes)) => {
                let missing = u64::try_from(bytes.len())
                    .ok()
                    .and_then(|bytes| missing.checked_sub(bytes))
                    .ok_or(ProtocolError::FileSize)?;
                Phase::File { left, missing }
            }
            (Phase::File { left, missing: 0 }, ToGuest::FileEnd) => Phase::Files { left },
            (Phase::File { .. }, ToGuest::FileEnd) => return Err(ProtocolError::FileSize),
            (Phase::Files { left: 0 }, ToGuest::Start) if self.stdin_expected => Phase::Running,
            (Phase::Files { left: 0 }, ToGuest::Start) => Phase::StdinClosed,
            (Phase::Running, ToGuest::Stdin(bytes)) => {
                self.stdin.spend(u32::try_from(bytes.len()).unwrap_or(u32::MAX))?;
                Phase::Running
            }
            (Phase::Running, ToGuest::StdinClose) => Phase::StdinClosed,
            // That the job is over is for the sides to know.
            (Phase::Running | Phase::StdinClosed | Phase::Killed, ToGuest::Collect(_))
                if self.has_start && self.collects =>
            {
                self.collects = false;
                Phase::Collecting
            }
            (Phase::Idle, ToGuest::Credit { .. }) => return Err(self.misplaced(frame.name())),
            (phase, ToGuest::Credit { .. }) => phase,
            (
                phase @ (Phase::Running | Phase::StdinClosed | Phase::Killed),
                ToGuest::Tunnel {
                    stream,
                    frame: tunnel,
                },
            ) => match &mut self.tunnels {
                Some(tunnels) => {
                    tunnels.take(Sender::Executor, *stream, tunnel)?;
                    phase
                }
                None => return Err(self.misplaced(frame.name())),
            },
            (_, ToGuest::Kill) => Phase::Killed,
            _ => return Err(self.misplaced(frame.name())),
        };
        self.has_start |= *frame == ToGuest::Start;
        if matches!(frame, ToGuest::Warm(_)) {
            self.warm = Warm::Sent;
        }
        self.phase = next;
        Ok(())
    }

    /// Notes the guest's answer to the order for a process that waits.
    ///
    /// # Errors
    /// [`ProtocolError::Order`] when no such order waits for its answer.
    pub fn answer_warm(&mut self, ready: bool) -> Result<(), ProtocolError> {
        if self.warm != Warm::Sent {
            return Err(self.misplaced("an answer to warm"));
        }
        self.warm = if ready { Warm::Ready } else { Warm::Failed };
        Ok(())
    }

    /// Whether a start can have come to that, by what was asked for and answered.
    #[must_use]
    pub fn allows(&self, warm: WarmUse) -> bool {
        match warm {
            WarmUse::NotAsked => !self.takes_warm,
            WarmUse::Gone => self.takes_warm,
            WarmUse::Used | WarmUse::Unfit | WarmUse::Wrote | WarmUse::Silent | WarmUse::Declined => {
                self.takes_warm && self.warm == Warm::Ready
            }
        }
    }

    /// Notes that the guest grants more stdin.
    ///
    /// # Errors
    /// [`ProtocolError::Grant`] when the window would hold too much, and [`ProtocolError::Order`]
    /// when the job takes no stdin.
    pub fn grant_stdin(&mut self, bytes: u32) -> Result<(), ProtocolError> {
        if !self.stdin_expected {
            return Err(self.misplaced("credit"));
        }
        self.stdin.grant(bytes)
    }

    /// Takes the guest's next frame of a connection.
    ///
    /// # Errors
    /// [`ProtocolError::Order`] where the job has no egress, the connection is not there or has ended, and
    /// [`ProtocolError::CreditExceeded`] and [`ProtocolError::Grant`] as its windows have it; nothing changes then.
    pub fn accept_tunnel(&mut self, frame: &FromGuest) -> Result<(), ProtocolError> {
        match (frame, &mut self.tunnels) {
            (FromGuest::TunnelOpen { stream }, Some(tunnels)) => tunnels.open(*stream),
            (FromGuest::Tunnel { stream, frame }, Some(tunnels)) => {
                tunnels.take(Sender::Guest, *stream, frame)
            }
            _ => Err(self.misplaced(frame.name())),
        }
    }

    /// The number of the connection that the guest may open next, if there may be one more.
    #[must_use]
    pub fn next_tunnel(&self) -> Option<StreamId> {
        self.tunnels.as_ref().and_then(Tunnels::next)
    }

    /// Bytes of a connection that the guest may send now; 0 of one that there isn't.
    #[must_use]
    pub fn tunnel_credit(&self, stream: StreamId) -> u32 {
        let tunnels = self.tunnels.as_ref();
        tunnels.map_or(0, |tunnels| tunnels.guest_credit(stream))
    }

    /// Bytes of stdin that may be sent now; 0 while none may be.
    #[must_use]
    pub fn stdin_credit(&self) -> u32 {
        if self.phase == Phase::Running {
            self.stdin.available()
        } else {
            0
        }
    }

    /// Whether the job's files may still be asked for.
    #[must_use]
    pub fn may_collect(&self) -> bool {
        self.collects
    }

    /// Whether a job has been sent.
    #[must_use]
    pub fn has_job(&self) -> bool {
        self.has_job
    }

    /// Whether `Start` has been sent.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.has_start
    }

    fn misplaced(&self, frame: &'static str) -> ProtocolError {
        let state = match self.phase {
            Phase::Idle if self.warm == Warm::Sent => "the answer to warm is awaited",
            Phase::Idle => "no job is there",
            Phase::Files { left: 0 } => "all files are there",
            Phase::Files { .. } => "files are missing",
            Phase::File { .. } => "inside a file",
            Phase::Running => "the job runs",
            Phase::StdinClosed => "the job runs and its stdin is closed",
            Phase::Killed => "the job is killed",
            Phase::Collecting => "its files are sent",
        };
        ProtocolError::Order { frame, state }
    }
}

#[cfg(test)]
mod tests;
