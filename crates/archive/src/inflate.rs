//! Deflate (RFC 1951) and gzip (RFC 1952), with a bound on what comes out.

use miniz_oxide::inflate::{
    TINFLStatus,
    core::{DecompressorOxide, decompress, inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF},
};

use crate::{
    Problem,
    intake::{StreamLimit, shown},
};

/// The least room that is made for output at once.
const STEP: usize = 64 << 10;

/// Why something can't be decompressed.
#[derive(Debug)]
pub(crate) enum InflateError {
    /// It is no deflate stream, or none that comes to its end.
    Broken,
    /// It has more than the bound.
    TooLong,
    /// It is no single member of gzip; the text says why.
    Gzip(&'static str),
    /// As the bound says that was passed.
    Bound(StreamLimit),
}

impl InflateError {
    /// The same of an entry, or of all of an archive.
    pub(crate) fn problem(self, name: Option<&[u8]>) -> Problem {
        let (code, message) = match self {
            Self::Broken => ("broken", "its compressed data is broken or cut off"),
            Self::TooLong => ("broken", "it has more bytes than its header says"),
            Self::Gzip(why) => ("broken", why),
            Self::Bound(limit) => return limit.problem(),
        };
        Problem {
            name: name.map(shown),
            code,
            message: message.to_owned(),
        }
    }
}

/// All bytes of a deflate stream, at most `most`, and how many bytes of the input it has.
pub(crate) fn inflate(input: &[u8], most: u64) -> Result<(Vec<u8>, usize), InflateError> {
    // One more: a stream that stops for want of room has more.
    let room = usize::try_from(most).unwrap_or(usize::MAX).saturating_add(1);
    let mut state = Box::<DecompressorOxide>::default();
    let (mut output, mut consumed, mut written) = (vec![0; room.min(STEP)], 0, 0);
    loop {
        let (status, read, wrote) = decompress(
            &mut state,
            &input[consumed..],
            &mut output,
            written,
            TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF,
        );
        consumed += read;
        written += wrote;
        match status {
            TINFLStatus::Done if written < room => {
                output.truncate(written);
                return Ok((output, consumed));
            }
            TINFLStatus::HasMoreOutput if output.len() < room => {
                output.resize(output.len().saturating_mul(2).max(STEP).min(room), 0);
            }
            TINFLStatus::HasMoreOutput | TINFLStatus::Done => return Err(InflateError::TooLong),
            _ => return Err(InflateError::Broken),
        }
    }
}

/// All bytes of a gzip file that is one member and nothing else.
pub(crate) fn gunzip(input: &[u8], limit: StreamLimit) -> Result<Vec<u8>, InflateError> {
    let data = &input[header(input)?..];
    let (output, consumed) = inflate(data, limit.bytes()).map_err(|error| match error {
        InflateError::TooLong => InflateError::Bound(limit),
        other => other,
    })?;
    let trailer = &data[consumed..];
    let Some((check, rest)) = trailer.split_at_checked(8) else {
        return Err(InflateError::Gzip("it is cut off: its gzip checksum is missing"));
    };
    if !rest.is_empty() {
        return Err(InflateError::Gzip(
            "something follows its compressed data: more than one gzip member, or bytes that are none",
        ));
    }
    // Modulo 2^32, as the format has it.
    let length = (output.len() as u64).to_le_bytes();
    if check[..4] != crc32fast::hash(&output).to_le_bytes() || check[4..] != length[..4] {
        return Err(InflateError::Gzip("its content does not match its gzip checksum"));
    }
    Ok(output)
}

/// Length of a gzip member's header (RFC 1952, section 2.3).
fn header(input: &[u8]) -> Result<usize, InflateError> {
    const HAS_CRC: u8 = 1 << 1;
    const HAS_EXTRA: u8 = 1 << 2;
    const HAS_NAME: u8 = 1 << 3;
    const HAS_COMMENT: u8 = 1 << 4;
    const RESERVED: u8 = 0b1110_0000;
    let cut = || InflateError::Gzip("it is cut off within its gzip header");
    if !input.starts_with(&[0x1f, 0x8b]) {
        return Err(InflateError::Gzip(
            "it is no gzip: its first bytes are not 1f 8b; leave `format` out, and they decide",
        ));
    }
    let flags = *input.get(3).ok_or_else(cut)?;
    if input[2] != 8 || flags & RESERVED != 0 {
        return Err(InflateError::Gzip(
            "its gzip header asks for what no version of the format has",
        ));
    }
    let mut at = 10;
    if flags & HAS_EXTRA != 0 {
        let length = input.get(at..at + 2).ok_or_else(cut)?;
        at += 2 + usize::from(u16::from_le_bytes([length[0], length[1]]));
    }
    for part in [HAS_NAME, HAS_COMMENT] {
        if flags & part != 0 {
            let text = input.get(at..).ok_or_else(cut)?;
            at += 1 + text.iter().position(|byte| *byte == 0).ok_or_else(cut)?;
        }
    }
    if flags & HAS_CRC != 0 {
        let crc = crc32fast::hash(input.get(..at).ok_or_else(cut)?).to_le_bytes();
        if input.get(at..at + 2) != Some(&crc[..2]) {
            return Err(InflateError::Gzip("its gzip header does not match its checksum"));
        }
        at += 2;
    }
    if at > input.len() { Err(cut()) } else { Ok(at) }
}
