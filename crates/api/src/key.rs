//! The text of a key: `mayfly_`, the key's id and its secret. The id finds the record; the secret proves the right to it.

use std::{fmt, str::FromStr};

use mayfly_core::{digest::Digest, id::KeyId};
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

/// A key as its holder has it.
#[derive(Clone)]
pub struct ApiKey {
    id: KeyId,
    secret: [u8; 32],
}

/// What every key begins with, so that scanners of code and logs know one.
const BEGIN: &str = "mayfly_";

/// Text that is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is no API key: one is `mayfly_`, 32 hexadecimal digits, `_`, and 64 more")]
pub struct ParseKeyError;

impl ApiKey {
    /// A new key that nobody can guess.
    #[must_use]
    pub fn generate() -> Self {
        Self {
            id: KeyId::new(),
            secret: random_32(),
        }
    }

    /// Its id.
    #[must_use]
    pub const fn id(&self) -> KeyId {
        self.id
    }

    /// What is stored of its secret.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.secret)
    }

    /// The whole text, to be shown once.
    #[must_use]
    pub fn reveal(&self) -> String {
        format!("{}_{}", prefix(self.id), hex::encode(self.secret))
    }

    /// Whether this is the key whose secret has that digest. Takes the same time wherever the two differ.
    #[must_use]
    pub fn opens(&self, stored: &Digest) -> bool {
        self.digest().as_bytes().ct_eq(stored.as_bytes()).into()
    }
}

/// What the text of a key begins with: it may be shown and logged.
#[must_use]
pub fn prefix(id: KeyId) -> String {
    format!("{BEGIN}{}", id.as_uuid().as_simple())
}

/// 32 bytes that nobody can guess.
pub(crate) fn random_32() -> [u8; 32] {
    // A version 4 UUID has 122 random bits of the operating system's; hashed together, four of them are 32 bytes of full
    // strength.
    let random: Vec<u8> = (0..4).flat_map(|_| *Uuid::new_v4().as_bytes()).collect();
    *Digest::of(&random).as_bytes()
}

impl FromStr for ApiKey {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, ParseKeyError> {
        let rest = text.strip_prefix(BEGIN).ok_or(ParseKeyError)?;
        let (id, secret) = rest.split_once('_').ok_or(ParseKeyError)?;
        // One text for each key: a UUID has other forms, and hexadecimal digits have two cases.
        let plain = |part: &str, length| {
            let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            part.len() == length && part.bytes().all(is_digit)
        };
        if !plain(id, 32) || !plain(secret, 64) {
            return Err(ParseKeyError);
        }
        let mut bytes = [0; 32];
        hex::decode_to_slice(secret, &mut bytes).map_err(|_| ParseKeyError)?;
        Ok(Self {
            id: KeyId::from_uuid(Uuid::parse_str(id).map_err(|_| ParseKeyError)?),
            secret: bytes,
        })
    }
}

impl fmt::Debug for ApiKey {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({}_…)", prefix(self.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back_opens_itself_alone_and_is_never_printed() {
        let (one, two) = (ApiKey::generate(), ApiKey::generate());
        let back: ApiKey = one.reveal().parse().unwrap();
        assert_eq!(back.id(), one.id());
        assert!(back.opens(&one.digest()));
        assert!(!two.opens(&one.digest()));
        let secret = hex::encode(one.secret);
        assert!(one.reveal().ends_with(&secret));
        assert!(!format!("{one:?}").contains(&secret));
        assert!(one.reveal().starts_with(&format!("{}_", prefix(one.id()))));
    }

    #[test]
    fn a_key_has_one_text() {
        let text = ApiKey::generate().reveal();
        for other in [
            text.to_uppercase(),
            format!(" {text}"),
            format!("{text}0"),
            text[..text.len() - 1].to_owned(),
            text.replace("mayfly_", "mayfly-"),
            text.replacen('_', "", 1),
            String::new(),
        ] {
            assert!(other.parse::<ApiKey>().is_err(), "{other}");
        }
    }
}
