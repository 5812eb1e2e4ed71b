//! Connections of the job's that travel between the guest and the executor, each with windows of its own.
//!
//! The guest opens them, by numbers that only grow. Each side ends its own direction once, by `End` or `Reset`; after
//! both ends the connection is gone. `Reset` says moreover that its sender takes nothing more: the other side ends its own
//! direction then. What crosses that on its way (credit, a `Reset` of a connection that is gone) means nothing.

use std::collections::BTreeMap;

use crate::{EncodeError, MAX_DATA, ProtocolError, SendWindow, StreamId, frame, kind};

/// Where the guest listens for the job, on 127.0.0.1, where the job has egress.
pub const TUNNEL_PORT: u16 = 3128;

/// Most connections at a time; further ones wait in the kernel until the guest takes them.
pub const MAX_TUNNELS: usize = 64;

/// Credit that each side holds for a connection when it is opened, without being granted it.
pub const TUNNEL_WINDOW: u32 = 128 * 1024;

/// A frame of one connection, in either direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tunnel {
    /// Bytes, 1 to [`MAX_DATA`], within the credit.
    Data(Vec<u8>),
    /// No more bytes come from this side.
    End,
    /// The same, and this side takes none any more.
    Reset,
    /// More credit for the other side, at least 1 byte.
    Credit(u32),
}

impl Tunnel {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Data(_) => "tunnel data",
            Self::End => "tunnel end",
            Self::Reset => "tunnel reset",
            Self::Credit(_) => "tunnel credit",
        }
    }

    /// Its kind, as the executor sends it.
    const fn kind(&self) -> u8 {
        match self {
            Self::Data(_) => kind::TUNNEL_DATA,
            Self::End => kind::TUNNEL_END,
            Self::Reset => kind::TUNNEL_RESET,
            Self::Credit(_) => kind::TUNNEL_CREDIT,
        }
    }

    pub(crate) fn encode(
        &self,
        direction: u8,
        stream: StreamId,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let header = frame::Header {
            name: self.name(),
            kind: self.kind() | direction,
            stream,
            bounds: bounds(self.kind()).unwrap_or(frame::EMPTY),
        };
        match self {
            Self::Data(bytes) => header.bytes(bytes, out),
            Self::End | Self::Reset => header.bytes(&[], out),
            Self::Credit(bytes) => header.bytes(&bytes.to_be_bytes(), out),
        }
    }

    /// The frame of that kind, if there is one.
    pub(crate) fn parse(kind: u8, stream: StreamId, payload: Vec<u8>) -> Result<Self, ProtocolError> {
        if stream < StreamId::FIRST_TUNNEL {
            return Err(ProtocolError::Stream { kind, stream });
        }
        match kind & !kind::FROM_GUEST {
            kind::TUNNEL_DATA => Ok(Self::Data(payload)),
            kind::TUNNEL_END => Ok(Self::End),
            kind::TUNNEL_RESET => Ok(Self::Reset),
            kind::TUNNEL_CREDIT => frame::parse_credit(kind, stream, &payload).map(Self::Credit),
            _ => Err(ProtocolError::UnknownKind { kind }),
        }
    }
}

/// The bounds of a payload; none for a kind of another frame.
pub(crate) const fn bounds(kind: u8) -> Option<frame::Bounds> {
    match kind & !kind::FROM_GUEST {
        kind::TUNNEL_DATA => Some((1, MAX_DATA)),
        kind::TUNNEL_END | kind::TUNNEL_RESET => Some(frame::EMPTY),
        kind::TUNNEL_CREDIT => Some(frame::CREDIT),
        _ => None,
    }
}

/// The connections of one conversation. Both ends keep the same account.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tunnels {
    last: Option<StreamId>,
    open: BTreeMap<StreamId, Flows>,
}

/// Both directions of one connection.
#[derive(Debug, Clone)]
struct Flows {
    up: Flow,
    down: Flow,
}

#[derive(Debug, Clone)]
struct Flow {
    window: SendWindow,
    ended: bool,
}

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    Guest,
    Executor,
}

impl Flow {
    fn new(stream: StreamId) -> Self {
        Self {
            window: SendWindow::new(stream, TUNNEL_WINDOW),
            ended: false,
        }
    }
}

impl Tunnels {
    /// The number of the next connection, if there may be one more.
    pub(crate) fn next(&self) -> Option<StreamId> {
        let next = match self.last {
            Some(last) => last.0.checked_add(1).map(StreamId),
            None => Some(StreamId::FIRST_TUNNEL),
        };
        next.filter(|_| self.open.len() < MAX_TUNNELS)
    }

    /// The guest opens a connection.
    pub(crate) fn open(&mut self, stream: StreamId) -> Result<(), ProtocolError> {
        if self.next() != Some(stream) {
            return Err(misplaced("tunnel open", "another number is next, or none"));
        }
        self.last = Some(stream);
        let flows = Flows {
            up: Flow::new(stream),
            down: Flow::new(stream),
        };
        self.open.insert(stream, flows);
        Ok(())
    }

    /// One side says something.
    pub(crate) fn take(
        &mut self,
        sender: Sender,
        stream: StreamId,
        frame: &Tunnel,
    ) -> Result<(), ProtocolError> {
        let Some(flows) = self.open.get_mut(&stream) else {
            return match frame {
                Tunnel::Credit(_) | Tunnel::Reset if self.last >= Some(stream) => Ok(()),
                _ => Err(misplaced(frame.name(), "there is no such connection")),
            };
        };
        let (own, others) = match sender {
            Sender::Guest => (&mut flows.up, &mut flows.down),
            Sender::Executor => (&mut flows.down, &mut flows.up),
        };
        match frame {
            Tunnel::Data(_) | Tunnel::End if own.ended => {
                return Err(misplaced(frame.name(), "the connection has ended"));
            }
            Tunnel::Data(bytes) => own.window.spend(u32::try_from(bytes.len()).unwrap_or(u32::MAX))?,
            Tunnel::End | Tunnel::Reset => own.ended = true,
            Tunnel::Credit(_) if others.ended => {}
            Tunnel::Credit(bytes) => others.window.grant(*bytes)?,
        }
        if flows.up.ended && flows.down.ended {
            self.open.remove(&stream);
        }
        Ok(())
    }

    /// Bytes that the guest may send; 0 of a connection that there isn't.
    pub(crate) fn guest_credit(&self, stream: StreamId) -> u32 {
        let flows = self.open.get(&stream).filter(|flows| !flows.up.ended);
        flows.map_or(0, |flows| flows.up.window.available())
    }
}

fn misplaced(frame: &'static str, state: &'static str) -> ProtocolError {
    ProtocolError::Order { frame, state }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: StreamId = StreamId::FIRST_TUNNEL;

    fn opened() -> Tunnels {
        let mut tunnels = Tunnels::default();
        tunnels.open(FIRST).unwrap();
        tunnels
    }

    #[test]
    fn numbers_only_grow_and_connections_are_bounded() {
        let mut tunnels = Tunnels::default();
        assert!(tunnels.open(StreamId(FIRST.0 + 1)).is_err());
        for _ in 0..MAX_TUNNELS {
            tunnels.open(tunnels.next().unwrap()).unwrap();
        }
        assert_eq!(tunnels.next(), None);
        for sender in [Sender::Guest, Sender::Executor] {
            tunnels.take(sender, FIRST, &Tunnel::End).unwrap();
        }
        assert!(tunnels.open(FIRST).is_err());
        let next = tunnels.next().unwrap();
        assert_eq!(usize::from(next.0), usize::from(FIRST.0) + MAX_TUNNELS);
        tunnels.open(next).unwrap();
        let mut last = Tunnels {
            last: Some(StreamId(u16::MAX)),
            ..Tunnels::default()
        };
        assert_eq!(last.next(), None);
        assert!(last.open(FIRST).is_err());
    }

    #[test]
    fn each_direction_has_its_window() {
        let mut tunnels = opened();
        let data = Tunnel::Data(vec![0; MAX_DATA]);
        for _ in 0..4 {
            tunnels.take(Sender::Guest, FIRST, &data).unwrap();
            tunnels.take(Sender::Executor, FIRST, &data).unwrap();
        }
        assert_eq!(tunnels.guest_credit(FIRST), 0);
        for sender in [Sender::Guest, Sender::Executor] {
            let exceeded = tunnels.take(sender, FIRST, &Tunnel::Data(vec![0]));
            assert!(matches!(exceeded, Err(ProtocolError::CreditExceeded { .. })));
        }
        tunnels.take(Sender::Executor, FIRST, &Tunnel::Credit(5)).unwrap();
        assert_eq!(tunnels.guest_credit(FIRST), 5);
        assert!(
            tunnels
                .take(Sender::Executor, FIRST, &Tunnel::Data(vec![0]))
                .is_err()
        );
        let much = Tunnel::Credit(crate::MAX_WINDOW);
        assert!(tunnels.take(Sender::Executor, FIRST, &much).is_err());
    }

    #[test]
    fn each_side_ends_its_direction_once() {
        for sender in [Sender::Guest, Sender::Executor] {
            for end in [Tunnel::End, Tunnel::Reset] {
                let mut tunnels = opened();
                tunnels.take(sender, FIRST, &end).unwrap();
                for late in [Tunnel::Data(vec![0]), Tunnel::End] {
                    assert!(tunnels.take(sender, FIRST, &late).is_err(), "{late:?}");
                }
                // The other side may not know it yet, and this side may still refuse to take more.
                let other = match sender {
                    Sender::Guest => Sender::Executor,
                    Sender::Executor => Sender::Guest,
                };
                for fine in [Tunnel::Credit(1), Tunnel::Data(vec![0])] {
                    tunnels.take(other, FIRST, &fine).unwrap();
                }
                tunnels.take(sender, FIRST, &Tunnel::Reset).unwrap();
            }
        }
    }

    #[test]
    fn what_crosses_the_end_of_a_connection_means_nothing() {
        let mut tunnels = opened();
        for sender in [Sender::Guest, Sender::Executor] {
            tunnels.take(sender, FIRST, &Tunnel::End).unwrap();
        }
        for sender in [Sender::Guest, Sender::Executor] {
            for frame in [Tunnel::Credit(1), Tunnel::Reset] {
                tunnels.take(sender, FIRST, &frame).unwrap();
                let never = StreamId(FIRST.0 + 1);
                assert!(tunnels.take(sender, never, &frame).is_err(), "{frame:?}");
            }
            for frame in [Tunnel::Data(vec![0]), Tunnel::End] {
                assert!(tunnels.take(sender, FIRST, &frame).is_err(), "{frame:?}");
            }
        }
    }
}
