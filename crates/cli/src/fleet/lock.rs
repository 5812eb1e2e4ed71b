//! That one host has one process of an executor: a second one would sweep the first one's containers away and end its
//! session. The kernel gives the lock back however the process ends.

use std::{
    fs::{File, OpenOptions, TryLockError},
    path::Path,
};

use mayfly_core::id::ExecutorId;

use crate::{exit, failure::Failure, uids};

/// Held until it is dropped.
#[derive(Debug)]
pub(crate) struct HostLock {
    _file: File,
}

pub(crate) fn take(executor: ExecutorId) -> Result<HostLock, Failure> {
    take_in(&uids::folder(), executor)
}

fn take_in(folder: &Path, executor: ExecutorId) -> Result<HostLock, Failure> {
    let path = folder.join(format!("mayfly-executor-{executor}.lock"));
    let failed = |code, error: anyhow::Error| {
        Failure::new(code, error).about(format!("executor {executor} can't begin on this host"))
    };
    let unusable = |error: std::io::Error| {
        let error = anyhow::Error::new(error).context(format!("{} can't be locked", path.display()));
        failed(exit::INTERNAL, error)
    };
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(unusable)?;
    match file.try_lock() {
        Ok(()) => Ok(HostLock { _file: file }),
        Err(TryLockError::WouldBlock) => Err(failed(
            exit::IN_USE,
            anyhow::anyhow!(
                "another process is this executor already: each needs an id of its own (`executor.id`)"
            ),
        )),
        Err(TryLockError::Error(error)) => Err(unusable(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_executor_begins_once_on_a_host_and_another_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let id = ExecutorId::new();
        let held = take_in(folder.path(), id).unwrap();
        let refused = take_in(folder.path(), id).unwrap_err();
        assert!(refused.text().contains("another process"), "{}", refused.text());
        assert!(take_in(folder.path(), ExecutorId::new()).is_ok());
        drop(held);
        assert!(take_in(folder.path(), id).is_ok());
    }
}
