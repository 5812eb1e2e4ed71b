//! Bytes to frames, whatever the chunking, in bounded memory.

use std::marker::PhantomData;

use crate::kind::ADVISORY;
use crate::{HEADER_BYTES, MAX_PAYLOAD, MAX_SKIPPED_FRAMES, ProtocolError, StreamId};

/// The frames that one end receives: [`crate::ToGuest`] or [`crate::FromGuest`].
pub trait Incoming: Sized {
    /// Whether kinds of this direction carry the bit `0x80`.
    const FROM_GUEST: bool;

    /// Least and most bytes of a kind's payload; `None` for a kind that doesn't exist.
    fn payload_bounds(kind: u8) -> Option<(usize, usize)>;

    /// Reads a frame whose payload keeps the bounds of its kind.
    ///
    /// # Errors
    /// Whatever is wrong with the stream or the payload.
    fn parse(kind: u8, stream: StreamId, payload: Vec<u8>) -> Result<Self, ProtocolError>;
}

/// Decodes frames from bytes that come in any portions.
///
/// It holds at most one frame. The first error is final: each later call returns it again.
#[derive(Debug)]
pub struct Decoder<M> {
    header: [u8; HEADER_BYTES],
    header_filled: usize,
    state: State,
    skipped: u32,
    frames: PhantomData<fn() -> M>,
}

#[derive(Debug)]
enum State {
    Header,
    Payload {
        kind: u8,
        stream: StreamId,
        missing: usize,
        payload: Vec<u8>,
    },
    Skip {
        missing: usize,
    },
    Failed(ProtocolError),
}

impl<M: Incoming> Default for Decoder<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Incoming> Decoder<M> {
    /// A decoder at the beginning of a conversation.
    #[must_use]
    pub fn new() -> Self {
        Self {
            header: [0; HEADER_BYTES],
            header_filled: 0,
            state: State::Header,
            skipped: 0,
            frames: PhantomData,
        }
    }

    /// Takes bytes off the front of `input` up to the end of the next frame and returns that frame,
    /// or `None` when `input` is used up. Call it until it returns `None`.
    ///
    /// # Errors
    /// Any [`ProtocolError`] but those of order and credit, which are [`crate::GuestSession`]'s.
    pub fn decode(&mut self, input: &mut &[u8]) -> Result<Option<M>, ProtocolError> {
        let decoded = self.step(input);
        if let Err(error) = &decoded {
            self.state = State::Failed(error.clone());
        }
        decoded
    }

    /// Whether bytes of an unfinished frame are held, so that an end of input here cuts a frame.
    #[must_use]
    pub fn is_inside_frame(&self) -> bool {
        match self.state {
            State::Header => self.header_filled > 0,
            State::Payload { .. } | State::Skip { .. } => true,
            State::Failed(_) => false,
        }
    }

    fn step(&mut self, input: &mut &[u8]) -> Result<Option<M>, ProtocolError> {
        loop {
            match &mut self.state {
                State::Failed(error) => return Err(error.clone()),
                State::Header => {
                    let bytes = take(input, HEADER_BYTES - self.header_filled);
                    let end = self.header_filled + bytes.len();
                    self.header[self.header_filled..end].copy_from_slice(bytes);
                    self.header_filled = end;
                    if end < HEADER_BYTES {
                        return Ok(None);
                    }
                    self.header_filled = 0;
                    self.state = self.open_frame()?;
                }
                State::Payload {
                    kind,
                    stream,
                    missing,
                    payload,
                } => {
                    let bytes = take(input, *missing);
                    payload.extend_from_slice(bytes);
                    *missing -= bytes.len();
                    if *missing > 0 {
                        return Ok(None);
                    }
                    let (kind, stream, payload) = (*kind, *stream, std::mem::take(payload));
                    self.state = State::Header;
                    return M::parse(kind, stream, payload).map(Some);
                }
                State::Skip { missing } => {
                    *missing -= take(input, *missing).len();
                    if *missing > 0 {
                        return Ok(None);
                    }
                    self.state = State::Header;
                }
            }
        }
    }

    /// Judges a complete header, before a byte of the payload is kept.
    fn open_frame(&mut self) -> Result<State, ProtocolError> {
        let [kind, flags, s0, s1, l0, l1, l2, l3] = self.header;
        let bytes = u32::from_be_bytes([l0, l1, l2, l3]);
        let too_long = ProtocolError::Length { kind, bytes };
        let length = usize::try_from(bytes).map_err(|_| too_long.clone())?;
        if (kind & crate::kind::FROM_GUEST != 0) != M::FROM_GUEST {
            return Err(ProtocolError::UnknownKind { kind });
        }
        if let Some((least, most)) = M::payload_bounds(kind) {
            if flags != 0 {
                return Err(ProtocolError::Flags { kind, flags });
            }
            if !(least..=most).contains(&length) {
                return Err(too_long);
            }
            return Ok(State::Payload {
                kind,
                stream: StreamId(u16::from_be_bytes([s0, s1])),
                missing: length,
                payload: Vec::with_capacity(length),
            });
        }
        if kind & ADVISORY == 0 {
            return Err(ProtocolError::UnknownKind { kind });
        }
        if length > MAX_PAYLOAD {
            return Err(too_long);
        }
        self.skipped += 1;
        if self.skipped > MAX_SKIPPED_FRAMES {
            return Err(ProtocolError::TooManySkipped);
        }
        Ok(State::Skip { missing: length })
    }
}

/// Takes up to `most` bytes off the front of `input`.
fn take<'a>(input: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(most.min(input.len()));
    *input = rest;
    taken
}

#[cfg(test)]
mod tests;
