//! The key of a provider, which nothing prints.

use std::fmt;

use reqwest::header::HeaderValue;

/// A key of a provider's API. Nothing of mayfly but the client of that provider has it, and no job ever gets it.
#[derive(Clone)]
pub struct ModelKey(String);

/// Text that can't be a key. It is not repeated: it may be one with a typing error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it holds characters that no key has: a key is one line, without spaces")]
pub struct KeyError;

/// What stands for a key where somebody has repeated it.
const TAKEN_OUT: &str = "[key]";
/// Shorter ones, `none` or `EMPTY`, are given to servers that want one and check none; they are words, and stay.
const SHORTEST: usize = 12;

impl ModelKey {
    /// A key from its text; white space around it is none of it.
    ///
    /// # Errors
    /// Text that can't be sent as one.
    pub fn new(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(KeyError);
        }
        Ok(Self(text.to_owned()))
    }

    /// A header's value with it, `Bearer` or nothing before it.
    pub(crate) fn header(&self, before: &str) -> Option<HeaderValue> {
        let mut value = HeaderValue::try_from(format!("{before}{}", self.0)).ok()?;
        // HTTP/2 does not compress it then, and nothing shows it.
        value.set_sensitive(true);
        Some(value)
    }

    /// A text without it. Servers repeat keys in their errors, and one that means harm in its answers, from where it
    /// would go on into jobs and records.
    pub(crate) fn taken_out_of(&self, text: String) -> String {
        if self.0.len() >= SHORTEST && text.contains(&self.0) {
            text.replace(&self.0, TAKEN_OUT)
        } else {
            text
        }
    }
}

impl fmt::Debug for ModelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ModelKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_line_and_is_not_printed() {
        let key = ModelKey::new(" sk-hunter2\n").unwrap();
        assert!(!format!("{key:?} {:?}", key.header("Bearer ")).contains("hunter2"));
        assert_eq!(key.header("Bearer ").unwrap().as_bytes(), b"Bearer sk-hunter2");
        for text in ["", " ", "a b", "sk-hunter2\r\nX: y", "hünter2"] {
            let error = ModelKey::new(text).unwrap_err();
            assert!(!error.to_string().contains("nter2"));
        }
    }

    #[test]
    fn what_repeats_a_key_is_read_without_it() {
        let key = ModelKey::new("sk-or-hunter2").unwrap();
        let said = key.taken_out_of("bad key sk-or-hunter2, really: sk-or-hunter2".to_owned());
        assert_eq!(said, "bad key [key], really: [key]");
        let word = ModelKey::new("content").unwrap();
        assert_eq!(
            word.taken_out_of("{\"content\": 1}".to_owned()),
            "{\"content\": 1}"
        );
    }
}
