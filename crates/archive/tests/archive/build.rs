//! Archives written field by field, right ones and others.

use miniz_oxide::deflate::compress_to_vec;

/// An entry of a zip. Whatever differs between its two headers is said in `local`.
#[derive(Clone)]
pub(crate) struct ZipEntry {
    pub(crate) name: Vec<u8>,
    pub(crate) data: Vec<u8>,
    pub(crate) made_by: u16,
    pub(crate) needs: u16,
    pub(crate) flags: u16,
    pub(crate) method: u16,
    pub(crate) crc: u32,
    pub(crate) size: u32,
    pub(crate) attributes: u32,
    pub(crate) extra: Vec<u8>,
    /// Another name in the header at the data.
    pub(crate) local_name: Option<Vec<u8>>,
    /// Where the directory says that it is; where it is, if nothing is said.
    pub(crate) offset: Option<u32>,
    /// What stands behind its data.
    pub(crate) behind: Vec<u8>,
}

pub(crate) fn stored(name: &str, content: &[u8]) -> ZipEntry {
    ZipEntry {
        name: name.into(),
        data: content.to_vec(),
        made_by: 3 << 8 | 20,
        needs: 20,
        flags: 0,
        method: 0,
        crc: crc32fast::hash(content),
        size: u32::try_from(content.len()).unwrap(),
        attributes: 0o100_644 << 16,
        extra: Vec::new(),
        local_name: None,
        offset: None,
        behind: Vec::new(),
    }
}

pub(crate) fn deflated(name: &str, content: &[u8]) -> ZipEntry {
    ZipEntry {
        data: compress_to_vec(content, 9),
        method: 8,
        ..stored(name, content)
    }
}

fn le16(bytes: &mut Vec<u8>, value: usize) {
    bytes.extend(u16::try_from(value).unwrap().to_le_bytes());
}

/// All entries, their directory, and its end.
pub(crate) fn zip(entries: &[ZipEntry]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for entry in entries {
        let offset = entry.offset.unwrap_or(u32::try_from(bytes.len()).unwrap());
        let compressed = u32::try_from(entry.data.len()).unwrap();
        let fields = |bytes: &mut Vec<u8>| {
            bytes.extend(entry.needs.to_le_bytes());
            bytes.extend(entry.flags.to_le_bytes());
            bytes.extend(entry.method.to_le_bytes());
            bytes.extend([0; 4]);
            for value in [entry.crc, compressed, entry.size] {
                bytes.extend(value.to_le_bytes());
            }
        };
        let local_name = entry.local_name.as_ref().unwrap_or(&entry.name);
        bytes.extend(b"PK\x03\x04");
        fields(&mut bytes);
        le16(&mut bytes, local_name.len());
        le16(&mut bytes, entry.extra.len());
        bytes.extend(local_name);
        bytes.extend(&entry.extra);
        bytes.extend(&entry.data);
        bytes.extend(&entry.behind);
        directory.extend(b"PK\x01\x02");
        directory.extend(entry.made_by.to_le_bytes());
        fields(&mut directory);
        le16(&mut directory, entry.name.len());
        le16(&mut directory, entry.extra.len());
        directory.extend([0; 6]);
        directory.extend(entry.attributes.to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(&entry.name);
        directory.extend(&entry.extra);
    }
    let start = bytes.len();
    bytes.extend(&directory);
    bytes.extend(end(entries.len(), directory.len(), start));
    bytes
}

/// The record at the end of a zip.
pub(crate) fn end(count: usize, directory: usize, start: usize) -> Vec<u8> {
    let mut end = b"PK\x05\x06\0\0\0\0".to_vec();
    le16(&mut end, count);
    le16(&mut end, count);
    end.extend(u32::try_from(directory).unwrap().to_le_bytes());
    end.extend(u32::try_from(start).unwrap().to_le_bytes());
    end.extend([0; 2]);
    end
}

/// An entry of a tar.
#[derive(Clone)]
pub(crate) struct TarEntry {
    pub(crate) name: Vec<u8>,
    pub(crate) kind: u8,
    pub(crate) mode: Vec<u8>,
    pub(crate) size: Vec<u8>,
    pub(crate) target: Vec<u8>,
    pub(crate) magic: [u8; 8],
    pub(crate) prefix: Vec<u8>,
    pub(crate) content: Vec<u8>,
}

pub(crate) fn file(name: &str, content: &[u8]) -> TarEntry {
    TarEntry {
        name: name.into(),
        kind: b'0',
        mode: b"0000644".to_vec(),
        size: format!("{:011o}", content.len()).into_bytes(),
        target: Vec::new(),
        magic: *b"ustar\x0000",
        prefix: Vec::new(),
        content: content.to_vec(),
    }
}

/// An entry without content of another kind.
pub(crate) fn special(kind: u8, name: &str, target: &str) -> TarEntry {
    TarEntry {
        kind,
        target: target.into(),
        ..file(name, b"")
    }
}

/// An extension of pax with these records.
pub(crate) fn pax(kind: u8, records: &[&str]) -> TarEntry {
    let mut data = Vec::new();
    for record in records {
        // The length counts itself.
        let length = (record.len()..).find(|length| length.to_string().len() + record.len() + 2 == *length);
        data.extend(format!("{} {record}\n", length.unwrap()).into_bytes());
    }
    TarEntry {
        kind,
        ..file("PaxHeaders/a", &data)
    }
}

/// A header and its content, filled up to whole blocks.
pub(crate) fn blocks(entry: &TarEntry) -> Vec<u8> {
    let mut header = vec![0; 512];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &entry.name);
    put(100, &entry.mode);
    put(108, b"0001750");
    put(116, b"0001750");
    put(124, &entry.size);
    put(136, b"14524770400");
    put(156, &[entry.kind]);
    put(157, &entry.target);
    put(257, &entry.magic);
    put(345, &entry.prefix);
    sign(&mut header);
    header.extend(&entry.content);
    header.resize(header.len().next_multiple_of(512), 0);
    header
}

/// Makes the checksum of a header right.
pub(crate) fn sign(header: &mut [u8]) {
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

pub(crate) fn tar(entries: &[TarEntry]) -> Vec<u8> {
    let mut bytes: Vec<u8> = entries.iter().flat_map(blocks).collect();
    bytes.extend([0; 1024]);
    bytes
}

pub(crate) fn gzip(content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    bytes.extend(compress_to_vec(content, 9));
    bytes.extend(crc32fast::hash(content).to_le_bytes());
    bytes.extend(u32::try_from(content.len()).unwrap().to_le_bytes());
    bytes
}
