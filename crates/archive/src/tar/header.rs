//! One header of a tar: 512 bytes of fields of fixed length (POSIX.1-1988; `tar(5)` of FreeBSD for GNU's).

use std::borrow::Cow;

/// Everything in a tar is filled up to a multiple of this, in bytes.
pub(super) const BLOCK: usize = 512;

/// Where fields are.
const NAME: std::ops::Range<usize> = 0..100;
const MODE: std::ops::Range<usize> = 100..108;
const UID: std::ops::Range<usize> = 108..116;
const GID: std::ops::Range<usize> = 116..124;
const SIZE: std::ops::Range<usize> = 124..136;
const MTIME: std::ops::Range<usize> = 136..148;
const CHECKSUM: std::ops::Range<usize> = 148..156;
const KIND: usize = 156;
const TARGET: std::ops::Range<usize> = 157..257;
const MAGIC: std::ops::Range<usize> = 257..265;
const DEVICE: std::ops::Range<usize> = 329..345;
const PREFIX: std::ops::Range<usize> = 345..500;

#[derive(Debug)]
pub(super) struct Header<'a> {
    name: &'a [u8],
    /// What stands before the name, with a `/` between them.
    prefix: &'a [u8],
    pub(super) kind: u8,
    pub(super) mode: u32,
    pub(super) size: u64,
    /// Whether it says where a link leads.
    pub(super) has_target: bool,
}

impl<'a> Header<'a> {
    pub(super) fn read(block: &'a [u8]) -> Result<Self, &'static str> {
        if checksum(block)
            != octal(&block[CHECKSUM]).ok_or("the checksum of one of its headers is no number")?
        {
            return Err("one of its headers does not match its checksum");
        }
        let is_posix = match &block[MAGIC] {
            b"ustar\x0000" => true,
            b"ustar  \0" | b"\0\0\0\0\0\0\0\0" => false,
            _ => return Err("one of its headers is of a format that is not supported"),
        };
        // Times of access and change in GNU's format, the rest of a name in POSIX's: a reader that takes one for the other
        // sees another name.
        if !is_posix && block[PREFIX].iter().any(|byte| *byte != 0) {
            return Err("one of its headers has fields of GNU's format that are not supported");
        }
        if !number(&block[UID]) || !number(&block[GID]) || !number(&block[MTIME]) {
            return Err("a number in one of its headers is broken");
        }
        if DEVICE.step_by(8).any(|at| octal(&block[at..at + 8]).is_none()) {
            return Err("a number in one of its headers is broken");
        }
        let mode = octal(&block[MODE])
            .and_then(|mode| u32::try_from(mode).ok())
            .ok_or("a mode in one of its headers is no octal number")?;
        Ok(Self {
            name: text(&block[NAME]),
            prefix: text(&block[PREFIX]),
            kind: block[KIND],
            mode,
            size: octal(&block[SIZE]).ok_or("a size in one of its headers is no octal number")?,
            has_target: block[TARGET][0] != 0,
        })
    }

    /// The whole name.
    pub(super) fn name(&self) -> Cow<'a, [u8]> {
        if self.prefix.is_empty() {
            Cow::Borrowed(self.name)
        } else {
            Cow::Owned([self.prefix, b"/", self.name].concat())
        }
    }
}

/// The sum of all bytes, those of the checksum itself counted as spaces.
fn checksum(block: &[u8]) -> u64 {
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    sum(block) - sum(&block[CHECKSUM]) + 8 * u64::from(b' ')
}

/// A text up to its first NUL, or to the end of its field.
fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|byte| *byte == 0);
    &field[..end.unwrap_or(field.len())]
}

/// A number in octal digits, with spaces before and spaces or NULs after it; an empty field is 0.
fn octal(field: &[u8]) -> Option<u64> {
    let start = field.iter().position(|byte| *byte != b' ').unwrap_or(field.len());
    let rest = &field[start..];
    let end = rest
        .iter()
        .position(|byte| matches!(byte, b' ' | 0))
        .unwrap_or(rest.len());
    let (digits, after) = rest.split_at(end);
    let is_empty = after.iter().all(|byte| matches!(byte, b' ' | 0));
    let octal = |number: u64, digit: &u8| match digit {
        b'0'..=b'7' => number.checked_mul(8)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    };
    digits.iter().try_fold(0, octal).filter(|_| is_empty)
}

/// Whether a field that does not matter here has a number in one of the two forms that there are: octal, or two's complement
/// behind a first byte of 0x80 or 0xff (GNU).
fn number(field: &[u8]) -> bool {
    matches!(field[0], 0x80 | 0xff) || octal(field).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octal_numbers_have_one_form() {
        for (field, value) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"00000644", Some(0o644)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"        ", Some(0)),
            (b"-0000644", None),
            (b"0000_644", None),
            (b"0o000644", None),
            (b"00006448", None),
            (b"644\0 644", None),
            (b"\x80\0\0\0\0\0\0\x01", None),
        ] {
            assert_eq!(octal(field), value, "{}", field.escape_ascii());
        }
        assert_eq!(octal(&[b'7'; 22]), None, "more than 64 bits");
    }
}
