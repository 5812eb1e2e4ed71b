//! The system calls that std doesn't offer, each behind a safe function. The only unsafe code of the
//! workspace.
//!
//! One rule holds everything up: the guest has a single thread, from start to end, so that `fork`
//! leaves no lock behind and ids change for the whole process.

mod creds;
mod folder;
mod io;
mod probe;
mod process;

pub(crate) use creds::{
    Caps, caps, clear_groups, drop_ambient, drop_bounding, dumpable, ids, keep_caps, set_caps, set_dumpable,
    set_fs_ids, set_ids, set_no_new_privs,
};
pub(crate) use folder::{EntryKind, list, look_at, open_file, open_folder};
pub(crate) use io::{
    PollFd, bytes_waiting, close_all_from, copy_above, inherit_as, make_dir, open_beneath, open_dir, pipe,
    poll, read, set_nonblocking, statvfs, uname, write,
};
pub(crate) use probe::{marker, probe};
pub(crate) use process::{
    Forked, Reaped, block_all_signals, children_usage, default_signals, exec, exit_now, fork,
    kill_everything, process_usage, reap, reap_any, rlimit, set_rlimit, set_umask, setsid, sigchld_fd,
};

/// A failed call's `errno`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    /// The `errno` of the call that has just failed.
    fn last() -> Self {
        Self::from(std::io::Error::last_os_error())
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// Turns the C convention of "-1 and errno" into a result.
fn check(returned: libc::c_int) -> Result<libc::c_int> {
    if returned < 0 {
        Err(Errno::last())
    } else {
        Ok(returned)
    }
}

fn check_long(returned: libc::c_long) -> Result<libc::c_long> {
    if returned < 0 {
        Err(Errno::last())
    } else {
        Ok(returned)
    }
}
