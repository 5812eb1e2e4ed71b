//! The conversation with one guest over the attached container: frames out, frames in.
//!
//! One task per sandbox owns the container's stdin. It writes what it is given and an `alive` frame every second, so
//! that an idle sandbox lives as long as its executor and no longer. It ends, and closes that stdin, when the channel
//! is dropped or hung up, also in the middle of a write to an engine that has stopped reading:
//!
//! ```text
//! Channel -- frames --> writer task -- stdin --> engine -- guest
//!         <-- decoder <-- the attached output, read by whoever calls `receive`
//! ```

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bollard::{container::LogOutput, errors::Error};
use futures_util::{Stream, StreamExt};
use mayfly_failpoints::times_divided_by;
use mayfly_protocol::{Decoder, EncodeError, FromGuest, GuestSession, ProtocolError, ToGuest};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::mpsc,
    time::MissedTickBehavior,
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use crate::engine::Attached;

/// How often the guest hears that its executor lives. It ends itself after 10 s without.
const ALIVE_EVERY: Duration = Duration::from_secs(1);
/// Frames on their way to the writer: each is at most 64 KiB.
const FRAMES_IN_FLIGHT: usize = 4;
/// Most bytes of the guest's own stderr that are kept; it writes there only when it fails.
const MAX_COMPLAINT: usize = 4096;
/// Most chunks that are taken from a guest that was asked nothing.
const MAX_UNASKED: usize = 16;

/// Both directions of one conversation, its order kept on this side too.
pub(crate) struct Channel {
    output: Pin<Box<dyn Stream<Item = Result<LogOutput, Error>> + Send>>,
    decoder: Decoder<FromGuest>,
    received: VecDeque<FromGuest>,
    session: GuestSession,
    frames: mpsc::Sender<Vec<u8>>,
    complaint: Vec<u8>,
    hang_up: DropGuard,
}

/// Where room for frames can be waited for.
pub(crate) struct Writer(mpsc::Sender<Vec<u8>>);

impl Writer {
    /// Resolves when a frame can be sent at once. Cancel safe.
    pub(crate) async fn writable(&self) {
        if self.0.reserve().await.is_err() {
            // The writer is gone; the reading side finds out, and says how.
            std::future::pending::<()>().await;
        }
    }
}

/// How a conversation ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    /// The engine's stream ended: the guest is gone, or the connection is.
    #[error("the stream of the container ended")]
    Closed,
    /// The engine's stream broke.
    #[error("the stream of the container broke")]
    Broken(#[source] Error),
    /// The guest said what it may not say.
    #[error("the guest broke the protocol")]
    Protocol(#[source] ProtocolError),
    /// A frame of ours that is larger than a frame may be.
    #[error("a frame could not be made")]
    Encode(#[source] EncodeError),
    /// A frame of ours where it may not stand.
    #[error("a frame was about to be sent where it may not stand")]
    Misused(#[source] ProtocolError),
}

impl Channel {
    /// Takes over an attached container. The writer task is one of `tasks`.
    pub(crate) fn open(attached: Attached, tasks: &TaskTracker) -> Self {
        let (frames, queue) = mpsc::channel(FRAMES_IN_FLIGHT);
        let hang_up = CancellationToken::new();
        tasks.spawn(write_frames(attached.input, queue, hang_up.clone()));
        Self {
            output: attached.output,
            decoder: Decoder::new(),
            received: VecDeque::new(),
            session: GuestSession::new(),
            frames,
            complaint: Vec::new(),
            hang_up: hang_up.drop_guard(),
        }
    }

    /// The state of the conversation.
    pub(crate) fn session(&self) -> &GuestSession {
        &self.session
    }

    /// Something to wait on for room, beside the channel itself.
    pub(crate) fn writer(&self) -> Writer {
        Writer(self.frames.clone())
    }

    /// Whether a frame can be sent at once.
    pub(crate) fn has_room(&self) -> bool {
        self.frames.capacity() > 0
    }

    /// Sends a frame where there is room for it. Where the writer is gone the frame is too: the reading side says how
    /// the conversation ended, and may still have an account of the end to read.
    pub(crate) fn send(&mut self, frame: &ToGuest) -> Result<(), ChannelError> {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes).map_err(ChannelError::Encode)?;
        self.session.send(frame).map_err(ChannelError::Misused)?;
        if self.frames.try_send(bytes).is_err() {
            tracing::debug!(frame = frame.name(), "the guest's stdin is closed");
        }
        Ok(())
    }

    /// The guest's next frame, in order. Cancel safe.
    pub(crate) async fn receive(&mut self) -> Result<FromGuest, ChannelError> {
        loop {
            if let Some(frame) = self.received.pop_front() {
                self.session.receive(&frame).map_err(ChannelError::Protocol)?;
                return Ok(frame);
            }
            match self.output.next().await {
                None => return Err(ChannelError::Closed),
                Some(Err(error)) => return Err(ChannelError::Broken(error)),
                Some(Ok(output)) => self.take_in(output)?,
            }
        }
    }

    /// Whether the conversation can go on, as far as what has arrived says. What the guest has said is kept for
    /// [`Channel::receive`].
    pub(crate) fn is_open(&mut self) -> bool {
        if self.frames.is_closed() {
            return false;
        }
        let mut nobody = Context::from_waker(Waker::noop());
        // Each turn takes in what was written by a guest that has nothing to say; one that does is not as it should be.
        for _ in 0..=MAX_UNASKED {
            match self.output.as_mut().poll_next(&mut nobody) {
                Poll::Pending => return self.received.is_empty(),
                Poll::Ready(None | Some(Err(_))) => return false,
                Poll::Ready(Some(Ok(output))) => {
                    if self.take_in(output).is_err() {
                        return false;
                    }
                }
            }
        }
        false
    }

    fn take_in(&mut self, output: LogOutput) -> Result<(), ChannelError> {
        match output {
            LogOutput::StdOut { message } => self.decode(&message),
            LogOutput::StdErr { message } | LogOutput::Console { message } | LogOutput::StdIn { message } => {
                let room = MAX_COMPLAINT - self.complaint.len();
                self.complaint
                    .extend_from_slice(&message[..room.min(message.len())]);
                Ok(())
            }
        }
    }

    fn decode(&mut self, mut bytes: &[u8]) -> Result<(), ChannelError> {
        while let Some(frame) = self.decoder.decode(&mut bytes).map_err(ChannelError::Protocol)? {
            self.received.push_back(frame);
        }
        Ok(())
    }

    /// What the guest, or the runtime in its place, wrote to stderr. For a log line: it is not to be trusted.
    pub(crate) fn complaint(&self) -> String {
        String::from_utf8_lossy(&self.complaint).trim().to_owned()
    }

    /// Closes the guest's stdin and drops the stream. An engine that is asked to kill a container whose attached
    /// stream nobody reads may hang, so that this goes first.
    pub(crate) fn hang_up(self) {
        drop(self.hang_up);
    }
}

async fn write_frames(
    mut input: Pin<Box<dyn AsyncWrite + Send>>,
    queue: mpsc::Receiver<Vec<u8>>,
    hang_up: CancellationToken,
) {
    // Whatever ends it, the reading side learns of it by the end of its stream.
    hang_up
        .run_until_cancelled(write_until_closed(&mut input, queue))
        .await;
}

async fn write_until_closed(
    input: &mut Pin<Box<dyn AsyncWrite + Send>>,
    mut queue: mpsc::Receiver<Vec<u8>>,
) -> Option<()> {
    let mut alive = Vec::new();
    ToGuest::Alive.encode(&mut alive).ok()?;
    let mut every = tokio::time::interval(ALIVE_EVERY / times_divided_by());
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let frame = tokio::select! {
            biased;
            _ = every.tick() => alive.clone(),
            frame = queue.recv() => frame?,
        };
        input.write_all(&frame).await.ok()?;
        if queue.is_empty() {
            input.flush().await.ok()?;
        }
    }
}
