//! The first message of a TLS client, as far as it says which server it is for (RFC 8446, section 4.1.2; RFC 6066,
//! section 3).

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::{HostName, Reason};

/// Most bytes of the message. With keys for a time after quantum computers it has 2 KiB.
const MAX_HELLO: usize = 16 * 1024;
/// Most bytes of the records that it comes in: they may be as short as one byte.
const MAX_RAW: usize = 64 * 1024;
/// Most bytes of one record (RFC 8446, section 5.1).
const MAX_RECORD: usize = 1 << 14;

const HANDSHAKE_RECORD: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
/// Its name inside of it is another than outside (RFC 9849), and before that was a standard.
const ENCRYPTED: [u16; 2] = [0xfe0d, 0xffce];

/// What was read, and whom it is for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The records as they came.
    pub(crate) raw: Vec<u8>,
    pub(crate) server_name: Option<HostName>,
}

/// Reads a whole message, in as many records and pieces as it comes, and not a byte more.
///
/// # Errors
/// [`Reason::NotTls`] after the first byte that says so, [`Reason::BadHello`], [`Reason::EncryptedHello`].
pub(crate) async fn read(from: &mut (impl AsyncRead + Unpin)) -> Result<Hello, Reason> {
    let (mut raw, mut message) = (Vec::new(), Vec::new());
    loop {
        let mut header = [0; 5];
        from.read_exact(&mut header[..1])
            .await
            .map_err(|_| Reason::BadHello)?;
        if header[0] != HANDSHAKE_RECORD {
            return Err(if raw.is_empty() {
                Reason::NotTls
            } else {
                Reason::BadHello
            });
        }
        from.read_exact(&mut header[1..])
            .await
            .map_err(|_| Reason::BadHello)?;
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if header[1] != 3 || length == 0 || length > MAX_RECORD || raw.len() + length > MAX_RAW {
            return Err(Reason::BadHello);
        }
        raw.extend(header);
        let begun = raw.len();
        raw.resize(begun + length, 0);
        from.read_exact(&mut raw[begun..])
            .await
            .map_err(|_| Reason::BadHello)?;
        message.extend_from_slice(&raw[begun..]);
        if message[0] != CLIENT_HELLO || message.len() > MAX_HELLO + 4 {
            return Err(Reason::BadHello);
        }
        if let [_, high, middle, low, body @ ..] = message.as_slice() {
            let length = usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low);
            if length > MAX_HELLO || body.len() > length {
                return Err(Reason::BadHello);
            }
            if body.len() == length {
                let server_name = server_name(body)?;
                return Ok(Hello { raw, server_name });
            }
        }
    }
}

/// The one name in the message's body.
fn server_name(body: &[u8]) -> Result<Option<HostName>, Reason> {
    let mut body = Fields(body);
    body.take(2 + 32)?; // version, random
    body.vector8()?; // session
    body.vector16()?; // ciphers
    body.vector8()?; // compression
    if body.0.is_empty() {
        return Ok(None);
    }
    let mut extensions = Fields(body.vector16()?);
    body.is_over()?;
    let (mut seen, mut found) = (Vec::new(), None);
    while !extensions.0.is_empty() {
        let kind = extensions.number16()?;
        let content = extensions.vector16()?;
        if seen.contains(&kind) {
            return Err(Reason::BadHello);
        }
        seen.push(kind);
        if kind == SERVER_NAME {
            found = Some(one_name(content)?);
        }
    }
    if ENCRYPTED.iter().any(|kind| seen.contains(kind)) {
        return Err(Reason::EncryptedHello);
    }
    Ok(found)
}

/// A list that must hold one name, of a host.
fn one_name(content: &[u8]) -> Result<HostName, Reason> {
    let mut content = Fields(content);
    let mut list = Fields(content.vector16()?);
    content.is_over()?;
    if list.take(1)? != [0] {
        return Err(Reason::BadHello);
    }
    let name = list.vector16()?;
    list.is_over()?;
    let name = std::str::from_utf8(name).map_err(|_| Reason::BadHello)?;
    HostName::parse(name).map_err(|_| Reason::ServerNameMismatch)
}

/// What is left of a message.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Reason> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(Reason::BadHello)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number16(&mut self) -> Result<u16, Reason> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn vector8(&mut self) -> Result<&'a [u8], Reason> {
        let length = usize::from(self.take(1)?[0]);
        self.take(length)
    }

    fn vector16(&mut self) -> Result<&'a [u8], Reason> {
        let length = usize::from(self.number16()?);
        self.take(length)
    }

    fn is_over(&self) -> Result<(), Reason> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Reason::BadHello)
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
