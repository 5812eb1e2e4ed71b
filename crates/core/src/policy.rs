//! What a tenant may ask for. A policy is a document with a version: the SHA-256 of its canonical form, so that a
//! record names exactly the rules that were in force.

use mayfly_redact::{Rules, UnknownRule};
use serde::{Deserialize, Serialize};

use crate::{
    artifact::{ArtifactLimits, MAX_FILES, MAX_GLOBS},
    digest::{Digest, canonical_json},
    egress::EgressRules,
    fault::{Fault, Faults},
    limits::LimitRules,
    units::{ByteSize, Span},
    word::{word, words},
};

/// The rules for a tenant's jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Least, usual and most of each limit.
    pub limits: LimitRules,
    /// Runtimes that a job may ask for; the first is the default.
    pub runtimes: Vec<String>,
    /// Networks that a job may ask for; the first is the default.
    #[serde(deserialize_with = "words")]
    pub networks: Vec<Network>,
    /// What happens to a program that writes more than is kept.
    #[serde(deserialize_with = "word")]
    pub on_output_limit: OnOutputLimit,
    /// What is taken out of output beside a job's own secrets.
    #[serde(default)]
    pub redaction: RedactionRules,
    /// Bounds of the job's own text.
    pub content: ContentRules,
    /// Bounds of the files that are kept of a run.
    #[serde(default)]
    pub artifacts: ArtifactRules,
    /// What jobs may reach.
    #[serde(default)]
    pub egress: EgressRules,
    /// Most attempts that a job may ask for.
    pub max_attempts: u32,
    /// Longest time that a job may wait for its start.
    pub max_wait: Span,
}

/// Bounds of what a job brings with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContentRules {
    /// Source, files and stdin together.
    pub total: ByteSize,
    /// Uploads together.
    #[serde(default = "most_of_uploads")]
    pub uploads: ByteSize,
    /// Number of files, uploads among them.
    pub files: u32,
    /// Bytes of one path.
    pub path_bytes: u32,
    /// Arguments and environment together, names and values, as they are escaped in JSON: they travel to the guest in
    /// one frame of 64 KiB, beside our own variables.
    pub args_and_env: ByteSize,
    /// Number of arguments, the program's name among them. The guest takes 1024.
    pub args: u32,
    /// Number of environment variables. The guest takes 1024, our own among them.
    pub variables: u32,
    /// Number of labels.
    pub labels: u32,
}

/// As long as a policy says nothing of them.
const fn most_of_uploads() -> ByteSize {
    ByteSize::mib(1024)
}

/// Bounds of the files that are kept of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ArtifactRules {
    /// Globs of one job, at most 64.
    pub globs: u32,
    /// Files, at most 1000.
    pub files: u32,
    /// Bytes of one file.
    pub file: ByteSize,
    /// Bytes of all files.
    pub total: ByteSize,
    /// Time in which they are collected, after the program's end.
    pub time: Span,
}

impl Default for ArtifactRules {
    fn default() -> Self {
        Self {
            globs: 32,
            files: 100,
            file: ByteSize::mib(256),
            total: ByteSize::mib(256),
            time: Span::seconds(120),
        }
    }
}

impl ArtifactRules {
    /// Whether an executor can go by them.
    ///
    /// # Errors
    /// Bounds that are beyond what a guest takes, or what a report may name.
    pub fn check(&self) -> Result<(), Faults> {
        let mut faults = Faults::default();
        for (name, value, most) in [
            ("artifacts.globs", self.globs, MAX_GLOBS),
            ("artifacts.files", self.files, MAX_FILES),
        ] {
            if value as usize > most {
                faults.push(Fault::new(
                    name,
                    "too_large",
                    format!("{value} is more than {most}"),
                ));
            }
        }
        faults.into_result(())
    }

    /// What is in force for a job.
    #[must_use]
    pub const fn limits(&self) -> ArtifactLimits {
        ArtifactLimits {
            files: self.files,
            file: self.file,
            total: self.total,
            time: self.time,
        }
    }
}

/// The network that a run has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// No interface but loopback, and no sockets but between the job's own processes.
    None,
}

/// What happens when a stream passes what is kept of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnOutputLimit {
    /// The program runs on; the middle of the stream is counted and hashed, and not kept.
    Truncate,
    /// The program is killed, and the job ends as `limit_exceeded`.
    Kill,
}

/// What is taken out of output because it has the shape of a token (docs/redaction.md lists the rules). A job's own secrets
/// are taken out whatever stands here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedactionRules {
    /// Which rules there are.
    #[serde(deserialize_with = "word")]
    pub rules: RuleSet,
    /// Names of rules that are left out.
    pub without: Vec<String>,
}

/// A set of redaction rules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleSet {
    /// Every rule that the executor's build has.
    #[default]
    All,
    /// None.
    None,
}

impl RedactionRules {
    /// Whether they are what a policy has that says nothing.
    #[must_use]
    pub fn are_usual(&self) -> bool {
        *self == Self::default()
    }

    /// The rules as this build has them. A name in `without` that no rule of it has takes nothing away.
    #[must_use]
    pub fn resolve(&self) -> Rules {
        match self.rules {
            RuleSet::All => {
                let known = |name: &&str| Rules::known().any(|rule| rule.name == *name);
                let without: Vec<&str> = self.without.iter().map(String::as_str).filter(known).collect();
                Rules::without(&without).expect("unknown names were left out")
            }
            RuleSet::None => Rules::none(),
        }
    }

    /// Whether every name is one of a rule.
    ///
    /// # Errors
    /// The first that is none: a misspelt exception must not pass for one.
    pub fn check(&self) -> Result<(), UnknownRule> {
        let without: Vec<&str> = self.without.iter().map(String::as_str).collect();
        Rules::without(&without).map(drop)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            limits: LimitRules::default(),
            runtimes: vec!["runc".to_owned(), "runsc".to_owned(), "crun".to_owned()],
            networks: vec![Network::None],
            on_output_limit: OnOutputLimit::Truncate,
            redaction: RedactionRules::default(),
            content: ContentRules {
                total: ByteSize::mib(16),
                uploads: most_of_uploads(),
                files: 1000,
                path_bytes: 1024,
                args_and_env: ByteSize::kib(48),
                args: 1000,
                variables: 900,
                labels: 16,
            },
            artifacts: ArtifactRules::default(),
            egress: EgressRules::default(),
            max_attempts: 10,
            max_wait: Span::seconds(7 * 24 * 3600),
        }
    }
}

/// A policy together with what our own code enforces beside it: what the version is taken of.
#[derive(Serialize)]
struct Effective<'a> {
    policy: &'a Policy,
    /// Digest of the sandbox's fixed settings and of the syscall filter.
    baseline: &'a Digest,
}

impl Policy {
    /// The version of this policy on top of a sandbox baseline: any change of any default of either changes it.
    #[must_use]
    pub fn version(&self, baseline: &Digest) -> Digest {
        Digest::of(&canonical_json(&Effective {
            policy: self,
            baseline,
        }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Every leaf of a JSON document, changed one at a time.
    fn changes(value: &Value) -> Vec<Value> {
        match value {
            Value::Object(map) => map
                .iter()
                .flat_map(|(key, inner)| {
                    changes(inner).into_iter().map(move |changed| {
                        let mut map = map.clone();
                        map.insert(key.clone(), changed);
                        Value::Object(map)
                    })
                })
                .collect(),
            Value::Array(items) if items.is_empty() => vec![Value::Array(vec!["jwt".into()])],
            Value::Array(items) => vec![Value::Array(items[..items.len() - 1].to_vec())],
            Value::String(text) if text == "all" => vec!["none".into()],
            Value::String(text) if text == "truncate" => vec!["kill".into()],
            Value::String(text) if text.ends_with("iB") => vec!["3MiB".into()],
            Value::String(text) if text.parse::<f64>().is_ok() => vec!["7".into()],
            Value::String(_) => vec!["77s".into()],
            Value::Number(number) => vec![(number.as_u64().unwrap() + 1).into()],
            Value::Bool(_) | Value::Null => panic!("the policy has no such leaf"),
        }
    }

    #[test]
    fn changing_any_default_changes_the_version() {
        let baseline = Digest::of(b"baseline");
        let policy = Policy::default();
        let version = policy.version(&baseline);
        assert_ne!(version, policy.version(&Digest::of(b"another baseline")));
        let changed = changes(&serde_json::to_value(&policy).unwrap());
        assert!(changed.len() >= 46, "{}", changed.len());
        for document in changed {
            let other: Policy = serde_json::from_value(document.clone()).unwrap();
            assert_ne!(other, policy, "{document}");
            assert_ne!(other.version(&baseline), version, "{document}");
        }
    }

    #[test]
    fn a_misspelt_exception_is_no_exception() {
        let all = RedactionRules::default().resolve();
        let rules = |without: &str| RedactionRules {
            without: vec![without.to_owned()],
            ..RedactionRules::default()
        };
        assert_eq!(rules("jvt").resolve().digest(), all.digest());
        assert_eq!(rules("jvt").check().unwrap_err().name, "jvt");
        assert!(!rules("jwt").resolve().names().contains(&"jwt"));
        assert_eq!(rules("jwt").check(), Ok(()));
        let none = RedactionRules {
            rules: RuleSet::None,
            ..RedactionRules::default()
        };
        assert!(none.resolve().names().is_empty());
    }

    #[test]
    fn an_unknown_rule_is_refused() {
        let mut document = serde_json::to_value(Policy::default()).unwrap();
        document["limit"] = Value::Null;
        assert!(serde_json::from_value::<Policy>(document).is_err());
    }
}
