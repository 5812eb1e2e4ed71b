//! What a tenant submits, and what becomes of it once every rule has been applied.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::{
    artifact::{ArtifactLimits, KeepAfter},
    digest::Digest,
    egress::EgressInForce,
    image::{ImageName, ImagePin},
    limits::{Limits, LimitsAsked},
    outcome::EndState,
    policy::{Network, OnOutputLimit, RedactionRules},
    units::Span,
};

mod archive;
mod mode;
mod secret;
mod text;
mod times;
mod upload;
mod validate;

pub use archive::{ArchiveFormat, InputArchive, MAX_ARCHIVES};
pub use mode::{BadMode, FileMode};
pub use secret::{
    MAX_SECRET_NAME_BYTES, NamedSecret, NamedSecrets, SecretName, SecretNameError, SecretText, SecretValue,
    SecretValues, SecretValuesError,
};
pub use text::Blob;
pub use times::Times;
pub use upload::{FetchedFile, UploadedFile};

/// A job as a tenant writes it. What is left out is the policy's default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// The image: a name of the catalog, or a reference with a digest.
    pub image: ImageName,
    /// A program's text, run by the image's interpreter for `language`. Either this or `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// The program and its first arguments. Either this or `source`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Files that are put into `/work` before the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<InputFile>,
    /// Archives whose files are put there too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub archives: Vec<InputArchive>,
    /// Files that are put there too, which the tenant has uploaded before (`PUT /v1/uploads/{digest}`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uploads: Vec<UploadedFile>,
    /// Arguments after the command or the program's file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// What the program reads from its standard input; nothing where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Blob>,
    /// Environment variables beside those that each run has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Environment variables whose values are secret, at least 4 bytes each. Whatever the job writes, they are taken out of
    /// it before it is kept or shown; nothing shows them again. No name is in `env` as well.
    #[serde(
        default,
        deserialize_with = "secret::map",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub secrets: BTreeMap<String, SecretValue>,
    /// Secrets as files below `/work` that the job's user alone can read, by their paths. As `secrets` in all else; no path
    /// is one of another file.
    #[serde(
        default,
        deserialize_with = "secret::map",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub secret_files: BTreeMap<String, SecretValue>,
    /// Limits asked for.
    #[serde(default)]
    pub limits: LimitsAsked,
    /// The network asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Hosts that it is to reach through the proxy that its sandbox has, as rules (`pypi.org`, `*.example.com:8443`); none of
    /// them beyond what the policy lets jobs reach, and at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<String>,
    /// The OCI runtime asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// Names of files to be kept after the end, as globs below `/work`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<String>,
    /// After which ends they are kept.
    #[serde(default, skip_serializing_if = "KeepAfter::is_usual")]
    pub artifacts_after: KeepAfter,
    /// For the tenant's own use; never in the audit log.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// When to try again.
    #[serde(default)]
    pub retry: RetryPolicy,
    /// Longest wait for the start, from submission, whatever `not_before` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_after: Option<Span>,
    /// It does not start before this (RFC 3339); a time that has passed is as good as none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<DateTime<Utc>>,
    /// Among the tenant's own jobs the higher goes first; 0 is usual.
    #[serde(default)]
    pub priority: i16,
    /// Whether program, arguments, files, standard input and environment are kept after the job's end. Where not, they
    /// are removed in the moment in which it ends, and nobody can show them or run them again; the result stays.
    #[serde(default = "kept", skip_serializing_if = "is_kept")]
    pub retain_source: bool,
}

const fn kept() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_kept(retain_source: &bool) -> bool {
    *retain_source
}

/// A program's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Which interpreter reads it.
    #[serde(default)]
    pub language: Language,
    /// The text itself. Any bytes: what is wrong with it is for the interpreter to say.
    pub text: Blob,
}

/// Interpreters that a source can be for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// `python3 /work/main.py`.
    #[default]
    Python,
    /// `sh /work/main.sh`.
    Shell,
}

impl Language {
    /// The program that runs a source, and the name that the source has below `/work`.
    #[must_use]
    pub fn interpreter(self) -> (&'static str, &'static str) {
        match self {
            Self::Python => ("python3", "main.py"),
            Self::Shell => ("sh", "main.sh"),
        }
    }
}

/// A file of the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct InputFile {
    /// Below `/work`, with `/` between its parts.
    pub path: String,
    /// Its content.
    pub content: Blob,
    /// Whether it may be executed: mode 0755, and 0644 where not.
    #[serde(default)]
    pub executable: bool,
    /// Its permission bits, where `executable` does not say enough. Either this or `executable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<FileMode>,
}

impl InputFile {
    /// The mode that it gets, whichever way it was said.
    #[must_use]
    pub fn file_mode(&self) -> FileMode {
        FileMode::asked(self.mode, self.executable)
    }
}

/// When a job is tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct RetryPolicy {
    /// Attempts in all. With 1 a job starts at most once, and is `lost` if its executor dies.
    pub max_attempts: u32,
    /// Ends of the job's own making after which it is tried again as well: `failed`, `timed_out`, `out_of_memory`,
    /// `limit_exceeded`. Trouble of ours needs no mention.
    pub on: Vec<EndState>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            on: Vec::new(),
        }
    }
}

/// A job with every rule applied: all that an executor needs, and nothing left to be decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedJob {
    /// The image as the job named it.
    pub image: ImageName,
    /// What that name meant at submission.
    pub pin: ImagePin,
    /// The program and all its arguments.
    pub argv: Vec<String>,
    /// Files, the source's own and those of archives among them.
    pub files: Vec<InputFile>,
    /// Files that are kept on the server, which the executor fetches while it gives them to the sandbox.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fetched: Vec<FetchedFile>,
    /// Standard input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Blob>,
    /// Environment variables that the job asked for.
    pub env: BTreeMap<String, String>,
    /// Environment variables whose values are secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, SecretText>,
    /// Files whose contents are secret, by their paths below `/work`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_files: BTreeMap<String, SecretText>,
    /// Which secrets that the server keeps it has beside them. For its executor the values of all are put in their places.
    #[serde(default, skip_serializing_if = "NamedSecrets::is_empty")]
    pub named_secrets: NamedSecrets,
    /// What is looked for in output beside them.
    #[serde(default, skip_serializing_if = "RedactionRules::are_usual")]
    pub redaction: RedactionRules,
    /// What the job asked for.
    pub asked: LimitsAsked,
    /// What is in force.
    pub limits: Limits,
    /// The network in force.
    pub network: Network,
    /// What it may reach; nothing, where it asked for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressInForce>,
    /// The OCI runtime in force.
    pub runtime: String,
    /// What happens on too much output.
    pub on_output_limit: OnOutputLimit,
    /// Globs of files to keep.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<String>,
    /// After which ends.
    #[serde(default, skip_serializing_if = "KeepAfter::is_usual")]
    pub artifacts_after: KeepAfter,
    /// How much of them, where there are globs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_limits: Option<ArtifactLimits>,
    /// When to try again.
    pub retry: RetryPolicy,
    /// The version of the policy that was applied.
    pub policy_version: Digest,
}

/// How many bytes of a job are what: the digests that its record holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentDigests {
    /// Of the program: argv and, for a source, its text.
    pub code: Digest,
    /// Of the files' content, by path. Whether they came in an archive or were uploaded, and their modes, are no part of it.
    pub files: Digest,
    /// Of standard input.
    pub stdin: Digest,
}

impl ResolvedJob {
    /// Every environment variable of the job, secret ones in clear.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        let usual = self
            .env
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let secret = self.secrets.iter();
        usual.chain(secret.map(|(name, value)| (name.as_str(), value.reveal())))
    }

    /// Whether it has a secret, wherever its value is.
    #[must_use]
    pub fn has_secrets(&self) -> bool {
        !self.secrets.is_empty() || !self.secret_files.is_empty() || !self.named_secrets.is_empty()
    }

    /// The values of its secrets, of variables and of files.
    pub fn secret_values(&self) -> impl Iterator<Item = &str> {
        let all = self.secrets.values().chain(self.secret_files.values());
        all.map(SecretText::reveal)
    }

    /// Takes the values of its secrets out of it.
    #[must_use]
    pub fn take_secrets(&mut self) -> SecretValues {
        SecretValues {
            env: std::mem::take(&mut self.secrets),
            files: std::mem::take(&mut self.secret_files),
        }
    }

    /// Bytes of files and stdin together, without those that are fetched.
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        self.files
            .iter()
            .map(|file| &file.content)
            .chain(&self.stdin)
            .map(|content| content.as_bytes().len() as u64)
            .sum()
    }

    /// Digests of what the job brought with it.
    #[must_use]
    pub fn content_digests(&self) -> ContentDigests {
        use crate::digest::canonical_json;
        let files: BTreeMap<&str, Digest> = self
            .files
            .iter()
            .map(|file| (file.path.as_str(), Digest::of(file.content.as_bytes())))
            .chain(self.fetched.iter().map(|file| (file.path.as_str(), file.digest)))
            .collect();
        let files = Digest::of(&canonical_json(&files));
        ContentDigests {
            code: Digest::of(&canonical_json(&(&self.argv, files))),
            files,
            stdin: Digest::of(self.stdin.as_ref().map_or(&[], |stdin| stdin.as_bytes())),
        }
    }
}
