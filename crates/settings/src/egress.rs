//! Credentials that an executor adds to requests of jobs.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use mayfly_core::{egress::CredentialRule, id::TenantId};
use serde::{Deserialize, Serialize};

use crate::{Secret, SettingsError, fleet::list};

/// Most credentials of an executor.
const MOST: usize = 32;
/// Most characters of the name of one.
const MOST_NAME: usize = 64;
/// Most bytes of a file of certificates: what a host trusts is a quarter of it.
const MOST_CA_BYTES: u64 = 1024 * 1024;
/// What stands for everybody's jobs.
const EVERYBODY: &str = "*";

/// What jobs on this executor reach with what they do not have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExecutorEgressSettings {
    /// By their names.
    pub credentials: BTreeMap<String, CredentialSettings>,
    /// Certificates in PEM: servers that get a credential must prove themselves to these, and to no others. Empty: to
    /// those that the host trusts.
    pub ca_file: PathBuf,
}

/// One credential, and the requests that get it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialSettings {
    /// Whose jobs use it, by the ids of their tenants; `*` for everybody's.
    #[serde(deserialize_with = "list")]
    pub tenants: Vec<String>,
    /// The host that gets it.
    pub host: String,
    /// Its port for TLS.
    #[serde(default = "usual_port")]
    pub port: u16,
    /// Methods of the requests that get it.
    #[serde(deserialize_with = "list")]
    pub methods: Vec<String>,
    /// Their paths: `/v1/messages`, or `/simple/*` for all below.
    #[serde(deserialize_with = "list")]
    pub paths: Vec<String>,
    /// The field of the request that holds it.
    #[serde(default = "usual_header")]
    pub header: String,
    /// What stands before it there, as `Bearer `.
    #[serde(default)]
    pub prefix: String,
    /// The credential; better in a file.
    #[serde(default)]
    pub value: Secret,
    /// A file that holds it.
    #[serde(default)]
    pub value_file: PathBuf,
}

/// A credential, read.
#[derive(Clone)]
pub struct CredentialGiven {
    /// Its name.
    pub name: String,
    /// Whose jobs use it; `None`: everybody's.
    pub tenants: Option<Vec<TenantId>>,
    /// Which requests get it.
    pub rule: CredentialRule,
    /// The field that holds it.
    pub header: String,
    /// What stands before it there.
    pub prefix: String,
    /// Itself.
    pub value: Secret,
}

impl fmt::Debug for CredentialGiven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialGiven")
            .field("name", &self.name)
            .field("rule", &self.rule)
            .finish_non_exhaustive()
    }
}

fn usual_port() -> u16 {
    443
}

fn usual_header() -> String {
    "Authorization".to_owned()
}

impl ExecutorEgressSettings {
    /// All of them, with what their files hold.
    ///
    /// # Errors
    /// One that is none, or a file that can't be read.
    pub fn read(&self) -> Result<Vec<CredentialGiven>, SettingsError> {
        let one = |(name, given): (&String, &CredentialSettings)| {
            let path = format!("{}.value", path(name));
            let value = given.value.or_file(&path, &given.value_file)?;
            Ok(CredentialGiven {
                tenants: given.tenants(name)?,
                rule: given.rule(name)?,
                header: given.header.clone(),
                prefix: given.prefix.clone(),
                value: value.ok_or(SettingsError::Missing {
                    path,
                    hint: "give it, or the path of a file that holds it as `value_file`",
                })?,
                name: name.clone(),
            })
        };
        self.credentials.iter().map(one).collect()
    }

    /// Certificates that are trusted in place of those of the host, if any are.
    ///
    /// # Errors
    /// The file can't be read, or is longer than certificates are.
    pub fn trusted(&self) -> Result<Option<Vec<u8>>, SettingsError> {
        use std::io::Read as _;
        if self.ca_file.as_os_str().is_empty() {
            return Ok(None);
        }
        let path = "executor.egress.ca_file";
        let mut pem = Vec::new();
        std::fs::File::open(&self.ca_file)
            .and_then(|file| file.take(MOST_CA_BYTES + 1).read_to_end(&mut pem))
            .map_err(|source| SettingsError::SecretFile {
                path: path.to_owned(),
                file: self.ca_file.clone(),
                source,
            })?;
        if pem.len() as u64 > MOST_CA_BYTES {
            return impossible(path, format!("it has more than {MOST_CA_BYTES} bytes"));
        }
        Ok(Some(pem))
    }

    /// What can be said without reading a file.
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        if self.credentials.len() > MOST {
            let why = format!("there are {}, and may be {MOST}", self.credentials.len());
            return impossible("executor.egress.credentials", why);
        }
        for (name, given) in &self.credentials {
            let known =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
            if name.is_empty() || name.len() > MOST_NAME || !name.bytes().all(known) {
                let why = format!("a name has up to {MOST_NAME} lower-case letters, digits, `-` and `_`");
                return impossible(&path(name), why);
            }
            given.tenants(name)?;
            given.rule(name)?;
        }
        Ok(())
    }
}

impl CredentialSettings {
    fn tenants(&self, name: &str) -> Result<Option<Vec<TenantId>>, SettingsError> {
        let path = format!("{}.tenants", path(name));
        if self.tenants.iter().map(String::as_str).eq([EVERYBODY]) {
            return Ok(None);
        }
        if self.tenants.is_empty() {
            let why = format!("name the tenants whose jobs use it, or `{EVERYBODY}`");
            return impossible(&path, why);
        }
        let tenant = |text: &String| {
            text.parse()
                .or_else(|_| impossible(&path, format!("{text:?} is no id of a tenant")))
        };
        self.tenants
            .iter()
            .map(tenant)
            .collect::<Result<_, _>>()
            .map(Some)
    }

    fn rule(&self, name: &str) -> Result<CredentialRule, SettingsError> {
        CredentialRule::new(&self.host, self.port, &self.methods, &self.paths)
            .or_else(|fault| impossible(&path(name), fault.to_string()))
    }
}

fn path(name: &str) -> String {
    let shown: String = name.chars().take(MOST_NAME).collect();
    format!("executor.egress.credentials.{shown}")
}

fn impossible<T>(path: &str, why: String) -> Result<T, SettingsError> {
    Err(SettingsError::Impossible {
        path: path.to_owned(),
        why,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings(change: serde_json::Value) -> ExecutorEgressSettings {
        let mut one = json!({
            "tenants": "*", "host": "pypi.example", "methods": ["GET"], "paths": "/simple/*,/files/*",
            "value": "Correct-Horse",
        });
        let (one_map, change) = (one.as_object_mut().unwrap(), change.as_object().unwrap().clone());
        one_map.extend(change);
        serde_json::from_value(json!({"credentials": {"pypi": one}})).unwrap()
    }

    #[test]
    fn a_credential_is_read_from_its_setting_or_its_file_and_never_shown() {
        let given = settings(json!({}));
        given.check().unwrap();
        let read = given.read().unwrap();
        assert_eq!(
            (read[0].value.expose(), read[0].tenants.as_ref()),
            ("Correct-Horse", None)
        );
        let text = format!("{read:?}{given:?}{}", serde_json::to_string(&given).unwrap());
        assert!(!text.contains("Horse"), "{text}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        std::fs::write(&file, "Battery-Staple\n").unwrap();
        let tenant = TenantId::LOCAL;
        let filed = settings(json!({"value": "", "value_file": file, "tenants": [tenant.to_string()]}));
        let read = filed.read().unwrap();
        assert_eq!(read[0].value.expose(), "Battery-Staple");
        assert_eq!(read[0].tenants, Some(vec![tenant]));
        let both = settings(json!({"value_file": file}))
            .read()
            .unwrap_err()
            .to_string();
        assert!(both.contains("not both") && !both.contains("Horse"), "{both}");
        let neither = settings(json!({"value": ""})).read().unwrap_err().to_string();
        assert!(
            neither.contains("executor.egress.credentials.pypi.value"),
            "{neither}"
        );
    }

    #[test]
    fn what_would_open_more_than_was_meant_is_refused() {
        for (change, word) in [
            (json!({"tenants": []}), "tenants"),
            (json!({"tenants": ["*", "x"]}), "tenants"),
            (json!({"tenants": ["me"]}), "tenants"),
            (json!({"methods": []}), "method"),
            (json!({"methods": ["TRACE"]}), "TRACE"),
            (json!({"paths": []}), "path"),
            (json!({"paths": ["*"]}), "path"),
            (json!({"host": "*.example.test"}), "host"),
            (json!({"host": "10.0.0.7"}), "host"),
            (json!({"port": 80}), "80"),
        ] {
            let error = settings(change.clone()).check().unwrap_err().to_string();
            assert!(
                error.contains("executor.egress.credentials.pypi") && error.contains(word),
                "{change}: {error}"
            );
        }
        let named = ExecutorEgressSettings {
            credentials: [(
                "Not a name".to_owned(),
                settings(json!({})).credentials["pypi"].clone(),
            )]
            .into(),
            ..ExecutorEgressSettings::default()
        };
        assert!(named.check().is_err());
    }

    #[test]
    fn who_is_trusted_is_read_with_a_bound() {
        assert_eq!(ExecutorEgressSettings::default().trusted().unwrap(), None);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let given = ExecutorEgressSettings {
            ca_file: file.clone(),
            ..ExecutorEgressSettings::default()
        };
        assert!(given.trusted().unwrap_err().to_string().contains("ca_file"));
        std::fs::write(&file, "x").unwrap();
        assert_eq!(given.trusted().unwrap(), Some(b"x".to_vec()));
        std::fs::write(&file, vec![b'x'; 1024 * 1024 + 1]).unwrap();
        assert!(given.trusted().is_err());
    }
}
