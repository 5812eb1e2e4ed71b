//! The guest: pid 1 of a sandbox, which waits for one job on its stdin, runs it as another user,
//! and tells how it ended.
//!
//! It is a static binary and speaks the frames of `mayfly-protocol` over stdin and stdout. The
//! container starts it as root with the capabilities SETUID, SETGID, KILL and SETPCAP and nothing
//! more; [`identity`] says what becomes of them. Start reading at [`mod@serve`], then [`mod@run`].
//!
//! Exit codes are those of [`GuestExit`]; the job's own exit code travels in a frame. A reason for
//! every code but 0 goes to stderr, which the job doesn't have.
//!
//! Decided here:
//! - One thread and no further process of its own once a job runs, so that a job which uses up all
//!   processes can't disable it. Its buffers are touched before, for the same reason with memory.
//! - A process that waits for its job ([`mod@warm`]) is the job's from the guest's word on, and not before.
//! - Ending a job is ending *every* process but itself, until the kernel says that there is none.
//!   What the job's pipes still hold then is all its output.

mod args;
mod cgroup;
mod collect;
mod files;
mod identity;
mod mounts;
mod queue;
mod report;
mod run;
mod serve;
mod spawn;
mod streams;
#[expect(
    unsafe_code,
    reason = "system calls that std doesn't offer, each behind a safe function"
)]
mod sys;
mod tunnel;
mod warm;

use std::os::fd::AsFd;
use std::process::ExitCode;

use mayfly_protocol::GuestExit;

use crate::args::Args;
use crate::serve::{Guest, Link};

fn main() -> ExitCode {
    let exit = match args::parse(std::env::args_os().skip(1)) {
        Ok(args) => serve(args),
        Err(wrong) => {
            complain(&wrong);
            GuestExit::Usage
        }
    };
    ExitCode::from(exit.code())
}

fn serve(args: Args) -> GuestExit {
    if std::process::id() != 1 {
        complain("not pid 1: ending a job would end processes that are not the job's");
        return GuestExit::SetUpFailed;
    }
    let (stdin, stdout) = (std::io::stdin(), std::io::stdout());
    let link = Link {
        from_executor: stdin.as_fd(),
        to_executor: stdout.as_fd(),
    };
    let set_up = || {
        sys::set_umask(0);
        sys::set_nonblocking(link.from_executor)?;
        sys::set_nonblocking(link.to_executor)?;
        sys::block_all_signals()?;
        let signals = sys::sigchld_fd()?;
        identity::become_guest(args.guest_id)?;
        let (report, cgroup) = report::collect(&args)?;
        Ok((signals, report, cgroup))
    };
    let set_up: sys::Result<_> = set_up();
    match set_up {
        Ok((signals, report, cgroup)) => Guest::new(args, link, cgroup, signals).serve(report),
        Err(errno) => {
            complain(&format!("could not become a guest: {errno}"));
            GuestExit::SetUpFailed
        }
    }
}

/// Says something on stderr, if that takes it without waiting.
fn complain(text: &str) {
    let stderr = std::io::stderr();
    let mut ready = [sys::PollFd::writable(Some(stderr.as_fd()))];
    if sys::poll(&mut ready, 0).is_ok() && ready[0].is_ready() {
        // Nobody may be reading, and the exit code says the same.
        let text = format!("mayfly-guest: {text}\n");
        let _: sys::Result<usize> = sys::write(stderr.as_fd(), text.as_bytes());
    }
}
