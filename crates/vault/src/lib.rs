//! Named secrets: sealed before they are kept, and opened for one attempt of a job of their tenant's.
//!
//! Start with [`Vault`], which has the key, and [`give::values_for`], which is all that an executor can ask for. The key is in
//! no database: whoever has that alone has no value.
//!
//! A sealed value is, in this order: the format (one byte, 1), the key's id (8 bytes), a salt (32 random bytes), and the value
//! under AES-256-GCM with its tag. Each value has a key of its own, by HKDF-SHA-256 (RFC 5869) from the vault's key and the
//! salt, so that none is ever used twice; tenant, name and the id of the value are a part of it, so that a row which somebody
//! has moved to another tenant or name, or an older one put back under the id of a newer one, opens nothing.
//!
//! Absent on purpose: the store, and who may ask.

pub mod give;

use std::fmt;

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, KeyType, Salt},
    rand,
};
use mayfly_core::{
    id::{SecretId, TenantId},
    job::{SecretName, SecretText},
};

/// Least bytes of a key: what an attacker would have to guess.
pub const LEAST_KEY_BYTES: usize = 32;

/// Longest value, in bytes: as much as all secrets of a job may have together.
pub const MAX_VALUE_BYTES: usize = mayfly_redact::MOST_SECRET_BYTES;

const FORMAT: u8 = 1;
const KEY_ID_BYTES: usize = 8;
const SALT_BYTES: usize = 32;
const HEAD_BYTES: usize = 1 + KEY_ID_BYTES + SALT_BYTES;

/// What seals and opens secrets.
pub struct Vault {
    key: Key,
    before: Option<Key>,
}

struct Key {
    id: [u8; KEY_ID_BYTES],
    bytes: Vec<u8>,
}

/// Whose value it is.
#[derive(Debug, Clone, Copy)]
pub struct Whose<'a> {
    /// Of which tenant.
    pub tenant: TenantId,
    /// Under which name.
    pub name: &'a SecretName,
    /// Which of the values that were set under it.
    pub value: SecretId,
}

/// A key that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key for secrets has at least {LEAST_KEY_BYTES} bytes")]
pub struct KeyTooShort;

/// A sealed value that can't be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// No version of this program has written it.
    #[error("a secret is kept in a form that this program does not know")]
    Format,
    /// It was sealed with a key that is neither the one in use nor the one before.
    #[error(
        "a secret was sealed with another key: set the one that was in use before as `server.secrets_key_before`, or set the \
         secret again"
    )]
    OtherKey,
    /// It is not what was sealed, or was sealed for somebody else.
    #[error("a secret that is kept is not as it was sealed")]
    Changed,
}

/// 32 bytes of HKDF.
struct Expanded;

impl KeyType for Expanded {
    fn len(&self) -> usize {
        32
    }
}

impl Key {
    fn new(bytes: &[u8]) -> Result<Self, KeyTooShort> {
        if bytes.len() < LEAST_KEY_BYTES {
            return Err(KeyTooShort);
        }
        let mut id = [0; KEY_ID_BYTES];
        let expanded = derive(bytes, &[], &[b"mayfly secrets: the id of a key"]);
        id.copy_from_slice(&expanded[..KEY_ID_BYTES]);
        Ok(Self {
            id,
            bytes: bytes.to_vec(),
        })
    }

    /// The one key of a value.
    fn of(&self, whose: Whose<'_>, salt: &[u8]) -> LessSafeKey {
        let tenant = whose.tenant.as_uuid();
        let value = whose.value.as_uuid();
        // Both ids have 16 bytes, so that no two triples have one text.
        let info: [&[u8]; 4] = [
            b"mayfly secrets: a value",
            tenant.as_bytes(),
            value.as_bytes(),
            whose.name.as_str().as_bytes(),
        ];
        let bytes = derive(&self.bytes, salt, &info);
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &bytes).expect("AES-256 has keys of 32 bytes"))
    }
}

fn derive(key: &[u8], salt: &[u8], info: &[&[u8]]) -> [u8; 32] {
    let mut bytes = [0; 32];
    Salt::new(HKDF_SHA256, salt)
        .extract(key)
        .expand(info, Expanded)
        .and_then(|expanded| expanded.fill(&mut bytes))
        .expect("HKDF gives up to 255 times 32 bytes");
    bytes
}

/// A nonce is used once where its key is.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

impl Vault {
    /// One that seals with a key, and opens what that or the one before has sealed.
    ///
    /// # Errors
    /// A key with less than [`LEAST_KEY_BYTES`].
    pub fn new(key: &[u8], before: Option<&[u8]>) -> Result<Self, KeyTooShort> {
        Ok(Self {
            key: Key::new(key)?,
            before: before.map(Key::new).transpose()?,
        })
    }

    /// A value as it is kept.
    ///
    /// # Panics
    /// On a host without random numbers.
    #[must_use]
    pub fn seal(&self, whose: Whose<'_>, value: &SecretText) -> Vec<u8> {
        let mut salt = [0; SALT_BYTES];
        rand::fill(&mut salt).expect("the host has random numbers");
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.push(FORMAT);
        head.extend_from_slice(&self.key.id);
        head.extend_from_slice(&salt);
        let mut text = value.reveal().as_bytes().to_vec();
        self.key
            .of(whose, &salt)
            .seal_in_place_append_tag(nonce(), Aad::from(&head), &mut text)
            .expect("a value is far shorter than AES-GCM takes");
        head.append(&mut text);
        head
    }

    /// The value that was sealed.
    ///
    /// # Errors
    /// [`OpenError`], which shows nothing of it.
    pub fn open(&self, whose: Whose<'_>, sealed: &[u8]) -> Result<SecretText, OpenError> {
        let (head, text) = sealed.split_at_checked(HEAD_BYTES).ok_or(OpenError::Format)?;
        let (&format, rest) = head.split_first().ok_or(OpenError::Format)?;
        if format != FORMAT {
            return Err(OpenError::Format);
        }
        let (id, salt) = rest.split_at(KEY_ID_BYTES);
        let key = [Some(&self.key), self.before.as_ref()]
            .into_iter()
            .flatten()
            .find(|key| key.id == id)
            .ok_or(OpenError::OtherKey)?;
        let mut text = text.to_vec();
        let opened = key
            .of(whose, salt)
            .open_in_place(nonce(), Aad::from(head), &mut text)
            .map_err(|_| OpenError::Changed)?;
        String::from_utf8(opened.to_vec())
            .map(SecretText::from)
            .map_err(|_| OpenError::Changed)
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vault(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"a key of thirty-two bytes, at least";
    const OTHER: &[u8] = b"another key of thirty-two bytes, too";

    fn name(text: &str) -> SecretName {
        text.parse().unwrap()
    }

    fn value() -> SecretText {
        "correct-horse".to_owned().into()
    }

    fn vault(key: &[u8], before: Option<&[u8]>) -> Vault {
        Vault::new(key, before).unwrap()
    }

    #[test]
    fn what_was_sealed_is_opened_by_its_owner_alone() {
        let vault = vault(KEY, None);
        let (key, other) = (name("KEY"), name("OTHER"));
        let whose = Whose {
            tenant: TenantId::new(),
            name: &key,
            value: SecretId::new(),
        };
        let sealed = vault.seal(whose, &value());
        assert_eq!(vault.open(whose, &sealed), Ok(value()));
        assert!(!sealed.windows(5).any(|window| window == b"horse"));
        assert_ne!(sealed, vault.seal(whose, &value()), "each has a salt of its own");
        let strangers = [
            Whose {
                tenant: TenantId::new(),
                ..whose
            },
            Whose {
                name: &other,
                ..whose
            },
            Whose {
                value: SecretId::new(),
                ..whose
            },
        ];
        for stranger in strangers {
            assert_eq!(vault.open(stranger, &sealed), Err(OpenError::Changed));
        }
    }

    #[test]
    fn no_bit_of_it_can_be_changed() {
        let vault = vault(KEY, None);
        let key = name("KEY");
        let whose = Whose {
            tenant: TenantId::new(),
            name: &key,
            value: SecretId::new(),
        };
        let sealed = vault.seal(whose, &value());
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(vault.open(whose, &changed).is_err(), "byte {at}");
            assert!(vault.open(whose, &sealed[..at]).is_err(), "{at} bytes");
        }
        assert_eq!(vault.open(whose, &[2; 99]), Err(OpenError::Format));
    }

    #[test]
    fn another_key_opens_nothing_and_the_one_before_does() {
        let key = name("KEY");
        let whose = Whose {
            tenant: TenantId::new(),
            name: &key,
            value: SecretId::new(),
        };
        let (old, new) = (vault(KEY, None), vault(OTHER, Some(KEY)));
        let sealed = old.seal(whose, &value());
        assert_eq!(vault(OTHER, None).open(whose, &sealed), Err(OpenError::OtherKey));
        assert_eq!(new.open(whose, &sealed), Ok(value()));
        let again = new.seal(whose, &value());
        assert_eq!(new.open(whose, &again), Ok(value()));
        assert_eq!(old.open(whose, &again), Err(OpenError::OtherKey));
        assert_eq!(Vault::new(&KEY[..31], None).unwrap_err(), KeyTooShort);
        assert_eq!(Vault::new(KEY, Some(b"")).unwrap_err(), KeyTooShort);
        assert_eq!(format!("{new:?}"), "Vault(…)");
    }
}
