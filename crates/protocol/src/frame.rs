//! What both directions share: writing a header and its payload, reading payloads.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{EncodeError, HEADER_BYTES, ProtocolError, StreamId};

/// Least and most bytes of a payload.
pub(crate) type Bounds = (usize, usize);

/// Bounds of a payload that there isn't.
pub(crate) const EMPTY: Bounds = (0, 0);
/// Bounds of a grant's payload: one number.
pub(crate) const CREDIT: Bounds = (4, 4);

/// What is known of a frame before its payload.
pub(crate) struct Header {
    pub(crate) name: &'static str,
    pub(crate) kind: u8,
    pub(crate) stream: StreamId,
    pub(crate) bounds: Bounds,
}

impl Header {
    pub(crate) fn json<T: Serialize>(&self, payload: &T, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let json = serde_json::to_vec(payload).map_err(|source| EncodeError::Json {
            frame: self.name,
            source,
        })?;
        self.bytes(&json, out)
    }

    pub(crate) fn bytes(&self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let (least, most) = self.bounds;
        let wrong = || EncodeError::Length {
            frame: self.name,
            bytes: payload.len(),
            limit: most,
        };
        if !(least..=most).contains(&payload.len()) {
            return Err(wrong());
        }
        let length = u32::try_from(payload.len()).map_err(|_| wrong())?;
        out.reserve(HEADER_BYTES + payload.len());
        out.extend([self.kind, 0]);
        out.extend(self.stream.0.to_be_bytes());
        out.extend(length.to_be_bytes());
        out.extend(payload);
        Ok(())
    }
}

pub(crate) fn expect_stream(kind: u8, stream: StreamId, expected: StreamId) -> Result<(), ProtocolError> {
    if stream == expected {
        Ok(())
    } else {
        Err(ProtocolError::Stream { kind, stream })
    }
}

/// Parses a payload. The parser's own message is dropped: it may quote the payload.
pub(crate) fn parse_json<T: DeserializeOwned>(kind: u8, payload: &[u8]) -> Result<T, ProtocolError> {
    serde_json::from_slice(payload).map_err(|error| ProtocolError::Payload {
        kind,
        line: error.line(),
        column: error.column(),
    })
}

pub(crate) fn parse_credit(kind: u8, stream: StreamId, payload: &[u8]) -> Result<u32, ProtocolError> {
    let bytes = <[u8; 4]>::try_from(payload)
        .map(u32::from_be_bytes)
        .map_err(|_| ProtocolError::Payload {
            kind,
            line: 0,
            column: 0,
        })?;
    if bytes == 0 {
        Err(ProtocolError::Grant { stream, bytes })
    } else {
        Ok(bytes)
    }
}
