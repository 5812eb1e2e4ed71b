//! One job, from fork to the last byte of its output.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use mayfly_protocol::{CgroupCounts, Ended, Exit, Refused, Stage, Usage, WarmUse};

use crate::args::Args;
use crate::cgroup::{self, Cgroup};
use crate::spawn::{self, Program, Spawned};
use crate::streams::{Outlet, Stdin};
use crate::sys::{self, Errno, Reaped};

/// How often everything left is killed again, until nothing is left.
pub(crate) const KILL_AGAIN: Duration = Duration::from_millis(20);

/// A job that has been forked.
pub(crate) struct Run {
    /// How it came to its process.
    pub(crate) warm: WarmUse,
    main_pid: i32,
    begun: Instant,
    deadline: Option<Instant>,
    usage_before: Usage,
    /// Largest resident set of those that have ended.
    maxrss_bytes: u64,
    counts_before: CgroupCounts,
    /// Until the child has reached its `execve`, or failed to.
    exec: Option<ExecWatch>,
    pub(crate) stdin: Stdin,
    main_ended: Option<MainEnd>,
    deadline_fired: bool,
    killed_by_request: bool,
    killing: bool,
    left_processes: u32,
    all_gone: bool,
}

/// What was counted before a job began.
pub(crate) struct Before {
    at: Instant,
    usage: Usage,
    counts: CgroupCounts,
}

impl Before {
    /// A job that begins now.
    pub(crate) fn now(cgroup: &Cgroup) -> sys::Result<Self> {
        Ok(Self {
            at: Instant::now(),
            usage: sys::children_usage()?,
            counts: cgroup.counts(),
        })
    }

    /// The same where a process that has used this much already becomes the job's.
    pub(crate) fn and(mut self, used: &Usage) -> Self {
        let usage = &mut self.usage;
        usage.utime_us += used.utime_us;
        usage.stime_us += used.stime_us;
        usage.minflt += used.minflt;
        usage.majflt += used.majflt;
        self
    }
}

struct ExecWatch {
    pipe: OwnedFd,
    told: Vec<u8>,
}

#[derive(Clone, Copy)]
struct MainEnd {
    how: Ended,
    wall_us: u64,
}

impl Run {
    /// Forks the job; its outlets are opened.
    pub(crate) fn begin(
        program: &Program,
        args: &Args,
        cgroup: &Cgroup,
        outlets: [&mut Outlet; 2],
    ) -> Result<Self, Refused> {
        let failed = |errno: Errno| Refused::new(Stage::Resources, Some(errno.0), "getrusage");
        let before = Before::now(cgroup).map_err(failed)?;
        let spawned = program.spawn(args)?;
        Ok(Self::of(program, spawned, before, outlets))
    }

    /// Takes over a process that waited and has taken the job; its outlets are opened. What it used before is not the
    /// job's.
    pub(crate) fn adopt(
        program: &Program,
        spawned: Spawned,
        before: Before,
        outlets: [&mut Outlet; 2],
    ) -> Self {
        let mut run = Self::of(program, spawned, before, outlets);
        run.warm = WarmUse::Used;
        run.exec = None;
        run
    }

    fn of(program: &Program, spawned: Spawned, before: Before, [stdout, stderr]: [&mut Outlet; 2]) -> Self {
        stdout.open(spawned.stdout);
        stderr.open(spawned.stderr);
        Self {
            warm: WarmUse::NotAsked,
            main_pid: spawned.pid,
            begun: before.at,
            deadline: before.at.checked_add(program.deadline()),
            usage_before: before.usage,
            maxrss_bytes: 0,
            counts_before: before.counts,
            exec: Some(ExecWatch {
                pipe: spawned.exec,
                told: Vec::new(),
            }),
            stdin: Stdin::new(spawned.stdin, !program.takes_stdin()),
            main_ended: None,
            deadline_fired: false,
            killed_by_request: false,
            killing: false,
            left_processes: 0,
            all_gone: false,
        }
    }

    /// The pipe that tells of the `execve`, until it has told.
    pub(crate) fn exec_pipe(&self) -> Option<BorrowedFd<'_>> {
        self.exec.as_ref().map(|watch| watch.pipe.as_fd())
    }

    /// Whether the job's program has been started.
    pub(crate) fn is_started(&self) -> bool {
        self.exec.is_none()
    }

    /// Reads what the child tells of its `execve`. `Some` once, when that is decided.
    pub(crate) fn watch_exec(&mut self) -> sys::Result<Option<Result<(), Refused>>> {
        let Some(watch) = &mut self.exec else {
            return Ok(None);
        };
        let mut buffer = [0; 4096];
        loop {
            match sys::read(watch.pipe.as_fd(), &mut buffer) {
                Ok(0) => break,
                Ok(got) => watch.told.extend_from_slice(&buffer[..got]),
                Err(Errno(libc::EINTR)) => {}
                Err(Errno(libc::EAGAIN)) => return Ok(None),
                Err(errno) => return Err(errno),
            }
        }
        let judged = spawn::judge_exec(&watch.told);
        self.exec = None;
        Ok(Some(judged.map_err(|refused| {
            if self.killed_by_request || self.deadline_fired {
                Refused::new(Stage::Canceled, None, "")
            } else {
                refused
            }
        })))
    }

    /// Ends the job because the executor says so.
    pub(crate) fn kill(&mut self) -> sys::Result<()> {
        // An end that is there already is the job's own.
        self.reap()?;
        if self.main_ended.is_none() {
            self.killed_by_request = true;
            self.kill_all();
        }
        Ok(())
    }

    /// Ends the job if its time is over, and again whatever survived.
    pub(crate) fn check_time(&mut self, now: Instant) -> sys::Result<()> {
        if self.main_ended.is_none() && self.deadline.is_some_and(|deadline| now >= deadline) {
            self.reap()?;
            self.deadline_fired |= self.main_ended.is_none();
            self.deadline = None;
            self.kill_all();
        } else if self.killing && !self.all_gone {
            self.kill_all();
            self.reap()?;
        }
        Ok(())
    }

    /// When [`Self::check_time`] has something to do next.
    pub(crate) fn next_timer(&self, now: Instant) -> Option<Instant> {
        if self.killing && !self.all_gone {
            return now.checked_add(KILL_AGAIN);
        }
        self.deadline.filter(|_| self.main_ended.is_none())
    }

    /// Waits for every process that has ended. The first end of the main process ends all others.
    pub(crate) fn reap(&mut self) -> sys::Result<()> {
        loop {
            match sys::reap_any()? {
                Reaped::NoneEnded => return Ok(()),
                Reaped::NoChild => {
                    self.all_gone = true;
                    return Ok(());
                }
                Reaped::Process {
                    pid,
                    how,
                    maxrss_bytes,
                } => {
                    self.maxrss_bytes = self.maxrss_bytes.max(maxrss_bytes);
                    if pid == self.main_pid && self.main_ended.is_none() {
                        let wall = self.begun.elapsed().as_micros();
                        let wall_us = u64::try_from(wall).unwrap_or(u64::MAX);
                        self.main_ended = Some(MainEnd { how, wall_us });
                        self.kill_all();
                    } else if self.killing {
                        self.left_processes += 1;
                    }
                }
            }
        }
    }

    /// Whether no process of the job is left.
    pub(crate) fn all_gone(&self) -> bool {
        self.all_gone
    }

    fn kill_all(&mut self) {
        self.killing = true;
        sys::kill_everything();
    }

    /// The word on the end. `None` while the job isn't over.
    pub(crate) fn exit(&self, cgroup: &Cgroup, [stdout, stderr]: [&Outlet; 2]) -> sys::Result<Option<Exit>> {
        let Some(main) = self.main_ended.filter(|_| self.all_gone) else {
            return Ok(None);
        };
        if stdout.is_open() || stderr.is_open() {
            return Ok(None);
        }
        Ok(Some(Exit {
            how: main.how,
            deadline_fired: self.deadline_fired,
            killed_by_request: self.killed_by_request,
            wall_us: main.wall_us,
            usage: Usage {
                maxrss_bytes: self.maxrss_bytes,
                ..used_since(&self.usage_before, &sys::children_usage()?)
            },
            left_processes: self.left_processes,
            stdout_bytes: stdout.sent_bytes,
            stderr_bytes: stderr.sent_bytes,
            cgroup: cgroup::since(&self.counts_before, &cgroup.counts()),
            oom_kills_before: self.counts_before.oom_kills,
        }))
    }
}

/// What was used between two readings; the largest resident set is the later one's, of all that ever ended.
fn used_since(before: &Usage, after: &Usage) -> Usage {
    Usage {
        utime_us: after.utime_us.saturating_sub(before.utime_us),
        stime_us: after.stime_us.saturating_sub(before.stime_us),
        maxrss_bytes: after.maxrss_bytes,
        minflt: after.minflt.saturating_sub(before.minflt),
        majflt: after.majflt.saturating_sub(before.majflt),
        inblock: after.inblock.saturating_sub(before.inblock),
        oublock: after.oublock.saturating_sub(before.oublock),
    }
}
