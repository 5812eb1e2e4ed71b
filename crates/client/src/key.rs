//! The API key, which nothing prints.

use std::fmt;

use reqwest::header::HeaderValue;

/// What a client shows who it is by.
#[derive(Clone)]
pub struct ApiKey(HeaderValue);

/// Text that can't be a key. It is not repeated: it may be one with a typing error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the API key holds characters that no key has: it is one line that begins with `mayfly_`")]
pub struct KeyError;

impl ApiKey {
    /// A key from its text.
    ///
    /// # Errors
    /// Text that can't be sent as one.
    pub fn new(text: &str) -> Result<Self, KeyError> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(KeyError);
        }
        let mut value = HeaderValue::try_from(format!("Bearer {text}")).map_err(|_| KeyError)?;
        // HTTP/2 does not compress it then, and nothing shows it.
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// The value of `Authorization`.
    pub(crate) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_line_and_is_not_printed() {
        let key = ApiKey::new("mayfly_ab_hunter2").unwrap();
        assert!(!format!("{key:?} {:?}", key.header()).contains("hunter2"));
        assert_eq!(key.header().as_bytes(), b"Bearer mayfly_ab_hunter2");
        for text in ["", "a b", "hunter2\n", "hunter2\r\nX: y", "hünter2"] {
            let error = ApiKey::new(text).unwrap_err();
            assert!(!error.to_string().contains("nter2"));
        }
    }
}
