//! Files that tenants upload for their jobs.

use mayfly_core::units::{ByteSize, Span};
use serde::{Deserialize, Serialize};

use crate::SettingsError;

/// How much is kept of them, and for how long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UploadSettings {
    /// Most bytes of one.
    pub file: ByteSize,
    /// Most bytes of all that a tenant has.
    pub total: ByteSize,
    /// Most of them.
    pub count: u32,
    /// How long one is kept after its last use; 1 minute at least.
    pub keep: Span,
}

impl Default for UploadSettings {
    fn default() -> Self {
        Self {
            file: ByteSize::mib(1024),
            total: ByteSize::mib(10 * 1024),
            count: 1000,
            keep: Span::seconds(7 * 24 * 3600),
        }
    }
}

impl UploadSettings {
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        // What was used within the last minute counts as used now.
        if self.keep < Span::seconds(60) {
            return Err(SettingsError::Impossible {
                path: "uploads.keep".to_owned(),
                why: format!("{} is less than 60s", self.keep),
            });
        }
        Ok(())
    }
}
