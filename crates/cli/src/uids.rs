//! Which uids the sandboxes of this process have. Two sandboxes on one host must never share one: with a uid in common
//! a job could use up its neighbour's processes, pipes and timers. So each process holds a range, by a lock on a file
//! that all users of the host see, for as long as it lives; the kernel gives it back however the process ends.

use std::{
    fs::{File, OpenOptions, TryLockError},
    path::{Path, PathBuf},
};

use crate::{exit, failure::Failure};

/// Uids of one process: twice the number of sandboxes that may live at once.
pub(crate) const COUNT: u32 = 2 * mayfly_settings::SANDBOXES;

/// The end of the uids that a host's own tools leave alone (systemd, "Users, Groups, UIDs and GIDs on systemd systems").
pub(crate) const END: u32 = 60_000;

/// A range of uids that is this process's.
#[derive(Debug)]
pub(crate) struct UidLock {
    first: u32,
    /// Held until it is dropped.
    _lock: File,
}

impl UidLock {
    pub(crate) const fn first(&self) -> u32 {
        self.first
    }
}

/// Takes the first range that nobody holds.
pub(crate) fn take(first_uid: u32) -> Result<UidLock, Failure> {
    take_in(&folder(), first_uid)
}

/// `/run/lock` where the host has one (FHS 3.0, section 5.9), writable by all and empty after a reboot.
pub(crate) fn folder() -> PathBuf {
    let host_wide = PathBuf::from("/run/lock");
    if host_wide.is_dir() {
        host_wide
    } else {
        std::env::temp_dir()
    }
}

fn take_in(folder: &Path, first_uid: u32) -> Result<UidLock, Failure> {
    let ranges = (first_uid..END)
        .step_by(COUNT as usize)
        .filter(|first| first + COUNT <= END);
    let mut refused = None;
    for first in ranges {
        let path = folder.join(format!("mayfly-uids-{first}.lock"));
        let file = match OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
        {
            Ok(file) => file,
            // Another user's file: that user holds the range, or did.
            Err(error) => {
                refused = Some((path, error));
                continue;
            }
        };
        match file.try_lock() {
            Ok(()) => return Ok(UidLock { first, _lock: file }),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => refused = Some((path, error)),
        }
    }
    let error = match refused {
        Some((path, error)) => {
            anyhow::Error::new(error).context(format!("{} can't be locked", path.display()))
        }
        None => anyhow::anyhow!("all uids from {first_uid} to {END} are in use by other mayfly processes"),
    };
    Err(Failure::new(
        exit::INTERNAL,
        error.context("no uids for sandboxes (setting `sandbox.first_uid`)"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_holders_never_have_a_uid_in_common_and_what_is_dropped_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let one = take_in(folder.path(), 20_000).unwrap();
        let two = take_in(folder.path(), 20_000).unwrap();
        assert_eq!((one.first(), two.first()), (20_000, 20_064));
        drop(one);
        assert_eq!(take_in(folder.path(), 20_000).unwrap().first(), 20_000);
    }

    #[test]
    fn when_all_are_taken_it_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let _held = take_in(folder.path(), END - COUNT).unwrap();
        assert!(take_in(folder.path(), END - COUNT).is_err());
        assert!(
            take_in(folder.path(), END - COUNT + 1).is_err(),
            "a range that is cut is no range"
        );
    }
}
