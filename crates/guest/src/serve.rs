//! The guest's one loop.
//!
//! In each turn timers come first, then the executor's frames, then the job's streams, and nothing
//! in it blocks but the wait itself. So neither a job that floods its output nor an executor that
//! doesn't take it keeps the guest from being told to kill, or from noticing that nobody is there.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use mayfly_protocol::{
    CommandOrder, Decoder, EncodeError, FromGuest, GuestExit, Job, ProtocolError, ReadyReport, Refused,
    Stage, Started, StreamId, ToGuest, WarmFailed, WarmOrder, WarmUse, Warmed,
};

use crate::args::Args;
use crate::cgroup::Cgroup;
use crate::collect::Collector;
use crate::complain;
use crate::files::Files;
use crate::queue::Queue;
use crate::run::Run;
use crate::spawn::Program;
use crate::streams::Outlet;
use crate::sys::{self, Errno, PollFd};
use crate::tunnel::{Trouble, Tunnels};
use crate::warm::{self, News, Offer, Warm};

/// A step of the conversation; what ends it ends the guest.
type Step<T = ()> = Result<T, GuestExit>;

impl From<Errno> for GuestExit {
    fn from(errno: Errno) -> Self {
        complain(&format!("a system call failed: {errno}"));
        Self::Internal
    }
}

/// The descriptors that the guest was started with.
pub(crate) struct Link<'fd> {
    pub(crate) from_executor: BorrowedFd<'fd>,
    pub(crate) to_executor: BorrowedFd<'fd>,
}

/// A guest and its one conversation.
pub(crate) struct Guest<'fd> {
    args: Args,
    link: Link<'fd>,
    cgroup: Cgroup,
    signals: OwnedFd,
    decoder: Decoder<ToGuest>,
    order: CommandOrder,
    queue: Queue,
    stdout: Outlet,
    stderr: Outlet,
    /// Where the job has egress.
    tunnels: Option<Tunnels>,
    warm: Warm,
    phase: Phase,
    /// Whether the job's files are asked for when it is over.
    collects: bool,
    last_alive: Instant,
    inbox: Vec<u8>,
}

enum Phase {
    /// No job yet.
    Idle,
    /// The job's files come in.
    Taking { program: Box<Program>, files: Files },
    /// The job is complete, and the process that waits has it or is being cleared away.
    Starting {
        program: Box<Program>,
        early: EarlyStdin,
    },
    /// The job's process lives, or its output is not out yet.
    Running(Box<Run>),
    /// The job is over, and its files may be asked for.
    Exited,
    /// The job's files leave.
    Collecting(Box<Collector>),
    /// The last frame waits to be written, and nothing else matters.
    Over,
}

/// Stdin that came before there was anything to give it to; bounded by the window of stdin.
#[derive(Default)]
struct EarlyStdin {
    bytes: Vec<u8>,
    closed: bool,
}

/// Which descriptors are ready.
#[derive(Default)]
struct Ready {
    frames: bool,
    child: bool,
    exec: bool,
    stdin: bool,
    stdout: bool,
    stderr: bool,
    warm_answers: bool,
    warm_orders: bool,
    /// Any of the job's connections, or a new one.
    tunnels: bool,
}

impl<'fd> Guest<'fd> {
    pub(crate) fn new(args: Args, link: Link<'fd>, cgroup: Cgroup, signals: OwnedFd) -> Self {
        Self {
            args,
            link,
            cgroup,
            signals,
            decoder: Decoder::new(),
            order: CommandOrder::new(),
            queue: Queue::new(),
            stdout: Outlet::new(StreamId::STDOUT),
            stderr: Outlet::new(StreamId::STDERR),
            tunnels: None,
            warm: Warm::Never,
            phase: Phase::Idle,
            collects: false,
            last_alive: Instant::now(),
            // Touched now, for the same reason as the queue's.
            inbox: vec![1; 64 * 1024],
        }
    }

    /// Says that it is ready and serves until the conversation ends. Nothing of the job's lives on.
    pub(crate) fn serve(mut self, report: ReadyReport) -> GuestExit {
        let ended = self.converse(report);
        sys::kill_everything();
        ended.unwrap_or_else(|exit| exit)
    }

    fn converse(&mut self, report: ReadyReport) -> Step<GuestExit> {
        self.say(&FromGuest::Ready(Box::new(report)))?;
        loop {
            match self.queue.flush(self.link.to_executor) {
                Ok(()) => {}
                Err(Errno(libc::EPIPE)) => return Ok(GuestExit::StdinClosed),
                Err(errno) => return Err(errno.into()),
            }
            if matches!(self.phase, Phase::Over) && self.queue.is_empty() {
                return Ok(GuestExit::Done);
            }
            let ready = self.wait()?;
            let now = Instant::now();
            // Before frames are read: those that wait for a guest that was frozen are old.
            if now.duration_since(self.last_alive) > self.args.alive_limit {
                return Ok(GuestExit::AliveMissing);
            }
            if ready.frames {
                self.take_frames(now)?;
            }
            self.advance(&ready, now)?;
        }
    }

    /// Waits until something is ready or a timer is due.
    fn wait(&self) -> sys::Result<Ready> {
        let run = self.run();
        let started = run.filter(|run| run.is_started());
        let outlet = |outlet| started.and_then(|_| Outlet::wanted(outlet, &self.queue));
        let (warm_answers, warm_orders) = match self.phase {
            Phase::Exited | Phase::Collecting(_) | Phase::Over => (None, None),
            Phase::Idle | Phase::Taking { .. } | Phase::Starting { .. } | Phase::Running(_) => {
                self.warm.pipes()
            }
        };
        let waiting_out = (!self.queue.is_empty()).then_some(self.link.to_executor);
        let mut fds = vec![
            PollFd::readable(Some(self.link.from_executor)),
            PollFd::readable(Some(self.signals.as_fd())),
            PollFd::readable(run.and_then(Run::exec_pipe)),
            PollFd::writable(run.and_then(|run| run.stdin.wanted())),
            PollFd::readable(outlet(&self.stdout)),
            PollFd::readable(outlet(&self.stderr)),
            PollFd::readable(warm_answers),
            PollFd::writable(warm_orders),
            PollFd::writable(waiting_out),
        ];
        let of_tunnels = fds.len();
        if let (Some(tunnels), Some(_)) = (&self.tunnels, started) {
            tunnels.wanted(&self.queue, &self.order, &mut fds);
        }
        sys::poll(&mut fds, self.timeout_ms(Instant::now()))?;
        let [
            frames,
            child,
            exec,
            stdin,
            stdout,
            stderr,
            warm_answers,
            warm_orders,
            ..,
        ] = fds.as_slice()
        else {
            return Err(Errno(libc::EINVAL));
        };
        let [frames, child, exec, stdin] = [frames, child, exec, stdin].map(PollFd::is_ready);
        let [stdout, stderr, warm_answers, warm_orders] =
            [stdout, stderr, warm_answers, warm_orders].map(PollFd::is_ready);
        Ok(Ready {
            tunnels: frames || fds[of_tunnels..].iter().any(PollFd::is_ready),
            frames,
            child,
            exec,
            stdin,
            stdout,
            stderr,
            warm_answers,
            warm_orders,
        })
    }

    fn timeout_ms(&self, now: Instant) -> i32 {
        if let Phase::Collecting(collector) = &self.phase
            && collector.wants_turn(&self.queue)
        {
            return 0;
        }
        // One past the limit, since the limit itself is still in time.
        let alive = self
            .last_alive
            .checked_add(self.args.alive_limit + Duration::from_millis(1));
        let timer = self.run().and_then(|run| run.next_timer(now));
        let warm = self.warm.next_timer(now);
        let next = alive.into_iter().chain(timer).chain(warm).min();
        let left = next.map_or(Duration::from_secs(1), |next| next.saturating_duration_since(now));
        // Rounded up, so that a turn doesn't spin through the last millisecond.
        i32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i32::MAX)
    }

    fn run(&self) -> Option<&Run> {
        if let Phase::Running(run) = &self.phase {
            Some(run)
        } else {
            None
        }
    }

    /// Reads once from the executor and does what the frames say.
    fn take_frames(&mut self, now: Instant) -> Step {
        let mut inbox = std::mem::take(&mut self.inbox);
        let got = match sys::read(self.link.from_executor, &mut inbox) {
            Ok(0) => return Err(GuestExit::StdinClosed),
            Ok(got) => got,
            Err(Errno(libc::EAGAIN | libc::EINTR)) => 0,
            Err(errno) => return Err(errno.into()),
        };
        let mut bytes = &inbox[..got];
        while let Some(frame) = self.decoder.decode(&mut bytes).map_err(broken)? {
            self.order.accept(&frame).map_err(broken)?;
            self.obey(frame, now)?;
        }
        self.inbox = inbox;
        Ok(())
    }

    fn obey(&mut self, frame: ToGuest, now: Instant) -> Step {
        match frame {
            ToGuest::Alive => self.last_alive = now,
            ToGuest::Credit { stream, bytes } => {
                let window = match (stream, &mut self.phase) {
                    (StreamId::STDOUT, _) => &mut self.stdout.window,
                    (StreamId::STDERR, _) => &mut self.stderr.window,
                    (_, Phase::Collecting(collector)) => &mut collector.window,
                    // It was on its way when the last word was said.
                    (_, Phase::Over) => return Ok(()),
                    _ => return Err(broken(ProtocolError::Grant { stream, bytes })),
                };
                window.grant(bytes).map_err(broken)?;
            }
            ToGuest::Collect(order) => match self.phase {
                Phase::Exited => {
                    self.phase = Phase::Collecting(Box::new(Collector::new(order, &self.args)));
                }
                // It has refused the job.
                Phase::Over => {}
                _ => {
                    return Err(broken(ProtocolError::Order {
                        frame: "collect",
                        state: "the job is not over",
                    }));
                }
            },
            ToGuest::Kill => match &mut self.phase {
                Phase::Idle | Phase::Exited | Phase::Collecting(_) => return Err(GuestExit::Done),
                // A process that waits has not been given the word to start it.
                Phase::Taking { .. } | Phase::Starting { .. } => {
                    self.refuse(Refused::new(Stage::Canceled, None, ""))?;
                }
                Phase::Running(run) => run.kill()?,
                Phase::Over => {}
            },
            ToGuest::Warm(order) => self.boot(order)?,
            ToGuest::Job(job) => self.take_job(job)?,
            ToGuest::File(header) => self.with_files(|files| files.begin(&header))?,
            ToGuest::FileData(bytes) => self.with_files(|files| files.append(&bytes))?,
            ToGuest::FileEnd => self.with_files(|files| {
                files.end();
                Ok(())
            })?,
            ToGuest::Start => self.start(now)?,
            ToGuest::Tunnel { stream, frame } => {
                // What was on its way when the job ended means nothing.
                if let Some(tunnels) = &mut self.tunnels {
                    tunnels.take(stream, frame);
                }
            }
            ToGuest::Stdin(bytes) => match &mut self.phase {
                Phase::Running(run) => run.stdin.push(&bytes),
                Phase::Starting { early, .. } => early.bytes.extend(bytes),
                _ => {}
            },
            ToGuest::StdinClose => match &mut self.phase {
                Phase::Running(run) => run.stdin.close(),
                Phase::Starting { early, .. } => early.closed = true,
                _ => {}
            },
        }
        Ok(())
    }

    fn boot(&mut self, order: WarmOrder) -> Step {
        match Warm::boot(order, &self.args, &self.cgroup) {
            Ok(warm) => {
                self.warm = warm;
                Ok(())
            }
            Err(why) => self.tell_of_warm(News::Failed(WarmFailed::new(why, false))),
        }
    }

    fn take_job(&mut self, job: Job) -> Step {
        self.collects = job.collects;
        if job.egress {
            match Tunnels::listen() {
                Ok(tunnels) => self.tunnels = Some(tunnels),
                Err(refused) => return self.refuse(refused),
            }
        }
        match Program::new(job) {
            Ok(program) => {
                self.warm.consider(&program);
                self.phase = Phase::Taking {
                    program: Box::new(program),
                    files: Files::new(&self.args),
                };
                Ok(())
            }
            Err(refused) => self.refuse(refused),
        }
    }

    /// Frames of files that come after a refusal mean nothing.
    fn with_files(&mut self, work: impl FnOnce(&mut Files) -> Result<(), Refused>) -> Step {
        let Phase::Taking { files, .. } = &mut self.phase else {
            return Ok(());
        };
        match work(files) {
            Ok(()) => Ok(()),
            Err(refused) => self.refuse(refused),
        }
    }

    fn start(&mut self, now: Instant) -> Step {
        let program = match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Taking { program, .. } => program,
            other => {
                self.phase = other;
                return Ok(());
            }
        };
        let offer = self.warm.offer(&program, &self.cgroup, now)?;
        let early = EarlyStdin::default();
        self.phase = Phase::Starting { program, early };
        match offer {
            Offer::Wait => Ok(()),
            Offer::Cold(why) => self.start_cold(why),
        }
    }

    fn start_cold(&mut self, why: WarmUse) -> Step {
        let Phase::Starting { program, .. } = &self.phase else {
            return Ok(());
        };
        let asks = program.asks_for_warm();
        let outlets = [&mut self.stdout, &mut self.stderr];
        match Run::begin(program, &self.args, &self.cgroup, outlets) {
            Ok(mut run) => {
                run.warm = if asks { why } else { WarmUse::NotAsked };
                self.run_with_early_stdin(run);
                Ok(())
            }
            Err(refused) => self.refuse(refused),
        }
    }

    fn run_with_early_stdin(&mut self, mut run: Run) {
        if let Phase::Starting { early, .. } = &self.phase {
            run.stdin.push(&early.bytes);
            if early.closed {
                run.stdin.close();
            }
        }
        self.phase = Phase::Running(Box::new(run));
    }

    /// Moves the process that waits, or is to, and does what comes of it.
    fn tend_warm(&mut self, ready: &Ready, now: Instant) -> Step {
        let ready = warm::Ready {
            child: ready.child,
            answers: ready.warm_answers,
            orders: ready.warm_orders,
        };
        match self.warm.turn(ready, &self.cgroup, now)? {
            Some(news) => self.tell_of_warm(news),
            None => Ok(()),
        }
    }

    fn tell_of_warm(&mut self, news: News) -> Step {
        match news {
            News::Waits(took) => {
                self.order.answer_warm(true).map_err(broken)?;
                let boot_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
                self.say(&FromGuest::Warmed(Warmed { boot_us }))
            }
            News::Failed(failed) => {
                self.order.answer_warm(false).map_err(broken)?;
                self.say(&FromGuest::WarmFailed(failed))
            }
            News::Taken(spawned, before) => {
                let Phase::Starting { program, .. } = &self.phase else {
                    return Ok(());
                };
                let outlets = [&mut self.stdout, &mut self.stderr];
                let run = Run::adopt(program, spawned, before, outlets);
                let warm = run.warm;
                self.run_with_early_stdin(run);
                self.say(&FromGuest::Started(Started { warm }))
            }
            News::Cold(why) => self.start_cold(why),
        }
    }

    /// Moves the job on by what is ready and by what time it is.
    fn advance(&mut self, ready: &Ready, now: Instant) -> Step {
        if ready.child {
            let mut drained = [0; 1024];
            match sys::read(self.signals.as_fd(), &mut drained) {
                Ok(_) | Err(Errno(libc::EAGAIN | libc::EINTR)) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let run = match &mut self.phase {
            Phase::Running(run) => run,
            Phase::Collecting(_) => return self.collect(),
            // The job is refused or over: nothing may be told any more to a process that waits for it.
            Phase::Exited | Phase::Over => return Ok(()),
            Phase::Idle | Phase::Taking { .. } | Phase::Starting { .. } => return self.tend_warm(ready, now),
        };
        if ready.child {
            run.reap()?;
        }
        run.check_time(now)?;
        if ready.exec || run.all_gone() {
            let warm = run.warm;
            match run.watch_exec()? {
                Some(Ok(())) => self.say(&FromGuest::Started(Started { warm }))?,
                Some(Err(refused)) => return self.refuse(refused),
                None => {}
            }
        }
        self.move_streams(ready)?;
        self.move_tunnels(ready)?;
        self.finish()
    }

    fn move_streams(&mut self, ready: &Ready) -> Step {
        let Phase::Running(run) = &mut self.phase else {
            return Ok(());
        };
        if ready.stdin {
            run.stdin.pump()?;
        }
        if !run.is_started() {
            return Ok(());
        }
        let gone = run.all_gone();
        for (outlet, ready) in [(&mut self.stdout, ready.stdout), (&mut self.stderr, ready.stderr)] {
            if ready {
                outlet.pump(&mut self.queue)?;
            }
            if gone {
                outlet.end_if_empty()?;
            }
        }
        // A grant is small, but an executor that takes nothing must not pile them up.
        if self.queue.room() > 0 {
            let bytes = run.stdin.take_grant();
            if bytes > 0 {
                self.order.grant_stdin(bytes).map_err(broken)?;
                self.say(&FromGuest::Credit { bytes })?;
            }
        }
        Ok(())
    }

    fn move_tunnels(&mut self, ready: &Ready) -> Step {
        // The executor hears of no connection before it hears of the start.
        let started = self.run().is_some_and(Run::is_started);
        match &mut self.tunnels {
            Some(tunnels) if started && ready.tunnels => tunnels
                .turn(&mut self.queue, &mut self.order)
                .map_err(|trouble| match trouble {
                    Trouble::Ours(error) => {
                        complain(&format!(
                            "a frame was about to be sent where it may not stand: {error}"
                        ));
                        GuestExit::Internal
                    }
                    Trouble::Unwritable(error) => unwritable(error),
                }),
            _ => Ok(()),
        }
    }

    /// Says the last word once everything else is out.
    fn finish(&mut self) -> Step {
        let Some(run) = self.run() else { return Ok(()) };
        if let Some(exit) = run.exit(&self.cgroup, [&self.stdout, &self.stderr])? {
            self.phase = if self.collects { Phase::Exited } else { Phase::Over };
            self.tunnels = None;
            self.say(&FromGuest::Exit(exit))?;
        }
        Ok(())
    }

    /// Goes on with the job's files.
    fn collect(&mut self) -> Step {
        let Phase::Collecting(collector) = &mut self.phase else {
            return Ok(());
        };
        if collector.turn(&mut self.queue).map_err(unwritable)? {
            self.phase = Phase::Over;
        }
        Ok(())
    }

    fn refuse(&mut self, refused: Refused) -> Step {
        self.phase = Phase::Over;
        self.say(&FromGuest::Refused(refused))
    }

    fn say(&mut self, frame: &FromGuest) -> Step {
        self.queue.push(frame).map_err(unwritable)
    }
}

fn unwritable(error: EncodeError) -> GuestExit {
    complain(&format!("a frame could not be written: {error}"));
    GuestExit::Internal
}

fn broken(error: ProtocolError) -> GuestExit {
    complain(&format!("the executor broke the protocol: {error}"));
    GuestExit::ProtocolError
}
