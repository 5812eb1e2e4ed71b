//! Folders and files below a directory, looked at without following a link.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};

use super::io::{copy_above, openat};
use super::{Errno, Result, check};

/// What a name of a folder stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    File,
    Folder,
    Link,
    Pipe,
    Socket,
    Device,
}

/// Opens a directory to be listed, below `parent` or by its path, without following a link at the end.
pub(crate) fn open_folder(parent: Option<BorrowedFd<'_>>, name: &CStr) -> Result<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    openat(parent, name, flags, 0)
}

/// Opens a file in `parent` for reading; never through a link, and never waiting for anybody.
pub(crate) fn open_file(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    openat(Some(parent), name, flags, 0)
}

/// What a name in `parent` is, and how many bytes it has, as `lstat(2)` says.
pub(crate) fn look_at(parent: BorrowedFd<'_>, name: &CStr) -> Result<(EntryKind, u64)> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the name ends with a NUL and outlives the call; the structure is filled when the answer is 0.
    check(unsafe { libc::fstatat(parent.as_raw_fd(), name.as_ptr(), stat.as_mut_ptr(), flags) })?;
    // SAFETY: it answered 0.
    let stat = unsafe { stat.assume_init() };
    let kind = match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => EntryKind::File,
        libc::S_IFDIR => EntryKind::Folder,
        libc::S_IFLNK => EntryKind::Link,
        libc::S_IFIFO => EntryKind::Pipe,
        libc::S_IFSOCK => EntryKind::Socket,
        _ => EntryKind::Device,
    };
    Ok((kind, u64::try_from(stat.st_size).unwrap_or(0)))
}

/// The names in a folder but `.` and `..`, at most so many, and whether these are all.
pub(crate) fn list(folder: BorrowedFd<'_>, most: usize) -> Result<(Vec<CString>, bool)> {
    let copy = copy_above(folder, 0)?.into_raw_fd();
    // SAFETY: the descriptor is a directory's, just made, and the stream's from here on when it isn't null.
    let stream = unsafe { libc::fdopendir(copy) };
    if stream.is_null() {
        let errno = Errno::last();
        // SAFETY: nobody has taken it.
        unsafe { libc::close(copy) };
        return Err(errno);
    }
    let mut names = Vec::new();
    let whole = loop {
        // SAFETY: the stream is open, and this is the only thread; its errno is there for as long as it is.
        let (entry, errno) = unsafe {
            *libc::__errno_location() = 0;
            (libc::readdir(stream), *libc::__errno_location())
        };
        if entry.is_null() {
            // The end, unless it is a failure.
            break errno == 0;
        }
        // SAFETY: the entry is valid until the next call, and its name ends with a NUL.
        let name = unsafe { CStr::from_ptr((&raw const (*entry).d_name).cast()) };
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if names.len() == most {
            break false;
        }
        names.push(name.to_owned());
    };
    // SAFETY: the stream is open and not used again.
    unsafe { libc::closedir(stream) };
    Ok((names, whole))
}
