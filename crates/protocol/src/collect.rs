//! Files that leave a sandbox when its job is over: what may leave, and what is said of each.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{MAX_PATH_BYTES, bounded};

/// Most globs of one order.
pub const MAX_GLOBS: usize = 64;

/// Most files that may be sent for one order, and most that may be named as left out.
pub const MAX_ARTIFACTS: u32 = 4096;

/// Which files below the work directory are to be sent, and how much of them at most.
///
/// The guest looks at names in the order of their bytes, folder by folder, and follows no link: the same files give the
/// same answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectOrder {
    /// A file is wanted when any of these matches its name, at most [`MAX_GLOBS`] of at most [`MAX_PATH_BYTES`] bytes.
    #[serde(deserialize_with = "bounded::list::<_, _, MAX_GLOBS>")]
    pub globs: Vec<String>,
    /// Most files, at most [`MAX_ARTIFACTS`].
    pub max_files: u32,
    /// Most bytes of one file.
    pub max_file_bytes: u64,
    /// Most bytes of all files.
    pub max_bytes: u64,
    /// Most entries of folders that are looked at.
    pub max_entries: u32,
    /// Most files that are named as left out, at most [`MAX_ARTIFACTS`]; further ones are counted.
    pub max_named: u32,
}

/// The name of a file below the work directory: any bytes but NUL, in parts between `/` of which none is empty, `.` or
/// `..`; 1 to [`MAX_PATH_BYTES`] bytes.
///
/// In JSON it is a text where it is UTF-8, and `{"hex": "…"}` where not.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName(Vec<u8>);

impl FileName {
    /// That name, if it keeps the rules.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        let fine = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && !part.contains(&0);
        (bytes.len() <= MAX_PATH_BYTES && bytes.split(|byte| *byte == b'/').all(fine)).then_some(Self(bytes))
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl fmt::Debug for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hex {
    hex: String,
}

impl Serialize for FileName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => {
                let hex = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
                Hex { hex }.serialize(serializer)
            }
        }
    }
}

impl<'de> Deserialize<'de> for FileName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Text(String),
            Hex(Hex),
        }
        let bytes = match Either::deserialize(deserializer)? {
            Either::Text(text) => Some(text.into_bytes()),
            Either::Hex(Hex { hex }) => from_hex(&hex),
        };
        let name = bytes.and_then(Self::new);
        name.ok_or_else(|| de::Error::custom("no name of a file below the work directory"))
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match *pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        })
        .collect()
}

/// Announces a file that leaves; its bytes follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactHeader {
    /// Its name.
    pub name: FileName,
    /// Exact size in bytes.
    pub size: u64,
}

/// The end of a file's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactEnd {
    /// `errno` of the read that failed: the file is not whole, and counts as left out.
    pub errno: Option<i32>,
}

/// A wanted file, or a folder that could not be looked into, that does not leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// Its name, cut at a part's end where it is too long.
    pub name: FileName,
    /// Why.
    pub why: LeftOutWhy,
    /// Its size, of a regular file.
    pub size: Option<u64>,
    /// `errno` of the call that failed, if one did.
    pub errno: Option<i32>,
}

/// Why a file is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftOutWhy {
    /// A symbolic link: none is followed.
    Link,
    /// A named pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A device.
    Device,
    /// The job's own user may not read it, or reading failed.
    Unreadable,
    /// It is larger than one file may be.
    TooLarge,
    /// As many files as may leave have left.
    TooManyFiles,
    /// With it there would be more bytes than may leave.
    TooManyBytes,
    /// Its name is longer than [`MAX_PATH_BYTES`].
    NameTooLong,
    /// It lies deeper than is looked.
    TooDeep,
}

/// The end of a collection. Last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Collected {
    /// Entries of folders that were looked at.
    pub entries: u32,
    /// Files that were left out and are not named.
    pub not_named: u32,
    /// There were more entries than may be looked at; which of them were is not certain then.
    pub incomplete: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(bytes: &[u8]) -> Option<FileName> {
        FileName::new(bytes.to_vec())
    }

    #[test]
    fn a_name_leads_nowhere_but_down() {
        for fine in [
            &b"a"[..],
            b"a/b",
            b".a/..b/c..",
            b"\xff\x01\n",
            &[b'a'; MAX_PATH_BYTES],
        ] {
            assert!(name(fine).is_some(), "{}", fine.escape_ascii());
        }
        for wrong in [
            &b""[..],
            b"/a",
            b"a/",
            b"a//b",
            b".",
            b"a/..",
            b"../a",
            b"a\0",
            &[b'a'; MAX_PATH_BYTES + 1],
        ] {
            assert!(name(wrong).is_none(), "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn a_name_of_any_bytes_comes_back_and_one_that_leads_out_does_not() {
        for bytes in [
            &b"plot.png"[..],
            "\u{e9}\u{202e}\n".as_bytes(),
            b"\xff\xfe/a",
            b"a\x80",
        ] {
            let name = name(bytes).unwrap();
            let json = serde_json::to_string(&name).unwrap();
            assert_eq!(serde_json::from_str::<FileName>(&json).unwrap(), name, "{json}");
        }
        for wrong in [
            r#""../a""#,
            r#"{"hex": "2e2e"}"#,
            r#"{"hex": "f"}"#,
            r#"{"hex": "fg"}"#,
            r#"{"hex": "ff", "more": 1}"#,
            "[1]",
        ] {
            assert!(serde_json::from_str::<FileName>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_longest_name_fits_its_frame_whatever_its_bytes() {
        for byte in [1, b'"', b'a', 0xff] {
            let left_out = LeftOut {
                name: name(&[byte; MAX_PATH_BYTES]).unwrap(),
                why: LeftOutWhy::TooManyFiles,
                size: Some(u64::MAX),
                errno: Some(i32::MIN),
            };
            let json = serde_json::to_vec(&left_out).unwrap();
            assert!(json.len() <= crate::MAX_SMALL, "{byte}: {}", json.len());
        }
    }
}
