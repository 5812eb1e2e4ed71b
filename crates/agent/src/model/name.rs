//! Which provider a model's name means.
//!
//! A question may hold what its asker would show to one provider and not to another, so a name that is not known goes
//! nowhere: it is refused with the spelling that is.

use std::{fmt, str::FromStr};

/// Whose API a model is asked through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// The Messages API of Anthropic.
    Anthropic,
    /// The Chat Completions API of OpenAI, or of a server that speaks it.
    OpenAi,
    /// The Gemini API of Google.
    Gemini,
    /// OpenRouter.
    OpenRouter,
    /// A server of Ollama.
    Ollama,
}

impl Provider {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Anthropic,
        Self::OpenAi,
        Self::Gemini,
        Self::OpenRouter,
        Self::Ollama,
    ];

    /// Its own name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "Anthropic",
            Self::OpenAi => "OpenAI",
            Self::Gemini => "Gemini",
            Self::OpenRouter => "OpenRouter",
            Self::Ollama => "Ollama",
        }
    }

    /// What stands before the slash.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::Gemini => "gemini",
            Self::OpenRouter => "openrouter",
            Self::Ollama => "ollama",
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A model's name, of which it is known where it leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelName {
    text: String,
    provider: Provider,
    model: String,
}

/// A name that leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nobody knows whose it is.
    #[error(
        "nobody knows whose model `{name}` is, so nothing was sent anywhere: {hint}; known are claude-…, gpt-…, o1… to \
         o9…, and anthropic/…, openai/…, gemini/…, openrouter/… and ollama/… with a name after the slash"
    )]
    Unknown {
        /// What was given.
        name: String,
        /// What may have been meant.
        hint: String,
    },
    /// It is no name.
    #[error("`{name}` is no name of a model: it is letters, digits and `-._:/@+`, at most 200")]
    NoName {
        /// Its start.
        name: String,
    },
}

impl ModelName {
    /// As it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whose it is.
    #[must_use]
    pub const fn provider(&self) -> Provider {
        self.provider
    }

    /// As its provider knows it.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }
}

impl FromStr for ModelName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let ordinary = |c: char| c.is_ascii_alphanumeric() || "-._:/@+".contains(c);
        // It becomes a part of Gemini's address.
        if text.is_empty() || text.len() > 200 || !text.chars().all(ordinary) || text.contains("..") {
            return Err(NameError::NoName {
                name: text.chars().take(80).collect(),
            });
        }
        let (provider, model) = match text.split_once('/') {
            Some((prefix, model)) => {
                let known = Provider::ALL.into_iter().find(|one| one.prefix() == prefix);
                match known.filter(|_| !model.is_empty()) {
                    Some(provider) => (provider, model),
                    None => return Err(unknown(text)),
                }
            }
            None if text.starts_with("claude-") => (Provider::Anthropic, text),
            None if text.starts_with("gpt-") || is_o_series(text) => (Provider::OpenAi, text),
            None => return Err(unknown(text)),
        };
        Ok(Self {
            text: text.to_owned(),
            provider,
            model: model.to_owned(),
        })
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// `o1`, `o3-mini`: one digit, then nothing or a dash.
fn is_o_series(text: &str) -> bool {
    let mut rest = text.bytes();
    rest.next() == Some(b'o')
        && rest.next().is_some_and(|byte| byte.is_ascii_digit())
        && matches!(rest.next(), None | Some(b'-'))
}

fn unknown(text: &str) -> NameError {
    let hint = if text.starts_with("gemini") || text.starts_with("gemma") {
        format!("`gemini/{text}` may be meant")
    } else if text.contains('/') {
        format!("`openrouter/{text}` may be meant")
    } else if text.contains(':') {
        format!("`ollama/{text}` may be meant")
    } else {
        format!("`ollama/{text}` may be meant, or `openai/{text}` at a server of your own")
    };
    NameError::Unknown {
        name: text.to_owned(),
        hint,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_to_one_provider() {
        for (text, provider, model) in [
            ("claude-sonnet-5-5", Provider::Anthropic, "claude-sonnet-5-5"),
            ("anthropic/claude-x", Provider::Anthropic, "claude-x"),
            ("gpt-4o", Provider::OpenAi, "gpt-4o"),
            ("o3-mini", Provider::OpenAi, "o3-mini"),
            ("o1", Provider::OpenAi, "o1"),
            (
                "openai/meta-llama/Llama-3",
                Provider::OpenAi,
                "meta-llama/Llama-3",
            ),
            ("gemini/gemini-2.5-flash", Provider::Gemini, "gemini-2.5-flash"),
            (
                "openrouter/anthropic/claude-x",
                Provider::OpenRouter,
                "anthropic/claude-x",
            ),
            ("ollama/llama3.1:8b", Provider::Ollama, "llama3.1:8b"),
        ] {
            let name: ModelName = text.parse().unwrap();
            assert_eq!((name.provider(), name.model()), (provider, model), "{text}");
            assert_eq!(name.as_str(), text);
        }
    }

    #[test]
    fn a_name_that_nobody_knows_is_refused_and_what_may_be_meant_is_said() {
        for (text, hint) in [
            ("llama3.1:8b", "`ollama/llama3.1:8b`"),
            ("gemini-2.5-pro", "`gemini/gemini-2.5-pro`"),
            ("meta-llama/llama-3", "`openrouter/meta-llama/llama-3`"),
            ("omni", "`openai/omni`"),
            ("o", "`openai/o`"),
            ("o12x", "`openai/o12x`"),
            ("claude", "`openai/claude`"),
            ("OpenAI/gpt-4o", "`openrouter/OpenAI/gpt-4o`"),
            ("ollama/", "known are"),
        ] {
            let error = text.parse::<ModelName>().unwrap_err().to_string();
            assert!(
                error.contains(hint) && error.contains("nothing was sent"),
                "{text}: {error}"
            );
        }
        for text in ["", "gpt 4", "gpt-4\n", "gemini/../../x", "claude-é", "gpt-?key=1"] {
            let error = text.parse::<ModelName>().unwrap_err();
            assert!(matches!(error, NameError::NoName { .. }), "{text}: {error}");
        }
    }
}
