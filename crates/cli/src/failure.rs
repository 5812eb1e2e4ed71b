//! What went wrong before there was a job, for a person and for the exit code.

use std::{fmt, process::ExitCode};

use mayfly_core::chain::Chain;
use mayfly_sandbox::{error::EngineError, images::ImageError};
use mayfly_settings::SettingsError;
use mayfly_store::error::StoreError;
use mayfly_telemetry::TelemetryError;

use crate::{
    exit,
    terminal::{self, shown},
};

/// An error with the exit code that it ends the process with.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    error: anyhow::Error,
}

impl Failure {
    /// An error, and the exit code that it ends the process with.
    pub fn new(code: u8, error: impl Into<anyhow::Error>) -> Self {
        Self {
            code,
            error: error.into(),
        }
    }

    /// The same error, with what it is about before it.
    pub(crate) fn about(self, what: String) -> Self {
        Self {
            code: self.code,
            error: self.error.context(what),
        }
    }

    /// A wrong flag, file or job, in words.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(exit::USAGE, anyhow::anyhow!("{message}"))
    }

    /// What went wrong, causes included, in one line.
    pub(crate) fn text(&self) -> String {
        Chain(self.error.as_ref()).to_string()
    }

    /// Says it on stderr, causes included.
    pub(crate) fn say(&self) -> ExitCode {
        let line = self.text();
        terminal::say(&format!("mayfly: error: {}", shown(&line)));
        ExitCode::from(self.code)
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        let code = match error {
            EngineError::Address { .. } => exit::USAGE,
            EngineError::Unreachable { .. }
            | EngineError::Call { .. }
            | EngineError::TimedOut { .. }
            | EngineError::BeingRemoved => exit::NO_ENGINE,
            EngineError::HostUnfit(_) => exit::UNFIT,
            EngineError::Guest(_)
            | EngineError::NoGuest { .. }
            | EngineError::GuestFile { .. }
            | EngineError::NoFilter { .. }
            | EngineError::FilterFile(_)
            | EngineError::NoUid(_) => exit::INTERNAL,
        };
        Self::new(code, error)
    }
}

impl From<ImageError> for Failure {
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::Engine(error) => error.into(),
            error => Self::new(exit::NO_IMAGE, error),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let code = match error {
            StoreError::NoSuchJob(_)
            | StoreError::NoSuchBatch(_)
            | StoreError::NoSuchUpload(_)
            | StoreError::NoSuchTenant(_)
            | StoreError::NoSuchKey(_)
            | StoreError::NoSuchExecutor(_) => exit::NOT_FOUND,
            StoreError::TenantExists(_) | StoreError::ExecutorExists(_) | StoreError::KeyConflict(_) => {
                exit::USAGE
            }
            StoreError::OverQuota { .. } => exit::IN_USE,
            StoreError::Open { .. }
            | StoreError::NewerSchema { .. }
            | StoreError::Query { .. }
            | StoreError::Refused { .. }
            | StoreError::PoolIsLive(_)
            | StoreError::Corrupt { .. } => exit::NO_STORE,
        };
        Self::new(code, error)
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        Self::new(exit::USAGE, error)
    }
}

impl From<TelemetryError> for Failure {
    fn from(error: TelemetryError) -> Self {
        Self::new(exit::USAGE, error)
    }
}
