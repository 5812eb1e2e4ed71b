//! The process that is started before its job is known, and how it comes by the job.
//!
//! It is started as a job's process is, with two pipes more. It says on one of them that it is ready, reads the job
//! from the other, says that it has taken it, and waits for the guest's word to go on. Only that word starts the job:
//! whatever happens before it, no instruction of the job's has run, the process is killed with all that it may have
//! started, and the job is started cold once nothing of it is left.
//!
//! ```text
//! guest                                        process
//!                                        <-    R            it waits
//! count, count, arguments, environment   ->
//!                                        <-    T            it has taken them
//! G                                      ->                 it runs the job
//! ```
//!
//! `F` and a text stand where it failed; anything else than these means that it won't.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use mayfly_protocol::{Ended, Job, VERSION, WarmFailed, WarmOrder, WarmUse};

use crate::args::Args;
use crate::cgroup::Cgroup;
use crate::run::{Before, KILL_AGAIN};
use crate::spawn::{self, Program, Spawned, Waiting};
use crate::sys::{self, Errno, Reaped};

/// How long the process may take to take a job, before the job is started cold.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(2);

const READY: u8 = b'R';
const TAKEN: u8 = b'T';
const FAILED: u8 = b'F';
const GO: u8 = b'G';

/// What there is of it.
pub(crate) enum Warm {
    /// Nobody asked for one.
    Never,
    /// It is not ready yet.
    Booting { process: Process, until: Instant },
    /// It waits.
    Ready(Process),
    /// The job was sent to it.
    Asked {
        process: Process,
        handed: HandedOver,
        until: Instant,
    },
    /// Everything is killed, and the kernel has not yet said that nothing is left.
    Clearing(Clearing),
    /// Nothing is left.
    Gone(WarmUse),
}

/// The process.
pub(crate) struct Process {
    program: Program,
    begun: Instant,
    waiting: Waiting,
    oom_kills_before: Option<u64>,
    how: Option<Ended>,
}

/// A job on its way to the process.
pub(crate) struct HandedOver {
    bytes: Vec<u8>,
    written: usize,
    before: Before,
}

/// What is known of a process that was killed.
pub(crate) struct Clearing {
    pid: i32,
    how: Option<Ended>,
    why: WarmUse,
    /// Why it never was ready, where the executor waits to hear that.
    failure: Option<String>,
    oom_kills_before: Option<u64>,
}

/// Which of its descriptors are ready, and whether a child has ended.
#[derive(Clone, Copy)]
pub(crate) struct Ready {
    pub(crate) child: bool,
    pub(crate) answers: bool,
    pub(crate) orders: bool,
}

/// What there is to say or do after a turn.
pub(crate) enum News {
    /// It waits, that long after its fork.
    Waits(Duration),
    /// It could not be had, and nothing is left of it.
    Failed(WarmFailed),
    /// It runs the job from here on.
    Taken(Spawned, Before),
    /// The job has to be started cold, and can be.
    Cold(WarmUse),
}

/// Whether a job waits for the process.
pub(crate) enum Offer {
    /// [`News`] will come of it.
    Wait,
    /// Nothing is in the way of a cold start.
    Cold(WarmUse),
}

impl Warm {
    /// Starts the process.
    ///
    /// # Errors
    /// Why it could not even be forked.
    pub(crate) fn boot(order: WarmOrder, args: &Args, cgroup: &Cgroup) -> Result<Self, String> {
        let limit = Duration::from_millis(order.limit_ms);
        let program = Program::new(Job {
            version: VERSION,
            argv: order.argv,
            env: order.env,
            cwd: order.cwd,
            deadline_ms: 0,
            rlimits: Vec::new(),
            files: 0,
            stdin: false,
            warm: false,
            collects: false,
            egress: false,
        });
        let program = program.map_err(|refused| refused.detail)?;
        let begun = Instant::now();
        let forked = program.spawn_waiting(args);
        let waiting = forked.map_err(|errno| format!("it could not be forked: {errno}"))?;
        let process = Process {
            program,
            begun,
            waiting,
            oom_kills_before: cgroup.counts().oom_kills,
            how: None,
        };
        // A limit that no clock holds is none.
        let until = begun.checked_add(limit).unwrap_or(begun + FOREVER);
        Ok(Self::Booting { process, until })
    }

    /// What is to be waited for: its answers, and room for its orders.
    pub(crate) fn pipes(&self) -> (Option<BorrowedFd<'_>>, Option<BorrowedFd<'_>>) {
        match self {
            Self::Booting { process, .. } | Self::Ready(process) => {
                (Some(process.waiting.answers.as_fd()), None)
            }
            Self::Asked { process, handed, .. } => {
                let unwritten = handed.written < handed.bytes.len();
                let orders = unwritten.then_some(process.waiting.orders.as_fd());
                (Some(process.waiting.answers.as_fd()), orders)
            }
            Self::Never | Self::Clearing(_) | Self::Gone(_) => (None, None),
        }
    }

    /// When [`Self::turn`] has something to do next.
    pub(crate) fn next_timer(&self, now: Instant) -> Option<Instant> {
        match self {
            Self::Booting { until, .. } | Self::Asked { until, .. } => Some(*until),
            Self::Clearing(_) => now.checked_add(KILL_AGAIN),
            Self::Never | Self::Ready(_) | Self::Gone(_) => None,
        }
    }

    /// Looks at a job whose files are still to come: a process that it won't run in is killed now.
    pub(crate) fn consider(&mut self, program: &Program) {
        let Self::Ready(process) = self else { return };
        if !program.asks_for_warm() {
            self.clear(WarmUse::Gone, None);
        } else if !program.fits(&process.program) {
            self.clear(WarmUse::Unfit, None);
        }
    }

    /// Hands a job over that is complete, if there is something to hand it to.
    pub(crate) fn offer(&mut self, program: &Program, cgroup: &Cgroup, now: Instant) -> sys::Result<Offer> {
        self.consider(program);
        match std::mem::replace(self, Self::Never) {
            Self::Never => Ok(Offer::Cold(WarmUse::Gone)),
            Self::Gone(why) => Ok(Offer::Cold(why)),
            Self::Ready(process) => {
                let handed = HandedOver {
                    bytes: program.hand_over(),
                    written: 0,
                    before: Before::now(cgroup)?,
                };
                let until = now + HAND_OVER_LIMIT;
                *self = Self::Asked {
                    process,
                    handed,
                    until,
                };
                Ok(Offer::Wait)
            }
            waits => {
                *self = waits;
                Ok(Offer::Wait)
            }
        }
    }

    /// Moves it on by what is ready and by what time it is.
    pub(crate) fn turn(&mut self, ready: Ready, cgroup: &Cgroup, now: Instant) -> sys::Result<Option<News>> {
        // What it said before its end goes before the end.
        if ready.answers {
            if let Some(news) = self.hear(now)? {
                return Ok(Some(news));
            }
        } else {
            self.look_at_time(now);
        }
        if ready.child {
            self.reap()?;
        }
        if ready.orders {
            self.write()?;
        }
        if let Self::Clearing(clearing) = self
            && clearing.is_done()?
        {
            let why = clearing.why;
            let failure = clearing
                .failure
                .take()
                .map(|reason| clearing.told(reason, cgroup));
            *self = Self::Gone(why);
            return Ok(Some(failure.map_or(News::Cold(why), News::Failed)));
        }
        Ok(None)
    }

    /// Notes whether the process has ended. What it started and left is waited for too.
    fn reap(&mut self) -> sys::Result<()> {
        let (Self::Booting { process, .. } | Self::Ready(process) | Self::Asked { process, .. }) = self
        else {
            return Ok(());
        };
        while let Reaped::Process { pid, how, .. } = sys::reap_any()? {
            if pid == process.waiting.spawned.pid {
                process.how = Some(how);
            }
        }
        if process.how.is_some() {
            self.ended("it ended before it was ready");
        }
        Ok(())
    }

    /// Takes what it says.
    fn hear(&mut self, now: Instant) -> sys::Result<Option<News>> {
        let (Self::Booting { process, .. } | Self::Ready(process) | Self::Asked { process, .. }) = self
        else {
            return Ok(None);
        };
        let mut said = [0; 2048];
        let said = match sys::read(process.waiting.answers.as_fd(), &mut said) {
            Ok(got) => &said[..got],
            Err(Errno(libc::EAGAIN | libc::EINTR)) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        match (&*self, said) {
            (_, []) => self.ended("it ended before it was ready"),
            (Self::Booting { process, .. }, [READY]) if process.has_written()? => {
                self.clear(
                    WarmUse::Gone,
                    Some("it wrote something before it was ready".to_owned()),
                );
            }
            (Self::Booting { process, .. }, [READY]) => {
                let took = now.saturating_duration_since(process.begun);
                if let Self::Booting { process, .. } = std::mem::replace(self, Self::Never) {
                    *self = Self::Ready(process);
                }
                return Ok(Some(News::Waits(took)));
            }
            (Self::Booting { .. }, [FAILED, why @ ..]) => {
                let why = String::from_utf8_lossy(why).into_owned();
                self.clear(WarmUse::Gone, Some(why));
            }
            (Self::Asked { process, handed, .. }, [TAKEN]) if handed.written == handed.bytes.len() => {
                if process.has_written()? {
                    self.clear(WarmUse::Wrote, None);
                } else {
                    return self.go();
                }
            }
            (Self::Booting { .. }, _) => {
                self.clear(
                    WarmUse::Gone,
                    Some("it said something else than that it is ready".to_owned()),
                );
            }
            _ => self.clear(WarmUse::Declined, None),
        }
        Ok(None)
    }

    /// Gives the word that starts the job.
    fn go(&mut self) -> sys::Result<Option<News>> {
        let Self::Asked { process, handed, .. } = std::mem::replace(self, Self::Never) else {
            return Ok(None);
        };
        let used = sys::process_usage(process.waiting.spawned.pid);
        match sys::write(process.waiting.orders.as_fd(), &[GO]) {
            Ok(_) => {
                *self = Self::Gone(WarmUse::Used);
                Ok(Some(News::Taken(
                    process.waiting.spawned,
                    handed.before.and(&used),
                )))
            }
            Err(Errno(libc::EPIPE)) => {
                *self = Self::Ready(process);
                self.clear(WarmUse::Gone, None);
                Ok(None)
            }
            Err(errno) => Err(errno),
        }
    }

    fn write(&mut self) -> sys::Result<()> {
        let Self::Asked { process, handed, .. } = self else {
            return Ok(());
        };
        match sys::write(process.waiting.orders.as_fd(), &handed.bytes[handed.written..]) {
            Ok(bytes) => handed.written += bytes,
            Err(Errno(libc::EAGAIN | libc::EINTR)) => {}
            Err(Errno(libc::EPIPE)) => self.clear(WarmUse::Gone, None),
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    fn look_at_time(&mut self, now: Instant) {
        match self {
            Self::Booting { process, until } if now >= *until => {
                let took = now.saturating_duration_since(process.begun);
                let why = format!("it was not ready after {} ms", took.as_millis());
                self.clear(WarmUse::Gone, Some(why));
            }
            Self::Asked { until, .. } if now >= *until => self.clear(WarmUse::Silent, None),
            _ => {}
        }
    }

    /// For a process that is gone or going.
    fn ended(&mut self, why: &str) {
        let failure = match self {
            Self::Booting { process, .. } => Some(process.exec_failure().unwrap_or_else(|| why.to_owned())),
            _ => None,
        };
        self.clear(WarmUse::Gone, failure);
    }

    /// Kills it, and whatever else there is: nothing but it can have started anything.
    fn clear(&mut self, why: WarmUse, failure: Option<String>) {
        let gone = Self::Gone(why);
        match std::mem::replace(self, gone) {
            Self::Booting { process, .. } | Self::Ready(process) | Self::Asked { process, .. } => {
                sys::kill_everything();
                *self = Self::Clearing(Clearing {
                    pid: process.waiting.spawned.pid,
                    how: process.how,
                    why,
                    failure,
                    oom_kills_before: process.oom_kills_before,
                });
            }
            other => *self = other,
        }
    }
}

/// Longer than any sandbox lives.
const FOREVER: Duration = Duration::from_secs(1 << 30);

impl Process {
    /// Whether a byte is in one of the pipes that would be the job's output.
    fn has_written(&self) -> sys::Result<bool> {
        let Spawned { stdout, stderr, .. } = &self.waiting.spawned;
        Ok(sys::bytes_waiting(stdout.as_fd())? > 0 || sys::bytes_waiting(stderr.as_fd())? > 0)
    }

    /// Why its program was never started, if it was not.
    fn exec_failure(&self) -> Option<String> {
        let mut told = vec![0; 4096];
        let got = sys::read(self.waiting.spawned.exec.as_fd(), &mut told).ok()?;
        let refused = spawn::judge_exec(&told[..got]).err()?;
        let errno = refused
            .errno
            .map_or_else(String::new, |errno| format!(": {}", Errno(errno)));
        Some(format!("{} could not be started{errno}", refused.detail))
    }
}

impl Clearing {
    /// Kills again what is left, and says whether nothing is.
    fn is_done(&mut self) -> sys::Result<bool> {
        sys::kill_everything();
        loop {
            match sys::reap_any()? {
                Reaped::NoChild => return Ok(true),
                Reaped::NoneEnded => return Ok(false),
                Reaped::Process { pid, how, .. } if pid == self.pid => self.how = Some(how),
                Reaped::Process { .. } => {}
            }
        }
    }

    /// A failure with what else is known of the end.
    fn told(&self, mut reason: String, cgroup: &Cgroup) -> WarmFailed {
        match self.how {
            Some(Ended::Code(code)) => reason += &format!("; it ended with code {code}"),
            Some(Ended::Signal(signal)) => reason += &format!("; it ended by signal {signal}"),
            None => {}
        }
        let kills = cgroup.counts().oom_kills.zip(self.oom_kills_before);
        let out_of_memory = kills.is_some_and(|(now, before)| now > before);
        if out_of_memory {
            reason += "; it needed more memory than the sandbox has";
        }
        WarmFailed::new(reason, out_of_memory)
    }
}
