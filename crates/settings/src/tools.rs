//! The sections `[tools]` and `[mcp]`: what language models are given, and how it is reached.

use mayfly_core::{image::ImageName, units::Span};
use serde::{Deserialize, Serialize};

use crate::{SettingsError, fleet::list};

/// Tools for language models.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolSettings {
    /// The image that their programs run in; empty: `image.default`.
    pub image: String,
    /// Whether there is a tool for shell scripts beside the one for Python.
    pub shell: bool,
    /// Longest time until a call is answered, with its result or with the job to wait for.
    pub answer_within: Span,
    /// Characters of each stream that an answer holds.
    pub characters: usize,
    /// Hosts that their programs ask to reach, as rules; `policy.egress.allow` of where they run has to cover them.
    #[serde(default, deserialize_with = "list")]
    pub egress: Vec<String>,
}

/// The Model Context Protocol over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpSettings {
    /// Whether the server has the route `/mcp`.
    pub serve: bool,
    /// Names that a request's `Host` may have, each with a port or for any; empty: those of this host, and that of
    /// `server.public_url`.
    #[serde(default, deserialize_with = "list")]
    pub allowed_hosts: Vec<String>,
    /// What a request's `Origin` may be, `https://app.example.com:443`; none: no page's scripts may ask.
    #[serde(default, deserialize_with = "list")]
    pub allowed_origins: Vec<String>,
}

/// Bounds of an answer's time, in milliseconds: clients give a call up after a minute, and a server answers within a minute
/// and a half.
const ANSWER_WITHIN: (u64, u64) = (100, 80_000);
/// Bounds of an answer's characters: fewer show nothing, more fill the memory of a model.
const CHARACTERS: std::ops::RangeInclusive<usize> = 200..=200_000;
/// The names of this host.
const THIS_HOST: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

impl Default for ToolSettings {
    fn default() -> Self {
        Self {
            image: String::new(),
            shell: false,
            answer_within: Span::seconds(50),
            characters: 4000,
            egress: Vec::new(),
        }
    }
}

impl Default for McpSettings {
    fn default() -> Self {
        Self {
            serve: true,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
        }
    }
}

impl ToolSettings {
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        let impossible = |path: &str, why: String| {
            Err(SettingsError::Impossible {
                path: path.to_owned(),
                why,
            })
        };
        if !self.image.is_empty() && self.image.parse::<ImageName>().is_err() {
            return impossible("tools.image", "it is no name of an image".to_owned());
        }
        if !(ANSWER_WITHIN.0..=ANSWER_WITHIN.1).contains(&self.answer_within.as_millis()) {
            let (least, most) = (Span::millis(ANSWER_WITHIN.0), Span::millis(ANSWER_WITHIN.1));
            return impossible(
                "tools.answer_within",
                format!("it is not between {least} and {most}"),
            );
        }
        if !CHARACTERS.contains(&self.characters) {
            let why = format!(
                "it must be between {} and {}",
                CHARACTERS.start(),
                CHARACTERS.end()
            );
            return impossible("tools.characters", why);
        }
        Ok(())
    }
}

impl McpSettings {
    /// The hosts by which requests may name a server that clients reach by this address, if by any but its own.
    #[must_use]
    pub fn hosts(&self, public_url: &str) -> Vec<String> {
        if !self.allowed_hosts.is_empty() {
            return self.allowed_hosts.clone();
        }
        let public = public_url.split_once("://").map(|(_, rest)| rest);
        let public = public.map(|rest| rest.split('/').next().unwrap_or(rest).to_owned());
        THIS_HOST
            .into_iter()
            .map(ToOwned::to_owned)
            .chain(public)
            .collect()
    }

    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        for origin in &self.allowed_origins {
            let rest = origin.split_once("://").map(|(_, rest)| rest);
            if origin != "null" && rest.is_none_or(|rest| rest.is_empty() || rest.contains('/')) {
                return Err(SettingsError::Impossible {
                    path: "mcp.allowed_origins".to_owned(),
                    why: "an origin is `https://HOST` and a port, `:*` for any, without a path".to_owned(),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_by_itself_and_by_its_public_address() {
        let usual = McpSettings::default();
        assert_eq!(usual.hosts(""), THIS_HOST);
        assert_eq!(
            usual.hosts("https://fleet.example:8443/mayfly").last().unwrap(),
            "fleet.example:8443"
        );
        let named = McpSettings {
            allowed_hosts: vec!["other".to_owned()],
            ..usual
        };
        assert_eq!(named.hosts("https://fleet.example"), ["other"]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let usual = ToolSettings::default();
        assert!(usual.check().is_ok());
        for wrong in [
            ToolSettings {
                image: "no such name!".to_owned(),
                ..usual.clone()
            },
            ToolSettings {
                answer_within: Span::seconds(90),
                ..usual.clone()
            },
            ToolSettings {
                characters: 10,
                ..usual
            },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
        for (origin, is_right) in [
            ("https://app.example", true),
            ("null", true),
            ("app.example", false),
            ("https://a/b", false),
            ("*", false),
        ] {
            let settings = McpSettings {
                allowed_origins: vec![origin.to_owned()],
                ..McpSettings::default()
            };
            assert_eq!(settings.check().is_ok(), is_right, "{origin}");
        }
    }
}
