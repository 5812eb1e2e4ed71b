//! Settings that nobody may see: given as a value, or better as a file that holds it.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::SettingsError;

/// Longest file that is read for a secret, in bytes.
const LONGEST: u64 = 64 * 1024;

/// A value that is never shown: not in logs, not in errors, not in what `mayfly doctor` prints.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The value, for the one place that uses it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether it was not given.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of the setting `path`, or what stands in the file of `<path>_file`. `None` where neither is given.
    ///
    /// # Errors
    /// Both are given, or the file can't be read or is empty.
    pub(crate) fn or_file(&self, path: &str, file: &Path) -> Result<Option<Self>, SettingsError> {
        match (self.is_empty(), file.as_os_str().is_empty()) {
            (true, true) => Ok(None),
            (false, true) => Ok(Some(self.clone())),
            (false, false) => Err(SettingsError::Impossible {
                path: path.to_owned(),
                why: format!("give it or `{path}_file`, not both"),
            }),
            (true, false) => Self::read(path, file).map(Some),
        }
    }

    fn read(path: &str, file: &Path) -> Result<Self, SettingsError> {
        use std::io::Read as _;
        let unreadable = |source| SettingsError::SecretFile {
            path: format!("{path}_file"),
            file: PathBuf::from(file),
            source,
        };
        let mut text = String::new();
        std::fs::File::open(file)
            .and_then(|file| file.take(LONGEST).read_to_string(&mut text))
            .map_err(unreadable)?;
        let value = text.trim();
        if value.is_empty() {
            return Err(SettingsError::Impossible {
                path: format!("{path}_file"),
                why: format!("{} is empty", file.display()),
            });
        }
        Ok(Self(value.to_owned()))
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Self(value)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() {
            "Secret()"
        } else {
            "Secret(…)"
        })
    }
}

impl Serialize for Secret {
    /// Without the value: what is written out is for people. The defaults, which are settings' first source, have none.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(if self.is_empty() { "" } else { "…" })
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_prints_it_shows_it() {
        let secret = Secret::from("amqp://u:hunter2@h".to_owned());
        assert!(!format!("{secret:?}").contains("hunter2"));
        assert!(!serde_json::to_string(&secret).unwrap().contains("hunter2"));
        assert_eq!(serde_json::to_string(&Secret::default()).unwrap(), "\"\"");
    }

    #[test]
    fn a_file_holds_it_or_the_setting_does_and_not_both() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("url");
        std::fs::write(&file, "postgres://u:p@h/d\n").unwrap();
        let none = Secret::default();
        let read = none.or_file("database.api_url", &file).unwrap().unwrap();
        assert_eq!(read.expose(), "postgres://u:p@h/d");
        assert_eq!(none.or_file("database.api_url", Path::new("")).unwrap(), None);
        let both = read.or_file("database.api_url", &file).unwrap_err().to_string();
        assert!(both.contains("not both") && !both.contains("u:p"), "{both}");
        std::fs::write(&file, " \n").unwrap();
        assert!(none.or_file("database.api_url", &file).is_err(), "it is empty");
        let error = none
            .or_file("broker.url", Path::new("/nowhere/url"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("broker.url_file"), "{error}");
    }
}
