//! Tar: ustar, pax and GNU tar, one header after the other. `header.rs` reads one, `pax.rs` its extensions.

use crate::{
    File, Problem,
    intake::{Intake, Kind, shown},
};

mod header;
mod pax;

use header::{BLOCK, Header};

/// Longest data of an extension: one name, or a few fields.
const MAX_EXTENSION: u64 = 64 << 10;
/// Extensions beside those that belong to files and folders: they apply to all that follows.
const MAX_GLOBAL: usize = 16;

/// Whether these bytes begin with the header of a tar.
pub(crate) fn is_header(bytes: &[u8]) -> bool {
    bytes
        .get(..BLOCK)
        .is_some_and(|block| Header::read(block).is_ok())
}

/// What extensions said of the entry that follows.
#[derive(Default)]
struct Announced<'a> {
    /// Its name, which did not fit into its header.
    name: Option<&'a [u8]>,
    /// Where it leads, for a link.
    has_target: bool,
    size: Option<u64>,
    has_pax: bool,
}

impl Announced<'_> {
    fn is_nothing(&self) -> bool {
        self.name.is_none() && !self.has_target && !self.has_pax
    }
}

pub(crate) fn read(archive: &[u8], intake: &mut Intake<'_>) -> Result<(), Problem> {
    let mut rest = archive;
    let mut announced = Announced::default();
    let mut globals = 0;
    if !is_header(archive) {
        return Err(broken(
            "it is no tar: its first block is no header with a right checksum",
        ));
    }
    loop {
        let block = take(&mut rest, BLOCK as u64).ok_or_else(|| {
            broken("it is cut off: it ends without the two empty blocks with which a tar ends")
        })?;
        if block.iter().all(|byte| *byte == 0) {
            return end(block, rest, &announced);
        }
        let header = Header::read(block).map_err(broken)?;
        match header.kind {
            b'L' | b'K' => {
                let text = text(extension(&header, &mut rest)?)?;
                if header.kind == b'K' && !announced.has_target {
                    announced.has_target = true;
                } else if header.kind == b'L' && announced.name.is_none() {
                    announced.name = Some(text);
                } else {
                    return Err(broken("two of its extensions are for the same field"));
                }
            }
            b'x' => {
                if std::mem::replace(&mut announced.has_pax, true) {
                    return Err(broken("two of its pax extensions are for one entry"));
                }
                let fields = pax::read(extension(&header, &mut rest)?).map_err(broken)?;
                if fields.name.is_some() && announced.name.replace(fields.name.unwrap_or_default()).is_some()
                {
                    return Err(broken("two of its extensions are for the same field"));
                }
                announced.has_target |= fields.has_target;
                announced.size = fields.size;
            }
            b'g' => {
                globals += 1;
                if globals > MAX_GLOBAL || !announced.is_nothing() {
                    return Err(broken("it has global extensions where none may be, or too many"));
                }
                let fields = pax::read(extension(&header, &mut rest)?).map_err(broken)?;
                if fields.name.is_some() || fields.has_target || fields.size.is_some() {
                    return Err(broken("a global extension gives one name or size to every entry"));
                }
            }
            _ => entry(&header, &std::mem::take(&mut announced), &mut rest, intake)?,
        }
    }
}

fn broken(message: &'static str) -> Problem {
    Problem::whole("broken", message)
}

/// Everything behind the first empty block must be empty, and there must be a second one.
fn end(first: &[u8], rest: &[u8], announced: &Announced<'_>) -> Result<(), Problem> {
    if !announced.is_nothing() {
        return Err(broken("it ends with an extension that is for nothing"));
    }
    if rest.len() < first.len() {
        return Err(broken("it is cut off: a tar ends with two empty blocks"));
    }
    if rest.iter().any(|byte| *byte != 0) {
        return Err(broken("something follows its end"));
    }
    Ok(())
}

fn take<'a>(rest: &mut &'a [u8], bytes: u64) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(usize::try_from(bytes).ok()?)?;
    *rest = after;
    Some(taken)
}

/// So many bytes, and what fills up their last block.
fn take_blocks<'a>(rest: &mut &'a [u8], bytes: u64) -> Option<&'a [u8]> {
    let filled = bytes.checked_next_multiple_of(BLOCK as u64)?;
    let blocks = take(rest, filled)?;
    blocks.get(..usize::try_from(bytes).ok()?)
}

fn extension<'a>(header: &Header<'a>, rest: &mut &'a [u8]) -> Result<&'a [u8], Problem> {
    if header.size > MAX_EXTENSION {
        return Err(broken("one of its extensions is longer than 64 KiB"));
    }
    take_blocks(rest, header.size).ok_or_else(|| broken("it is cut off within an extension"))
}

/// The text of GNU's long names: it ends with the one NUL that it has.
fn text(data: &[u8]) -> Result<&[u8], Problem> {
    match data.split_last() {
        Some((0, text)) if !text.is_empty() && !text.contains(&0) => Ok(text),
        _ => Err(broken(
            "one of its long names is empty, or does not end with its only NUL",
        )),
    }
}

fn entry<'a>(
    header: &Header<'a>,
    announced: &Announced<'a>,
    rest: &mut &'a [u8],
    intake: &mut Intake<'_>,
) -> Result<(), Problem> {
    let from_header;
    let name: &[u8] = match announced.name {
        Some(name) => name,
        None => {
            from_header = header.name();
            &from_header
        }
    };
    let unreadable = |message: &str| Problem {
        name: Some(shown(name)),
        code: "broken",
        message: message.to_owned(),
    };
    if announced.size.is_some_and(|size| size != header.size) {
        return Err(unreadable("its header and its extension say different sizes"));
    }
    let (code, what) = match header.kind {
        b'0' | 0 => return file(header, announced, name, rest, intake),
        b'5' => {
            if header.size != 0 {
                return Err(unreadable("it is a folder and has content"));
            }
            if announced.has_target {
                return Err(unreadable("it is no link and leads somewhere"));
            }
            return intake.name(name, Kind::Folder).map(drop);
        }
        b'1' => (
            "link",
            "it is a hard link; archives may have files and folders only",
        ),
        b'2' => (
            "link",
            "it is a symbolic link; archives may have files and folders only",
        ),
        b'3' | b'4' => ("special", "it is a device"),
        b'6' => ("special", "it is a FIFO"),
        // Whether data follows is known of the kinds above alone.
        b'S' => return Err(unreadable("it is a sparse file")),
        _ => return Err(unreadable("it is of a kind that is not supported")),
    };
    if header.size != 0 {
        return Err(unreadable("it is no file and has content"));
    }
    // Its name is judged too, so that all that is wrong is said at once, and nothing can be below it.
    intake.name(name, Kind::File)?;
    intake.refuse(name, code, what);
    Ok(())
}

fn file<'a>(
    header: &Header<'a>,
    announced: &Announced<'a>,
    name: &[u8],
    rest: &mut &'a [u8],
    intake: &mut Intake<'_>,
) -> Result<(), Problem> {
    let unreadable = |message: &str| Problem {
        name: Some(shown(name)),
        code: "broken",
        message: message.to_owned(),
    };
    if announced.has_target || header.has_target {
        return Err(unreadable("it is no link and leads somewhere"));
    }
    if header.mode & 0o7000 != 0 {
        intake.refuse(name, "special", "it is setuid, setgid or sticky");
    }
    let path = intake.name(name, Kind::File)?;
    let data = take_blocks(rest, header.size).ok_or_else(|| unreadable("it is cut off within this file"))?;
    intake.reserve(header.size)?;
    if let Some(path) = path
        && intake.is_clean()
    {
        intake.push(File {
            path,
            mode: Some(header.mode & 0o777),
            content: data.to_vec(),
        });
    }
    Ok(())
}
