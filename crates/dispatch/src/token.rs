//! Result tokens: what proves that an ask comes from somebody to whom the attempt was dispatched.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use mayfly_core::id::AttemptId;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::blob::BlobKey;

/// HMAC-SHA-256 (RFC 2104) of an attempt's id under the server's secret. Whoever has it may ask to start the attempt.
#[derive(Clone, Copy)]
pub struct ResultToken([u8; 32]);

/// The server's secret, under which tokens are made and checked.
#[derive(Clone)]
pub struct TokenKey([u8; 32]);

impl TokenKey {
    /// Takes 32 random bytes that only the server knows and that stay the same for as long as any attempt is not over.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The token of an attempt.
    ///
    /// # Panics
    /// Never: HMAC takes a key of any length.
    #[must_use]
    pub fn token(&self, attempt: AttemptId) -> ResultToken {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        // The prefix keeps these apart from any other use that the secret may come to have.
        mac.update(b"mayfly result token\0");
        mac.update(attempt.as_uuid().as_bytes());
        ResultToken(mac.finalize().into_bytes().into())
    }

    /// The secret of blobs' addresses. Neither of the two can be found out from the other.
    ///
    /// # Panics
    /// Never: HMAC takes a key of any length.
    #[must_use]
    pub fn blob_key(&self) -> BlobKey {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(b"mayfly blob key\0");
        BlobKey::from_bytes(mac.finalize().into_bytes().into())
    }

    /// Whether a token is the attempt's. How long it takes says nothing about how much of it is right.
    #[must_use]
    pub fn verify(&self, attempt: AttemptId, token: &ResultToken) -> bool {
        *token == self.token(attempt)
    }
}

impl PartialEq for ResultToken {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for ResultToken {}

impl fmt::Debug for ResultToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResultToken(…)")
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey(…)")
    }
}

impl Serialize for ResultToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(self.0))
    }
}

impl<'de> Deserialize<'de> for ResultToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut bytes = [0; 32];
        // The text is not in the error: it may be a token with one character too many.
        hex::decode_to_slice(&text, &mut bytes)
            .map_err(|_| de::Error::custom("a result token has 64 hexadecimal digits"))?;
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn attempt(n: u128) -> AttemptId {
        AttemptId::from_uuid(Uuid::from_u128(n))
    }

    #[test]
    fn a_token_is_good_for_its_attempt_under_its_key_alone() {
        let (key, other) = (TokenKey::from_bytes([1; 32]), TokenKey::from_bytes([2; 32]));
        let token = key.token(attempt(1));
        assert!(key.verify(attempt(1), &token));
        assert!(!key.verify(attempt(2), &token));
        assert!(!other.verify(attempt(1), &token));
    }

    #[test]
    fn a_token_with_any_bit_changed_is_refused() {
        let key = TokenKey::from_bytes([1; 32]);
        for bit in 0..256_usize {
            let mut token = key.token(attempt(1));
            token.0[bit / 8] ^= 1 << (bit % 8);
            assert!(!key.verify(attempt(1), &token), "bit {bit}");
        }
    }

    #[test]
    fn neither_token_nor_key_shows_in_debug_output_or_in_an_error() {
        let key = TokenKey::from_bytes([0xab; 32]);
        let token = key.token(attempt(1));
        let digits = serde_json::to_string(&token).unwrap();
        assert!(!format!("{token:?}{key:?}").contains(&digits[1..9]));
        assert!(!format!("{key:?}").contains("171"));
        let error = serde_json::from_str::<ResultToken>(&digits.replace('"', "\"0")).unwrap_err();
        assert!(!error.to_string().contains(&digits[1..9]), "{error}");
    }

    #[test]
    fn a_token_reads_back_from_the_wire() {
        let token = TokenKey::from_bytes([1; 32]).token(attempt(1));
        let text = serde_json::to_string(&token).unwrap();
        assert_eq!(text.len(), 66);
        assert_eq!(serde_json::from_str::<ResultToken>(&text).unwrap(), token);
        for wrong in ["\"\"", "\"zz\"", "7", "null"] {
            assert!(serde_json::from_str::<ResultToken>(wrong).is_err(), "{wrong}");
        }
    }
}
