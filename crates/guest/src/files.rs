//! The job's files, written below the work directory as the job's user.

use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;

use mayfly_protocol::{FileHeader, Refused, Stage};

use crate::args::Args;
use crate::identity;
use crate::sys::{self, Errno};

/// Takes files in, one after the other.
pub(crate) struct Files {
    guest_id: u32,
    job_id: u32,
    work: String,
    open: Option<(File, String)>,
}

impl Files {
    pub(crate) fn new(args: &Args) -> Self {
        let work = args.work.clone();
        Self {
            guest_id: args.guest_id,
            job_id: args.job_id,
            work,
            open: None,
        }
    }

    /// Makes the file and the directories that lead to it.
    pub(crate) fn begin(&mut self, header: &FileHeader) -> Result<(), Refused> {
        let file = identity::as_job_files(self.guest_id, self.job_id, || create(&self.work, header));
        let file = file.map_err(|errno| refusal(errno, &header.path))?;
        self.open = Some((file, header.path.clone()));
        Ok(())
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        match &mut self.open {
            Some((file, path)) => file.write_all(bytes).map_err(|error| refusal(error.into(), path)),
            None => Err(refusal(Errno(libc::EBADF), "")),
        }
    }

    pub(crate) fn end(&mut self) {
        self.open = None;
    }
}

fn refusal(errno: Errno, path: &str) -> Refused {
    Refused::new(Stage::File, Some(errno.0), path)
}

/// Walks down from the work directory, one component at a time and never through a link.
fn create(work: &str, header: &FileHeader) -> sys::Result<File> {
    if !header.is_valid() {
        return Err(Errno(libc::EINVAL));
    }
    let c_string = |text: &str| CString::new(text).map_err(|_| Errno(libc::EINVAL));
    let mut folder = sys::open_dir(None, &c_string(work)?)?;
    let mut parts: Vec<&str> = header.path.split('/').collect();
    let name = parts.pop().ok_or(Errno(libc::EINVAL))?;
    for part in parts {
        let part = c_string(part)?;
        sys::make_dir(folder.as_fd(), &part, 0o755)?;
        folder = sys::open_dir(Some(folder.as_fd()), &part)?;
    }
    Ok(sys::open_beneath(folder.as_fd(), &c_string(name)?, header.mode)?.into())
}
