//! Descriptors: pipes, polling, opening below a directory, sizes of file systems.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use mayfly_protocol::Resource;

use super::{Errno, Result, check, check_long};

/// A descriptor to wait for, and what it is ready for.
#[repr(transparent)]
pub(crate) struct PollFd<'fd> {
    raw: libc::pollfd,
    fd: std::marker::PhantomData<BorrowedFd<'fd>>,
}

impl<'fd> PollFd<'fd> {
    /// `None` is a place in the list that is never ready.
    pub(crate) fn readable(fd: Option<BorrowedFd<'fd>>) -> Self {
        Self::new(fd, libc::POLLIN)
    }

    /// As [`Self::readable`].
    pub(crate) fn writable(fd: Option<BorrowedFd<'fd>>) -> Self {
        Self::new(fd, libc::POLLOUT)
    }

    fn new(fd: Option<BorrowedFd<'fd>>, events: libc::c_short) -> Self {
        // The kernel passes over negative numbers.
        let fd = fd.map_or(-1, |fd| fd.as_raw_fd());
        Self {
            raw: libc::pollfd {
                fd,
                events,
                revents: 0,
            },
            fd: std::marker::PhantomData,
        }
    }

    /// Whether a call on the descriptor would not block, be it for an end or an error.
    pub(crate) fn is_ready(&self) -> bool {
        self.raw.revents != 0
    }
}

/// Waits until one of `fds` is ready or `timeout_ms` have passed; an interruption counts as that.
pub(crate) fn poll(fds: &mut [PollFd<'_>], timeout_ms: i32) -> Result<()> {
    let count = libc::nfds_t::try_from(fds.len()).map_err(|_| Errno(libc::EINVAL))?;
    // SAFETY: `PollFd` is a transparent wrapper of `pollfd`, and `count` is the slice's length.
    match check(unsafe { libc::poll(fds.as_mut_ptr().cast(), count, timeout_ms) }) {
        Ok(_) | Err(Errno(libc::EINTR)) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Reads what is there, at most the buffer's length; 0 is the end.
pub(crate) fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes at most the buffer's length into it.
    let got = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(got).map_err(|_| Errno::last())
}

pub(crate) fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize> {
    // SAFETY: the kernel reads at most the slice's length from it.
    let put = unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    usize::try_from(put).map_err(|_| Errno::last())
}

/// Bytes in a pipe that could be read now.
pub(crate) fn bytes_waiting(fd: BorrowedFd<'_>) -> Result<libc::c_int> {
    let mut waiting = 0;
    // SAFETY: the kernel writes one integer.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &raw mut waiting) })?;
    Ok(waiting)
}

/// A pipe, both ends closed by `execve`: what is read from, what is written to.
pub(crate) fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    // SAFETY: the kernel writes two descriptors into the array.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: both were just made and nothing else owns them.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: the command takes no pointer.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: as above.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) })?;
    Ok(())
}

/// Puts a descriptor at the number `to`, whatever was there, and lets `execve` keep it.
///
/// For the child between fork and exec, which owns all its numbers.
pub(crate) fn inherit_as(fd: BorrowedFd<'_>, to: RawFd) -> Result<()> {
    // SAFETY: the child reaches what was at `to` by no other name from here on.
    check(unsafe { libc::dup2(fd.as_raw_fd(), to) }).map(drop)
}

/// A copy of a descriptor at a number from `first` up, closed by `execve`.
pub(crate) fn copy_above(fd: BorrowedFd<'_>, first: usize) -> Result<OwnedFd> {
    let first = libc::c_int::try_from(first).map_err(|_| Errno(libc::EINVAL))?;
    // SAFETY: the command takes an integer.
    let copy = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, first) })?;
    // SAFETY: the descriptor was just made and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Closes every descriptor from `first` up but `kept`, which is one of those. For the child between fork and exec.
pub(crate) fn close_all_from(first: RawFd, kept: BorrowedFd<'_>) -> Result<()> {
    let number = |fd: RawFd| u32::try_from(fd).map_err(|_| Errno(libc::EBADF));
    let (first, kept) = (number(first)?, number(kept.as_raw_fd())?);
    if kept > first {
        close_range(first, kept - 1)?;
    }
    close_range(kept + 1, LAST_FD)
}

/// No descriptor has a higher number. gVisor takes nothing above it as the end of a range.
const LAST_FD: u32 = i32::MAX.cast_unsigned();

/// Closes descriptors by number, the last one included.
fn close_range(first: u32, last: u32) -> Result<()> {
    // SAFETY: the call takes integers only; the child uses none of these descriptors again.
    match check_long(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }) {
        Ok(_) => Ok(()),
        Err(Errno(libc::ENOSYS | libc::EPERM)) => {
            let limit = super::rlimit(Resource::Nofile)?.soft.unwrap_or(MOST_FDS);
            let end = limit.min(MOST_FDS).min(u64::from(last) + 1);
            for fd in u64::from(first)..end {
                if let Ok(fd) = RawFd::try_from(fd) {
                    // SAFETY: as above; a number that isn't open answers EBADF.
                    unsafe { libc::close(fd) };
                }
            }
            Ok(())
        }
        Err(errno) => Err(errno),
    }
}

/// Where a search for open descriptors ends when nothing else bounds it.
const MOST_FDS: u64 = 1 << 20;

/// Opens a directory below `parent`, or by its path without one, without following a link at the end.
pub(crate) fn open_dir(parent: Option<BorrowedFd<'_>>, name: &CStr) -> Result<OwnedFd> {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    openat(parent, name, flags, 0)
}

/// Makes a new file in `parent` and opens it for writing; never follows a link, never an old file.
pub(crate) fn open_beneath(parent: BorrowedFd<'_>, name: &CStr, mode: u32) -> Result<OwnedFd> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    openat(Some(parent), name, flags, mode)
}

pub(super) fn openat(
    parent: Option<BorrowedFd<'_>>,
    name: &CStr,
    flags: libc::c_int,
    mode: u32,
) -> Result<OwnedFd> {
    let parent = parent.map_or(libc::AT_FDCWD, |fd| fd.as_raw_fd());
    // SAFETY: the name ends with a NUL and outlives the call.
    let fd = check(unsafe { libc::openat(parent, name.as_ptr(), flags, mode) })?;
    // SAFETY: the descriptor was just made and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes a directory in `parent`; one that exists is fine.
pub(crate) fn make_dir(parent: BorrowedFd<'_>, name: &CStr, mode: u32) -> Result<()> {
    // SAFETY: the name ends with a NUL and outlives the call.
    match check(unsafe { libc::mkdirat(parent.as_raw_fd(), name.as_ptr(), mode) }) {
        Ok(_) | Err(Errno(libc::EEXIST)) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// What `statvfs(3)` says of a file system.
pub(crate) struct Vfs {
    pub(crate) bytes: u64,
    pub(crate) free_bytes: u64,
    pub(crate) inodes: u64,
    pub(crate) free_inodes: u64,
    pub(crate) read_only: bool,
}

pub(crate) fn statvfs(path: &CStr) -> Result<Vfs> {
    let mut vfs = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path ends with a NUL; the structure is filled when the answer is 0.
    check(unsafe { libc::statvfs(path.as_ptr(), vfs.as_mut_ptr()) })?;
    // SAFETY: it answered 0.
    let vfs = unsafe { vfs.assume_init() };
    Ok(Vfs {
        bytes: vfs.f_blocks.saturating_mul(vfs.f_frsize),
        free_bytes: vfs.f_bfree.saturating_mul(vfs.f_frsize),
        inodes: vfs.f_files,
        free_inodes: vfs.f_ffree,
        read_only: vfs.f_flag & libc::ST_RDONLY != 0,
    })
}

/// What `uname(2)` says.
pub(crate) struct Uname {
    pub(crate) sysname: String,
    pub(crate) nodename: String,
    pub(crate) release: String,
    pub(crate) version: String,
    pub(crate) machine: String,
}

pub(crate) fn uname() -> Result<Uname> {
    let mut name = MaybeUninit::<libc::utsname>::uninit();
    // SAFETY: the structure is filled when the answer is 0.
    check(unsafe { libc::uname(name.as_mut_ptr()) })?;
    // SAFETY: it answered 0.
    let name = unsafe { name.assume_init() };
    let text = |field: &[libc::c_char]| {
        let bytes: Vec<u8> = field
            .iter()
            .take_while(|c| **c != 0)
            .map(|c| c.to_ne_bytes()[0])
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Ok(Uname {
        sysname: text(&name.sysname),
        nodename: text(&name.nodename),
        release: text(&name.release),
        version: text(&name.version),
        machine: text(&name.machine),
    })
}
