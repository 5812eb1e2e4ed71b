//! The section `[client]`: the server that commands ask, where there is one.

use std::path::PathBuf;

use mayfly_core::units::Span;
use serde::{Deserialize, Serialize};

use crate::{Secret, SettingsError};

/// Commands that ask a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientSettings {
    /// Where it is: `https://mayfly.example.com`; empty: there is none, and commands do their work on this host.
    pub server: String,
    /// The API key.
    pub key: Secret,
    /// A file that holds it.
    pub key_file: PathBuf,
    /// A file of certificates in PEM: these are trusted, and no others. Empty: those that the host trusts.
    pub ca_file: PathBuf,
    /// Whether the key may travel to another host unencrypted.
    pub allow_plain_http: bool,
    /// Longest time for one request.
    pub timeout: Span,
    /// How long a request is sent again and again while the server is away or has too much to do.
    pub patience: Span,
}

/// Bounds of both times, in milliseconds.
const TIMES: (u64, u64) = (0, 24 * 3_600_000);

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            server: String::new(),
            key: Secret::default(),
            key_file: PathBuf::new(),
            ca_file: PathBuf::new(),
            allow_plain_http: false,
            timeout: Span::seconds(60),
            patience: Span::seconds(30),
        }
    }
}

impl ClientSettings {
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        for (path, value, least) in [
            ("client.timeout", self.timeout, 100),
            ("client.patience", self.patience, TIMES.0),
        ] {
            if !(least..=TIMES.1).contains(&value.as_millis()) {
                let (least, most) = (Span::millis(least), Span::millis(TIMES.1));
                return Err(SettingsError::Impossible {
                    path: path.to_owned(),
                    why: format!("{value} is not between {least} and {most}"),
                });
            }
        }
        Ok(())
    }

    /// The API key.
    ///
    /// # Errors
    /// It is not given, or can't be read.
    pub fn api_key(&self) -> Result<Secret, SettingsError> {
        let path = "client.key";
        self.key.or_file(path, &self.key_file)?.ok_or(SettingsError::Missing {
            path: path.to_owned(),
            hint: "an admin makes one with `mayfly key create`; put it into a file, and name that by `client.key_file` or \
                   MAYFLY_CLIENT__KEY_FILE",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_given_once_and_must_be_there() {
        let mut settings = ClientSettings::default();
        let missing = settings.api_key().unwrap_err().to_string();
        assert!(
            missing.contains("client.key") && missing.contains("mayfly key create"),
            "{missing}"
        );
        settings.key = Secret::from("mayfly_1_hunter2".to_owned());
        assert_eq!(settings.api_key().unwrap().expose(), "mayfly_1_hunter2");
        assert!(!format!("{settings:?}").contains("hunter2"));
        settings.key_file = PathBuf::from("/nowhere/key");
        let both = settings.api_key().unwrap_err().to_string();
        assert!(both.contains("not both") && !both.contains("hunter2"), "{both}");
    }

    #[test]
    fn times_have_bounds() {
        let times = |timeout, patience| ClientSettings {
            timeout,
            patience,
            ..ClientSettings::default()
        };
        assert!(times(Span::seconds(1), Span::millis(0)).check().is_ok());
        assert!(times(Span::millis(0), Span::seconds(1)).check().is_err());
        assert!(times(Span::seconds(1), Span::seconds(25 * 3600)).check().is_err());
    }
}
