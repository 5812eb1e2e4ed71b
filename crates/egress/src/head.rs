//! Heads of HTTP/1 messages (RFC 9112), read so that they have one meaning or none.
//!
//! Refused: a line that ends in LF alone, CR elsewhere, other control characters, a field that goes on in the next line,
//! space before a colon, two spaces in the first line, several lengths, a length beside a transfer coding, a coding other
//! than `chunked` alone, more than one `Host`.

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// Most fields of one head.
const MAX_FIELDS: usize = 100;

/// A head that has no one meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeadFault {
    #[error("the connection ended inside of a head")]
    Ended,
    #[error("the head is too large")]
    TooLarge,
    #[error("a line does not end in CR LF, or has a control character")]
    Line,
    #[error("the first line is none of HTTP/1.1 or HTTP/1.0")]
    FirstLine,
    #[error("a field is none, or goes on in the next line")]
    Field,
    #[error("the length of the body is said in more than one way, or in none that is known")]
    Length,
    #[error("there is not exactly one Host")]
    Host,
}

/// Reads up to the empty line into `head`; false where the connection ended before the first byte.
pub(crate) async fn read(
    from: &mut (impl AsyncBufRead + Unpin),
    most: usize,
    head: &mut Vec<u8>,
) -> Result<bool, HeadFault> {
    loop {
        let waiting = from.fill_buf().await.map_err(|_| HeadFault::Ended)?;
        if waiting.is_empty() {
            return if head.is_empty() {
                Ok(false)
            } else {
                Err(HeadFault::Ended)
            };
        }
        let (mut taken, mut whole) = (0, false);
        for &byte in waiting {
            taken += 1;
            // Said at once: who ends lines otherwise would be waited for in vain.
            let after_cr = head.last() == Some(&b'\r');
            if after_cr != (byte == b'\n') || byte == 0 {
                return Err(HeadFault::Line);
            }
            head.push(byte);
            whole = head.ends_with(b"\r\n\r\n");
            if whole {
                break;
            }
            if head.len() >= most {
                return Err(HeadFault::TooLarge);
            }
        }
        from.consume(taken);
        if whole {
            return Ok(true);
        }
    }
}

/// The fields of a head, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fields(Vec<(String, Vec<u8>)>);

/// How long a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// There is none.
    None,
    /// So many bytes.
    Exactly(u64),
    /// It says so itself.
    Chunked,
    /// To the end of the connection.
    ToTheEnd,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestHead {
    pub(crate) method: String,
    pub(crate) target: String,
    /// Of HTTP/1: 0 or 1.
    pub(crate) minor: u8,
    pub(crate) fields: Fields,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResponseHead {
    pub(crate) minor: u8,
    pub(crate) status: u16,
    /// The words behind it.
    pub(crate) words: String,
    pub(crate) fields: Fields,
}

impl RequestHead {
    pub(crate) fn parse(head: &[u8]) -> Result<Self, HeadFault> {
        let (first, fields) = parse(head)?;
        let mut parts = first.split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(HeadFault::FirstLine);
        };
        let visible = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        if method.is_empty() || !method.bytes().all(is_token) || !visible(target) {
            return Err(HeadFault::FirstLine);
        }
        Ok(Self {
            method: method.to_owned(),
            target: target.to_owned(),
            minor: minor(version)?,
            fields,
        })
    }

    /// Its one host; none only in HTTP/1.0.
    pub(crate) fn host(&self) -> Result<Option<&str>, HeadFault> {
        match (self.fields.all("host").as_slice(), self.minor) {
            ([], 0) => Ok(None),
            ([host], _) => std::str::from_utf8(host).map(Some).map_err(|_| HeadFault::Host),
            _ => Err(HeadFault::Host),
        }
    }

    /// The length of its body.
    pub(crate) fn length(&self) -> Result<Length, HeadFault> {
        let length = self.fields.length(self.minor)?;
        Ok(length.unwrap_or(Length::None))
    }

    /// Whether another request may come on the connection.
    pub(crate) fn goes_on(&self) -> bool {
        self.minor == 1 && !self.fields.named_by_connection().contains(&"close".to_owned())
    }
}

impl ResponseHead {
    pub(crate) fn parse(head: &[u8]) -> Result<Self, HeadFault> {
        let (first, fields) = parse(head)?;
        let (version, rest) = first.split_once(' ').ok_or(HeadFault::FirstLine)?;
        let (status, words) = rest.split_once(' ').unwrap_or((rest, ""));
        let digits = status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit());
        let status = status.parse().ok().filter(|_| digits);
        Ok(Self {
            minor: minor(version)?,
            status: status
                .filter(|status| (100..600).contains(status))
                .ok_or(HeadFault::FirstLine)?,
            words: words.to_owned(),
            fields,
        })
    }

    /// The length of its body (RFC 9112, section 6.3).
    pub(crate) fn length(&self, method: &str) -> Result<Length, HeadFault> {
        let said = self.fields.length(self.minor)?;
        if method == "HEAD" || matches!(self.status, 100..200 | 204 | 304) {
            return Ok(Length::None);
        }
        Ok(said.unwrap_or(Length::ToTheEnd))
    }
}

impl Fields {
    /// All values of a name.
    pub(crate) fn all(&self, name: &str) -> Vec<&[u8]> {
        let named = self
            .0
            .iter()
            .filter(|(found, _)| found.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_slice()).collect()
    }

    /// Whether a field, by its name in lower case, is about one connection or written anew.
    pub(crate) fn is_of_one_hop(lower_name: &str) -> bool {
        OF_ONE_HOP.contains(&lower_name) || lower_name.starts_with("proxy-")
    }

    /// What `Connection` names, in lower case.
    fn named_by_connection(&self) -> Vec<String> {
        let values = self.all("connection");
        let texts = values
            .iter()
            .map(|value| String::from_utf8_lossy(value).to_ascii_lowercase());
        texts.flat_map(|text| split_list(&text)).collect()
    }

    fn length(&self, minor: u8) -> Result<Option<Length>, HeadFault> {
        match (
            self.all("transfer-encoding").as_slice(),
            self.all("content-length").as_slice(),
        ) {
            ([], []) => Ok(None),
            ([], [length]) => {
                let digits = !length.is_empty() && length.iter().all(u8::is_ascii_digit);
                let number = std::str::from_utf8(length)
                    .ok()
                    .and_then(|text| text.parse().ok());
                let number = number.filter(|_| digits).ok_or(HeadFault::Length)?;
                Ok(Some(Length::Exactly(number)))
            }
            ([coding], []) if minor == 1 && coding.eq_ignore_ascii_case(b"chunked") => {
                Ok(Some(Length::Chunked))
            }
            _ => Err(HeadFault::Length),
        }
    }

    /// Writes all that are meant for the other end of the way, and not for who stands on it (RFC 9110, section 7.6.1).
    /// Lengths and `Host` are written anew by whoever knows them.
    /// Those that `stays` names, in lower case, stay behind too.
    pub(crate) fn write_end_to_end(&self, to: &mut Vec<u8>, stays: impl Fn(&str) -> bool) {
        let named = self.named_by_connection();
        for (name, value) in &self.0 {
            let lower = name.to_ascii_lowercase();
            if Self::is_of_one_hop(&lower) || named.contains(&lower) || stays(&lower) {
                continue;
            }
            to.extend(name.as_bytes());
            to.extend(b": ");
            to.extend(value);
            to.extend(b"\r\n");
        }
    }
}

/// Fields that are about one connection, and those that are written anew.
const OF_ONE_HOP: [&str; 9] = [
    "connection",
    "content-length",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

fn split_list(text: &str) -> Vec<String> {
    text.split(',').map(|name| name.trim().to_owned()).collect()
}

fn minor(version: &str) -> Result<u8, HeadFault> {
    match version {
        "HTTP/1.1" => Ok(1),
        "HTTP/1.0" => Ok(0),
        _ => Err(HeadFault::FirstLine),
    }
}

/// The first line and the fields of a whole head.
fn parse(head: &[u8]) -> Result<(&str, Fields), HeadFault> {
    let head = head.strip_suffix(b"\r\n\r\n").ok_or(HeadFault::Ended)?;
    // Of the control characters only CR and LF were looked at while it was read.
    let fine = |line: &[u8]| {
        without_cr(line)
            .iter()
            .all(|byte| *byte == b'\t' || !byte.is_ascii_control())
    };
    let mut lines = head.split(|byte| *byte == b'\n');
    if !lines.clone().all(fine) {
        return Err(HeadFault::Line);
    }
    let first = without_cr(lines.next().unwrap_or_default());
    let first = std::str::from_utf8(first).map_err(|_| HeadFault::FirstLine)?;
    let mut fields = Vec::new();
    for line in lines {
        if fields.len() == MAX_FIELDS {
            return Err(HeadFault::TooLarge);
        }
        let line = without_cr(line);
        let colon = line
            .iter()
            .position(|byte| *byte == b':')
            .ok_or(HeadFault::Field)?;
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        // A line that begins with space goes on with the field before it; no token begins so.
        if name.is_empty() || !name.iter().copied().all(is_token) {
            return Err(HeadFault::Field);
        }
        let name = String::from_utf8_lossy(name).into_owned();
        fields.push((name, value.trim_ascii().to_vec()));
    }
    Ok((first, Fields(fields)))
}

fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// A character of a token (RFC 9110, section 5.6.2).
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn request(mut text: &[u8]) -> Result<RequestHead, HeadFault> {
        let mut head = Vec::new();
        match read(&mut text, 4096, &mut head).await? {
            true => RequestHead::parse(&head),
            false => Err(HeadFault::Ended),
        }
    }

    fn head(lines: &[&str]) -> Vec<u8> {
        (lines.join("\r\n") + "\r\n\r\n").into_bytes()
    }

    #[tokio::test]
    async fn a_plain_request_is_read() {
        let text = head(&["GET http://a.test/x HTTP/1.1", "Host: a.test", "X-y:\t z "]);
        let found = request(&text).await.unwrap();
        assert_eq!(
            (found.method.as_str(), found.target.as_str()),
            ("GET", "http://a.test/x")
        );
        assert_eq!(found.fields.all("x-Y"), [b"z"]);
        assert_eq!(found.length(), Ok(Length::None));
        assert_eq!(found.host(), Ok(Some("a.test")));
        assert!(found.goes_on());
    }

    #[tokio::test]
    async fn a_head_that_two_readers_could_read_differently_is_refused() {
        let first = "GET http://a.test/ HTTP/1.1";
        for (bad, fault) in [
            (b"GET / HTTP/1.1\nHost: a\n\n".to_vec(), HeadFault::Line),
            (b"GET / HTTP/1.1\r\nHost: a\n\r\n".to_vec(), HeadFault::Line),
            (
                b"GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n".to_vec(),
                HeadFault::Line,
            ),
            (b"GET / HTTP/1.1\r\nHost: a\0\r\n\r\n".to_vec(), HeadFault::Line),
            (head(&[first, "Host: a\x0b"]), HeadFault::Line),
            (head(&[first, "Host: a.test", " b.test"]), HeadFault::Field),
            (head(&[first, "\tHost: a.test"]), HeadFault::Field),
            (head(&[first, "Host : a.test"]), HeadFault::Field),
            (head(&[first, ": a.test"]), HeadFault::Field),
            (head(&[first, "Host"]), HeadFault::Field),
            (head(&["GET  http://a.test/ HTTP/1.1"]), HeadFault::FirstLine),
            (head(&["GET http://a.test/ b HTTP/1.1"]), HeadFault::FirstLine),
            (head(&["GET\thttp://a.test/\tHTTP/1.1"]), HeadFault::FirstLine),
            (head(&["G(T http://a.test/ HTTP/1.1"]), HeadFault::FirstLine),
            (head(&["GET http://a.test/ HTTP/2.0"]), HeadFault::FirstLine),
            (head(&["GET http://a.test/ HTTP/1.10"]), HeadFault::FirstLine),
            (head(&["GET http://ä.test/ HTTP/1.1"]), HeadFault::FirstLine),
            (head(&["GET http://a.test/"]), HeadFault::FirstLine),
            (head(&["", first]), HeadFault::Field),
            (vec![b'a'; 5000], HeadFault::TooLarge),
            (b"GET / HTT".to_vec(), HeadFault::Ended),
        ] {
            let text = String::from_utf8_lossy(&bad).into_owned();
            assert_eq!(request(&bad).await, Err(fault), "{text:?}");
        }
    }

    #[tokio::test]
    async fn lengths_that_contradict_one_another_are_refused() {
        for (lines, expected) in [
            (&["Content-Length: 5"][..], Ok(Length::Exactly(5))),
            (&["Transfer-Encoding: Chunked"], Ok(Length::Chunked)),
            (
                &["Content-Length: 5", "Content-Length: 5"],
                Err(HeadFault::Length),
            ),
            (
                &["Content-Length: 5", "content-length: 6"],
                Err(HeadFault::Length),
            ),
            (&["Content-Length: 5, 5"], Err(HeadFault::Length)),
            (&["Content-Length: +5"], Err(HeadFault::Length)),
            (&["Content-Length: 0x5"], Err(HeadFault::Length)),
            (&["Content-Length:"], Err(HeadFault::Length)),
            (&["Content-Length: 18446744073709551616"], Err(HeadFault::Length)),
            (
                &["Content-Length: 5", "Transfer-Encoding: chunked"],
                Err(HeadFault::Length),
            ),
            (
                &["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
                Err(HeadFault::Length),
            ),
            (&["Transfer-Encoding: gzip, chunked"], Err(HeadFault::Length)),
            (&["Transfer-Encoding: xchunked"], Err(HeadFault::Length)),
            (&["Transfer-Encoding: identity"], Err(HeadFault::Length)),
        ] {
            let lines = [&["POST http://a.test/ HTTP/1.1"], lines].concat();
            let found = request(&head(&lines)).await.unwrap();
            assert_eq!(found.length(), expected, "{lines:?}");
        }
        let old = head(&["POST http://a.test/ HTTP/1.0", "Transfer-Encoding: chunked"]);
        assert_eq!(request(&old).await.unwrap().length(), Err(HeadFault::Length));
    }

    #[tokio::test]
    async fn a_request_has_one_host() {
        for (lines, expected) in [
            (&["GET / HTTP/1.1"][..], Err(HeadFault::Host)),
            (&["GET / HTTP/1.0"], Ok(None)),
            (&["GET / HTTP/1.1", "Host: a", "host: a"], Err(HeadFault::Host)),
        ] {
            assert_eq!(request(&head(lines)).await.unwrap().host(), expected, "{lines:?}");
        }
    }

    #[tokio::test]
    async fn what_is_about_one_connection_does_not_go_on() {
        let text = head(&[
            "GET http://a.test/ HTTP/1.1",
            "Host: a.test",
            "Connection: keep-alive, X-Hop",
            "X-Hop: 1",
            "Proxy-Authorization: Basic eA==",
            "Proxy-Connection: keep-alive",
            "Upgrade: websocket",
            "TE: trailers",
            "Accept: */*",
        ]);
        let mut written = Vec::new();
        request(&text)
            .await
            .unwrap()
            .fields
            .write_end_to_end(&mut written, |_| false);
        assert_eq!(String::from_utf8(written).unwrap(), "Accept: */*\r\n");
    }

    #[test]
    fn a_body_ends_where_the_answer_says_it_does() {
        let length = |method, lines: &[&str]| ResponseHead::parse(&head(lines)).unwrap().length(method);
        assert_eq!(length("GET", &["HTTP/1.1 200 OK"]), Ok(Length::ToTheEnd));
        assert_eq!(length("GET", &["HTTP/1.1 204"]), Ok(Length::None));
        let sized = ["HTTP/1.1 200 OK", "Content-Length: 7"];
        assert_eq!(length("HEAD", &sized), Ok(Length::None));
        assert_eq!(length("GET", &sized), Ok(Length::Exactly(7)));
        for bad in [
            "HTTP/1.1 20 OK",
            "HTTP/1.1 2000 OK",
            "HTTP/1.1 999 OK",
            "HTTP/3 200 OK",
            "200 OK",
        ] {
            assert_eq!(
                ResponseHead::parse(&head(&[bad])),
                Err(HeadFault::FirstLine),
                "{bad}"
            );
        }
    }
}
