//! A folder into which files with a stranger's names are written: by descriptors, folder by folder, so that no link on the
//! way is ever followed.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Write},
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::Path,
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, mkdirat, openat, unlinkat},
    io::Errno,
};

/// Why a file can't be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotWritten {
    /// Its name leads elsewhere, or nowhere.
    #[error("its name is none for a file below a folder")]
    Name,
    /// There is one.
    #[error("there is such a file already; --force replaces it")]
    Exists,
    /// A part of its way is no folder: a file, or a link.
    #[error("a part of its path is no folder, or a link, and none is followed")]
    NoFolder,
    /// Trouble with the disk.
    #[error("{0}")]
    Io(#[source] io::Error),
}

/// The folder.
pub(super) struct Folder(OwnedFd);

/// A file that is removed again unless it is kept.
pub(super) struct NewFile {
    file: File,
    folder: OwnedFd,
    name: Vec<u8>,
    is_kept: bool,
}

impl Folder {
    /// Opens a folder, which is made where there is none.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path)?;
        let folder = rustix::fs::open(
            path,
            OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(Self(folder))
    }

    /// Makes an empty file of this name, in folders that are made as it needs them. One that is there is replaced where
    /// that is wanted, and never written into.
    pub(super) fn create(&self, name: &[u8], replace: bool) -> Result<NewFile, NotWritten> {
        let mut parts: Vec<&[u8]> = name.split(|byte| *byte == b'/').collect();
        let fine = |part: &&[u8]| !matches!(*part, b"" | b"." | b"..") && !part.contains(&0);
        if !parts.iter().all(fine) {
            return Err(NotWritten::Name);
        }
        let last = parts.pop().ok_or(NotWritten::Name)?;
        let mut folder = self.0.try_clone().map_err(NotWritten::Io)?;
        for part in parts {
            folder = inner(&folder, OsStr::from_bytes(part))?;
        }
        let last_name = OsStr::from_bytes(last);
        if replace
            && let Err(error) = unlinkat(&folder, last_name, AtFlags::empty())
            && error != Errno::NOENT
        {
            return Err(NotWritten::Io(error.into()));
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            openat(&folder, last_name, flags, Mode::from_raw_mode(0o644)).map_err(|error| match error {
                Errno::EXIST => NotWritten::Exists,
                error => NotWritten::Io(error.into()),
            })?;
        Ok(NewFile {
            file: file.into(),
            folder,
            name: last.to_vec(),
            is_kept: false,
        })
    }
}

/// The folder of that name in another, made where there is none.
fn inner(folder: &OwnedFd, name: &OsStr) -> Result<OwnedFd, NotWritten> {
    match mkdirat(folder, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(NotWritten::Io(error.into())),
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    openat(folder, name, flags, Mode::empty()).map_err(|error| match error {
        Errno::NOTDIR | Errno::LOOP => NotWritten::NoFolder,
        error => NotWritten::Io(error.into()),
    })
}

impl NewFile {
    /// It is whole.
    pub(super) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_kept {
            // Whatever becomes of that: the failure itself is told.
            unlinkat(&self.folder, OsStr::from_bytes(&self.name), AtFlags::empty()).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Folder, name: &[u8], replace: bool) -> Result<(), NotWritten> {
        let mut file = folder.create(name, replace)?;
        file.write_all(b"new").unwrap();
        file.keep();
        Ok(())
    }

    #[test]
    fn a_file_lands_in_the_folder_or_nowhere() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("out");
        let folder = Folder::open(&path).unwrap();
        write(&folder, b"a/b/c.txt", false).unwrap();
        assert_eq!(std::fs::read(path.join("a/b/c.txt")).unwrap(), b"new");
        for name in [
            &b"../x"[..],
            b"/etc/x",
            b"a/../../x",
            b"",
            b".",
            b"a/",
            b"a//b",
            b"./x",
            b"x\0y",
        ] {
            assert!(
                matches!(write(&folder, name, true), Err(NotWritten::Name)),
                "{}",
                name.escape_ascii()
            );
        }
        let mut names: Vec<_> = std::fs::read_dir(outer.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["out"]);
    }

    #[test]
    fn no_link_on_the_way_is_followed_and_none_at_its_end() {
        let outer = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (outer.path().join("out"), outer.path().join("elsewhere"));
        let folder = Folder::open(&path).unwrap();
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::write(elsewhere.join("file"), b"old").unwrap();
        std::os::unix::fs::symlink(&elsewhere, path.join("link")).unwrap();
        std::os::unix::fs::symlink(elsewhere.join("file"), path.join("file")).unwrap();
        std::os::unix::fs::symlink(elsewhere.join("made"), path.join("dangling")).unwrap();
        assert!(matches!(
            write(&folder, b"link/file", true),
            Err(NotWritten::NoFolder)
        ));
        assert!(matches!(write(&folder, b"file", false), Err(NotWritten::Exists)));
        assert!(matches!(
            write(&folder, b"dangling", false),
            Err(NotWritten::Exists)
        ));
        // The link itself is replaced, and not what it leads to.
        write(&folder, b"file", true).unwrap();
        assert_eq!(std::fs::read(elsewhere.join("file")).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 1);
    }

    #[test]
    fn what_is_there_stays_unless_it_is_to_be_replaced_and_half_a_file_goes() {
        let outer = tempfile::tempdir().unwrap();
        let folder = Folder::open(outer.path()).unwrap();
        std::fs::write(outer.path().join("a"), b"old").unwrap();
        assert!(matches!(write(&folder, b"a", false), Err(NotWritten::Exists)));
        assert!(matches!(write(&folder, b"a/b", false), Err(NotWritten::NoFolder)));
        assert_eq!(std::fs::read(outer.path().join("a")).unwrap(), b"old");
        write(&folder, b"a", true).unwrap();
        assert_eq!(std::fs::read(outer.path().join("a")).unwrap(), b"new");
        drop(folder.create(b"half", false).unwrap());
        assert!(!outer.path().join("half").exists());
    }
}
