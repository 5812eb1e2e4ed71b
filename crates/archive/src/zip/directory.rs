//! A zip's central directory, and where it and the headers at the data agree.

use std::collections::BTreeMap;

use super::{SIZES_BEHIND, STORED};
use crate::{
    Problem,
    intake::{Intake, shown},
};

const LOCAL: &[u8] = b"PK\x03\x04";
const CENTRAL: &[u8] = b"PK\x01\x02";
const END: &[u8] = b"PK\x05\x06";
const BEHIND: &[u8] = b"PK\x07\x08";
const LOCAL_BYTES: usize = 30;
const CENTRAL_BYTES: usize = 46;
const END_BYTES: usize = 22;
/// Extra fields that give sizes or another name: zip64 [4.5.3], and Info-ZIP's name in Unicode [4.6.9].
const EXTRA_ZIP64: u16 = 0x0001;
const EXTRA_NAME: u16 = 0x7075;
/// A field whose value stands in a zip64 extra field [4.4.1.4].
const IN_ZIP64: u32 = u32::MAX;

pub(super) struct Directory<'a> {
    pub(super) entries: Vec<Entry<'a>>,
    start: usize,
}

/// What the central directory says of a file or folder [4.3.12].
pub(super) struct Entry<'a> {
    pub(super) made_by: u16,
    /// Ten times the version of the format that a reader needs, in the lower byte [4.4.3].
    pub(super) needs: u16,
    pub(super) flags: u16,
    pub(super) method: u16,
    pub(super) crc: u32,
    pub(super) compressed: u32,
    pub(super) size: u32,
    pub(super) attributes: u32,
    pub(super) offset: u32,
    pub(super) name: &'a [u8],
}

impl Entry<'_> {
    pub(super) fn problem(&self, code: &'static str, message: impl Into<String>) -> Problem {
        Problem {
            name: Some(shown(self.name)),
            code,
            message: message.into(),
        }
    }
}

fn broken(message: &str) -> Problem {
    Problem::whole("broken", message)
}

fn zip64() -> Problem {
    Problem::whole(
        "not_supported",
        "it is a zip64: write it without, as every writer does for archives below 4 GiB unless it is told otherwise",
    )
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn place(offset: u32) -> Result<usize, Problem> {
    usize::try_from(offset).map_err(|_| broken("it is longer than this machine's memory"))
}

/// Where the end record is [4.3.16]. Its comment must reach to the end of the archive, and no other place may claim the same.
fn end_of(archive: &[u8]) -> Result<usize, Problem> {
    let no_end = || broken("it is no zip, or cut off: its last bytes are no end of a central directory");
    let last = archive.len().checked_sub(END_BYTES).ok_or_else(no_end)?;
    let first = last.saturating_sub(usize::from(u16::MAX));
    let claims = |at: &usize| {
        archive[*at..].starts_with(END)
            && u16_at(archive, at + 20)
                .is_some_and(|length| at + END_BYTES + usize::from(length) == archive.len())
    };
    let mut ends = (first..=last).filter(claims);
    let end = ends.next().ok_or_else(no_end)?;
    if ends.next().is_some() || archive[end + 4..].windows(END.len()).any(|four| four == END) {
        return Err(broken("more than one place of it says to be its end"));
    }
    Ok(end)
}

impl<'a> Directory<'a> {
    pub(super) fn read(archive: &'a [u8]) -> Result<Self, Problem> {
        let end = end_of(archive)?;
        let cut = || broken("its central directory is cut off");
        let count_of = |at| u16_at(archive, end + at).ok_or_else(cut);
        let (disk, start_disk, here, count) = (count_of(4)?, count_of(6)?, count_of(8)?, count_of(10)?);
        let bytes = u32_at(archive, end + 12).ok_or_else(cut)?;
        let start = u32_at(archive, end + 16).ok_or_else(cut)?;
        if count == u16::MAX || bytes == IN_ZIP64 || start == IN_ZIP64 || has_locator(archive, end) {
            return Err(zip64());
        }
        if disk != 0 || start_disk != 0 || here != count {
            return Err(broken("it is one of several volumes"));
        }
        let (bytes, start) = (place(bytes)?, place(start)?);
        if start.checked_add(bytes) != Some(end) {
            return Err(broken(
                "its central directory does not end where its end record says: something stands before its first entry or \
                 behind its directory",
            ));
        }
        let mut rest = &archive[start..end];
        let mut entries = Vec::new();
        for _ in 0..count {
            entries.push(entry(&mut rest)?);
        }
        if !rest.is_empty() {
            return Err(broken(
                "its central directory has more than the entries that it counts",
            ));
        }
        Ok(Self { entries, start })
    }

    /// The compressed data of each entry, by its offset. What stands at the data must be what the directory says, and the
    /// entries must fill everything before the directory.
    pub(super) fn places(
        &self,
        archive: &'a [u8],
        intake: &mut Intake<'_>,
    ) -> Result<BTreeMap<u32, &'a [u8]>, Problem> {
        let mut in_order: Vec<&Entry<'_>> = self.entries.iter().collect();
        in_order.sort_by_key(|entry| entry.offset);
        let mut places = BTreeMap::new();
        let mut next = 0;
        for (index, entry) in in_order.iter().enumerate() {
            if place(entry.offset)? != next {
                let message = if index == 0 {
                    "something stands before its first entry".to_owned()
                } else {
                    format!(
                        "{:?} does not begin where the entry before it ends: entries overlap, or have something between them",
                        shown(entry.name)
                    )
                };
                return Err(broken(&message));
            }
            let end = match in_order.get(index + 1) {
                Some(after) => place(after.offset)?,
                None => self.start,
            };
            let whole = archive.get(next..end.min(self.start)).unwrap_or_default();
            match local(entry, whole) {
                Ok((data, used)) => {
                    places.insert(entry.offset, data);
                    next += used;
                }
                Err(message) => {
                    intake.refuse(entry.name, "broken", message);
                    // Where the next one begins is known from the directory alone.
                    next = end;
                }
            }
        }
        if next != self.start {
            return Err(broken(
                "something stands between its last entry and its directory",
            ));
        }
        Ok(places)
    }
}

/// Whether a zip64 end of the directory is announced right before the end record [4.3.15].
fn has_locator(archive: &[u8], end: usize) -> bool {
    end.checked_sub(20)
        .is_some_and(|at| archive[at..].starts_with(b"PK\x06\x07"))
}

fn entry<'a>(rest: &mut &'a [u8]) -> Result<Entry<'a>, Problem> {
    let cut = || broken("its central directory is broken or cut off");
    let bytes = *rest;
    if !bytes.starts_with(CENTRAL) || bytes.len() < CENTRAL_BYTES {
        return Err(cut());
    }
    let half = |at| u16_at(bytes, at).ok_or_else(cut);
    let word = |at| u32_at(bytes, at).ok_or_else(cut);
    let (name, extra, comment) = (half(28)?, half(30)?, half(32)?);
    let (name, extra, comment) = (usize::from(name), usize::from(extra), usize::from(comment));
    let length = CENTRAL_BYTES + name + extra + comment;
    let tail = bytes.get(CENTRAL_BYTES..length).ok_or_else(cut)?;
    let entry = Entry {
        made_by: half(4)?,
        needs: half(6)?,
        flags: half(8)?,
        method: half(10)?,
        crc: word(16)?,
        compressed: word(20)?,
        size: word(24)?,
        attributes: word(38)?,
        offset: word(42)?,
        name: &tail[..name],
    };
    if [entry.compressed, entry.size, entry.offset].contains(&IN_ZIP64) {
        return Err(zip64());
    }
    if half(34)? != 0 {
        return Err(broken("it is one of several volumes"));
    }
    check_extra(&tail[name..name + extra]).map_err(|message| entry.problem("broken", message))?;
    *rest = &bytes[length..];
    Ok(entry)
}

/// No extra field may say otherwise what the header says.
fn check_extra(mut extra: &[u8]) -> Result<(), &'static str> {
    while !extra.is_empty() {
        let (Some(id), Some(length)) = (u16_at(extra, 0), u16_at(extra, 2)) else {
            return Err("its extra fields are broken");
        };
        match id {
            EXTRA_ZIP64 => return Err("it has sizes of zip64, which is not supported"),
            EXTRA_NAME => return Err("it has a second name in an extra field (0x7075)"),
            _ => {}
        }
        extra = extra
            .get(4 + usize::from(length)..)
            .ok_or("its extra fields are broken")?;
    }
    Ok(())
}

/// The data of an entry and the length of all that belongs to it, of bytes that begin with its own header and end where the
/// next one begins [4.3.7].
fn local<'a>(entry: &Entry<'_>, whole: &'a [u8]) -> Result<(&'a [u8], usize), &'static str> {
    const DIFFERS: &str = "the header at its data says something else than the directory";
    const CUT: &str = "its data is cut off, or overlaps that of another entry";
    if whole.is_empty() {
        return Err(CUT);
    }
    if whole.len() < LOCAL_BYTES || !whole.starts_with(LOCAL) {
        return Err("there is no header where the directory says that its data begins");
    }
    let half = |at| u16_at(whole, at).ok_or(CUT);
    let word = |at| u32_at(whole, at).ok_or(CUT);
    let (name, extra) = (usize::from(half(26)?), usize::from(half(28)?));
    let data = LOCAL_BYTES + name + extra;
    if whole.get(LOCAL_BYTES..LOCAL_BYTES + name) != Some(entry.name) {
        return Err("the name at its data is another than in the directory");
    }
    check_extra(whole.get(LOCAL_BYTES + name..data).ok_or(CUT)?)?;
    let sums = [word(14)?, word(18)?, word(22)?];
    let expected = [entry.crc, entry.compressed, entry.size];
    let comes_later = entry.flags & SIZES_BEHIND != 0;
    // Some writers know the size before, and the rest behind.
    let agrees = |(sum, expected): (u32, u32)| sum == expected || (comes_later && sum == 0);
    let agree = sums.into_iter().zip(expected).all(agrees);
    if half(6)? != entry.flags || half(8)? != entry.method || !agree {
        return Err(DIFFERS);
    }
    if entry.method == STORED && entry.compressed != entry.size {
        return Err("it is not compressed and has two sizes");
    }
    let end = usize::try_from(entry.compressed)
        .ok()
        .and_then(|length| data.checked_add(length))
        .ok_or(CUT)?;
    let content = whole.get(data..end).ok_or(CUT)?;
    if entry.flags & SIZES_BEHIND == 0 {
        return Ok((content, end));
    }
    // Its signature is usual, and not demanded [4.3.9.3].
    let behind = &whole[end..];
    let (skipped, length) = if behind.starts_with(BEHIND) && behind.len() >= 16 {
        (4, 16)
    } else {
        (0, 12)
    };
    for (index, sum) in expected.into_iter().enumerate() {
        if u32_at(behind, skipped + 4 * index) != Some(sum) {
            return Err("the sizes behind its data are others than in the directory");
        }
    }
    Ok((content, end + length))
}
