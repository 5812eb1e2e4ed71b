//! Bytes in answers: as text where they are text, in base64 where they are not.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Bytes of a program's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Bytes {
    /// They are UTF-8.
    Text {
        /// The text.
        text: String,
    },
    /// They are not.
    Base64 {
        /// RFC 4648, section 4.
        base64: String,
    },
}

/// Text that should have been base64.
#[derive(Debug, thiserror::Error)]
#[error("the answer holds bytes that are no base64")]
pub struct NotBase64(#[source] base64::DecodeError);

impl Bytes {
    /// These bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text {
                text: text.to_owned(),
            },
            Err(_) => Self::Base64 {
                base64: STANDARD.encode(bytes),
            },
        }
    }

    /// The bytes again.
    ///
    /// # Errors
    /// Text that is no base64.
    pub fn into_bytes(self) -> Result<Vec<u8>, NotBase64> {
        match self {
            Self::Text { text } => Ok(text.into_bytes()),
            Self::Base64 { base64 } => STANDARD.decode(base64).map_err(NotBase64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_text_stays_readable() {
        for bytes in [
            &b""[..],
            b"a\0\n",
            "é".as_bytes(),
            b"\xff\xfe",
            &"é".as_bytes()[..1],
            // A byte order mark, UTF-16 with one, lone surrogates, a pair of them, more bytes than needed.
            "\u{feff}a".as_bytes(),
            b"\xff\xfea\0",
            b"\xed\xa0\x80",
            b"\xed\xa0\xbd\xed\xb8\x80",
            b"\xc0\xaf",
        ] {
            let shown = Bytes::new(bytes);
            let is_text = matches!(shown, Bytes::Text { .. });
            assert_eq!(
                is_text,
                std::str::from_utf8(bytes).is_ok(),
                "never a text that they are not"
            );
            let json = serde_json::to_string(&shown).unwrap();
            let back: Bytes = serde_json::from_str(&json).unwrap();
            assert_eq!(back.into_bytes().unwrap(), bytes, "{json}");
        }
        assert_eq!(
            serde_json::to_string(&Bytes::new(b"42\n")).unwrap(),
            r#"{"text":"42\n"}"#
        );
        let base64 = "no base64!".to_owned();
        assert!(Bytes::Base64 { base64 }.into_bytes().is_err());
    }
}
