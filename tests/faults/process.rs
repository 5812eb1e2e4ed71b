//! A process of the test's own that may be killed, stopped and let go on, and what the kernel says of it.

use std::{
    fs,
    process::{Child, ExitStatus},
    time::{Duration, Instant},
};

pub(crate) use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

/// A child that does not outlive this value.
pub(crate) struct Process {
    child: Child,
}

impl Process {
    pub(crate) const fn new(child: Child) -> Self {
        Self { child }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(self.child.id(), signal);
    }

    /// Its end, within a bound.
    pub(crate) fn ended(&mut self, limit: Duration) -> ExitStatus {
        let until = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("the child is ours") {
                return status;
            }
            assert!(
                Instant::now() < until,
                "the process has not ended within {limit:?}"
            );
            pause();
        }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("the child is ours").is_some()
    }

    /// Open file descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).map_or(0, Iterator::count)
    }

    pub(crate) fn threads(&self) -> usize {
        fs::read_dir(format!("/proc/{}/task", self.child.id())).map_or(0, Iterator::count)
    }

    /// The most memory that it has had in use, in bytes, and what it has of its own at this moment, without pages of
    /// files such as its program; `None` once it has ended.
    pub(crate) fn memory(&self) -> Option<(u64, u64)> {
        Some((self.status_bytes("VmHWM:")?, self.status_bytes("RssAnon:")?))
    }

    fn status_bytes(&self, field: &str) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that was stopped is killed all the same; one that has ended is left alone.
        if matches!(self.child.try_wait(), Ok(None)) {
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

/// Sends a signal to a process that the test has started.
pub(crate) fn send(id: u32, signal: Signal) {
    let id = i32::try_from(id)
        .ok()
        .and_then(Pid::from_raw)
        .expect("an id of a process");
    kill_process(id, signal).expect("the process is ours");
}

/// Between two looks at a state that is awaited.
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

/// Looks until it is so, for as long as the bound.
pub(crate) fn await_until(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + limit;
    while !is_so() {
        assert!(Instant::now() < until, "{what}: not within {limit:?}");
        pause();
    }
}
