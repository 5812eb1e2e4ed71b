//! Permission bits of a job's file.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Who may read, write and execute a file: bits of `chmod(2)`, `0o777` at most. As text three octal digits, with or without
/// a 0 before them.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FileMode(u32);

/// A text that is no [`FileMode`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a mode is three octal digits, for owner, group and others, such as \"0640\"; setuid, setgid and sticky are not allowed"
)]
pub struct BadMode;

impl FileMode {
    /// What a file has for which nothing is asked.
    pub const USUAL: Self = Self(0o644);
    /// What a file has that may be executed.
    pub const EXECUTABLE: Self = Self(0o755);
    /// What a file has that is for its owner alone, and for reading.
    pub const PRIVATE: Self = Self(0o400);

    /// These bits, if they are no others than those of permissions.
    #[must_use]
    pub const fn new(bits: u32) -> Option<Self> {
        if bits <= 0o777 { Some(Self(bits)) } else { None }
    }

    /// What a file gets, whichever way it was asked for.
    #[must_use]
    pub fn asked(mode: Option<Self>, executable: bool) -> Self {
        let usual = if executable { Self::EXECUTABLE } else { Self::USUAL };
        mode.unwrap_or(usual)
    }

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl FromStr for FileMode {
    type Err = BadMode;

    fn from_str(text: &str) -> Result<Self, BadMode> {
        let digits = match text.len() {
            4 => text.strip_prefix('0').ok_or(BadMode)?,
            3 => text,
            _ => return Err(BadMode),
        };
        if !digits.bytes().all(|digit| matches!(digit, b'0'..=b'7')) {
            return Err(BadMode);
        }
        u32::from_str_radix(digits, 8).map(Self).map_err(|_| BadMode)
    }
}

impl TryFrom<String> for FileMode {
    type Error = BadMode;

    fn try_from(text: String) -> Result<Self, BadMode> {
        text.parse()
    }
}

impl From<FileMode> for String {
    fn from(mode: FileMode) -> Self {
        mode.to_string()
    }
}

impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl fmt::Debug for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileMode({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_three_octal_digits() {
        for bits in 0..=0o777 {
            let mode = FileMode::new(bits).unwrap();
            assert_eq!(mode.to_string().parse(), Ok(mode));
            assert_eq!(mode.to_string()[1..].parse(), Ok(mode));
        }
        assert_eq!(FileMode::new(0o1000), None);
        for text in [
            "", "64", "4755", "1777", "0888", "00644", "+644", "0o64", "rw-", "６44",
        ] {
            assert_eq!(text.parse::<FileMode>(), Err(BadMode), "{text}");
        }
    }
}
