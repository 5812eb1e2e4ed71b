//! One run: the job goes in, its output comes out, and it ends, in bounded time whatever engine, guest and job do.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use mayfly_core::{
    clock::Clock,
    job::ResolvedJob,
    outcome::{CapturedStream, KilledFor},
    policy::OnOutputLimit,
};
use mayfly_protocol::{Exit, FromGuest, Refused, StreamId, ToGuest, WarmUse};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use crate::{
    capture::Capture,
    channel::{Channel, ChannelError},
    egress::Tunnels,
    fetched::{FetchError, Incoming},
    outbox::Outbox,
    redaction::Matcher,
    seam::{LiveOutput, OutputStream, Run},
};

/// How long the guest may take to write the job's files and start its program.
const START_LIMIT: Duration = Duration::from_secs(30);

/// How the conversation about a job ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The guest's account of the program's end.
    Exit(Exit),
    /// The guest did not start the program.
    Refused(Refused),
    /// The stream ended, or broke, without an account.
    Lost(ChannelError),
    /// The guest did not obey a kill in the time that it has for that.
    Forced,
    /// The program was not started in time.
    NotStarted,
    /// There was no whole job for it.
    NotFetched(FetchError),
}

/// All that the conversation gave.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) ending: Ending,
    /// What the guest was asked to kill the job for, if it was.
    pub(crate) kill_asked: Option<KilledFor>,
    /// Whether the guest could have started the job: `start` was sent.
    pub(crate) start_sent: bool,
    /// Whether it said that it did.
    pub(crate) started: bool,
    /// What it said of the process that waited, then.
    pub(crate) warm: Option<WarmUse>,
    /// See [`Start::killed_before`].
    pub(crate) killed_before: bool,
    pub(crate) started_at: Option<DateTime<Utc>>,
    pub(crate) stdout: CapturedStream,
    pub(crate) stderr: CapturedStream,
}

/// What the executor decides about a job's start, beside the job.
#[derive(Debug)]
pub(crate) struct Start {
    /// The whole environment.
    pub(crate) environment: Vec<(String, String)>,
    /// Whether the process that waits may take the job.
    pub(crate) warm: bool,
    /// Whether the kernel killed something for memory before there was a job.
    pub(crate) killed_before: bool,
    /// Whether files may be collected when the job is over.
    pub(crate) collects: bool,
    /// Whether the guest carries connections.
    pub(crate) egress: bool,
}

/// Speaks with the guest until the job's end.
pub(crate) async fn converse(
    channel: &mut Channel,
    run: Run,
    start: Start,
    kill_grace: Duration,
    clock: &dyn Clock,
) -> Conversation {
    let Run {
        job,
        mut stop,
        live,
        matcher,
        collect: _,
        fetched,
        egress,
    } = run;
    let mut tunnels = egress.map(Tunnels::new);
    let mut state = State::new(&job, start, fetched, live.as_ref(), &matcher, clock);
    let ready = channel.writer();
    let ending = loop {
        if state.kill_asked.is_some() {
            tunnels.iter_mut().for_each(Tunnels::close);
        }
        // Fair would be wrong: what ends a run goes before what a job can keep busy.
        tokio::select! {
            biased;
            reason = stopped(&mut stop), if state.kill_asked.is_none() => state.ask_kill(reason, kill_grace),
            // Whoever fetches has limits of its own.
            () = sleep_until(state.limit), if !state.outbox.awaits_piece() => match state.limit_passed(kill_grace) {
                Some(ending) => break ending,
                None => continue,
            },
            () = ready.writable(), if state.outbox.has_next(channel.session()) || has_next(&tunnels) => {
                if let Err(error) = state.send(channel, &mut tunnels) {
                    break Ending::Lost(error);
                }
            }
            frame = channel.receive() => match frame.map(|frame| state.take(frame, &mut tunnels, kill_grace)) {
                Ok(None) => {}
                Ok(Some(ending)) => break ending,
                Err(error) => break Ending::Lost(error),
            },
            fetched = state.outbox.fetch(), if state.outbox.awaits_piece() => match fetched {
                Ok(()) => state.limit = Instant::now() + START_LIMIT,
                Err(error) => break Ending::NotFetched(error),
            },
            () = live.ready(), if state.outbox.owes() => state.outbox.grant(),
            () = next_frame(&mut tunnels), if !has_next(&tunnels) => {}
        }
    };
    // What was decided is whole when the run is.
    if let Some(tunnels) = tunnels {
        tunnels.end().await;
    }
    state.end(ending)
}

/// Whether a frame of a connection waits to be sent.
fn has_next(tunnels: &Option<Tunnels>) -> bool {
    tunnels.as_ref().is_some_and(Tunnels::has_next)
}

/// Waits until one does. Cancel safe.
async fn next_frame(tunnels: &mut Option<Tunnels>) {
    match tunnels {
        Some(tunnels) => tunnels.next_frame().await,
        None => std::future::pending().await,
    }
}

/// The first reason to stop. A sender that is gone will never give one.
pub(crate) async fn stopped(stop: &mut watch::Receiver<Option<KilledFor>>) -> KilledFor {
    let reason = stop
        .wait_for(Option::is_some)
        .await
        .ok()
        .and_then(|reason| *reason);
    match reason {
        Some(reason) => reason,
        None => std::future::pending().await,
    }
}

struct State<'a> {
    job: Arc<ResolvedJob>,
    outbox: Outbox,
    live: &'a dyn LiveOutput,
    clock: &'a dyn Clock,
    stdout: Capture,
    stderr: Capture,
    kill_asked: Option<KilledFor>,
    start_sent: bool,
    started: bool,
    warm: Option<WarmUse>,
    started_at: Option<DateTime<Utc>>,
    /// When the next thing must have happened: the start, the program's end, the end after a kill.
    limit: Instant,
}

impl<'a> State<'a> {
    fn new(
        job: &Arc<ResolvedJob>,
        start: Start,
        fetched: Option<Incoming>,
        live: &'a dyn LiveOutput,
        matcher: &Matcher,
        clock: &'a dyn Clock,
    ) -> Self {
        Self {
            outbox: Outbox::new(Arc::clone(job), start, fetched),
            live,
            clock,
            stdout: Capture::new(job.limits.stdout, matcher),
            stderr: Capture::new(job.limits.stderr, matcher),
            job: Arc::clone(job),
            kill_asked: None,
            start_sent: false,
            started: false,
            warm: None,
            started_at: None,
            limit: Instant::now() + START_LIMIT,
        }
    }

    /// Sends what may be sent and has room.
    fn send(&mut self, channel: &mut Channel, tunnels: &mut Option<Tunnels>) -> Result<(), ChannelError> {
        while channel.has_room()
            && let Some(frame) = self.outbox.next(channel.session())
        {
            if matches!(frame, ToGuest::Job(_)) {
                self.started_at = Some(self.clock.now());
            }
            self.start_sent |= frame == ToGuest::Start;
            channel.send(&frame)?;
        }
        if channel.has_room()
            && let Some(frame) = tunnels.as_mut().and_then(Tunnels::take_next)
        {
            channel.send(&frame)?;
        }
        Ok(())
    }

    /// Takes the guest's next frame in. `Some` ends the conversation.
    fn take(
        &mut self,
        frame: FromGuest,
        tunnels: &mut Option<Tunnels>,
        kill_grace: Duration,
    ) -> Option<Ending> {
        match frame {
            FromGuest::Started(started) => {
                self.started = true;
                self.warm = Some(started.warm);
                if self.kill_asked.is_none() {
                    self.limit = Instant::now() + self.job.limits.wall.as_duration();
                }
            }
            FromGuest::Stdout(data) => self.output(StreamId::STDOUT, &data, kill_grace),
            FromGuest::Stderr(data) => self.output(StreamId::STDERR, &data, kill_grace),
            // The session counts it.
            FromGuest::Credit { .. } => {}
            FromGuest::TunnelOpen { stream } => tunnels.iter_mut().for_each(|tunnels| tunnels.open(stream)),
            FromGuest::Tunnel { stream, frame } => {
                if let Some(tunnels) = tunnels {
                    tunnels.take(stream, frame);
                }
            }
            FromGuest::Exit(exit) => return Some(Ending::Exit(exit)),
            FromGuest::Refused(refused) => return Some(Ending::Refused(refused)),
            // The session refuses them here, before they come to this.
            FromGuest::Ready(_)
            | FromGuest::Warmed(_)
            | FromGuest::WarmFailed(_)
            | FromGuest::Artifact(_)
            | FromGuest::ArtifactData(_)
            | FromGuest::ArtifactEnd(_)
            | FromGuest::LeftOut(_)
            | FromGuest::Collected(_) => {}
        }
        None
    }

    fn output(&mut self, stream: StreamId, data: &[u8], kill_grace: Duration) {
        let (capture, name) = if stream == StreamId::STDOUT {
            (&mut self.stdout, OutputStream::Stdout)
        } else {
            (&mut self.stderr, OutputStream::Stderr)
        };
        show(self.live, name, capture.take(data));
        let over = capture.is_over();
        self.outbox.owe(stream, data.len());
        if over && self.job.on_output_limit == OnOutputLimit::Kill && self.kill_asked.is_none() {
            self.ask_kill(KilledFor::OutputLimit, kill_grace);
        }
    }

    fn ask_kill(&mut self, reason: KilledFor, kill_grace: Duration) {
        self.kill_asked = Some(reason);
        self.outbox.kill();
        self.limit = Instant::now() + kill_grace;
    }

    fn limit_passed(&mut self, kill_grace: Duration) -> Option<Ending> {
        if self.kill_asked.is_some() {
            return Some(Ending::Forced);
        }
        if !self.started {
            return Some(Ending::NotStarted);
        }
        self.ask_kill(KilledFor::ExecutorDeadline, kill_grace);
        None
    }

    fn end(self, ending: Ending) -> Conversation {
        let (stdout_rest, stdout) = self.stdout.finish();
        let (stderr_rest, stderr) = self.stderr.finish();
        show(self.live, OutputStream::Stdout, &stdout_rest);
        show(self.live, OutputStream::Stderr, &stderr_rest);
        Conversation {
            ending,
            kill_asked: self.kill_asked,
            start_sent: self.start_sent,
            started: self.started,
            warm: self.warm,
            killed_before: self.outbox.start.killed_before,
            started_at: self.started_at,
            stdout,
            stderr,
        }
    }
}

/// Hands over what there is, if there is any: it may all be held back.
fn show(live: &dyn LiveOutput, stream: OutputStream, bytes: &[u8]) {
    if !bytes.is_empty() {
        live.output(stream, bytes);
    }
}
