//! The guest's binary: the one that was built in, or one for another architecture from a file.

use std::{borrow::Cow, fmt::Write as _, path::Path};

use mayfly_core::digest::Digest;

use crate::{engine::EngineFacts, error::EngineError};

/// Built by this crate's build script.
static BUILT_IN: &[u8] = include_bytes!(env!("MAYFLY_GUEST_BINARY"));
/// What it was built for: `x86_64`, `aarch64`.
const BUILT_FOR: &str = env!("MAYFLY_GUEST_ARCHITECTURE");

/// Which build that is: the guest repeats it in its report.
const BUILD: &str = env!("MAYFLY_GUEST_BUILD");

/// Where the program's half of a warm start is, beside the binary.
pub(crate) const HOOK_FOLDER: &str = "python";
const HOOK_FILE: &str = "python/sitecustomize.py";
static HOOK: &[u8] = include_bytes!("../../guest/hooks/python/sitecustomize.py");
/// The binary's name.
pub(crate) const GUEST_FILE: &str = "mayfly-guest";

/// A file of the guest's volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GuestFile<'a> {
    /// Below the volume's own folder.
    pub(crate) path: &'static str,
    pub(crate) mode: u32,
    pub(crate) bytes: &'a [u8],
}

/// The binary that sandboxes of one engine start with, and the files beside it.
#[derive(Debug, Clone)]
pub(crate) struct GuestBinary {
    bytes: Cow<'static, [u8]>,
    digest: Digest,
    architecture: String,
}

impl GuestBinary {
    /// The binary for an engine: from `file` where one is named, and the one built in otherwise.
    ///
    /// # Errors
    /// [`EngineError::NoGuest`] where the one built in is for another architecture, [`EngineError::GuestFile`] where
    /// the file can't be read or is no program for that architecture.
    pub(crate) fn select(engine: &EngineFacts, file: Option<&Path>) -> Result<Self, EngineError> {
        let bytes = match file {
            Some(path) => Cow::Owned(read(path, &engine.architecture)?),
            None if engine.architecture == BUILT_FOR => Cow::Borrowed(BUILT_IN),
            None => {
                return Err(EngineError::NoGuest {
                    engine: engine.architecture.clone(),
                    built: BUILT_FOR,
                });
            }
        };
        Ok(Self {
            digest: digest(&files(&bytes)),
            architecture: engine.architecture.clone(),
            bytes,
        })
    }

    /// All that the volume holds.
    pub(crate) fn files(&self) -> [GuestFile<'_>; 2] {
        files(&self.bytes)
    }

    /// What its report will call it; `None` for one from a file, which its digest alone identifies.
    pub(crate) fn build(&self) -> Option<&'static str> {
        matches!(self.bytes, Cow::Borrowed(_)).then_some(BUILD)
    }

    /// Of the binary and the files beside it.
    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    pub(crate) fn architecture(&self) -> &str {
        &self.architecture
    }
}

/// Only root may read or execute the binary, so that the job can't even look at it; the hook runs as the job.
fn files(binary: &[u8]) -> [GuestFile<'_>; 2] {
    [
        GuestFile {
            path: GUEST_FILE,
            mode: 0o500,
            bytes: binary,
        },
        GuestFile {
            path: HOOK_FILE,
            mode: 0o444,
            bytes: HOOK,
        },
    ]
}

/// Digest of what `sha256sum` prints of the files.
fn digest(files: &[GuestFile<'_>]) -> Digest {
    let mut lines = String::new();
    for file in files {
        let hex = Digest::of(file.bytes).to_hex();
        writeln!(lines, "{hex}  {}", file.path).expect("writing to memory does not fail");
    }
    Digest::of(lines.as_bytes())
}

fn read(path: &Path, architecture: &str) -> Result<Vec<u8>, EngineError> {
    let unusable = |source| EngineError::GuestFile {
        path: path.to_owned(),
        source,
    };
    let bytes = std::fs::read(path).map_err(unusable)?;
    if elf_architecture(&bytes) == Some(architecture) {
        Ok(bytes)
    } else {
        let reason = format!("it is no Linux program for {architecture}");
        Err(unusable(std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            reason,
        )))
    }
}

/// The architecture that a 64-bit little-endian ELF program is for (elf(5), `e_machine`).
fn elf_architecture(bytes: &[u8]) -> Option<&'static str> {
    let ident = bytes.strip_prefix(b"\x7fELF\x02\x01")?;
    match ident.get(12..14)? {
        [62, 0] => Some("x86_64"),
        [183, 0] => Some("aarch64"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_that_was_built_in_is_a_static_program_for_the_architecture_that_it_says() {
        assert_eq!(elf_architecture(BUILT_IN), Some(BUILT_FOR));
        // PT_INTERP (elf(5)) would name a loader, which an image need not have.
        assert!(
            !BUILT_IN
                .windows(15)
                .any(|bytes| bytes == b"/ld-linux-x86-6" || bytes == b"ld-linux-aarch6")
        );
        assert!(BUILT_IN.len() < 2 << 20, "{} bytes", BUILT_IN.len());
    }

    #[test]
    fn a_file_that_is_no_program_for_the_engine_is_refused_with_its_name() {
        let error = read(Path::new("/etc/passwd"), "x86_64").unwrap_err();
        assert!(
            crate::error::chain(&error).contains("no Linux program for x86_64"),
            "{error}"
        );
        assert!(error.to_string().contains("/etc/passwd"), "{error}");
    }
}
