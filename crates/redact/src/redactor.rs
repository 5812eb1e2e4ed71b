//! One stream.

use std::{fmt, sync::Arc};

use crate::{
    automaton::ROOT,
    counts::Counts,
    filter::GRAM,
    left::LOOK_BEHIND,
    machine::{End, Machine, Verdict},
    matcher::{Compiled, Matcher, Target},
};

/// Bytes that are taken in at a time.
const PIECE: usize = 16 * 1024;

/// Least bytes of the beginning of a secret that are taken out where the stream ends in the midst of it.
const LEAST_BEGUN_BYTES: usize = 8;

/// The label of a job's own secret; a rule's is its index and 1.
const OWN: usize = 0;

/// Takes secrets out of one stream, whatever its chunks are.
///
/// It holds the beginning of what may become a match, at most [`Matcher::most_held_bytes`] of it, and whatever its inputs
/// twice 16 KiB more. Without an end of the stream, what it holds is never let out: a half of a secret would be.
pub struct Redactor {
    compiled: Arc<Compiled>,
    /// The stream from `base` on: some bytes that are out already and stand to the left of what comes, then those held.
    buffer: Vec<u8>,
    base: u64,
    /// What was looked at, and what was let out or taken out: all before these positions of the stream.
    at: u64,
    done: u64,
    state: u32,
    machines: Vec<Machine>,
    /// Matches that are not yet `done`.
    spans: Vec<Span>,
    /// The end of the newest redaction.
    covered: u64,
    counts: Counts,
}

/// A match, or as much of it as there is yet. Ordered by what names a redaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    start: u64,
    label: usize,
    end: u64,
}

impl Redactor {
    /// A stream in which nothing has come yet.
    pub fn new(matcher: &Matcher) -> Self {
        Self {
            compiled: matcher.compiled(),
            buffer: Vec::new(),
            base: 0,
            at: 0,
            done: 0,
            state: ROOT,
            machines: Vec::new(),
            spans: Vec::new(),
            covered: 0,
            counts: Counts::default(),
        }
    }

    /// Takes the next bytes, and appends to `out` what is certain by now.
    pub fn push(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        for piece in chunk.chunks(PIECE) {
            self.buffer.extend_from_slice(piece);
            self.scan();
            self.extend_certain();
            self.let_out(self.undecided_from(), out);
            self.forget();
        }
    }

    /// The stream has ended: appends the rest. A beginning of a secret, of 8 bytes or more, is taken out too: what cut the
    /// stream may have cut the secret.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Counts {
        for machine in std::mem::take(&mut self.machines) {
            let shape = &self.compiled.shapes[machine.shape];
            if let (Verdict::Ended(end), Some(start)) = (machine.finish(shape, self.at), machine.start) {
                self.spans.push(Span {
                    start,
                    label: shape.rule + 1,
                    end,
                });
            }
        }
        let begun = self.compiled.automaton.begun_secret(self.state);
        if begun >= LEAST_BEGUN_BYTES {
            self.spans.push(Span {
                start: self.at - begun as u64,
                label: OWN,
                end: self.at,
            });
        }
        self.let_out(self.at, out);
        self.counts
    }

    /// How many bytes are held back now.
    pub fn held_bytes(&self) -> usize {
        usize::try_from(self.at - self.done).expect("what is held is in memory")
    }

    /// What was taken out so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Looks at all that is in the buffer.
    fn scan(&mut self) {
        let compiled = Arc::clone(&self.compiled);
        let mut next = self.place(self.at);
        while next < self.buffer.len() {
            // Where nothing is under way, and less of a literal than the filter knows, the filter goes on.
            let depth = compiled.automaton.live(self.state);
            if self.machines.is_empty() && depth < GRAM {
                let from = next - depth;
                let found = compiled.filter.find(&self.buffer, from);
                let short = self.buffer.len().saturating_sub(GRAM - 1).max(from);
                let begin = found.unwrap_or(short);
                next = self.buffer.len().min(begin + GRAM);
                self.state = ROOT;
                for place in begin..next {
                    self.step(&compiled, place);
                }
            } else {
                self.step(&compiled, next);
                next += 1;
            }
        }
        self.at = self.position(self.buffer.len());
    }

    /// Looks at one byte.
    fn step(&mut self, compiled: &Compiled, place: usize) {
        let (byte, at) = (self.buffer[place], self.position(place));
        if !self.machines.is_empty() {
            self.step_machines(compiled, byte, at);
        }
        self.state = compiled.automaton.next(self.state, byte);
        for literal in compiled.automaton.ended(self.state) {
            let (length, targets) = &compiled.literals[literal];
            let begin = place + 1 - length;
            let start = self.position(begin);
            for target in targets {
                match target {
                    Target::Secret => self.spans.push(Span {
                        start,
                        label: OWN,
                        end: at + 1,
                    }),
                    Target::Anchor(index) => {
                        let shape = &compiled.shapes[*index];
                        if Compiled::may_begin(shape, &self.buffer[..begin]) {
                            self.machines.push(Machine::new(*index, shape, start));
                        }
                    }
                }
            }
        }
    }

    fn step_machines(&mut self, compiled: &Compiled, byte: u8, at: u64) {
        let mut index = 0;
        while let Some(machine) = self.machines.get_mut(index) {
            let (was_certain, shape) = (machine.certain, &compiled.shapes[machine.shape]);
            let verdict = machine.step(shape, byte, at);
            let (now_certain, start, which) = (machine.certain && !was_certain, machine.start, machine.shape);
            let gone = match verdict {
                // Another of its kind is taken out already, and ends where this one does.
                Verdict::Alive => {
                    let twin = |other: &Machine| other.shape == which && other.certain;
                    now_certain
                        && shape.end == End::Open
                        && self.machines.iter().filter(|other| twin(other)).count() > 1
                }
                Verdict::NoToken => true,
                Verdict::Ended(end) => {
                    let start = start.expect("a token ends after it has begun");
                    self.spans.push(Span {
                        start,
                        label: shape.rule + 1,
                        end,
                    });
                    true
                }
            };
            if gone {
                self.machines.swap_remove(index);
            } else {
                index += 1;
            }
        }
    }

    /// What is certain and has not ended goes at least as far as all that was looked at.
    fn extend_certain(&mut self) {
        for machine in self.machines.iter().filter(|machine| machine.certain) {
            let start = machine.start.expect("what is certain has begun");
            let label = self.compiled.shapes[machine.shape].rule + 1;
            self.spans.push(Span {
                start,
                label,
                end: self.at,
            });
        }
    }

    /// The first byte of which it is open whether it is part of a match.
    fn undecided_from(&self) -> u64 {
        let literal = self.literal_from();
        let waiting = self.machines.iter().filter(|machine| !machine.certain);
        waiting
            .filter_map(|machine| machine.start)
            .fold(literal, u64::min)
    }

    /// Where the longest literal begins that has not ended.
    fn literal_from(&self) -> u64 {
        self.at - self.compiled.automaton.live(self.state) as u64
    }

    /// Lets out what is before `end`, and takes out the matches that start there or within what is taken out.
    fn let_out(&mut self, end: u64, out: &mut Vec<u8>) {
        self.spans.sort_unstable();
        self.spans.dedup_by(|longer, kept| {
            let same = (longer.start, longer.label) == (kept.start, kept.label);
            if same {
                kept.end = longer.end;
            }
            same
        });
        let mut taken = 0;
        while let Some(span) = self.spans.get(taken).copied() {
            if span.start < self.covered {
                self.cover(span.end);
            } else if span.start < end {
                self.take_out(span, out);
            } else {
                break;
            }
            taken += 1;
        }
        self.spans.drain(..taken);
        self.copy_to(end, out);
        // What starts within a redaction can make it longer, and nothing else: it holds back only what comes after.
        self.done = end.max(self.covered);
    }

    fn take_out(&mut self, span: Span, out: &mut Vec<u8>) {
        self.copy_to(span.start, out);
        self.covered = span.start;
        self.cover(span.end);
        let name = self.compiled.name(span.label);
        self.counts.add(name);
        out.extend_from_slice(b"[redacted:");
        out.extend_from_slice(name.as_bytes());
        out.push(b']');
    }

    fn cover(&mut self, end: u64) {
        let more = end.saturating_sub(self.covered);
        self.counts.add_bytes(more);
        self.covered += more;
    }

    /// Lets out what is before `end` and part of no match.
    fn copy_to(&mut self, end: u64, out: &mut Vec<u8>) {
        let from = self.done.max(self.covered);
        if from < end {
            out.extend_from_slice(&self.buffer[self.place(from)..self.place(end)]);
            self.done = end;
        }
    }

    /// Drops what is out, but for what is looked at again and what stands to the left of that; not each time, since the
    /// rest is moved.
    fn forget(&mut self) {
        let old = self
            .place(self.done.min(self.literal_from()))
            .saturating_sub(LOOK_BEHIND);
        if old >= PIECE || old == self.buffer.len().saturating_sub(LOOK_BEHIND) {
            self.buffer.drain(..old);
            self.base += old as u64;
        }
    }

    fn place(&self, position: u64) -> usize {
        usize::try_from(position - self.base).expect("it is in memory")
    }

    fn position(&self, place: usize) -> u64 {
        self.base + place as u64
    }
}

/// Nothing of the stream.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.held_bytes();
        f.debug_struct("Redactor")
            .field("held_bytes", &held)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
