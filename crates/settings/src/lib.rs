//! Settings: what an operator decides. Read once, at the start, in this order, later ones winning: the defaults built
//! in here, the file, the environment, the flags of a command.
//!
//! A variable is `MAYFLY_<SECTION>__<KEY>`, deeper keys with further `__`: `MAYFLY_SANDBOX__ENGINE=unix:///run/x.sock`.
//! A key that nobody knows is an error that names it; so is a value of the wrong kind.

mod sources;

pub use sources::{Sources, Stranger};

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use config::{Config, Environment, File, FileFormat};
use mayfly_core::{image::ImageName, policy::Policy, units::Span, word::word};
use mayfly_telemetry::LogFormat;
use serde::{Deserialize, Serialize};

mod client;
mod egress;
mod fleet;
mod pool;
mod secret;
mod tools;
mod uploads;

pub use client::ClientSettings;
pub use egress::{CredentialGiven, CredentialSettings, ExecutorEgressSettings};
pub use fleet::{BrokerSettings, DatabaseSettings, ExecutorSettings, MOST_IMAGES, ServerSettings, pool};
pub use mayfly_core::host::Posture;
pub use pool::{PoolClasses, PoolImage, PoolSettings, SANDBOXES};
pub use secret::Secret;
pub use tools::{McpSettings, ToolSettings};
pub use uploads::UploadSettings;

/// Everything that can be set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Log lines, on stderr.
    pub log: LogSettings,
    /// The embedded database.
    pub store: StoreSettings,
    /// The container engine and what all sandboxes share.
    pub sandbox: SandboxSettings,
    /// Sandboxes that are kept ready.
    pub pool: PoolSettings,
    /// Images.
    pub image: ImageSettings,
    /// What jobs may ask for.
    pub policy: Policy,
    /// Files that tenants upload.
    pub uploads: UploadSettings,
    /// The server that commands ask.
    pub client: ClientSettings,
    /// The role `mayfly server`.
    pub server: ServerSettings,
    /// The database of a fleet.
    pub database: DatabaseSettings,
    /// The message broker of a fleet.
    pub broker: BrokerSettings,
    /// The role `mayfly executor`.
    pub executor: ExecutorSettings,
    /// Tools for language models.
    pub tools: ToolSettings,
    /// The Model Context Protocol over HTTP.
    pub mcp: McpSettings,
}

/// Log lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSettings {
    /// Which lines: `warn`, or `warn,mayfly=debug`.
    pub filter: String,
    /// How they look.
    #[serde(deserialize_with = "word")]
    pub format: LogFormat,
}

/// The embedded database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreSettings {
    /// Its file. The folder is made if it is not there; locks and the executor's identity lie beside it.
    pub path: PathBuf,
}

/// Sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxSettings {
    /// `unix:///path/to.sock` or `tcp://host:port`; empty: what `DOCKER_HOST` says, else the usual socket.
    pub engine: String,
    /// The label by which the sandboxes of another deployment on the same engine are left alone.
    pub deployment: String,
    /// A guest for an engine of another architecture than the one that was built in; empty: the built-in one.
    pub guest: PathBuf,
    /// How long the guest may take over a kill before the engine is asked to do it.
    pub kill_grace: Span,
    /// The first uid of the sandboxes' users. Each running `mayfly` takes 64 of them, from here up to 65535; none may
    /// belong to a user of the engine's host.
    pub first_uid: u32,
}

/// Images.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageSettings {
    /// The catalog's name that a job has which names none.
    pub default: String,
    /// Where the image `python` comes from when the catalog has none: `auto`, `present`, `pull` or `build`.
    #[serde(deserialize_with = "word")]
    pub source: ImageSource,
    /// What is pulled: a reference with a digest.
    pub python: String,
    /// How long a pull may take.
    pub pull_timeout: Span,
    /// Where the recipes of our own images are: the folder `deploy/images` of the source.
    pub recipes: PathBuf,
}

/// Ways to an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageSource {
    /// Present on the engine, else pulled, else built from Debian packages.
    Auto,
    /// Present on the engine, or not at all.
    Present,
    /// Pulled.
    Pull,
    /// Built from Debian packages.
    Build,
}

/// The process's surroundings, taken once.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// The environment.
    pub variables: HashMap<String, String>,
    /// A process that stays, and tells by its log lines what it does: they are `info` unless somebody says otherwise.
    pub is_service: bool,
    /// A settings file that was named by a flag.
    pub file: Option<PathBuf>,
    /// Settings that were given by flags: key with dots, and value.
    pub flags: Vec<(&'static str, String)>,
}

/// Why there are no settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A file can't be read, or a value can't be put where it belongs.
    #[error("the settings can't be read")]
    Read(#[source] config::ConfigError),
    /// A value of the wrong kind, or a key that nobody knows.
    #[error("setting `{path}` is wrong")]
    Wrong {
        /// The key, with dots.
        path: String,
        /// What is wrong with it.
        #[source]
        source: config::ConfigError,
    },
    /// Values that can be read and don't make sense.
    #[error("setting `{path}` is wrong: {why}")]
    Impossible {
        /// The key, with dots.
        path: String,
        /// What would be right.
        why: String,
    },
    /// Something that a role can't do without was not given.
    #[error("setting `{path}` is not given: {hint}")]
    Missing {
        /// The key, with dots.
        path: String,
        /// How to come by it.
        hint: &'static str,
    },
    /// The file that holds a secret can't be read.
    #[error("setting `{path}` is wrong: {} can't be read", file.display())]
    SecretFile {
        /// The key, with dots.
        path: String,
        /// The file.
        file: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The file that a flag named is not there.
    #[error("the settings file {} is not there", .0.display())]
    NoFile(PathBuf),
    /// There is no place for the database.
    #[error("neither XDG_DATA_HOME nor HOME is set: say where the database is with MAYFLY_STORE__PATH")]
    NoHome,
}

/// Where the uids of sandboxes may begin: above those of the system's own users, and with room below the 60000 from
/// which hosts give uids to services (systemd, "Users, Groups, UIDs and GIDs on systemd systems").
const UIDS: std::ops::RangeInclusive<u32> = 1000..=59_936;

/// How long the guest may get for a kill, in milliseconds: it answers within a few, and longer than a minute no caller
/// should wait for an end that it has asked for.
const KILL_GRACE: (u64, u64) = (100, 60_000);
/// How long a pull may take, in milliseconds.
const PULL_TIMEOUT: (u64, u64) = (1_000, 6 * 3_600_000);

/// The official `python:3.13-slim`, by the digest of its image index.
const OFFICIAL_PYTHON: &str =
    "docker.io/library/python@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b";

impl Settings {
    /// The settings of this process.
    ///
    /// # Errors
    /// A file that is named and not there, a key that nobody knows, a value of the wrong kind.
    pub fn load(surroundings: &Surroundings) -> Result<Self, SettingsError> {
        let defaults = Self::defaults(&surroundings.variables, surroundings.is_service)?;
        let mut builder =
            Config::builder().add_source(Config::try_from(&defaults).map_err(SettingsError::Read)?);
        if let Some(file) = Self::file(surroundings)? {
            builder = builder.add_source(File::from(file).format(FileFormat::Toml));
        }
        let ours = surroundings
            .variables
            .iter()
            .filter(|(name, _)| sources::is_setting(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let environment = Environment::with_prefix("MAYFLY")
            .prefix_separator("_")
            .separator("__")
            .source(Some(ours));
        builder = builder.add_source(environment);
        for (key, value) in &surroundings.flags {
            builder = builder
                .set_override(*key, value.clone())
                .map_err(SettingsError::Read)?;
        }
        let merged = builder.build().map_err(SettingsError::Read)?;
        let settings: Self = serde_path_to_error::deserialize(merged).map_err(|error| {
            let path = error.path().to_string();
            SettingsError::Wrong {
                path,
                source: error.into_inner(),
            }
        })?;
        settings.check()?;
        Ok(settings)
    }

    /// What no single value shows.
    fn check(&self) -> Result<(), SettingsError> {
        let impossible = |path: &str, why: String| {
            Err(SettingsError::Impossible {
                path: path.to_owned(),
                why,
            })
        };
        if let Err(error) = self.policy.redaction.check() {
            return impossible("policy.redaction.without", error.to_string());
        }
        if let Err(faults) = self.policy.artifacts.check() {
            return impossible("policy.artifacts", faults.to_string());
        }
        if let Err(faults) = self.policy.egress.check() {
            return impossible("policy.egress", faults.to_string());
        }
        if let Err(faults) = self.policy.limits.check() {
            return impossible("policy", faults.to_string());
        }
        self.pool.check()?;
        self.uploads.check()?;
        self.client.check()?;
        self.server.check()?;
        self.database.check()?;
        self.executor.check()?;
        self.tools.check()?;
        self.mcp.check()?;
        if self.store.path.file_name().is_none() {
            return impossible("store.path", "it must be the path of a file".to_owned());
        }
        if self.sandbox.deployment.is_empty() {
            return impossible("sandbox.deployment", "it must not be empty".to_owned());
        }
        for (path, value, range) in [
            ("sandbox.kill_grace", self.sandbox.kill_grace, KILL_GRACE),
            ("image.pull_timeout", self.image.pull_timeout, PULL_TIMEOUT),
        ] {
            if !(range.0..=range.1).contains(&value.as_millis()) {
                let (least, most) = (Span::millis(range.0), Span::millis(range.1));
                return impossible(path, format!("{value} is not between {least} and {most}"));
            }
        }
        if !UIDS.contains(&self.sandbox.first_uid) {
            let why = format!("it must be between {} and {}", UIDS.start(), UIDS.end());
            return impossible("sandbox.first_uid", why);
        }
        if !matches!(self.image.python.parse(), Ok(ImageName::Digest { .. })) {
            return impossible(
                "image.python",
                "it must be `repository@sha256:…`, since a tag can be moved".to_owned(),
            );
        }
        Ok(())
    }

    /// The file of this process, if it has one.
    fn file(surroundings: &Surroundings) -> Result<Option<PathBuf>, SettingsError> {
        let variable = |name: &str| surroundings.variables.get(name).filter(|value| !value.is_empty());
        if let Some(named) = surroundings
            .file
            .clone()
            .or_else(|| variable("MAYFLY_CONFIG").map(PathBuf::from))
        {
            return if named.is_file() {
                Ok(Some(named))
            } else {
                Err(SettingsError::NoFile(named))
            };
        }
        let own = variable("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| variable("HOME").map(|home| Path::new(home).join(".config")))
            .map(|folder| folder.join("mayfly/mayfly.toml"));
        Ok(own
            .into_iter()
            .chain([PathBuf::from("/etc/mayfly/mayfly.toml")])
            .find(|file| file.is_file()))
    }

    fn defaults(variables: &HashMap<String, String>, is_service: bool) -> Result<Self, SettingsError> {
        let variable = |name: &str| variables.get(name).filter(|value| !value.is_empty());
        let data = variable("XDG_DATA_HOME")
            .map(PathBuf::from)
            .or_else(|| variable("HOME").map(|home| Path::new(home).join(".local/share")))
            .or_else(|| variables.contains_key("MAYFLY_STORE__PATH").then(PathBuf::new))
            // A service has no home, and need not have: only `mayfly dev` keeps a database of its own.
            .or_else(|| is_service.then(|| PathBuf::from("/var/lib")))
            .ok_or(SettingsError::NoHome)?;
        Ok(Self {
            log: LogSettings {
                filter: if is_service { "info" } else { "warn" }.to_owned(),
                format: LogFormat::Text,
            },
            store: StoreSettings {
                path: data.join("mayfly/mayfly.db"),
            },
            sandbox: SandboxSettings {
                engine: variable("DOCKER_HOST").cloned().unwrap_or_default(),
                deployment: "local".to_owned(),
                guest: PathBuf::new(),
                kill_grace: Span::seconds(2),
                first_uid: 20_000,
            },
            pool: PoolSettings::default(),
            image: ImageSettings {
                default: "python".to_owned(),
                source: ImageSource::Auto,
                python: OFFICIAL_PYTHON.to_owned(),
                pull_timeout: Span::seconds(180),
                recipes: PathBuf::from("deploy/images"),
            },
            policy: Policy::default(),
            uploads: UploadSettings::default(),
            client: ClientSettings::default(),
            server: ServerSettings::default(),
            database: DatabaseSettings::default(),
            broker: BrokerSettings::default(),
            executor: ExecutorSettings::default(),
            tools: ToolSettings::default(),
            mcp: McpSettings::default(),
        })
    }
}

#[cfg(test)]
mod tests;
