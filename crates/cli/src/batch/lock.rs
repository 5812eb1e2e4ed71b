//! Which process runs a batch: whoever holds a lock on its file, which the kernel gives back however that process ends.

use std::{
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use mayfly_core::id::BatchId;

use crate::{exit, failure::Failure};

/// A look of another process at the lock takes it for a moment; so often, and so far apart, it is tried again.
const TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// The right to run a batch.
#[derive(Debug)]
pub(crate) struct BatchLock {
    path: PathBuf,
    /// Held until it is dropped.
    _file: File,
}

/// Who runs a batch, as far as can be told from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runner {
    Nobody,
    Somebody,
}

/// Takes the lock of a batch, or says who has it.
pub(crate) async fn take(database: &Path, batch: BatchId) -> Result<BatchLock, Failure> {
    let path = path(database, batch);
    let failed = |error: io::Error| {
        let error = anyhow::Error::new(error).context(format!("{} can't be locked", path.display()));
        Failure::new(exit::INTERNAL, error)
    };
    for _ in 0..TRIES {
        if let Some(lock) = try_take(&path).map_err(failed)? {
            return Ok(lock);
        }
        tokio::time::sleep(BETWEEN_TRIES).await;
    }
    let holder = std::fs::read_to_string(&path).unwrap_or_default();
    let holder = match holder.trim().parse::<u32>() {
        Ok(id) => format!("process {id}"),
        Err(_) => "another process".to_owned(),
    };
    Err(Failure::new(
        exit::IN_USE,
        anyhow::anyhow!(
            "{holder} runs batch {batch}; `mayfly batch show {batch}` shows where it stands, and it can be resumed once \
             that process has ended"
        ),
    ))
}

/// Whether a living process runs the batch.
pub(crate) fn runner(database: &Path, batch: BatchId) -> io::Result<Runner> {
    let file = match File::open(path(database, batch)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Runner::Nobody),
        Err(error) => return Err(error),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(Runner::Nobody),
        Err(TryLockError::WouldBlock) => Ok(Runner::Somebody),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Beside the database, since a batch is of one database.
fn path(database: &Path, batch: BatchId) -> PathBuf {
    crate::context::beside(database, "batches").join(format!("{batch}.lock"))
}

fn try_take(path: &Path) -> io::Result<Option<BatchLock>> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    claim(file, path)
}

/// Locks a file that was opened by this path.
fn claim(mut file: File, path: &Path) -> io::Result<Option<BatchLock>> {
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // A holder removes its file at its end: what was opened before that and locked after it is nobody's file any more.
    let ours = file.metadata()?;
    let is_there =
        std::fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino()));
    if !is_there {
        return Ok(None);
    }
    file.set_len(0)?;
    writeln!(file, "{}", std::process::id())?;
    Ok(Some(BatchLock {
        path: path.to_owned(),
        _file: file,
    }))
}

impl Drop for BatchLock {
    fn drop(&mut self) {
        // Removed while it is held. A file that stays is locked by nobody, and the next holder takes it.
        std::fs::remove_file(&self.path).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_batch_has_one_runner_and_what_it_leaves_is_free_again() {
        let folder = tempfile::tempdir().unwrap();
        let (database, batch) = (folder.path().join("jobs.db"), BatchId::new());
        assert_eq!(runner(&database, batch).unwrap(), Runner::Nobody);
        let lock = take(&database, batch).await.unwrap();
        assert_eq!(runner(&database, batch).unwrap(), Runner::Somebody);
        assert!(take(&database, batch).await.is_err());
        let other = take(&database, BatchId::new()).await;
        assert!(other.is_ok(), "another batch is another lock");
        drop(lock);
        assert_eq!(runner(&database, batch).unwrap(), Runner::Nobody);
        assert!(take(&database, batch).await.is_ok());
    }

    #[test]
    fn a_file_that_its_holder_has_removed_is_not_taken_for_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.lock");
        let held = try_take(&path).unwrap().unwrap();
        let opened = OpenOptions::new().write(true).open(&path).unwrap();
        drop(held);
        assert!(
            claim(opened, &path).unwrap().is_none(),
            "it is nobody's file any more"
        );
        assert!(try_take(&path).unwrap().is_some());
    }
}
