//! Files that a job leaves behind: which ones it asks for, and what came of them.

use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    fault::{Fault, Faults},
    job::Blob,
    outcome::Redacted,
    policy::ArtifactRules,
    units::{ByteSize, Span},
};

/// Most globs of a job.
pub const MAX_GLOBS: usize = 64;

/// Longest glob, in bytes.
pub const MAX_GLOB_BYTES: usize = 512;

/// Most files of a run that are kept, and most that are named as not kept.
pub const MAX_FILES: usize = 1000;

/// Files of a run are kept in pieces of this size, in bytes; the last one may be shorter.
pub const PIECE: usize = 1 << 20;

/// The same, as lengths of files are counted.
pub const PIECE_BYTES: u64 = PIECE as u64;

/// After which ends files are kept. Of a program that the kernel ended for memory, or that had to be forced, there may be
/// none whatever this says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum KeepAfter {
    /// Exit code 0.
    #[default]
    Success,
    /// Any exit code, a signal, or the end of its time.
    AnyEnd,
}

impl KeepAfter {
    /// Whether it is what a job has that says nothing.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// How much is kept of a run's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactLimits {
    /// Most files.
    pub files: u32,
    /// Most bytes of one.
    pub file: ByteSize,
    /// Most bytes of all.
    pub total: ByteSize,
    /// Longest that it may take to collect them, beyond the run itself.
    pub time: Span,
}

/// What came of the files that a job asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifacts {
    /// Those that are kept, in the order of their names.
    pub files: Vec<Artifact>,
    /// Those that are not, as far as they are named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// How many more are not.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_named: u32,
    /// Why there may be files of which nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
}

/// A file that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Its name below `/work`, without what is taken out of output. The job chose it.
    pub name: Blob,
    /// Its bytes, as they are kept.
    pub bytes: u64,
    /// Their digest.
    pub digest: Digest,
    /// What was found in it. Out of a text it was taken; in other files it still is.
    #[serde(default, skip_serializing_if = "Redacted::is_nothing")]
    pub redacted: Redacted,
    /// Whether it was taken for a text.
    pub is_text: bool,
    /// Under which number its pieces are kept.
    pub number: u32,
}

impl Artifact {
    /// How many pieces it has.
    #[must_use]
    pub const fn pieces(&self) -> u64 {
        self.bytes.div_ceil(PIECE_BYTES)
    }
}

/// A file that was wanted and is not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its name, as of [`Artifact`].
    pub name: Blob,
    /// Why.
    pub why: LeftOutWhy,
    /// Its bytes, of a regular file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// Why a file is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum LeftOutWhy {
    /// A symbolic link: none is followed.
    Link,
    /// A named pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A device.
    Device,
    /// The job's own user may not read it, or reading failed.
    Unreadable,
    /// It is larger than one file may be.
    TooLarge,
    /// As many files as may be kept are.
    TooManyFiles,
    /// With it there would be more bytes than may be kept.
    TooManyBytes,
    /// Its name is too long.
    NameTooLong,
    /// It lies deeper than is looked.
    TooDeep,
    /// It is no text and holds a secret of the job's.
    HoldsSecret,
}

impl LeftOutWhy {
    /// The same as words behind a name.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Link => "it is a symbolic link, and none is followed",
            Self::Pipe => "it is a named pipe",
            Self::Socket => "it is a socket",
            Self::Device => "it is a device",
            Self::Unreadable => "the job's user can't read it",
            Self::TooLarge => "it is larger than one file may be",
            Self::TooManyFiles => "there are as many files as may be kept",
            Self::TooManyBytes => "with it there would be more bytes than may be kept",
            Self::NameTooLong => "its name is too long",
            Self::TooDeep => "it lies too deep",
            Self::HoldsSecret => "it is no text, and holds a secret of the job's",
        }
    }
}

impl Artifacts {
    /// Bytes of all files that are kept.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files
            .iter()
            .fold(0, |sum, file| sum.saturating_add(file.bytes))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Takes note of what is wrong with the globs of a job.
pub(crate) fn check_globs(globs: &[String], rules: &ArtifactRules, faults: &mut Faults) {
    if globs.len() > rules.globs as usize {
        let text = format!("{} globs; at most {} are allowed", globs.len(), rules.globs);
        faults.push(Fault::new("artifacts", "too_many", text));
    }
    for (index, glob) in globs.iter().enumerate() {
        let wrong = if glob.is_empty() || glob.len() > MAX_GLOB_BYTES {
            Some(format!("a glob has 1 to {MAX_GLOB_BYTES} bytes"))
        } else if glob.chars().any(char::is_control) {
            Some("control characters are not allowed in a glob".to_owned())
        } else if glob.split('/').any(|part| matches!(part, "" | "." | "..")) {
            Some(
                "globs are of names below /work, such as `out/*.csv`, without empty parts, `.` and `..`"
                    .to_owned(),
            )
        } else {
            None
        };
        if let Some(text) = wrong {
            faults.push(Fault::new(format!("artifacts[{index}]"), "bad_glob", text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    fn wrong(globs: &[&str]) -> Vec<(String, &'static str)> {
        let globs: Vec<String> = globs.iter().map(|glob| (*glob).to_owned()).collect();
        let mut faults = Faults::default();
        check_globs(&globs, &Policy::default().artifacts, &mut faults);
        faults
            .iter()
            .map(|fault| (fault.path.clone(), fault.code))
            .collect()
    }

    #[test]
    fn a_glob_is_of_names_below_the_work_directory() {
        assert_eq!(wrong(&["*", "out/**/*.csv", "{a,b}.png", ".hidden", "a b"]), []);
        let longest = "a".repeat(MAX_GLOB_BYTES);
        assert_eq!(wrong(&[&longest]), []);
        for glob in [
            "",
            "/etc/*",
            "../*",
            "a/../b",
            "./a",
            "a//b",
            "a/",
            "a\0",
            "a\nb",
            &format!("{longest}a"),
        ] {
            assert_eq!(
                wrong(&[glob]),
                [("artifacts[0]".to_owned(), "bad_glob")],
                "{glob:?}"
            );
        }
        assert_eq!(wrong(&["*"; 32]), []);
        assert_eq!(wrong(&["*"; 33]), [("artifacts".to_owned(), "too_many")]);
    }

    #[test]
    fn a_file_has_as_many_pieces_as_it_needs() {
        let file = |bytes| Artifact {
            name: "a".into(),
            bytes,
            digest: Digest::of(b""),
            redacted: Redacted::default(),
            is_text: false,
            number: 0,
        };
        let pieces = [0, 1, PIECE_BYTES, PIECE_BYTES + 1].map(|bytes| file(bytes).pieces());
        assert_eq!(pieces, [0, 1, 1, 2]);
    }
}
