//! One rule after its anchor: what is certain, what may still become a token, and where a token ends.

use crate::bytes::ByteSet;

/// Longest private key in PEM form that ends without an end line, in bytes after its first line. A key of 16,384 bits has
/// 12,800.
pub(crate) const MOST_PEM_BYTES: u32 = 32 * 1024;

/// Bytes of one set, a bounded number of them or as many as come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) set: ByteSet,
    pub(crate) least: u32,
    /// None: as many as come. Only the last segment of a shape is so.
    pub(crate) most: Option<u32>,
}

/// What ends a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// The first byte that its last segment has not.
    Open,
    /// A byte that is none of these, or the end of the stream: the token has a length of its own.
    NotBefore(ByteSet),
    /// A byte that is one of these.
    Before(ByteSet),
    /// The line that ends a private key, or [`MOST_PEM_BYTES`]. The last segment is how a key begins.
    PemLine,
}

/// Whether the byte before an anchor matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// It doesn't.
    Any,
    /// No word goes on, of these bytes.
    Not(ByteSet),
}

/// A token's shape: an anchor, then segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The rule that it belongs to.
    pub(crate) rule: usize,
    pub(crate) anchors: Vec<Vec<u8>>,
    pub(crate) left: Left,
    /// Anchor and first segments that are no secret and stay: how many segments; None: not even the anchor.
    pub(crate) kept: Option<usize>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) end: End,
}

impl Shape {
    /// Most bytes that this shape holds back.
    pub(crate) fn most_held(&self) -> usize {
        let anchor = self.anchors.iter().map(Vec::len).max().unwrap_or(0);
        let secret = &self.segments[self.kept.unwrap_or(0)..];
        let body: u32 = secret
            .iter()
            .map(|segment| segment.most.unwrap_or(segment.least))
            .sum();
        match self.kept {
            None => anchor + body as usize,
            Some(_) => anchor.max(body as usize),
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.end, End::Open | End::PemLine)
    }
}

/// A shape of which an anchor was seen.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) shape: usize,
    /// Where what is taken out begins. None while all seen so far is kept.
    pub(crate) start: Option<u64>,
    /// It is a token, whatever follows; only where it ends is open.
    pub(crate) certain: bool,
    segment: usize,
    count: u32,
    dashes: u32,
    dashed: bool,
}

/// What a byte, or the end of the stream, makes of a machine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Alive,
    NoToken,
    /// The token ends before this position.
    Ended(u64),
}

impl Machine {
    /// `anchor` is where the anchor begins.
    pub(crate) fn new(index: usize, shape: &Shape, anchor: u64) -> Self {
        let start = shape.kept.is_none().then_some(anchor);
        Self {
            shape: index,
            start,
            certain: false,
            segment: 0,
            count: 0,
            dashes: 0,
            dashed: false,
        }
    }

    /// Takes the byte at this position of the stream.
    pub(crate) fn step(&mut self, shape: &Shape, byte: u8, at: u64) -> Verdict {
        if shape.end == End::PemLine {
            return self.step_in_pem(shape, byte, at);
        }
        loop {
            if shape.kept.is_some_and(|kept| self.segment >= kept) {
                self.start.get_or_insert(at);
            }
            let Some(segment) = shape.segments.get(self.segment) else {
                return match &shape.end {
                    End::NotBefore(set) if set.contains(byte) => Verdict::NoToken,
                    End::Before(set) if !set.contains(byte) => Verdict::NoToken,
                    _ => Verdict::Ended(at),
                };
            };
            if segment.most.is_none_or(|most| self.count < most) && segment.set.contains(byte) {
                self.count = self.count.saturating_add(1);
                self.certain = segment.most.is_none() && self.count >= segment.least;
                return Verdict::Alive;
            }
            if self.count < segment.least {
                return Verdict::NoToken;
            }
            self.segment += 1;
            self.count = 0;
        }
    }

    /// A key ends with its second run of five dashes: the first is the one that begins its last line.
    fn step_in_pem(&mut self, shape: &Shape, byte: u8, at: u64) -> Verdict {
        let beginning = &shape.segments[0];
        if !self.certain && !beginning.set.contains(byte) {
            return Verdict::NoToken;
        }
        self.count += 1;
        self.dashes = if byte == b'-' { self.dashes + 1 } else { 0 };
        let ends = self.dashes == 5 && std::mem::replace(&mut self.dashed, true);
        if ends || self.count == MOST_PEM_BYTES {
            return if self.certain {
                Verdict::Ended(at + 1)
            } else {
                Verdict::NoToken
            };
        }
        self.certain |= self.count >= beginning.least;
        Verdict::Alive
    }

    /// The stream ends before this position.
    pub(crate) fn finish(&self, shape: &Shape, at: u64) -> Verdict {
        let enough = |count: u32, segment: &Segment| count >= segment.least;
        let mut left = shape.segments[self.segment.min(shape.segments.len())..].iter();
        let whole = left.next().is_none_or(|segment| enough(self.count, segment))
            && left.all(|segment| enough(0, segment));
        let token = if shape.is_open() {
            self.certain
        } else {
            whole && !matches!(shape.end, End::Before(_))
        };
        if token && self.start.is_some() {
            Verdict::Ended(at)
        } else {
            Verdict::NoToken
        }
    }
}
