//! Files that leave when the job is over: found, opened and read as the job's user, so that nothing leaves which the job
//! itself could not read, and never through a link.
//!
//! Nothing of the job's runs any more, and its file system is memory: no call here waits for anybody.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mayfly_protocol::{
    ArtifactEnd, ArtifactHeader, CollectOrder, Collected, EncodeError, FileName, FromGuest, LeftOut,
    LeftOutWhy, MAX_DATA, MAX_PATH_BYTES, SendWindow, StreamId,
};

use crate::args::Args;
use crate::identity;
use crate::queue::Queue;
use crate::sys::{self, EntryKind, Errno};

/// How deep folders are looked into: each open one is a descriptor.
const MAX_DEPTH: usize = 64;

/// Entries, or parts of a file, of one turn: the executor is heard in between.
const STEPS: usize = 256;

/// One collection, from the first name to the last byte.
pub(crate) struct Collector {
    order: CollectOrder,
    guest_id: u32,
    job_id: u32,
    /// From the work directory to the one that is being looked at.
    folders: Vec<Folder>,
    open: Option<Open>,
    pub(crate) window: SendWindow,
    entries: u32,
    not_named: u32,
    incomplete: bool,
}

struct Folder {
    fd: OwnedFd,
    /// Below the work directory, with a `/` at the end; empty for the work directory.
    path: Vec<u8>,
    /// In the order of their bytes, the first one last.
    names: Vec<CString>,
}

/// The file that is being sent.
struct Open {
    file: File,
    missing: u64,
}

impl Collector {
    pub(crate) fn new(order: CollectOrder, args: &Args) -> Self {
        let mut collector = Self {
            order,
            guest_id: args.guest_id,
            job_id: args.job_id,
            folders: Vec::new(),
            open: None,
            window: SendWindow::new(StreamId::ARTIFACTS, 0),
            entries: 0,
            not_named: 0,
            incomplete: false,
        };
        match CString::new(args.work.as_str()).map_err(|_| Errno(libc::EINVAL)) {
            Ok(work) => match collector.as_job(|| sys::open_folder(None, &work)) {
                Ok(fd) => collector.enter(fd, Vec::new()),
                Err(_) => collector.incomplete = true,
            },
            Err(_) => collector.incomplete = true,
        }
        collector
    }

    /// Whether a turn would get anywhere.
    pub(crate) fn wants_turn(&self, queue: &Queue) -> bool {
        queue.room() > 0 && (self.open.is_none() || self.window.available() > 0)
    }

    /// Goes on for a while. True when all is said.
    pub(crate) fn turn(&mut self, queue: &mut Queue) -> Result<bool, EncodeError> {
        for _ in 0..STEPS {
            if !self.wants_turn(queue) {
                return Ok(false);
            }
            if self.open.is_some() {
                self.send_part(queue)?;
            } else if !self.look_at_next(queue)? {
                queue.push(&FromGuest::Collected(Collected {
                    entries: self.entries,
                    not_named: self.not_named,
                    incomplete: self.incomplete,
                }))?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn send_part(&mut self, queue: &mut Queue) -> Result<(), EncodeError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let credit = usize::try_from(self.window.available()).unwrap_or(usize::MAX);
        let missing = usize::try_from(open.missing).unwrap_or(usize::MAX);
        let mut data = vec![0; MAX_DATA.min(credit).min(queue.room()).min(missing)];
        let errno = match open.file.read(&mut data) {
            _ if data.is_empty() => None,
            // It has become shorter, which nobody is there to do.
            Ok(0) => Some(libc::EIO),
            Ok(got) => {
                data.truncate(got);
                let bytes = u32::try_from(got).unwrap_or(u32::MAX);
                if self.window.spend(bytes).is_ok() {
                    open.missing -= u64::from(bytes);
                    queue.push(&FromGuest::ArtifactData(data))?;
                }
                if open.missing > 0 {
                    return Ok(());
                }
                None
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => Some(Errno::from(error).0),
        };
        self.open = None;
        queue.push(&FromGuest::ArtifactEnd(ArtifactEnd { errno }))
    }

    /// Looks at one name. False when there is none.
    fn look_at_next(&mut self, queue: &mut Queue) -> Result<bool, EncodeError> {
        let Some(folder) = self.folders.last_mut() else {
            return Ok(false);
        };
        let Some(name) = folder.names.pop() else {
            self.folders.pop();
            return Ok(true);
        };
        if self.entries == self.order.max_entries {
            self.incomplete = true;
            self.folders.clear();
            return Ok(false);
        }
        self.entries += 1;
        let path = [folder.path.as_slice(), name.as_bytes()].concat();
        match self.in_folder(|fd| sys::look_at(fd, &name)) {
            Ok((EntryKind::Folder, _)) => {
                if path.len() >= MAX_PATH_BYTES {
                    return self.leave_out(queue, path, LeftOutWhy::NameTooLong, None, None);
                }
                if self.folders.len() == MAX_DEPTH {
                    return self.leave_out(queue, path, LeftOutWhy::TooDeep, None, None);
                }
                match self.in_folder(|fd| sys::open_folder(Some(fd), &name)) {
                    Ok(fd) => {
                        self.enter(fd, [path.as_slice(), b"/"].concat());
                        Ok(true)
                    }
                    Err(errno) => self.leave_out(queue, path, LeftOutWhy::Unreadable, None, Some(errno)),
                }
            }
            _ if !self.is_wanted(&path) => Ok(true),
            Err(errno) => self.leave_out(queue, path, LeftOutWhy::Unreadable, None, Some(errno)),
            Ok((EntryKind::File, size)) => self.take(queue, path, &name, size),
            Ok((kind, _)) => {
                let why = match kind {
                    EntryKind::Link => LeftOutWhy::Link,
                    EntryKind::Pipe => LeftOutWhy::Pipe,
                    EntryKind::Socket => LeftOutWhy::Socket,
                    EntryKind::Folder | EntryKind::File | EntryKind::Device => LeftOutWhy::Device,
                };
                self.leave_out(queue, path, why, None, None)
            }
        }
    }

    /// Opens a wanted file and announces it, or says why it stays.
    fn take(
        &mut self,
        queue: &mut Queue,
        path: Vec<u8>,
        name: &CString,
        size: u64,
    ) -> Result<bool, EncodeError> {
        let Some(file_name) = FileName::new(path.clone()) else {
            return self.leave_out(queue, path, LeftOutWhy::NameTooLong, Some(size), None);
        };
        let why = if size > self.order.max_file_bytes {
            Some(LeftOutWhy::TooLarge)
        } else if self.order.max_files == 0 {
            Some(LeftOutWhy::TooManyFiles)
        } else if size > self.order.max_bytes {
            Some(LeftOutWhy::TooManyBytes)
        } else {
            None
        };
        if let Some(why) = why {
            return self.leave_out(queue, path, why, Some(size), None);
        }
        match self.in_folder(|fd| sys::open_file(fd, name)) {
            Ok(fd) => {
                self.order.max_files -= 1;
                self.order.max_bytes -= size;
                self.open = Some(Open {
                    file: fd.into(),
                    missing: size,
                });
                queue.push(&FromGuest::Artifact(ArtifactHeader {
                    name: file_name,
                    size,
                }))?;
                Ok(true)
            }
            Err(errno) => self.leave_out(queue, path, LeftOutWhy::Unreadable, Some(size), Some(errno)),
        }
    }

    fn leave_out(
        &mut self,
        queue: &mut Queue,
        mut path: Vec<u8>,
        why: LeftOutWhy,
        size: Option<u64>,
        errno: Option<Errno>,
    ) -> Result<bool, EncodeError> {
        while path.len() > MAX_PATH_BYTES {
            let cut = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            path.truncate(cut);
        }
        match FileName::new(path).filter(|_| self.order.max_named > 0) {
            Some(name) => {
                self.order.max_named -= 1;
                let errno = errno.map(|errno| errno.0);
                queue.push(&FromGuest::LeftOut(LeftOut {
                    name,
                    why,
                    size,
                    errno,
                }))?;
            }
            None => self.not_named = self.not_named.saturating_add(1),
        }
        Ok(true)
    }

    fn is_wanted(&self, path: &[u8]) -> bool {
        let mut globs = self.order.globs.iter();
        globs.any(|glob| fast_glob::glob_match(glob, path))
    }

    /// Lists a folder; what can't be listed, or is more than may be looked at, is left out of the list.
    fn enter(&mut self, fd: OwnedFd, path: Vec<u8>) {
        let most = usize::try_from(self.order.max_entries - self.entries).unwrap_or(usize::MAX);
        match sys::list(fd.as_fd(), most) {
            Ok((mut names, whole)) => {
                self.incomplete |= !whole;
                names.sort_unstable_by(|one, other| other.cmp(one));
                self.folders.push(Folder { fd, path, names });
            }
            Err(_) => self.incomplete = true,
        }
    }

    /// Does something as the job in the folder that is being looked at.
    fn in_folder<T>(&self, work: impl FnOnce(BorrowedFd<'_>) -> sys::Result<T>) -> sys::Result<T> {
        let folder = self.folders.last().ok_or(Errno(libc::ENOENT))?;
        self.as_job(|| work(folder.fd.as_fd()))
    }

    fn as_job<T>(&self, work: impl FnOnce() -> sys::Result<T>) -> sys::Result<T> {
        identity::as_job_files(self.guest_id, self.job_id, work)
    }
}
