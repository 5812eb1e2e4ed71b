//! Digests (`sha256:…`, OCI image spec, "Digests"), the canonical form that they are taken of, and commitments.

use std::{fmt, str::FromStr};

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

pub use crate::canonical::canonical_json;

/// A SHA-256 digest, written `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// Text that is not a SHA-256 digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no digest: expected `sha256:` and 64 lower-case hexadecimal digits")]
pub struct ParseDigestError(String);

impl Digest {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Takes the 32 bytes that a hasher gave.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The 64 hexadecimal digits alone.
    #[must_use]
    pub fn to_hex(&self) -> String {
        hex::encode(self.0)
    }
}

/// What every digest begins with in text.
const PREFIX: &str = "sha256:";

impl Digest {
    /// Gives the text of it to somebody, without an allocation: each record of a job has a dozen.
    fn with_text<T>(&self, take: impl FnOnce(&str) -> T) -> T {
        let mut text = [0; PREFIX.len() + 64];
        let (prefix, digits) = text.split_at_mut(PREFIX.len());
        prefix.copy_from_slice(PREFIX.as_bytes());
        hex::encode_to_slice(self.0, digits).expect("32 bytes are 64 digits");
        take(std::str::from_utf8(&text).expect("the prefix and digits are ASCII"))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_text(|text| f.write_str(text))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Self, ParseDigestError> {
        let error = || ParseDigestError(text.chars().take(80).collect());
        let digits = text.strip_prefix(PREFIX).ok_or_else(error)?;
        if digits.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(error());
        }
        let mut bytes = [0; 32];
        hex::decode_to_slice(digits, &mut bytes).map_err(|_| error())?;
        Ok(Self(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.with_text(|text| serializer.serialize_str(text))
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl de::Visitor<'_> for Text {
            type Value = Digest;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a digest, `sha256:` and 64 digits")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Digest, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Text)
    }
}

/// A random value of one run, stored beside the content that may be erased, and dropped with it.
///
/// The audit log holds commitments under it: once the salt is gone nobody can tell by guessing what was committed to.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Salt(#[serde(with = "hex_bytes")] [u8; 32]);

impl Salt {
    /// Takes 32 random bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes, for a column.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// HMAC-SHA-256 (RFC 2104) of a digest under this salt.
    ///
    /// # Panics
    /// Never: HMAC takes a key of any length.
    #[must_use]
    pub fn commit(&self, content: &Digest) -> Digest {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(content.as_bytes());
        Digest(mac.finalize().into_bytes().into())
    }
}

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salt(…)")
    }
}

mod hex_bytes {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 32], D::Error> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(String::deserialize(deserializer)?, &mut bytes).map_err(de::Error::custom)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_digest_reads_back_and_nothing_else_does() {
        let digest = Digest::of(b"");
        // FIPS 180-4: the digest of nothing.
        assert_eq!(
            digest.to_string(),
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(digest.to_string().parse(), Ok(digest));
        for text in [
            "",
            "sha256:",
            "sha512:00",
            &digest.to_string().to_uppercase(),
            &digest.to_hex(),
            "sha256:00",
        ] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
        assert!(
            format!("sha256:{}", digest.to_hex().to_uppercase())
                .parse::<Digest>()
                .is_err()
        );
    }

    #[test]
    fn the_canonical_form_sorts_keys_and_writes_numbers_one_way() {
        // RFC 8785, sections 3.2.2 and 3.2.3.
        let value = json!({"b": 1.0, "a": "\u{20ac}\n", "A": [true, null, 1e21]});
        assert_eq!(
            canonical_json(&value),
            "{\"A\":[true,null,1e+21],\"a\":\"€\\n\",\"b\":1}".as_bytes()
        );
    }

    #[test]
    fn a_commitment_depends_on_salt_and_content_and_the_salt_is_never_printed() {
        let (one, two) = (Salt::from_bytes([1; 32]), Salt::from_bytes([2; 32]));
        let content = Digest::of(b"4111");
        assert_ne!(one.commit(&content), two.commit(&content));
        assert_ne!(one.commit(&content), one.commit(&Digest::of(b"4112")));
        assert_ne!(one.commit(&content), content);
        assert_eq!(format!("{one:?}"), "Salt(…)");
    }
}
