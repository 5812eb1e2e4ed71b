//! Reads `text/event-stream` (WHATWG HTML, section 9.2.6), whatever the borders of what arrives.

/// Most bytes of one event.
const MAX_EVENT: usize = 8 << 20;
/// Longest id that is kept.
const MAX_ID: usize = 1024;

/// An event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// Its name.
    pub(crate) name: String,
    /// Its data, lines joined by line feeds.
    pub(crate) data: String,
    /// The newest id so far.
    pub(crate) id: Option<String>,
}

/// An event that is larger than events may be, or a line that is no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StreamError {
    #[error("an event is larger than {MAX_EVENT} bytes")]
    TooLarge,
    #[error("a line is not UTF-8")]
    NotText,
}

/// Reads events from bytes as they arrive.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// A line whose end has not come.
    line: Vec<u8>,
    /// The last byte was a carriage return, so that a line feed that follows belongs to it.
    after_return: bool,
    begun: bool,
    name: String,
    data: String,
    id: Option<String>,
}

impl Parser {
    /// The next bytes; adds the events that they complete.
    pub(crate) fn feed(&mut self, bytes: &[u8], events: &mut impl Extend<Event>) -> Result<(), StreamError> {
        for &byte in bytes {
            let second_half = std::mem::take(&mut self.after_return) && byte == b'\n';
            if second_half {
                continue;
            }
            if byte != b'\n' && byte != b'\r' {
                self.line.push(byte);
                if self.line.len() + self.data.len() > MAX_EVENT {
                    return Err(StreamError::TooLarge);
                }
                continue;
            }
            self.after_return = byte == b'\r';
            let line = std::mem::take(&mut self.line);
            let line = String::from_utf8(line).map_err(|_| StreamError::NotText)?;
            events.extend(self.line(&line));
        }
        Ok(())
    }

    fn line(&mut self, line: &str) -> Option<Event> {
        // A byte order mark may stand at the very beginning.
        let line = if std::mem::replace(&mut self.begun, true) {
            line
        } else {
            line.strip_prefix('\u{feff}').unwrap_or(line)
        };
        if line.is_empty() {
            return self.event();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            "id" if value.len() <= MAX_ID && !value.contains('\0') => self.id = Some(value.to_owned()),
            // Comments, whose field is empty, and fields that nobody knows.
            _ => {}
        }
        None
    }

    fn event(&mut self) -> Option<Event> {
        let (name, mut data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
        // Without data there is no event.
        data.pop()?;
        Some(Event {
            name,
            data,
            id: self.id.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(chunks: &[&[u8]]) -> Vec<Event> {
        let (mut parser, mut events) = (Parser::default(), Vec::new());
        for chunk in chunks {
            parser.feed(chunk, &mut events).unwrap();
        }
        events
    }

    fn event(name: &str, data: &str, id: Option<&str>) -> Event {
        Event {
            name: name.to_owned(),
            data: data.to_owned(),
            id: id.map(ToOwned::to_owned),
        }
    }

    #[test]
    fn events_are_read_whatever_ends_their_lines_and_wherever_they_are_cut() {
        let text = "\u{feff}: hello\n\nevent: state\nid: 1\ndata: {\"a\":1}\n\nevent:output\ndata: a\ndata:  b\nodd\n\nid\n\
                    data\n\ndata: unfinished\n";
        let expected = [
            event("state", "{\"a\":1}", Some("1")),
            event("output", "a\n b", Some("1")),
            event("", "", Some("")),
        ];
        for end in ["\n", "\r", "\r\n"] {
            let text = text.replace('\n', end);
            assert_eq!(read(&[text.as_bytes()]), expected, "{end:?}");
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(read(&bytes), expected, "{end:?}");
        }
    }

    #[test]
    fn what_has_no_data_is_no_event_and_its_id_counts() {
        let events = read(&[b"event: a\nid: 7\n\ndata: x\n\n"]);
        assert_eq!(events, [event("", "x", Some("7"))]);
    }

    #[test]
    fn an_event_has_a_bound() {
        let mut parser = Parser::default();
        let line = [b"data: ", vec![b'x'; 1 << 20].as_slice(), b"\n"].concat();
        let fed = (0..10).try_for_each(|_| parser.feed(&line, &mut Vec::new()));
        assert_eq!(fed, Err(StreamError::TooLarge));
        assert!(parser.data.len() <= MAX_EVENT);
        let mut parser = Parser::default();
        let endless = vec![b'x'; MAX_EVENT + 1];
        assert_eq!(parser.feed(&endless, &mut Vec::new()), Err(StreamError::TooLarge));
        assert_eq!(
            Parser::default().feed(b"data: \xff\n", &mut Vec::new()),
            Err(StreamError::NotText)
        );
    }
}
