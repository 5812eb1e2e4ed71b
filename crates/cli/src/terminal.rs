//! A job's bytes on their way to a person or a file. A terminal is never given what would act on it: control
//! sequences, and characters that reorder or hide text, are shown as escapes. Where the output is no terminal the
//! bytes are passed on as they are.
//!
//! What is ours, JSON and lines, goes through [`print`] and [`say`], which let no such character pass either, terminal or
//! not: JSON escapes it, and says the same.

mod characters;

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use self::characters::acts;
pub(crate) use self::characters::harmless;
use crate::{exit, failure::Failure};

/// Writes what a job wrote.
pub(crate) struct JobOutput<W> {
    to: W,
    /// Whether the other end is a terminal.
    terminal: bool,
    /// The start of a character whose rest has not come yet; at most three bytes.
    pending: Vec<u8>,
    /// The other end is gone; what comes is counted by the record and dropped here.
    closed: bool,
}

impl<W: Write> JobOutput<W> {
    pub(crate) const fn new(to: W, terminal: bool) -> Self {
        Self {
            to,
            terminal,
            pending: Vec::new(),
            closed: false,
        }
    }

    /// The next bytes.
    ///
    /// # Errors
    /// The writer's, but for a reader that has gone away: `mayfly run x | head` is no failure of the job.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.closed {
            return Ok(());
        }
        let result = if self.terminal {
            let mut text = std::mem::take(&mut self.pending);
            text.extend_from_slice(bytes);
            let (shown, rest) = escaped(&text);
            self.pending = rest.to_vec();
            self.to.write_all(shown.as_bytes()).and_then(|()| self.to.flush())
        } else {
            self.to.write_all(bytes).and_then(|()| self.to.flush())
        };
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            result => result,
        }
    }

    /// What was held back, since nothing follows.
    ///
    /// # Errors
    /// The writer's.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        let rest = std::mem::take(&mut self.pending);
        if rest.is_empty() || self.closed {
            return Ok(());
        }
        self.to
            .write_all(hex(&rest).as_bytes())
            .and_then(|()| self.to.flush())
    }
}

/// Writes JSON or lines of ours to stdout. A reader that has gone away is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    write_stdout(&harmless(text))
}

/// From the upper left corner on, and nothing below what is drawn (ECMA-48, CUP and ED).
#[cfg(feature = "fleet")]
const REDRAW: &str = "\x1b[H\x1b[J";

/// Draws a picture on a terminal, over what was there.
#[cfg(feature = "fleet")]
pub(crate) fn draw(picture: &str) -> Result<(), Failure> {
    write_stdout(&format!("{REDRAW}{}", harmless(picture)))
}

fn write_stdout(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(unwritten(error)),
        _ => Ok(()),
    }
}

pub(crate) fn unwritten(error: io::Error) -> Failure {
    Failure::new(exit::NO_OUTPUT, error)
}

/// Says a line on stderr. One that can't be said, on a disk that is full, changes nothing about what has happened.
pub(crate) fn say(line: &str) {
    writeln!(io::stderr(), "{}", harmless(line)).unwrap_or_default();
}

/// Text of a job for a line of ours: a path, a reason, a label.
pub(crate) fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            c => show(c, &mut shown),
        }
    }
    shown
}

/// What may be shown of these bytes, and the start of a character that is not whole yet.
fn escaped(mut bytes: &[u8]) -> (String, &[u8]) {
    let mut shown = String::with_capacity(bytes.len());
    loop {
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                text.chars().for_each(|c| show(c, &mut shown));
                return (shown, &[]);
            }
            Err(error) => {
                let (good, rest) = bytes.split_at(error.valid_up_to());
                let good = String::from_utf8_lossy(good);
                good.chars().for_each(|c| show(c, &mut shown));
                let Some(bad) = error.error_len() else {
                    return (shown, rest);
                };
                shown.push_str(&hex(&rest[..bad]));
                bytes = &rest[bad..];
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect()
}

fn show(c: char, into: &mut String) {
    match c {
        '\n' | '\t' => into.push(c),
        // Only before a line feed does it do no harm, and there it does nothing.
        '\r' => into.push_str("\\r"),
        c if c.is_control() => write!(into, "\\x{:02x}", u32::from(c)).expect(STRING),
        c if acts(c) => write!(into, "\\u{{{:x}}}", u32::from(c)).expect(STRING),
        c => into.push(c),
    }
}

const STRING: &str = "a string takes what it is given";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn through(terminal: bool, chunks: &[&[u8]]) -> Vec<u8> {
        let mut to = Vec::new();
        let mut output = JobOutput::new(&mut to, terminal);
        for chunk in chunks {
            output.write(chunk).unwrap();
        }
        output.finish().unwrap();
        to
    }

    #[test]
    fn a_file_gets_the_bytes_as_they_are() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(through(false, &[&bytes]), bytes);
    }

    #[test]
    fn a_terminal_gets_nothing_that_acts_on_it() {
        let hostile = "\u{1b}]52;c;aGk=\u{7}\u{1b}[2J\u{9b}31m a\u{202e}b\rc\n".as_bytes();
        let text = String::from_utf8(through(true, &[hostile])).unwrap();
        assert_eq!(text, "\\x1b]52;c;aGk=\\x07\\x1b[2J\\x9b31m a\\u{202e}b\\rc\n");
        assert_eq!(through(true, &[b"\xff\xfe\x00ok"]), b"\\xff\\xfe\\x00ok");
    }

    #[test]
    fn a_character_that_is_cut_by_a_border_of_chunks_is_whole_again() {
        assert_eq!(through(true, &[b"\xe2", b"\x82", b"\xac"]), "€".as_bytes());
        assert_eq!(through(true, &[b"\xe2\x82"]), b"\\xe2\\x82");
    }

    #[test]
    fn what_hides_text_is_seen() {
        let hidden = "\u{e0041}a\u{ad}b\u{3164}c\u{e0100}d\u{180e}e\u{fff9}f\u{34f}g\u{17b4}h\u{115f}i\u{fe0f}\u{2065}";
        let seen = "\\u{e0041}a\\u{ad}b\\u{3164}c\\u{e0100}d\\u{180e}e\\u{fff9}f\\u{34f}g\\u{17b4}h\\u{115f}i\\u{fe0f}\\u{2065}";
        assert_eq!(through(true, &[hidden.as_bytes()]), seen.as_bytes());
        assert_eq!(shown(hidden), seen);
    }

    proptest! {
        #[test]
        fn however_it_is_cut_the_terminal_shows_the_same_and_nothing_that_acts(
            parts in prop::collection::vec(
                prop_oneof![
                    prop::collection::vec(any::<u8>(), 0..8),
                    any::<char>().prop_map(|c| c.to_string().into_bytes()),
                    (0u32..0x3000).prop_filter_map("a surrogate", char::from_u32).prop_map(|c| c.to_string().into_bytes()),
                ],
                0..32,
            ),
            at: prop::sample::Index,
        ) {
            let bytes = parts.concat();
            let at = if bytes.is_empty() { 0 } else { at.index(bytes.len()) };
            let whole = through(true, &[&bytes]);
            prop_assert_eq!(through(true, &[&bytes[..at], &bytes[at..]]), whole.clone());
            let text = String::from_utf8(whole).unwrap();
            prop_assert!(text.chars().all(|c| !acts(c) || c == '\n' || c == '\t'), "{text:?}");
        }
    }
}
