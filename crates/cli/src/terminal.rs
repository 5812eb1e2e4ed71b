//! A job's bytes on their way to a person or a file. A terminal is never given what would act on it: control
//! sequences, and characters that reorder or hide text, are shown as escapes. Where the output is no terminal the
//! bytes are passed on as they are.

use std::io::{self, Write};

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

    /// Whether the reader has gone away.
    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
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
        let shown: String = rest.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        self.to.write_all(shown.as_bytes()).and_then(|()| self.to.flush())
    }
}

/// Says a line on stderr. One that can't be said, on a disk that is full, changes nothing about what has happened.
pub(crate) fn say(line: &str) {
    writeln!(io::stderr(), "{line}").unwrap_or_default();
}

/// Text of a job for a line of ours: a path, a reason, a label.
pub(crate) fn shown(text: &str) -> String {
    text.chars()
        .map(|c| if c == '\n' { "\\n".to_owned() } else { show(c) })
        .collect()
}

/// What may be shown of these bytes, and the start of a character that is not whole yet.
fn escaped(mut bytes: &[u8]) -> (String, &[u8]) {
    let mut shown = String::with_capacity(bytes.len());
    loop {
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                text.chars().for_each(|c| shown.push_str(&show(c)));
                return (shown, &[]);
            }
            Err(error) => {
                let (good, rest) = bytes.split_at(error.valid_up_to());
                String::from_utf8_lossy(good)
                    .chars()
                    .for_each(|c| shown.push_str(&show(c)));
                let Some(bad) = error.error_len() else {
                    return (shown, rest);
                };
                rest[..bad]
                    .iter()
                    .for_each(|byte| shown.push_str(&format!("\\x{byte:02x}")));
                bytes = &rest[bad..];
            }
        }
    }
}

fn show(c: char) -> String {
    match c {
        '\n' | '\t' => c.to_string(),
        // Only before a line feed does it do no harm, and there it does nothing.
        '\r' => "\\r".to_owned(),
        // Bidirectional controls (Unicode 15, UAX #9, section 2), invisible characters and line separators.
        '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{061c}' => {
            format!("\\u{{{:x}}}", u32::from(c))
        }
        c if c.is_control() => format!("\\x{:02x}", u32::from(c)),
        c => c.to_string(),
    }
}

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

    proptest! {
        #[test]
        fn however_it_is_cut_the_terminal_shows_the_same_and_no_control_character(bytes: Vec<u8>, at: prop::sample::Index) {
            let at = if bytes.is_empty() { 0 } else { at.index(bytes.len()) };
            let whole = through(true, &[&bytes]);
            prop_assert_eq!(through(true, &[&bytes[..at], &bytes[at..]]), whole.clone());
            let text = String::from_utf8(whole).unwrap();
            prop_assert!(text.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'));
        }
    }
}
