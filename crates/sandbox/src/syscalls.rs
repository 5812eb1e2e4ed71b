//! The syscall filter, in the form in which an engine takes it.

use std::{fs, io::Write, os::unix::fs::DirBuilderExt, path::PathBuf};

use mayfly_core::{digest::Digest, id::SandboxId};

use crate::{
    engine::{CgroupVersion, EngineFacts},
    error::EngineError,
    filter::{Arch, FilterOptions, Profile, SocketBuffers, Sockets, profile},
    seam::Loopback,
};

/// The filters of all sandboxes of a process.
#[derive(Debug)]
pub(crate) struct Filters {
    closed: FilterOption,
    open: FilterOption,
}

impl Filters {
    /// # Errors
    /// As [`FilterOption::for_engine`].
    pub(crate) fn for_engine(engine: &EngineFacts) -> Result<Self, EngineError> {
        Ok(Self {
            closed: FilterOption::for_engine(engine, Loopback::Closed)?,
            open: FilterOption::for_engine(engine, Loopback::Open)?,
        })
    }

    /// The filter of a sandbox whose loopback is like this.
    pub(crate) const fn of(&self, loopback: Loopback) -> &FilterOption {
        match loopback {
            Loopback::Closed => &self.closed,
            Loopback::Open => &self.open,
        }
    }
}

/// The filter as it goes into a container's security options.
#[derive(Debug)]
pub(crate) struct FilterOption {
    value: String,
    digest: Digest,
    /// Held for as long as sandboxes are made: Podman reads the file at each creation.
    _file: Option<ProfileFile>,
}

impl FilterOption {
    /// Docker takes the profile itself, and a path fails at the start; Podman takes a path, and the profile itself
    /// fails at the creation.
    ///
    /// # Errors
    /// [`EngineError::NoFilter`] for an architecture that there is no profile of, [`EngineError::FilterFile`] where
    /// the file for Podman can't be written.
    pub(crate) fn for_engine(engine: &EngineFacts, loopback: Loopback) -> Result<Self, EngineError> {
        let arch = Arch::of(&engine.architecture).ok_or_else(|| EngineError::NoFilter {
            architecture: engine.architecture.clone(),
        })?;
        let profile = profile_of(arch, sockets(engine, loopback));
        let file = if engine.podman {
            Some(ProfileFile::write(&profile).map_err(EngineError::FilterFile)?)
        } else {
            None
        };
        Ok(Self {
            value: match &file {
                Some(file) => file.path.to_string_lossy().into_owned(),
                None => profile.inline(),
            },
            digest: profile.digest(),
            _file: file,
        })
    }

    pub(crate) fn value(&self) -> &str {
        &self.value
    }

    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }
}

/// Where nothing is said of its loopback a sandbox has no sockets but those between the job's own processes: on cgroup
/// v1 no limit counts the buffers of any other.
const fn sockets(engine: &EngineFacts, loopback: Loopback) -> Sockets {
    match (loopback, engine.cgroup) {
        (Loopback::Closed, _) => Sockets::UnixOnly,
        (Loopback::Open, CgroupVersion::V1) => Sockets::LoopbackToo(SocketBuffers::Fixed),
        (Loopback::Open, CgroupVersion::V2) => Sockets::LoopbackToo(SocketBuffers::Settable),
    }
}

fn profile_of(arch: Arch, sockets: Sockets) -> Profile {
    profile(FilterOptions { arch, sockets })
}

/// Digest of the profiles of all architectures, for the policy's version: it must not depend on the engine.
pub(crate) fn all_filters_digest() -> Digest {
    let sockets = [
        Sockets::UnixOnly,
        Sockets::LoopbackToo(SocketBuffers::Fixed),
        Sockets::LoopbackToo(SocketBuffers::Settable),
    ];
    let of_arch = |arch| sockets.map(|sockets| profile_of(arch, sockets).inline()).concat();
    let all = [Arch::X86_64, Arch::Aarch64].map(of_arch);
    Digest::of(all.concat().as_bytes())
}

/// A profile in a folder of its own that nobody else can write to.
#[derive(Debug)]
struct ProfileFile {
    folder: PathBuf,
    path: PathBuf,
}

impl ProfileFile {
    fn write(profile: &Profile) -> std::io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("mayfly-filter-{}", SandboxId::new()));
        fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let file = Self {
            path: folder.join("seccomp.json"),
            folder,
        };
        fs::File::create_new(&file.path)?.write_all(profile.inline().as_bytes())?;
        Ok(file)
    }
}

impl Drop for ProfileFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            tracing::debug!(error = %error, "the folder of a syscall filter could not be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::sample_engine;

    #[test]
    fn docker_gets_the_profile_itself_and_podman_a_file_that_holds_it() {
        let docker = FilterOption::for_engine(&sample_engine(), Loopback::Closed).unwrap();
        assert!(docker.value().starts_with('{'));
        let podman = EngineFacts {
            podman: true,
            ..sample_engine()
        };
        let podman = FilterOption::for_engine(&podman, Loopback::Closed).unwrap();
        let path = PathBuf::from(podman.value());
        assert_eq!(fs::read_to_string(&path).unwrap(), docker.value());
        assert_eq!(podman.digest(), docker.digest());
        drop(podman);
        assert!(!path.parent().unwrap().exists());
    }

    #[test]
    fn an_architecture_without_a_profile_gets_no_sandbox() {
        let engine = EngineFacts {
            architecture: "riscv64".to_owned(),
            ..sample_engine()
        };
        let error = FilterOption::for_engine(&engine, Loopback::Closed).unwrap_err();
        assert!(error.to_string().contains("riscv64"), "{error}");
    }
}
