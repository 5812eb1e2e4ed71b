//! The patterns of the table: regular expressions of sets with counts, and nothing else.

use std::{iter::Peekable, str::Bytes};

use crate::{bytes::ByteSet, machine::Segment};

/// `[0-9a-f]{32}-[\w.]{2,}` as segments.
///
/// # Panics
/// Panics if the pattern is none of these; the table is fixed, and a test compiles all of it.
pub(super) fn segments(pattern: &str) -> Vec<Segment> {
    let mut rest = pattern.bytes().peekable();
    let mut made: Vec<Segment> = Vec::new();
    while let Some(byte) = rest.next() {
        let set = match byte {
            b'[' => set(&mut rest),
            b'\\' => escaped(rest.next().expect("a byte is escaped")),
            byte => [byte].into_iter().collect(),
        };
        let (least, most) = if rest.next_if_eq(&b'{').is_some() {
            count(&mut rest)
        } else {
            (1, Some(1))
        };
        if let Some(before) = made.last() {
            // Else where one ends and the next begins would be a matter of trying.
            let fixed = before.most == Some(before.least);
            assert!(
                fixed || !before.set.meets(set),
                "{pattern}: where a segment ends must be plain"
            );
            assert!(
                before.most.is_some(),
                "{pattern}: only the last segment goes on for ever"
            );
        }
        made.push(Segment { set, least, most });
    }
    made
}

/// What stands in the first set of a pattern that begins with one.
pub(super) fn text_of_first(pattern: &str) -> &str {
    pattern
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
        .map_or("", |(text, _)| text)
}

/// What stands in the last set of a pattern, or the byte that ends it.
pub(super) fn text_of_last(pattern: &str) -> &str {
    let counted = pattern
        .rfind('{')
        .filter(|_| pattern.ends_with('}'))
        .map_or(pattern, |at| &pattern[..at]);
    match counted.strip_suffix(']').and_then(|set| set.rsplit_once('[')) {
        Some((_, text)) => text,
        None => &counted[counted.len() - 1..],
    }
}

/// The set of a text like `\s"'`.
pub(super) fn of_any(text: &str) -> ByteSet {
    set(&mut format!("{text}]").bytes().peekable())
}

fn set(rest: &mut Peekable<Bytes<'_>>) -> ByteSet {
    let mut all = ByteSet::default();
    loop {
        let from = match rest.next().expect("a set is closed") {
            b']' => return all,
            b'\\' => {
                all = all.union(escaped(rest.next().expect("a byte is escaped")));
                continue;
            }
            byte => byte,
        };
        // A `-` at the end of a set is itself.
        let mut ahead = rest.clone();
        let to = match (ahead.next(), ahead.next()) {
            (Some(b'-'), Some(to)) if to != b']' => {
                *rest = ahead;
                to
            }
            _ => from,
        };
        assert!(from <= to, "a range goes upwards");
        all = all.union((from..=to).collect());
    }
}

fn escaped(byte: u8) -> ByteSet {
    match byte {
        b'w' => ByteSet::word(),
        b's' => b"\t\n\x0b\x0c\r ".iter().copied().collect(),
        byte => {
            assert!(byte.is_ascii_punctuation(), "what is escaped stands for itself");
            [byte].into_iter().collect()
        }
    }
}

fn count(rest: &mut Peekable<Bytes<'_>>) -> (u32, Option<u32>) {
    let inside: Vec<u8> = rest.take_while(|byte| *byte != b'}').collect();
    let inside = String::from_utf8(inside).expect("digits");
    let number = |digits: &str| digits.parse().expect("a count is a number");
    match inside.split_once(',') {
        None => (number(&inside), Some(number(&inside))),
        Some((least, "")) => (number(least), None),
        Some((least, most)) => (number(least), Some(number(most))),
    }
}
