//! Which processes that run roles on a database are alive. Each holds a lock on a file beside it, from before its first
//! row to its end, and the kernel gives the lock back however the process ends. So whoever gets the lock of another has
//! the proof that it is dead, and is the only one who has it; one that is merely stopped (SIGSTOP) keeps its lock.

pub(crate) mod reconcile;

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use mayfly_core::id::ExecutorId;

/// A file may be removed by its holder between our look and our lock; then we look again.
const TRIES: u32 = 8;

/// The files of all processes on one database.
#[derive(Debug, Clone)]
pub(crate) struct Processes {
    folder: PathBuf,
}

/// The lock of one process, held until this is dropped.
#[derive(Debug)]
pub(crate) struct ProcessLock {
    path: PathBuf,
    _file: File,
}

/// What became of an attempt to take the lock of another process.
#[derive(Debug)]
pub(crate) enum Taken {
    /// It lives, or somebody else has proven its death and is seeing to it.
    Held,
    /// It is dead. Nobody else learns that while the lock is held.
    Free {
        lock: ProcessLock,
        /// Where its containers are, as it wrote down itself. None where it has left no file, as after somebody removed
        /// it: that alone proves no death.
        containers_at: Option<String>,
    },
}

impl Processes {
    pub(crate) const fn in_folder(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Takes the lock of this process, under an id that nobody has used before.
    pub(crate) fn begin(&self, executor: ExecutorId, containers_at: &str) -> io::Result<ProcessLock> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)?;
        let path = self.path(executor);
        // Nobody may see the file before it is locked: they would take us for dead.
        let hidden = path.with_extension("new");
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&hidden)?;
        file.lock()?;
        writeln!(file, "{}\n{containers_at}", std::process::id())?;
        fs::rename(&hidden, &path)?;
        Ok(ProcessLock { path, _file: file })
    }

    /// Tries to take the lock of another process.
    pub(crate) fn take(&self, executor: ExecutorId) -> io::Result<Taken> {
        let path = self.path(executor);
        for _ in 0..TRIES {
            let Some((mut file, was_there)) = open(&path)? else {
                continue;
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(Taken::Held),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // Whoever held it may have removed it before we locked it: then it is nobody's file any more, and somebody
            // else may hold another one of that name.
            if !is_there(&file, &path)? {
                continue;
            }
            let containers_at = if was_there { written(&mut file)? } else { None };
            return Ok(Taken::Free {
                lock: ProcessLock { path, _file: file },
                containers_at,
            });
        }
        // Others come and go: one of them sees to it.
        Ok(Taken::Held)
    }

    /// All processes that have a file, alive or not.
    pub(crate) fn all(&self) -> io::Result<Vec<ExecutorId>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(".lock"));
            all.extend(id.and_then(|id| id.parse::<ExecutorId>().ok()));
        }
        Ok(all)
    }

    fn path(&self, executor: ExecutorId) -> PathBuf {
        self.folder.join(format!("{executor}.lock"))
    }
}

impl ProcessLock {
    /// Removes the file, while it is held: nothing of the process is left that anybody would have to see to.
    pub(crate) fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

/// The file of a process, made where it is not there, and whether it was. None where somebody made it in between.
fn open(path: &Path) -> io::Result<Option<(File, bool)>> {
    match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        file => return Ok(Some((file?, true))),
    }
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        file => Ok(Some((file?, false))),
    }
}

fn is_there(file: &File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (held.dev(), held.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// What a process has written of itself. A file without it was made in place of one that was missing.
fn written(file: &mut File) -> io::Result<Option<String>> {
    let mut text = String::new();
    file.take(64 * 1024).read_to_string(&mut text)?;
    let containers_at = text.strip_suffix('\n').and_then(|text| text.split_once('\n'));
    Ok(containers_at.map(|(_, containers_at)| containers_at.to_owned()))
}

#[cfg(test)]
mod tests;
