//! Where a literal may begin: what most bytes of a stream are looked at by, and nothing else.

/// Bytes of a literal that the filter knows. No literal is shorter.
pub(crate) const GRAM: usize = 3;

/// Positions looked at per branch: those with a whole gram in eight bytes.
const LANES: usize = 8 - GRAM + 1;

const BITS: u32 = 17;

/// The hashes of the first [`GRAM`] bytes of every literal. A position that it passes over begins none of them; one that
/// it stops at may begin one.
pub(crate) struct Filter(Box<[u64; 1 << (BITS - 6)]>);

impl Filter {
    pub(crate) fn new<'a>(literals: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut table = Box::new([0; 1 << (BITS - 6)]);
        for literal in literals {
            let gram = hash(u64::from_le_bytes([
                literal[0], literal[1], literal[2], 0, 0, 0, 0, 0,
            ]));
            table[gram >> 6] |= 1 << (gram & 63);
        }
        Self(table)
    }

    /// The first position at or after `from` where a literal may begin, of those that have a whole gram.
    pub(crate) fn find(&self, text: &[u8], from: usize) -> Option<usize> {
        let mut at = from;
        while let Some(eight) = text.get(at..).and_then(<[u8]>::first_chunk) {
            let eight = u64::from_le_bytes(*eight);
            let hit = (0..LANES).fold(0, |hit, lane| hit | self.bit(eight >> (8 * lane)));
            if hit & 1 != 0 {
                break;
            }
            at += LANES;
        }
        let rest = text.get(at..)?;
        let begins = |gram: &[u8]| {
            self.bit(u64::from(gram[0]) | u64::from(gram[1]) << 8 | u64::from(gram[2]) << 16) & 1 != 0
        };
        rest.windows(GRAM).position(begins).map(|found| at + found)
    }

    /// In its lowest bit whether a literal begins with the lowest three bytes.
    fn bit(&self, bytes: u64) -> u64 {
        let gram = hash(bytes);
        self.0[gram >> 6] >> (gram & 63)
    }
}

/// Of the lowest three bytes, fewer than `1 << BITS`.
fn hash(bytes: u64) -> usize {
    let [first, second, third, ..] = bytes.to_le_bytes();
    let gram = u32::from_le_bytes([0, first, second, third]);
    (gram.wrapping_mul(0x9E37_79B1) >> (32 - BITS)) as usize
}
