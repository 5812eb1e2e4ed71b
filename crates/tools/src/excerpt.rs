//! What is shown of a stream: within a bound, as text that acts on nothing.

use std::fmt::Write as _;

use mayfly_wire::job::Stream;

/// A stream's beginning and end.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Excerpt {
    /// The text, with a mark where something is left out.
    pub(crate) text: String,
    /// Whether something is.
    pub(crate) is_cut: bool,
    /// Bytes that the program wrote.
    pub(crate) written: u64,
}

/// A stream, or its first and last characters where it has more than so many.
pub(crate) fn of_stream(stream: Stream, characters: usize) -> Excerpt {
    let (written, not_kept) = (stream.bytes, stream.omitted_bytes.unwrap_or(0));
    // Base64 that is none is a fault of the server's, of which nothing can be made here but no text.
    let (head, tail) = stream.into_kept().unwrap_or_default();
    let (text, is_cut) = if not_kept == 0 {
        around(&shown(&[head, tail].concat()), characters)
    } else {
        (apart(&shown(&head), &shown(&tail), not_kept, characters), true)
    };
    Excerpt {
        text,
        is_cut,
        written,
    }
}

/// A text, or its two ends.
fn around(text: &str, characters: usize) -> (String, bool) {
    let count = text.chars().count();
    if count <= characters {
        return (text.to_owned(), false);
    }
    let first = characters / 2;
    let last = characters - first;
    let left_out = count - characters;
    let mark = format!("\n[… {left_out} characters are left out here; read_output shows them …]\n");
    (
        format!("{}{mark}{}", beginning(text, first), end(text, last)),
        true,
    )
}

/// What is kept of a stream's two ends, or the first and last characters of that.
fn apart(head: &str, tail: &str, not_kept: u64, characters: usize) -> String {
    let first = characters / 2;
    let last = characters - first;
    let (head_count, tail_count) = (head.chars().count(), tail.chars().count());
    let left_out = head_count.saturating_sub(first) + tail_count.saturating_sub(last);
    let more = if left_out == 0 {
        String::new()
    } else {
        format!(", and {left_out} characters are left out, which read_output shows")
    };
    format!(
        "{}\n[… {not_kept} bytes were not kept{more} …]\n{}",
        beginning(head, first),
        end(tail, last)
    )
}

fn beginning(text: &str, characters: usize) -> &str {
    let end = text
        .char_indices()
        .nth(characters)
        .map_or(text.len(), |(at, _)| at);
    &text[..end]
}

fn end(text: &str, characters: usize) -> &str {
    let skipped = text.chars().count().saturating_sub(characters);
    let begin = text.char_indices().nth(skipped).map_or(text.len(), |(at, _)| at);
    &text[begin..]
}

/// Bytes as text, whose control characters are shown and don't act: answers end on terminals, too.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut shown = String::with_capacity(text.len());
    for c in text.replace("\r\n", "\n").chars() {
        if c.is_control() && !matches!(c, '\n' | '\t') {
            write!(shown, "\\x{:02x}", u32::from(c)).expect("a string takes what it is given");
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use mayfly_core::{
        digest::Digest,
        outcome::{CapturedStream, StreamCount},
    };

    use super::*;

    fn excerpt(head: &str, tail: &str, written: u64, characters: usize) -> Excerpt {
        let stream = CapturedStream {
            count: StreamCount {
                bytes: written,
                digest: Digest::of(b""),
                truncated: written > (head.len() + tail.len()) as u64,
            },
            head: head.as_bytes().to_vec(),
            tail: tail.as_bytes().to_vec(),
            redacted: None,
        };
        of_stream(Stream::new(&stream), characters)
    }

    #[test]
    fn what_fits_is_whole_and_what_does_not_is_its_two_ends() {
        let whole = excerpt("äbcd", "", 5, 4);
        assert_eq!(
            (whole.text.as_str(), whole.is_cut, whole.written),
            ("äbcd", false, 5)
        );
        let cut = excerpt("äbcdé", "", 7, 4);
        assert!(cut.is_cut);
        assert_eq!(
            cut.text,
            "äb\n[… 1 characters are left out here; read_output shows them …]\ndé"
        );
    }

    #[test]
    fn what_was_not_kept_is_said_beside_what_is_left_out() {
        let short = excerpt("abc", "xyz", 100, 10);
        assert_eq!(short.text, "abc\n[… 94 bytes were not kept …]\nxyz");
        assert!(short.is_cut);
        let long = excerpt("abcd", "wxyz", 100, 4);
        assert_eq!(
            long.text,
            "ab\n[… 92 bytes were not kept, and 4 characters are left out, which read_output shows …]\nyz"
        );
    }

    #[test]
    fn nothing_in_it_acts_on_a_terminal() {
        assert_eq!(
            shown(b"a\x1b[2J\r\nb\rc\x00\xff\t\xc2\x9b"),
            "a\\x1b[2J\nb\\x0dc\\x00\u{fffd}\t\\x9b"
        );
    }
}
