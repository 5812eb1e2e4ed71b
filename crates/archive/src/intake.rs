//! What the readers of all formats hand over: each name judged, each bound kept.

use crate::{
    Expanded, FREE_BYTES, File, Limits, MAX_PROBLEMS, MOST_RATIO, Problem, Tree, most_expanded, tree::Clash,
};

/// Longest name of one file or folder, in bytes (`NAME_MAX`, limits.h).
const NAME_MAX: usize = 255;
/// Longest text of a name in a problem, in characters.
const MAX_SHOWN: usize = 120;
/// Bytes that a tar may have beside content for each file or folder: its header, one of an extension with its data, and
/// what fills blocks up.
const TAR_OVERHEAD: u64 = 4096;
/// Bytes with which a tar may end: GNU tar fills up to a multiple of 20 blocks, others to one of 64 KiB.
const TAR_END: u64 = 128 << 10;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Folder,
}

pub(crate) struct Intake<'a> {
    limits: &'a Limits,
    into: &'a str,
    tree: &'a mut Tree,
    archive_bytes: u64,
    bytes: u64,
    named_files: usize,
    named_folders: usize,
    expanded: Expanded,
}

impl<'a> Intake<'a> {
    pub(crate) fn new(limits: &'a Limits, into: &'a str, tree: &'a mut Tree, archive_bytes: usize) -> Self {
        Self {
            limits,
            into,
            tree,
            archive_bytes: archive_bytes as u64,
            bytes: 0,
            named_files: 0,
            named_folders: 0,
            expanded: Expanded::default(),
        }
    }

    /// Most bytes that a compressed tar may have.
    pub(crate) fn stream_limit(&self) -> StreamLimit {
        let entries = 2 * self.limits.files as u64;
        let room = self.limits.bytes.saturating_add(entries * TAR_OVERHEAD + TAR_END);
        StreamLimit {
            room,
            ratio: most_expanded(self.archive_bytes),
        }
    }

    /// Whether nothing is wrong so far, so that content is still of use.
    pub(crate) fn is_clean(&self) -> bool {
        self.expanded.problems.is_empty()
    }

    /// How many things are wrong so far.
    pub(crate) fn problem_count(&self) -> usize {
        self.expanded.problems.len() + self.expanded.more_problems
    }

    /// Notes what is wrong with one entry, by its name as it stands in the archive.
    pub(crate) fn refuse(&mut self, name: &[u8], code: &'static str, message: impl Into<String>) {
        self.note(Problem {
            name: Some(shown(name)),
            code,
            message: message.into(),
        });
    }

    fn note(&mut self, problem: Problem) {
        if self.expanded.problems.len() < MAX_PROBLEMS {
            self.expanded.problems.push(problem);
        } else {
            self.expanded.more_problems += 1;
        }
    }

    /// Judges the name of an entry, and takes it. Nothing comes back where it is refused, or where it is that of the place
    /// itself into which the archive goes.
    ///
    /// # Errors
    /// More files or folders than there may be.
    pub(crate) fn name(&mut self, raw: &[u8], kind: Kind) -> Result<Option<String>, Problem> {
        let counted = match kind {
            Kind::File => &mut self.named_files,
            Kind::Folder => &mut self.named_folders,
        };
        *counted += 1;
        if *counted > self.limits.files {
            let what = match kind {
                Kind::File => "files",
                Kind::Folder => "folders",
            };
            let message = format!(
                "it has more {what} than the {} that are left for it; nothing behind these is looked at",
                self.limits.files
            );
            return Err(Problem::whole("too_many", message));
        }
        let Ok(name) = std::str::from_utf8(raw) else {
            self.refuse(raw, "bad_path", "its name is not UTF-8");
            return Ok(None);
        };
        let path = match kind {
            Kind::File => name,
            Kind::Folder => name.strip_suffix('/').unwrap_or(name),
        };
        // `tar -c .` writes every name so.
        let path = path.strip_prefix("./").unwrap_or(path);
        if kind == Kind::Folder && path == "." {
            return Ok(None);
        }
        if let Some(message) = wrong(path) {
            self.refuse(raw, "bad_path", message);
            return Ok(None);
        }
        let path = if self.into.is_empty() {
            path.to_owned()
        } else {
            format!("{}/{path}", self.into)
        };
        if path.len() > self.limits.path_bytes {
            let message = format!(
                "its path has {} bytes, over the policy's ceiling, {}",
                path.len(),
                self.limits.path_bytes
            );
            self.refuse(raw, "bad_path", message);
            return Ok(None);
        }
        let taken = match kind {
            Kind::File => self.tree.file(&path),
            Kind::Folder => self.tree.folder(&path),
        };
        if let Err(clash) = taken {
            let (code, message) = match clash {
                Clash::Duplicate => ("duplicate", "it is there twice".to_owned()),
                Clash::IsFolder => ("duplicate", "it is a file and a folder".to_owned()),
                Clash::IsFile => ("duplicate", "it is a folder and a file".to_owned()),
                Clash::BelowFile(file) => (
                    "below_a_file",
                    format!("it can't be below `{}`, which is a file", shown(file.as_bytes())),
                ),
            };
            self.refuse(raw, code, message);
            return Ok(None);
        }
        Ok(Some(path))
    }

    /// Counts content that is to come, before any of it is taken.
    ///
    /// # Errors
    /// It does not fit.
    pub(crate) fn reserve(&mut self, bytes: u64) -> Result<(), Problem> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limits.bytes {
            return Err(too_large(self.limits.bytes));
        }
        let most = most_expanded(self.archive_bytes);
        if self.bytes > most {
            return Err(too_dense(most));
        }
        Ok(())
    }

    /// Takes a file whose name was taken and whose content was reserved.
    pub(crate) fn push(&mut self, file: File) {
        self.expanded.files.push(file);
    }

    pub(crate) fn finish(mut self, read: Result<(), Problem>) -> Expanded {
        match read {
            Err(problem) => {
                // It is why nothing further was looked at, and is not to be lost among many.
                if self.expanded.problems.len() == MAX_PROBLEMS {
                    self.expanded.problems.pop();
                    self.expanded.more_problems += 1;
                }
                self.expanded.problems.push(problem);
            }
            Ok(()) if self.named_files == 0 && self.is_clean() => {
                self.note(Problem::whole("empty", "it has no file"));
            }
            Ok(()) => {}
        }
        if !self.is_clean() {
            self.expanded.files = Vec::new();
        }
        self.expanded
    }
}

/// Most bytes of a compressed stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamLimit {
    /// By what there may be in it.
    room: u64,
    /// By its own size.
    ratio: u64,
}

impl StreamLimit {
    pub(crate) fn bytes(self) -> u64 {
        self.room.min(self.ratio)
    }

    pub(crate) fn problem(self) -> Problem {
        if self.ratio < self.room {
            too_dense(self.ratio)
        } else {
            too_large(self.room)
        }
    }
}

fn too_large(most: u64) -> Problem {
    let message = format!("it expands to more than the {most} bytes that are left for it");
    Problem::whole("too_large", message)
}

fn too_dense(most: u64) -> Problem {
    let message = format!(
        "it expands to more than {most} bytes: above {FREE_BYTES} bytes no archive may expand to more than {MOST_RATIO} \
         times its size"
    );
    Problem::whole("ratio", message)
}

/// What is wrong with a path in an archive, if anything.
fn wrong(path: &str) -> Option<&'static str> {
    let bytes = path.as_bytes();
    if path.is_empty() {
        Some("its name is empty")
    } else if path.starts_with('/') {
        Some("its name is absolute; names in archives are relative")
    } else if bytes[0].is_ascii_alphabetic() && bytes.get(1) == Some(&b':') {
        Some("its name begins with a drive letter")
    } else if path.chars().any(char::is_control) {
        Some("its name has control characters")
    } else if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        Some("empty parts, `.` and `..` are not allowed in its name")
    } else if path.split('/').any(|part| part.len() > NAME_MAX) {
        Some("a part of its name is longer than 255 bytes")
    } else {
        None
    }
}

/// A name as it is shown: no character of it does anything to a terminal, or looks like another's.
pub(crate) fn shown(name: &[u8]) -> String {
    let escaped = match std::str::from_utf8(name) {
        Ok(text) => text.escape_debug().take(MAX_SHOWN + 1).collect::<String>(),
        Err(_) => name.escape_ascii().take(MAX_SHOWN + 1).map(char::from).collect(),
    };
    if escaped.chars().count() > MAX_SHOWN {
        escaped.chars().take(MAX_SHOWN).chain(['…']).collect()
    } else {
        escaped
    }
}
