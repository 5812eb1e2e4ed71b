//! Where a provider is, and the key for it.
//!
//! Both come from the environment of the process, or from a `.env` file, which the environment overrules. A `.env` file
//! lies in a folder that may be anybody's, so it never gets what is not its own: an address from it is never sent a key
//! from elsewhere, it names no files to read, and nothing in it stands for another variable.

use std::{
    collections::HashMap,
    fs,
    io::{self, Read as _},
    net::IpAddr,
    path::{Path, PathBuf},
};

use reqwest::Url;

use super::{
    key::{KeyError, ModelKey},
    name::Provider,
};

/// Longest file that is read for a key or as a `.env`, in bytes.
const LONGEST: u64 = 64 << 10;

/// What names of models, keys and addresses are read from.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// The variables of the process.
    pub process: HashMap<String, String>,
    /// A `.env` file.
    pub file: Option<DotEnv>,
}

/// A `.env` file that was read.
#[derive(Clone)]
pub struct DotEnv {
    path: PathBuf,
    variables: HashMap<String, String>,
}

impl std::fmt::Debug for DotEnv {
    /// Without what stands in it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DotEnv").field(&self.path).finish()
    }
}

/// Why a `.env` file can't be read. Its text is not repeated.
#[derive(Debug, thiserror::Error)]
pub enum DotEnvError {
    /// It can't be opened or read.
    #[error("{} can't be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It is too large to be one.
    #[error("{} is larger than {LONGEST} bytes, and no .env file", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// A line is none.
    #[error("{}, line {line}: expected NAME=VALUE", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
}

impl DotEnv {
    /// Reads one, where there is one: lines `NAME=VALUE`, `export` before it or not, quotes around the value or not,
    /// comments after `#`. Nothing is substituted.
    ///
    /// # Errors
    /// It is there and can't be read.
    pub fn read(path: &Path) -> Result<Option<Self>, DotEnvError> {
        let failed = |source| DotEnvError::Read {
            path: path.to_owned(),
            source,
        };
        let file = match fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let mut text = String::new();
        file.take(LONGEST + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > LONGEST {
            return Err(DotEnvError::TooLarge {
                path: path.to_owned(),
            });
        }
        let mut variables = HashMap::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, value) = pair(line).ok_or_else(|| DotEnvError::Line {
                path: path.to_owned(),
                line: number + 1,
            })?;
            variables.insert(name, value);
        }
        Ok(Some(Self {
            path: path.to_owned(),
            variables,
        }))
    }
}

fn pair(line: &str) -> Option<(String, String)> {
    let (name, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    let is_name = |name: &str| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    if name.is_empty() || !is_name(name) {
        return None;
    }
    let value = match value.chars().next() {
        Some(quote @ ('"' | '\'')) => value[1..].split_once(quote)?.0,
        // A comment is parted from its value by a space, so that a key with a # in it stays whole.
        _ => value.split(" #").next().unwrap_or_default().trim_end(),
    };
    Some((name.to_owned(), value.to_owned()))
}

impl Environment {
    /// A variable that is no secret: that of the process, else that of the file; an empty one counts as none.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.of_process(name).or_else(|| self.of_file(name))
    }

    fn of_process(&self, name: &str) -> Option<&str> {
        filled(self.process.get(name))
    }

    fn of_file(&self, name: &str) -> Option<&str> {
        filled(self.file.as_ref()?.variables.get(name))
    }
}

fn filled(value: Option<&String>) -> Option<&str> {
    value.map(|value| value.trim()).filter(|value| !value.is_empty())
}

/// Where a provider is, with the key that is sent there.
#[derive(Debug, Clone)]
pub struct Place {
    pub(crate) provider: Provider,
    /// Ends with a slash.
    pub(crate) base: Url,
    pub(crate) key: Option<ModelKey>,
    /// An address other than the provider's own was given.
    pub(crate) is_elsewhere: bool,
}

/// Why a provider can't be asked.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// There is no key for it.
    #[error(
        "there is no key for {provider}: set {variable}, or {variable}_FILE to a file that holds it, or name another model \
         (--model, MODEL)"
    )]
    NoKey {
        /// Whose.
        provider: Provider,
        /// Where it is looked for.
        variable: &'static str,
    },
    /// It is given twice.
    #[error("{variable} and {variable}_FILE are both set: give one of them")]
    Both {
        /// Where it is looked for.
        variable: &'static str,
    },
    /// Its file can't be read.
    #[error("{variable}_FILE: {} can't be read", file.display())]
    KeyFile {
        /// Where it is looked for.
        variable: &'static str,
        /// The file.
        file: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It is no key.
    #[error("{variable} is no key")]
    Key {
        /// Where it was found.
        variable: &'static str,
        /// Why not.
        #[source]
        source: KeyError,
    },
    /// The address is none.
    #[error(
        "{variable} is no address of an API: expected one such as {example}, without user, query or fragment"
    )]
    Address {
        /// Where it was found.
        variable: &'static str,
        /// The provider's own.
        example: &'static str,
    },
    /// Whoever is on the way would read the key.
    #[error(
        "{variable}: {host} is not this host, and over http:// everybody on the way to it reads the key: use https://"
    )]
    PlainHttp {
        /// Where the address was found.
        variable: &'static str,
        /// Its host.
        host: String,
    },
    /// A file of a folder would get a key that is not its own.
    #[error(
        "{} sets {variable}, and the key for it is not in that file: a key is not sent where a file in a folder says; set \
         {variable} in the environment, or the key in the file",
        file.display()
    )]
    NotItsKey {
        /// Where the address was found.
        variable: &'static str,
        /// The file.
        file: PathBuf,
    },
}

/// How a provider is found.
struct Known {
    key: &'static str,
    base: &'static str,
    own: &'static str,
    /// Whether its own address can be asked without one.
    needs_key: bool,
}

impl Provider {
    const fn known(self) -> Known {
        match self {
            Self::Anthropic => Known {
                key: "ANTHROPIC_API_KEY",
                base: "ANTHROPIC_BASE_URL",
                own: "https://api.anthropic.com",
                needs_key: true,
            },
            Self::OpenAi => Known {
                key: "OPENAI_API_KEY",
                base: "OPENAI_BASE_URL",
                own: "https://api.openai.com/v1",
                needs_key: true,
            },
            Self::Gemini => Known {
                key: "GEMINI_API_KEY",
                base: "GEMINI_BASE_URL",
                own: "https://generativelanguage.googleapis.com/v1beta",
                needs_key: true,
            },
            Self::OpenRouter => Known {
                key: "OPENROUTER_API_KEY",
                base: "OPENROUTER_BASE_URL",
                own: "https://openrouter.ai/api/v1",
                needs_key: true,
            },
            Self::Ollama => Known {
                key: "OLLAMA_API_KEY",
                base: "OLLAMA_BASE_URL",
                own: "http://localhost:11434/v1",
                needs_key: false,
            },
        }
    }

    /// The variable with its key.
    pub(crate) const fn key_variable(self) -> &'static str {
        self.known().key
    }
}

impl Place {
    /// Where a provider is, by an environment.
    ///
    /// # Errors
    /// No key where one is needed, one that can't be read, and an address that it must not be sent to.
    pub fn of(provider: Provider, environment: &Environment) -> Result<Self, PlaceError> {
        let known = provider.known();
        let from_process = environment.of_process(known.base);
        let from_file = environment.of_file(known.base).filter(|_| from_process.is_none());
        let own_key = key_of_process(environment, known.key)?;
        let file_key = environment
            .of_file(known.key)
            .map(|text| key(text, known.key))
            .transpose()?;
        let key = match (from_file, &environment.file) {
            (Some(_), Some(file)) => {
                if own_key.is_some() && file_key.is_none() {
                    return Err(PlaceError::NotItsKey {
                        variable: known.base,
                        file: file.path.clone(),
                    });
                }
                file_key
            }
            _ => own_key.or(file_key),
        };
        let given = from_process.or(from_file);
        if key.is_none() && known.needs_key && given.is_none() {
            return Err(PlaceError::NoKey {
                provider,
                variable: known.key,
            });
        }
        let base = address(given.unwrap_or(known.own)).ok_or(PlaceError::Address {
            variable: known.base,
            example: known.own,
        })?;
        let host = base.host_str().unwrap_or_default();
        if base.scheme() == "http" && key.is_some() && !is_this_host(host) {
            return Err(PlaceError::PlainHttp {
                variable: known.base,
                host: host.to_owned(),
            });
        }
        Ok(Self {
            provider,
            base,
            key,
            is_elsewhere: given.is_some(),
        })
    }

    /// Host and port, for people to see where their question goes.
    #[must_use]
    pub fn host(&self) -> String {
        let host = self.base.host_str().unwrap_or_default();
        match self.base.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }
}

fn key_of_process(environment: &Environment, variable: &'static str) -> Result<Option<ModelKey>, PlaceError> {
    let file = environment.of_process(&format!("{variable}_FILE"));
    match (environment.of_process(variable), file) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(PlaceError::Both { variable }),
        (Some(text), None) => key(text, variable).map(Some),
        (None, Some(file)) => {
            let mut text = String::new();
            fs::File::open(file)
                .and_then(|file| file.take(LONGEST).read_to_string(&mut text))
                .map_err(|source| PlaceError::KeyFile {
                    variable,
                    file: file.into(),
                    source,
                })?;
            key(&text, variable).map(Some)
        }
    }
}

fn key(text: &str, variable: &'static str) -> Result<ModelKey, PlaceError> {
    ModelKey::new(text).map_err(|source| PlaceError::Key { variable, source })
}

fn address(text: &str) -> Option<Url> {
    let mut url = Url::parse(text).ok()?;
    let is_bare = url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    if !is_bare || !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return None;
    }
    if !url.path().ends_with('/') {
        url.set_path(&format!("{}/", url.path()));
    }
    Some(url)
}

/// Whether a host's name means the host itself, without asking anybody (RFC 6761, section 6.3, for `localhost`).
fn is_this_host(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
#[path = "place/tests.rs"]
mod tests;
