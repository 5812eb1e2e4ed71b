//! What the guest may send, and when: the executor's side of one conversation.

use self::collection::Collection;
use crate::{CommandOrder, FromGuest, ProtocolError, ReceiveWindow, StreamId, ToGuest, VERSION};

mod collection;

/// Order, credit and byte counts of one conversation with a guest, as the executor sees it.
///
/// Pass every frame through [`GuestSession::send`] before it is written and through
/// [`GuestSession::receive`] before it is believed. After the first error the guest has to be killed:
/// each later frame of its is refused too.
#[derive(Debug, Clone)]
pub struct GuestSession {
    state: SessionState,
    commands: CommandOrder,
    stdout: Output,
    stderr: Output,
    collection: Option<Collection>,
}

/// Where a conversation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    /// `Ready` has not come.
    AwaitingReady,
    /// The guest waits for a job, or takes it in.
    Ready,
    /// The job runs.
    Started,
    /// `Exit` has come, and the job's files may be asked for.
    Exited,
    /// The job's files come.
    Collecting,
    /// The guest's last word has come: `Exit`, `Refused` or `Collected`.
    Ended,
    /// The guest has broken the protocol.
    Broken,
}

#[derive(Debug, Clone)]
struct Output {
    stream: StreamId,
    window: ReceiveWindow,
    received_bytes: u64,
}

impl Output {
    fn new(stream: StreamId) -> Self {
        Self {
            stream,
            window: ReceiveWindow::new(stream, 0),
            received_bytes: 0,
        }
    }

    fn receive(&mut self, data: &[u8]) -> Result<(), ProtocolError> {
        let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
        self.window.receive(bytes)?;
        self.received_bytes = self.received_bytes.saturating_add(u64::from(bytes));
        Ok(())
    }

    fn check_count(&self, claimed: u64) -> Result<(), ProtocolError> {
        let (stream, received) = (self.stream, self.received_bytes);
        if claimed == received {
            Ok(())
        } else {
            Err(ProtocolError::ByteCount {
                stream,
                claimed,
                received,
            })
        }
    }
}

impl Default for GuestSession {
    fn default() -> Self {
        Self::new()
    }
}

impl GuestSession {
    /// A conversation that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: SessionState::AwaitingReady,
            commands: CommandOrder::new(),
            stdout: Output::new(StreamId::STDOUT),
            stderr: Output::new(StreamId::STDERR),
            collection: None,
        }
    }

    /// Where the conversation is.
    #[must_use]
    pub fn state(&self) -> SessionState {
        self.state
    }

    /// Bytes of stdin that may be sent now.
    #[must_use]
    pub fn stdin_credit(&self) -> u32 {
        self.commands.stdin_credit()
    }

    /// Credit of stdout, stderr or files that the guest has not used; 0 for any other stream.
    #[must_use]
    pub fn outstanding(&self, stream: StreamId) -> u32 {
        match stream {
            StreamId::STDOUT => self.stdout.window.outstanding(),
            StreamId::STDERR => self.stderr.window.outstanding(),
            StreamId::ARTIFACTS => self
                .collection
                .as_ref()
                .map_or(0, |collection| collection.window.outstanding()),
            _ => 0,
        }
    }

    /// Checks a frame that is about to be sent.
    ///
    /// `Alive` and `Kill` may be sent before `Ready`; a job may not. After the end everything is
    /// accepted and means nothing: the guest may be gone when such a frame is written.
    ///
    /// # Errors
    /// The caller's own fault: a frame out of order, too much stdin, a window past
    /// [`crate::MAX_WINDOW`]. Nothing changes then.
    pub fn send(&mut self, frame: &ToGuest) -> Result<(), ProtocolError> {
        match self.state {
            SessionState::Ended => return Ok(()),
            SessionState::AwaitingReady if !matches!(frame, ToGuest::Alive | ToGuest::Kill) => {
                return Err(ProtocolError::Order {
                    frame: frame.name(),
                    state: self.describe(),
                });
            }
            SessionState::Broken if !matches!(frame, ToGuest::Kill) => {
                return Err(ProtocolError::Order {
                    frame: frame.name(),
                    state: self.describe(),
                });
            }
            state if state != SessionState::Exited && matches!(frame, ToGuest::Collect(_)) => {
                return Err(ProtocolError::Order {
                    frame: frame.name(),
                    state: self.describe(),
                });
            }
            SessionState::AwaitingReady
            | SessionState::Ready
            | SessionState::Started
            | SessionState::Exited
            | SessionState::Collecting
            | SessionState::Broken => {}
        }
        // Nothing else changes with it, so that nothing has to be taken back.
        if matches!(frame, ToGuest::Tunnel { .. }) {
            return self.commands.accept(frame);
        }
        let mut commands = self.commands.clone();
        commands.accept(frame)?;
        match *frame {
            ToGuest::Credit { stream, bytes } => self.grant(stream, bytes)?,
            ToGuest::Collect(ref order) => {
                self.collection = Some(Collection::new(order));
                self.state = SessionState::Collecting;
            }
            _ => {}
        }
        self.commands = commands;
        Ok(())
    }

    fn grant(&mut self, stream: StreamId, bytes: u32) -> Result<(), ProtocolError> {
        match (stream, &mut self.collection) {
            (StreamId::STDOUT, _) => self.stdout.window.grant(bytes),
            (StreamId::STDERR, _) => self.stderr.window.grant(bytes),
            (StreamId::ARTIFACTS, Some(collection)) => collection.window.grant(bytes),
            _ => Err(ProtocolError::Grant { stream, bytes }),
        }
    }

    /// Checks a frame that has come.
    ///
    /// # Errors
    /// The guest's fault; the conversation is broken from here on.
    pub fn receive(&mut self, frame: &FromGuest) -> Result<(), ProtocolError> {
        let next = self.judge(frame);
        self.state = next.clone().unwrap_or(SessionState::Broken);
        next.map(|_| ())
    }

    fn judge(&mut self, frame: &FromGuest) -> Result<SessionState, ProtocolError> {
        use SessionState::{AwaitingReady, Collecting, Ended, Exited, Ready, Started};
        if let (Collecting, Some(collection)) = (self.state, &mut self.collection) {
            match frame {
                FromGuest::Artifact(file) => return collection.begin(file).map(|()| Collecting),
                FromGuest::ArtifactData(data) => return collection.data(data).map(|()| Collecting),
                FromGuest::ArtifactEnd(end) => return collection.end(end).map(|()| Collecting),
                FromGuest::LeftOut(_) => return collection.left_out().map(|()| Collecting),
                FromGuest::Collected(collected) => return collection.over(collected).map(|()| Ended),
                _ => {}
            }
        }
        match (self.state, frame) {
            (AwaitingReady, FromGuest::Ready(report)) if report.version == VERSION => Ok(Ready),
            (AwaitingReady, FromGuest::Ready(report)) => Err(ProtocolError::Version {
                theirs: report.version,
            }),
            (Ready, FromGuest::Warmed(_)) => self.commands.answer_warm(true).map(|()| Ready),
            (Ready, FromGuest::WarmFailed(_)) => self.commands.answer_warm(false).map(|()| Ready),
            (Ready, FromGuest::Started(started))
                if self.commands.is_started() && self.commands.allows(started.warm) =>
            {
                Ok(Started)
            }
            (Ready, FromGuest::Refused(_)) if self.commands.has_job() => Ok(Ended),
            (Started, FromGuest::Stdout(data)) => self.stdout.receive(data).map(|()| Started),
            (Started, FromGuest::Stderr(data)) => self.stderr.receive(data).map(|()| Started),
            (Started, FromGuest::TunnelOpen { .. } | FromGuest::Tunnel { .. }) => {
                self.commands.accept_tunnel(frame).map(|()| Started)
            }
            (Started, FromGuest::Credit { bytes }) => self.commands.grant_stdin(*bytes).map(|()| Started),
            (Started, FromGuest::Exit(exit)) => {
                self.stdout.check_count(exit.stdout_bytes)?;
                self.stderr.check_count(exit.stderr_bytes)?;
                Ok(if self.commands.may_collect() {
                    Exited
                } else {
                    Ended
                })
            }
            _ => Err(ProtocolError::Order {
                frame: frame.name(),
                state: self.describe(),
            }),
        }
    }

    fn describe(&self) -> &'static str {
        match self.state {
            SessionState::AwaitingReady => "the guest is not ready",
            SessionState::Ready if self.commands.is_started() => "the job has not started",
            SessionState::Ready if self.commands.has_job() => "the job is not complete",
            SessionState::Ready => "no job was sent",
            SessionState::Started => "the job runs",
            SessionState::Exited => "the job is over",
            SessionState::Collecting => "its files come",
            SessionState::Ended => "the conversation is over",
            SessionState::Broken => "the guest has broken the protocol",
        }
    }
}

#[cfg(test)]
mod tests;
