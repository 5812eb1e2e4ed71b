//! Zip, by PKWARE's APPNOTE.TXT 6.3.10; numbers in brackets are its sections.
//!
//! A zip names each file twice, at its data and in the directory at the end, and readers go by either. So both have to say
//! the same, the entries have to fill everything before the directory without gap or overlap, and the directory everything
//! up to its end record: no byte is left of which readers could think differently.

use crate::{
    File, Problem,
    inflate::inflate,
    intake::{Intake, Kind},
    most_expanded,
};

mod directory;

use directory::{Directory, Entry};

const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// Deflate's hints on its effort (bits 1 and 2), sizes behind the data (3), names in UTF-8 (11) [4.4.4].
const KNOWN_FLAGS: u16 = 0b1000_0000_1110;
const ENCRYPTED: u16 = 1 | 1 << 6 | 1 << 13;
const SIZES_BEHIND: u16 = 1 << 3;
const UTF8: u16 = 1 << 11;

/// Version 6.3, of which there is no later one [4.4.3.2].
const NEWEST: u16 = 63;

/// File types of Unix in the upper half of an entry's attributes (`stat.h`).
const TYPE_MASK: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const FOLDER: u32 = 0o040_000;
const LINK: u32 = 0o120_000;
/// The attribute of a folder in MS-DOS.
const DOS_FOLDER: u32 = 0x10;
/// Systems that write permission bits: Unix and OS X [4.4.2].
const UNIX: [u16; 2] = [3, 19];

pub(crate) fn read(archive: &[u8], intake: &mut Intake<'_>) -> Result<(), Problem> {
    let directory = Directory::read(archive)?;
    let mut files = Vec::new();
    for entry in &directory.entries {
        if let Some(path) = judge(entry, intake)? {
            files.push((entry, path));
        }
    }
    let places = directory.places(archive, intake)?;
    for entry in &directory.entries {
        intake.reserve(u64::from(entry.size))?;
    }
    if !intake.is_clean() {
        return Ok(());
    }
    for (entry, path) in files {
        let data = places
            .get(&entry.offset)
            .ok_or_else(|| Problem::whole("broken", "an entry of its directory has no data"))?;
        intake.push(File {
            path,
            mode: permissions(entry),
            content: content(entry, data)?,
        });
    }
    Ok(())
}

/// Whether an entry may be, by what the directory says of it. Gives the path of a file.
fn judge(entry: &Entry<'_>, intake: &mut Intake<'_>) -> Result<Option<String>, Problem> {
    let is_folder = entry.name.ends_with(b"/");
    let before = intake.problem_count();
    if let Some((code, message)) = wrong(entry, is_folder) {
        intake.refuse(entry.name, code, message);
    }
    let kind = if is_folder { Kind::Folder } else { Kind::File };
    let path = intake.name(entry.name, kind)?;
    if is_folder || intake.problem_count() > before {
        return Ok(None);
    }
    let most = most_expanded(u64::from(entry.compressed));
    if u64::from(entry.size) > most {
        let message = format!(
            "it expands to {} bytes, more than the {most} that its size allows",
            entry.size
        );
        intake.refuse(entry.name, "ratio", message);
    }
    Ok(path)
}

/// What is wrong with an entry beside its name, if anything.
fn wrong(entry: &Entry<'_>, is_folder: bool) -> Option<(&'static str, String)> {
    let fault = |code, message: &str| Some((code, message.to_owned()));
    if entry.flags & ENCRYPTED != 0 {
        return fault("encrypted", "it is encrypted");
    }
    if entry.flags & !KNOWN_FLAGS != 0 {
        return fault("not_supported", "its flags ask for what is not supported");
    }
    if entry.needs & 0xff > NEWEST {
        return fault(
            "not_supported",
            "it needs a later version of the format than there is",
        );
    }
    if !matches!(entry.method, STORED | DEFLATED) {
        let message = format!(
            "its compression method, {}, is not supported: only 0 (stored) and 8 (deflated) are",
            entry.method
        );
        return Some(("not_supported", message));
    }
    if entry.flags & UTF8 == 0 && !entry.name.is_ascii() {
        return fault("bad_path", "its name is neither ASCII nor marked as UTF-8");
    }
    if entry.name.contains(&b'\\') {
        return fault("bad_path", "its name has a backslash; folders are parted by `/`");
    }
    let attributes = entry.attributes >> 16;
    match attributes & TYPE_MASK {
        LINK => {
            return fault(
                "link",
                "it is a symbolic link; archives may have files and folders only",
            );
        }
        FOLDER if !is_folder => return fault("bad_path", "it is a folder whose name does not end in `/`"),
        REGULAR if is_folder => return fault("bad_path", "it is a file whose name ends in `/`"),
        0 | REGULAR | FOLDER => {}
        _ => return fault("special", "it is neither a file nor a folder"),
    }
    if !is_folder && entry.attributes & DOS_FOLDER != 0 {
        return fault("bad_path", "it is a folder whose name does not end in `/`");
    }
    if is_folder && entry.size != 0 {
        return fault("broken", "it is a folder and has content");
    }
    if !is_folder && permissions(entry).is_some() && attributes & 0o7000 != 0 {
        return fault("special", "it is setuid, setgid or sticky");
    }
    None
}

/// Permission bits, where a system wrote them that has some.
fn permissions(entry: &Entry<'_>) -> Option<u32> {
    let attributes = entry.attributes >> 16;
    (UNIX.contains(&(entry.made_by >> 8)) && attributes != 0).then_some(attributes & 0o777)
}

/// An entry's content, of the size and with the checksum that the directory names.
fn content(entry: &Entry<'_>, data: &[u8]) -> Result<Vec<u8>, Problem> {
    let broken = |message: &str| entry.problem("broken", message);
    let content = if entry.method == STORED {
        data.to_vec()
    } else {
        let (content, consumed) =
            inflate(data, u64::from(entry.size)).map_err(|error| error.problem(Some(entry.name)))?;
        if consumed != data.len() {
            return Err(broken("something follows its compressed data"));
        }
        content
    };
    if content.len() as u64 != u64::from(entry.size) {
        return Err(broken("it has another size than its header says"));
    }
    if crc32fast::hash(&content) != entry.crc {
        return Err(broken("its content does not match its checksum"));
    }
    Ok(content)
}
