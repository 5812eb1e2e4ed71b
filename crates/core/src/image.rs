//! Images: the name that a job gives, and the pin that a run uses. A tag can be moved to other content at any time,
//! so that nothing runs by tag; a name means what the catalog pinned it to.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::digest::Digest;

/// How a job names its image: an entry of the catalog, or a reference with a digest.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ImageName {
    /// A name of the catalog: `python`.
    Catalog(String),
    /// `repository@sha256:…`, with the repository as written.
    Digest {
        /// Registry and path, without tag and digest.
        repository: String,
        /// The manifest's digest.
        digest: Digest,
    },
}

/// A reference that names no one image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseImageError {
    /// A tag, which can be moved.
    #[error(
        "`{0}` names an image by tag, and a tag can be moved to other content: pin it once with \
         `mayfly image pin NAME {0}` and use NAME, or give `repository@sha256:…`"
    )]
    Tag(String),
    /// Neither a name nor a reference.
    #[error("`{0}` is no image name: use a name of `mayfly image list` or `repository@sha256:…`")]
    Malformed(String),
}

/// Longest image name that is taken, in bytes: a repository of at most 255 (OCI distribution spec, "Pull") and a
/// digest.
const MAX_NAME: usize = 255 + 1 + 71;

impl FromStr for ImageName {
    type Err = ParseImageError;

    fn from_str(text: &str) -> Result<Self, ParseImageError> {
        let malformed = || ParseImageError::Malformed(text.chars().take(80).collect());
        if text.is_empty() || text.len() > MAX_NAME {
            return Err(malformed());
        }
        if let Some((reference, digest)) = text.split_once('@') {
            let digest = digest.parse().map_err(|_| malformed())?;
            // `repository:tag@digest` is allowed by the reference grammar and the tag then means nothing.
            let repository = without_tag(reference).unwrap_or(reference);
            return if is_repository(repository) {
                Ok(Self::Digest {
                    repository: repository.to_owned(),
                    digest,
                })
            } else {
                Err(malformed())
            };
        }
        if let Some(repository) = without_tag(text) {
            return Err(if is_repository(repository) {
                ParseImageError::Tag(text.to_owned())
            } else {
                malformed()
            });
        }
        if is_path_component(text) {
            return Ok(Self::Catalog(text.to_owned()));
        }
        // `registry/path` without a tag means `:latest`, the most moved tag of all.
        Err(if is_repository(text) {
            ParseImageError::Tag(format!("{text}:latest"))
        } else {
            malformed()
        })
    }
}

/// The part before the tag, if there is a tag. A colon before the last slash belongs to a registry's port.
fn without_tag(reference: &str) -> Option<&str> {
    let (repository, tag) = reference.rsplit_once(':')?;
    (!tag.contains('/')).then_some(repository)
}

/// The grammar of the OCI distribution spec: an optional registry, then lower-case path components.
fn is_repository(text: &str) -> bool {
    let (first, rest) = text
        .split_once('/')
        .map_or((text, None), |(first, rest)| (first, Some(rest)));
    match rest {
        None => is_path_component(first),
        Some(rest) => {
            (is_registry(first) || is_path_component(first)) && rest.split('/').all(is_path_component)
        }
    }
}

fn is_registry(text: &str) -> bool {
    let (host, port) = text
        .split_once(':')
        .map_or((text, "0"), |(host, port)| (host, port));
    let label_ok = |label: &str| {
        label.starts_with(|c: char| c.is_ascii_alphanumeric())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let host_ok = host.split('.').all(label_ok);
    let is_host = text.contains('.') || text.contains(':') || host == "localhost";
    host_ok && is_host && port.parse::<u16>().is_ok()
}

/// Lower-case words, between them one `.`, one or two `_`, or any number of `-`.
fn is_path_component(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_separator = |text: &str| matches!(text, "." | "_" | "__") || text.bytes().all(|byte| byte == b'-');
    text.starts_with(is_word)
        && text.ends_with(is_word)
        && text
            .split(is_word)
            .all(|between| between.is_empty() || is_separator(between))
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Catalog(name) => f.write_str(name),
            Self::Digest { repository, digest } => write!(f, "{repository}@{digest}"),
        }
    }
}

impl Serialize for ImageName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ImageName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

/// What exactly a name was pinned to, on which engine it was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ImagePin {
    /// The reference as it was pinned, for people: `python:3.13-slim`, or the file that it was loaded from.
    pub reference: String,
    /// What is recorded and compared: the manifest's digest, or the image id for an image that no registry has.
    pub digest: Digest,
    /// The digest of the image's configuration: what an engine calls its id. Two images with the same id have the
    /// same content.
    pub config_digest: Digest,
    /// `linux/amd64`.
    pub platform: String,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digest() -> Digest {
        Digest::of(b"image")
    }

    #[test]
    fn a_catalog_name_and_a_digest_reference_are_names() {
        assert_eq!("python".parse(), Ok(ImageName::Catalog("python".into())));
        for repository in [
            "python",
            "library/python",
            "registry.example:5000/team/python",
            "localhost/a",
        ] {
            let name: ImageName = format!("{repository}@{}", digest()).parse().unwrap();
            assert_eq!(
                name,
                ImageName::Digest {
                    repository: repository.into(),
                    digest: digest()
                }
            );
        }
    }

    #[test]
    fn words_are_separated_as_the_oci_grammar_says() {
        for text in ["python-data", "a.b", "a_b", "a__b", "a---b", "0"] {
            assert_eq!(text.parse(), Ok(ImageName::Catalog(text.into())));
        }
    }

    #[test]
    fn a_tag_beside_a_digest_means_nothing() {
        let name: ImageName = format!("python:3.13@{}", digest()).parse().unwrap();
        assert_eq!(name.to_string(), format!("python@{}", digest()));
    }

    #[test]
    fn a_tag_is_refused_also_the_one_that_is_not_written() {
        for text in [
            "python:3.13",
            "python:latest",
            "registry.example:5000/python:1",
            "docker.io/library/python",
        ] {
            assert!(
                matches!(text.parse::<ImageName>(), Err(ParseImageError::Tag(_))),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_reference_is_refused() {
        let long = "a".repeat(400);
        for text in [
            "",
            "Python",
            "python@",
            "python@sha256:12",
            "@sha256:00",
            "a b",
            "../x",
            "-x",
            "python\n",
            "a//b@x",
            &long,
            "$(id)",
            "http://x/y",
            "a..b",
            "a___b",
            "a.-b",
        ] {
            assert!(
                matches!(text.parse::<ImageName>(), Err(ParseImageError::Malformed(_))),
                "{text}"
            );
        }
        assert!(format!("UPPER@{}", digest()).parse::<ImageName>().is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_taken_or_refused_and_what_is_taken_reads_back(text: String) {
            if let Ok(name) = text.parse::<ImageName>() {
                prop_assert_eq!(name.to_string().parse(), Ok(name));
            }
        }
    }
}
