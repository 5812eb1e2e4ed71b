//! The section `[pool]`: sandboxes that are kept ready for jobs to come.

use std::collections::BTreeMap;

use mayfly_core::units::{ByteSize, CpuShare, Span};
use serde::{Deserialize, Serialize};

use crate::SettingsError;

/// Sandboxes that one process can have at once: it has two uids for each.
pub const SANDBOXES: u32 = 32;

/// Longest that a sandbox may wait: its guest and its checks are as old as it is.
const LONGEST_IDLE: Span = Span::seconds(3600);

/// Sandboxes that are made before their jobs are known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolSettings {
    /// How many wait at most, in all. 0: none, and limits are in force exactly as asked for.
    pub size: u32,
    /// How many of one kind wait at most.
    pub max: u32,
    /// How long one may wait before it is destroyed, and another made where it is wanted.
    pub max_idle: Span,
    /// How many may be begun in a second.
    pub start_rate: u32,
    /// How many may be in the making at once.
    pub starts: u32,
    /// Whether the interpreter of Python sources is started before the job is known.
    pub python: bool,
    /// What limits are rounded up to, so that few kinds serve all jobs.
    pub classes: PoolClasses,
    /// What is kept whether or not it was asked for of late, by the catalog's names.
    #[serde(default)]
    pub images: BTreeMap<String, PoolImage>,
}

/// Steps that limits are rounded up to; over the last one they stay exact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolClasses {
    /// Of `memory`.
    pub memory: Vec<ByteSize>,
    /// Of `cpu`.
    pub cpu: Vec<CpuShare>,
    /// Of `pids`.
    pub pids: Vec<u32>,
}

/// What is kept of one image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PoolImage {
    /// This many always wait, with the policy's usual limits.
    pub min: u32,
    /// Modules that the waiting interpreter has imported.
    pub imports: Vec<String>,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            size: 0,
            max: SANDBOXES,
            max_idle: Span::seconds(300),
            start_rate: 4,
            starts: 2,
            python: true,
            classes: PoolClasses {
                memory: [64, 128, 256, 512, 1024, 2048, 4096, 8192]
                    .map(ByteSize::mib)
                    .to_vec(),
                cpu: [500, 1000, 2000, 4000, 8000].map(CpuShare::millis).to_vec(),
                pids: vec![32, 64, 128, 256, 512, 1024, 2048, 4096],
            },
            images: BTreeMap::new(),
        }
    }
}

impl PoolSettings {
    /// No sandbox is kept ready.
    #[must_use]
    pub const fn is_off(&self) -> bool {
        self.size == 0
    }

    /// The same with another size.
    ///
    /// # Errors
    /// [`SettingsError::Impossible`] where the others don't go with it.
    pub fn with_size(&self, size: u32) -> Result<Self, SettingsError> {
        let settings = Self { size, ..self.clone() };
        settings.check()?;
        Ok(settings)
    }

    /// What no single value shows.
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        let impossible = |path: &str, why: String| {
            Err(SettingsError::Impossible {
                path: path.to_owned(),
                why,
            })
        };
        if self.size >= SANDBOXES {
            let why = format!("it must be under {SANDBOXES}, the sandboxes that one process has users for");
            return impossible("pool.size", why);
        }
        for (path, value) in [
            ("pool.max", self.max),
            ("pool.start_rate", self.start_rate),
            ("pool.starts", self.starts),
        ] {
            if value == 0 {
                return impossible(path, "it must be at least 1".to_owned());
            }
        }
        if self.max_idle < Span::seconds(1) || self.max_idle > LONGEST_IDLE {
            return impossible(
                "pool.max_idle",
                format!("it must be between 1s and {LONGEST_IDLE}"),
            );
        }
        let kept: u64 = self.images.values().map(|image| u64::from(image.min)).sum();
        if !self.is_off() && kept > u64::from(self.size) {
            let why = format!("together they keep {kept}, and `pool.size` is {}", self.size);
            return impossible("pool.images", why);
        }
        Ok(())
    }

    /// Whether so many jobs at once leave room for the pool.
    ///
    /// # Errors
    /// [`SettingsError::Impossible`] where together they need more sandboxes than one process has users for.
    pub fn fits_beside(&self, slots: u32) -> Result<(), SettingsError> {
        if u64::from(self.size) + u64::from(slots) <= u64::from(SANDBOXES) {
            return Ok(());
        }
        Err(SettingsError::Impossible {
            path: "pool.size".to_owned(),
            why: format!(
                "with {slots} jobs at a time it must be at most {}: one process has users for {SANDBOXES} sandboxes",
                SANDBOXES.saturating_sub(slots)
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut PoolSettings)) -> Result<(), String> {
        let mut settings = PoolSettings::default();
        change(&mut settings);
        settings.check().map_err(|error| error.to_string())
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        assert_eq!(check(|_| {}), Ok(()));
        type Change = fn(&mut PoolSettings);
        let changes: [(Change, &str); 6] = [
            (|pool| pool.size = SANDBOXES, "pool.size"),
            (|pool| pool.max = 0, "pool.max"),
            (|pool| pool.start_rate = 0, "pool.start_rate"),
            (|pool| pool.starts = 0, "pool.starts"),
            (|pool| pool.max_idle = Span::millis(999), "pool.max_idle"),
            (|pool| pool.max_idle = Span::seconds(3601), "pool.max_idle"),
        ];
        for (change, path) in changes {
            let error = check(change).unwrap_err();
            assert!(error.contains(path), "{error}");
        }
    }

    #[test]
    fn what_is_always_kept_must_have_room() {
        let keep = |pool: &mut PoolSettings, size| {
            pool.size = size;
            for name in ["a", "b"] {
                pool.images.insert(
                    name.to_owned(),
                    PoolImage {
                        min: 2,
                        ..PoolImage::default()
                    },
                );
            }
        };
        assert_eq!(check(|pool| keep(pool, 4)), Ok(()));
        assert_eq!(check(|pool| keep(pool, 0)), Ok(()), "it is off");
        assert!(check(|pool| keep(pool, 3)).unwrap_err().contains("pool.images"));
    }

    #[test]
    fn jobs_and_pool_share_the_users_of_a_process() {
        let pool = PoolSettings {
            size: 4,
            ..PoolSettings::default()
        };
        assert!(pool.fits_beside(SANDBOXES - 4).is_ok());
        assert!(pool.fits_beside(SANDBOXES - 3).is_err());
    }
}
