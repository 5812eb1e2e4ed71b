//! Archives with some of their fields changed, always the same ones.

use mayfly_archive::Format;

use crate::build::sign;

/// Numbers that look like chance and are the same each time (xorshift64, Marsaglia 2003).
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    fn pick<'a>(&mut self, from: &[&'a [u8]]) -> &'a [u8] {
        from[self.below(from.len())]
    }
}

/// What takes the place of bytes of an archive.
const PIECES: [&[u8]; 24] = [
    b"\0",
    b"\xff",
    b"\xff\xff\xff\xff",
    b"\0\0\0\0",
    b"\x01\0",
    b"\x08\0",
    b"\x08\x08",
    b"../",
    b"/",
    b"a/",
    b"\\",
    b"0",
    b"2",
    b"5",
    b"L",
    b"x",
    b"g",
    b"S",
    b"7",
    b" ",
    b"PK\x05\x06",
    b"PK\x03\x04",
    b"ustar  \0",
    b"00000000012\0",
];

/// Where a zip has headers, and a tar blocks: most of what differs between readers is there.
fn headers(archive: &[u8], format: Format) -> Vec<usize> {
    match format {
        Format::Zip => archive
            .windows(2)
            .enumerate()
            .filter(|(_, two)| two == b"PK")
            .map(|(at, _)| at)
            .collect(),
        Format::Tar | Format::TarGz => (0..archive.len()).step_by(512).collect(),
    }
}

pub(crate) fn mutated(archive: &[u8], format: Format, chance: &mut Chance) -> Vec<u8> {
    let mut bytes = archive.to_vec();
    for _ in 0..=chance.below(3) {
        let places = headers(&bytes, format);
        let span = if format == Format::Zip { 60 } else { 512 };
        let at = match places.get(chance.below(places.len().max(1))) {
            Some(start) if chance.below(8) > 0 => start + chance.below(span),
            _ => chance.below(bytes.len().max(1)),
        };
        let at = at.min(bytes.len());
        match chance.below(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << chance.below(8),
            1 => {
                bytes.splice(at..at, chance.pick(&PIECES).iter().copied());
            }
            2 => {
                let end = (at + chance.below(5)).min(bytes.len());
                bytes.drain(at..end);
            }
            // A whole header or block once more, or once less.
            3 => {
                let block = at / 512 * 512;
                let copy = bytes[block..(block + 512).min(bytes.len())].to_vec();
                bytes.splice(block..block, copy);
            }
            4 => {
                let block = at / 512 * 512;
                let end = (block + 512).min(bytes.len());
                bytes.drain(block..end);
            }
            _ => {
                let piece = chance.pick(&PIECES);
                let end = (at + piece.len()).min(bytes.len());
                bytes[at..end].copy_from_slice(&piece[..end - at]);
            }
        }
    }
    if format == Format::Tar && chance.below(4) > 0 {
        signed(&mut bytes);
    }
    bytes
}

/// Makes the checksum of whatever looks like a header right: a reader looks at nothing else of a header before it.
fn signed(tar: &mut [u8]) {
    for block in tar.chunks_exact_mut(512) {
        if block[257..262] == *b"ustar" || block[148..156].iter().all(u8::is_ascii_digit) {
            sign(block);
        }
    }
}
