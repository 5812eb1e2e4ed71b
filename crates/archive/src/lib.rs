//! Takes zip, tar and tar.gz apart into files, as far as there is one way to understand them. No I/O, no async, no clock.
//!
//! ```
//! use mayfly_archive::{Format, Limits, Tree, expand};
//!
//! let limits = Limits { bytes: 1 << 20, files: 100, path_bytes: 1024 };
//! let expanded = expand(b"PK\x05\x06 and so on", Format::Zip, "project", &limits, &mut Tree::default());
//! assert_eq!(expanded.problems.len(), 1, "{:?}", expanded.problems);
//! ```
//!
//! Archives come from strangers, and readers of them differ: in which of two names counts, in whether a field of the header
//! or of an extension does, in what stands between entries. Whoever looks an archive through and whoever unpacks it then see
//! different files. So whatever two readers could take for different things is refused here, with its name: what is
//! accepted is what `zipfile` and `tarfile` of Python see as well (`tests/python.rs`).
//!
//! Start reading at [`expand`], then `zip.rs`, `tar.rs`, and `intake.rs`, which holds every bound and judges every name.
//! docs/files.md is what users read.
//!
//! Decided: own readers of the headers, on the whole archive in memory, because libraries make the best of what is broken or
//! ambiguous; only the decompressor (miniz_oxide, no `unsafe`) is somebody else's.
//!
//! Absent on purpose: writing to a file system, links and devices, encryption, zip64, sparse files, several volumes,
//! repairing anything, archives within archives (they are files like others).

mod inflate;
mod intake;
mod tar;
mod tree;
mod zip;

pub use tree::Tree;

/// What an archive's bytes are read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// PKWARE's APPNOTE.TXT 6.3.10, stored and deflated entries.
    Zip,
    /// POSIX.1-1988 (ustar), POSIX.1-2001 (pax) and GNU tar, not compressed.
    Tar,
    /// The same in one member of gzip (RFC 1952).
    TarGz,
}

impl Format {
    /// What the first bytes of an archive say that it is.
    #[must_use]
    pub fn of(archive: &[u8]) -> Option<Self> {
        if archive.starts_with(b"PK\x03\x04") || archive.starts_with(b"PK\x05\x06") {
            Some(Self::Zip)
        } else if archive.starts_with(&[0x1f, 0x8b]) {
            Some(Self::TarGz)
        } else if tar::is_header(archive) {
            Some(Self::Tar)
        } else {
            None
        }
    }
}

/// Bytes to which any archive and any entry may expand, whatever its size.
pub const FREE_BYTES: u64 = 1 << 20;
/// Above [`FREE_BYTES`] nothing expands to more than so many times its own size.
pub const MOST_RATIO: u64 = 200;
/// Problems that are listed of one archive; those beyond are counted.
pub const MAX_PROBLEMS: usize = 80;

/// Most bytes to which so many may expand.
#[must_use]
pub const fn most_expanded(compressed: u64) -> u64 {
    let most = compressed.saturating_mul(MOST_RATIO);
    if most > FREE_BYTES { most } else { FREE_BYTES }
}

/// What an archive may hold. None of it is ever passed while an archive is read, whatever its headers say.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Content of all files together.
    pub bytes: u64,
    /// Number of files. There may be as many folders.
    pub files: usize,
    /// Bytes of one path, with the folder that it is put into.
    pub path_bytes: usize,
}

/// What an archive holds. Folders are not among it: they are there where files are.
#[derive(Debug, Default)]
pub struct Expanded {
    /// The files, in the archive's order. None of them counts where there are problems.
    pub files: Vec<File>,
    /// What is wrong, at most [`MAX_PROBLEMS`].
    pub problems: Vec<Problem>,
    /// What is wrong beside these.
    pub more_problems: usize,
}

/// A file of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Where it goes: relative, `/` between its parts, none of them empty, `.` or `..`, without control characters.
    pub path: String,
    /// Permission bits, at most `0o777`, where the archive has them.
    pub mode: Option<u32>,
    /// All its bytes.
    pub content: Vec<u8>,
}

/// One thing that is wrong with an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The entry that it is about, as its name stands in the archive; escaped, and cut if it is long.
    pub name: Option<String>,
    /// A stable word for programs.
    pub code: &'static str,
    /// What is wrong and what would be right, for people.
    pub message: String,
}

impl Problem {
    fn whole(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            name: None,
            code,
            message: message.into(),
        }
    }
}

/// Reads an archive. Its files go below `into`, a clean relative path or nothing, and into `tree`, where they must not be
/// in the way of what is there already.
///
/// It takes time and memory in proportion to the archive's size and to `limits.bytes`, whatever the archive claims.
#[must_use]
pub fn expand(archive: &[u8], format: Format, into: &str, limits: &Limits, tree: &mut Tree) -> Expanded {
    let mut intake = intake::Intake::new(limits, into, tree, archive.len());
    let read = match format {
        Format::Zip => zip::read(archive, &mut intake),
        Format::Tar => tar::read(archive, &mut intake),
        Format::TarGz => inflate::gunzip(archive, intake.stream_limit())
            .map_err(|error| error.problem(None))
            .and_then(|tar| tar::read(&tar, &mut intake)),
    };
    intake.finish(read)
}
