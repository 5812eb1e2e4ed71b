//! Bytes in JSON: as text where they are text, as `{"base64": "…"}` where they are not.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Bytes that a job brings: any at all, NUL and invalid UTF-8 included.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Blob(Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Json<'a> {
    Text(std::borrow::Cow<'a, str>),
    Base64 { base64: String },
}

impl Blob {
    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Blob {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<&str> for Blob {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

/// Bytes of a JSON string with this text (RFC 8259, section 7), without its quotes.
pub(super) fn escaped_length(text: &str) -> usize {
    text.bytes()
        .map(|byte| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
            0..0x20 => 6,
            _ => 1,
        })
        .sum()
}

/// Bytes of `{"base64":""}` around so many bytes, less the quotes of a string.
fn base64_length(bytes: usize) -> usize {
    11 + bytes.div_ceil(3) * 4
}

impl std::fmt::Debug for Blob {
    /// Only the length: a job's content is never logged.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Blob({} bytes)", self.0.len())
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) if escaped_length(text) <= base64_length(text.len()) => Json::Text(text.into()),
            // Also for text that is mostly control characters: each takes six bytes in JSON, and a message has a bound.
            Ok(_) | Err(_) => Json::Base64 {
                base64: STANDARD.encode(&self.0),
            },
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match Json::deserialize(deserializer)? {
            Json::Text(text) => text.into_owned().into_bytes(),
            Json::Base64 { base64 } => STANDARD.decode(base64).map_err(de::Error::custom)?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_come_back_from_json(bytes: Vec<u8>) {
            let blob = Blob::from(bytes);
            let json = serde_json::to_string(&blob).unwrap();
            prop_assert_eq!(serde_json::from_str::<Blob>(&json).unwrap(), blob);
        }

        #[test]
        fn no_content_grows_by_more_than_base64_does(byte: u8, count in 0usize..5000) {
            let json = serde_json::to_string(&Blob::from(vec![byte; count])).unwrap();
            prop_assert!(json.len() <= 13 + count.div_ceil(3) * 4, "{} of {count}", json.len());
        }
    }

    #[test]
    fn text_stays_readable_and_content_is_never_printed() {
        assert_eq!(
            serde_json::to_string(&Blob::from("a\0é")).unwrap(),
            "\"a\\u0000é\""
        );
        assert_eq!(
            serde_json::to_string(&Blob::from(vec![0xff])).unwrap(),
            "{\"base64\":\"/w==\"}"
        );
        assert_eq!(format!("{:?}", Blob::from("secret")), "Blob(6 bytes)");
    }
}
