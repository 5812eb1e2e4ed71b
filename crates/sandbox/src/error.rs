//! Trouble with the container engine.

/// A call to the engine that failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// That is no address of an engine.
    #[error(
        "`{address}` is no address of a container engine: give `unix:///path` or `tcp://host:port` (setting \
             `sandbox.engine`, or DOCKER_HOST)"
    )]
    Address {
        /// What was given.
        address: String,
    },
    /// There is no engine where we looked, or it does not let us in.
    #[error("no container engine answers at {address}")]
    Unreachable {
        /// Where we looked.
        address: String,
        /// Why not.
        #[source]
        source: bollard::errors::Error,
    },
    /// The engine refused, or broke off.
    #[error("the engine could not {doing}")]
    Call {
        /// What we were doing.
        doing: &'static str,
        /// What it said.
        #[source]
        source: bollard::errors::Error,
    },
    /// The engine did not answer in time.
    #[error("the engine did not {doing} within {seconds} s")]
    TimedOut {
        /// What we were doing.
        doing: &'static str,
        /// The bound.
        seconds: u64,
    },
    /// The guest did not come up, or broke its protocol.
    #[error("the guest failed: {0}")]
    Guest(String),
    /// There is no guest for the engine's architecture.
    #[error(
        "the engine is {engine}, and this mayfly has a guest for {built} alone: build one with \
         `cargo build -p mayfly-guest --profile guest --target {engine}-unknown-linux-musl` and name its path in the \
         setting `sandbox.guest`"
    )]
    NoGuest {
        /// The engine's architecture.
        engine: String,
        /// The one that was built in.
        built: &'static str,
    },
    /// The guest in a file can't be used.
    #[error("the guest in {} can't be used", path.display())]
    GuestFile {
        /// The file.
        path: std::path::PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// There is no syscall filter for the engine's architecture.
    #[error("there is no syscall filter for {architecture}, so that nothing can be run there")]
    NoFilter {
        /// The engine's architecture.
        architecture: String,
    },
    /// The syscall filter could not be put where the engine reads it.
    #[error("the file of the syscall filter could not be written")]
    FilterFile(#[source] std::io::Error),
    /// A container is not gone yet: an earlier request to remove it is under way.
    #[error("the engine is still removing the container")]
    BeingRemoved,
    /// The host misses what is demanded of it.
    #[error("this host is not fit for the code of strangers: {0}")]
    HostUnfit(String),
    /// All uids of this executor are in use.
    #[error("all {0} sandboxes that this executor has uids for are in use")]
    NoUid(u32),
}

impl EngineError {
    /// Whether the same call may well succeed later, with nothing about it changed: the engine did not answer, or we have
    /// nothing to give it at the moment. What an engine refuses, it refuses again.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::NoUid(_) | Self::BeingRemoved => true,
            Self::Call { source, .. } => {
                !matches!(source, bollard::errors::Error::DockerResponseServerError { .. })
            }
            Self::Address { .. }
            | Self::Guest(_)
            | Self::NoGuest { .. }
            | Self::GuestFile { .. }
            | Self::NoFilter { .. }
            | Self::HostUnfit(_)
            | Self::FilterFile(_) => false,
        }
    }
}

/// An error with its causes, in one line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    mayfly_core::chain::Chain(error).to_string()
}
