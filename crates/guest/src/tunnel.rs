//! Connections of the job's to the proxy on its own loopback: accepted here, carried to the executor byte by byte. Nothing
//! in them is looked at.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;

use mayfly_protocol::{
    CommandOrder, EncodeError, FromGuest, MAX_DATA, ProtocolError, Refused, Stage, StreamId, TUNNEL_PORT,
    TUNNEL_WINDOW, Tunnel,
};

use crate::queue::Queue;
use crate::sys::{Errno, PollFd};

/// Bytes that the job took for which it is worth granting more.
const GRANT_FROM: u32 = TUNNEL_WINDOW / 4;

/// The listener and all that came of it.
pub(crate) struct Tunnels {
    listener: TcpListener,
    open: BTreeMap<StreamId, Connection>,
    /// Not once a descriptor could not be had, until one is free again.
    accepts: bool,
    /// Where the next turn begins, so that a queue that is full again and again does not starve the same ones.
    first: StreamId,
}

/// One connection of the job's.
struct Connection {
    socket: TcpStream,
    /// What the job has not taken yet; bounded by the window.
    waiting: Vec<u8>,
    taken: usize,
    /// Taken by the job and not granted again yet.
    owed: u32,
    /// The guest has said its last word about the job's direction.
    up_ended: bool,
    /// The executor has.
    down_ended: bool,
    /// And that was told to the job.
    down_closed: bool,
    /// The executor takes nothing more.
    deaf: bool,
}

/// Why a turn went wrong.
pub(crate) enum Trouble {
    Ours(ProtocolError),
    Unwritable(EncodeError),
}

impl From<ProtocolError> for Trouble {
    fn from(error: ProtocolError) -> Self {
        Self::Ours(error)
    }
}

impl From<EncodeError> for Trouble {
    fn from(error: EncodeError) -> Self {
        Self::Unwritable(error)
    }
}

impl Tunnels {
    /// Listens, before the job is there.
    ///
    /// # Errors
    /// A refusal at [`Stage::Resources`].
    pub(crate) fn listen() -> Result<Self, Refused> {
        let listen = || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, TUNNEL_PORT))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let failed =
            |error: std::io::Error| Refused::new(Stage::Resources, Some(Errno::from(error).0), "egress");
        Ok(Self {
            listener: listen().map_err(failed)?,
            open: BTreeMap::new(),
            accepts: true,
            first: StreamId::FIRST_TUNNEL,
        })
    }

    /// What is waited for: descriptors that would move something on.
    pub(crate) fn wanted<'fd>(&'fd self, queue: &Queue, order: &CommandOrder, fds: &mut Vec<PollFd<'fd>>) {
        let room = queue.room() > 0;
        if room && self.accepts && order.next_tunnel().is_some() {
            fds.push(PollFd::readable(Some(self.listener.as_fd())));
        }
        for (stream, connection) in &self.open {
            if room && connection.is_heard(*stream, order) {
                fds.push(PollFd::readable(Some(connection.socket.as_fd())));
            }
            if !connection.waiting.is_empty() {
                fds.push(PollFd::writable(Some(connection.socket.as_fd())));
            }
        }
    }

    /// A frame of the executor's, which the order check has passed.
    pub(crate) fn take(&mut self, stream: StreamId, frame: Tunnel) {
        let Some(connection) = self.open.get_mut(&stream) else {
            return;
        };
        match frame {
            Tunnel::Data(bytes) => {
                if !connection.down_closed {
                    connection.waiting.extend(bytes);
                }
            }
            Tunnel::End => connection.down_ended = true,
            Tunnel::Reset => (connection.down_ended, connection.deaf) = (true, true),
            // The order check counts it.
            Tunnel::Credit(_) => {}
        }
    }

    /// Moves whatever moves without waiting.
    pub(crate) fn turn(&mut self, queue: &mut Queue, order: &mut CommandOrder) -> Result<(), Trouble> {
        self.accept(queue, order)?;
        let later = self.open.range(self.first..).map(|(stream, _)| *stream);
        let earlier = self.open.range(..self.first).map(|(stream, _)| *stream);
        let turns: Vec<StreamId> = later.chain(earlier).collect();
        for stream in turns {
            let Some(connection) = self.open.get_mut(&stream) else {
                continue;
            };
            let mut say = |frame: Tunnel| say(queue, order, FromGuest::Tunnel { stream, frame });
            let gone = connection.write(&mut say)?;
            let read = !gone && queue.room() > 0 && connection.is_heard(stream, order);
            if read {
                let most = usize::try_from(order.tunnel_credit(stream)).unwrap_or(usize::MAX);
                let most = most.min(MAX_DATA).min(queue.room());
                if let Some(frame) = connection.read(most) {
                    say_of(queue, order, stream, frame)?;
                }
            }
            if connection.deaf && !connection.up_ended {
                connection.up_ended = true;
                say_of(queue, order, stream, Tunnel::End)?;
            }
            if connection.is_over() {
                self.open.remove(&stream);
                self.accepts = true;
            }
            if queue.room() == 0 {
                self.first = stream;
            }
        }
        Ok(())
    }

    fn accept(&mut self, queue: &mut Queue, order: &mut CommandOrder) -> Result<(), Trouble> {
        while self.accepts
            && queue.room() > 0
            && let Some(stream) = order.next_tunnel()
        {
            let socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // One that ended before it was taken.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                // Descriptors are used up: the limit is the job's own.
                Err(_) => {
                    self.accepts = false;
                    return Ok(());
                }
            };
            if socket.set_nonblocking(true).is_err() || socket.set_nodelay(true).is_err() {
                continue;
            }
            say(queue, order, FromGuest::TunnelOpen { stream })?;
            self.open.insert(
                stream,
                Connection {
                    socket,
                    waiting: Vec::new(),
                    taken: 0,
                    owed: 0,
                    up_ended: false,
                    down_ended: false,
                    down_closed: false,
                    deaf: false,
                },
            );
        }
        Ok(())
    }
}

impl Connection {
    /// Whether what the job says can go on now.
    fn is_heard(&self, stream: StreamId, order: &CommandOrder) -> bool {
        !self.up_ended && !self.deaf && order.tunnel_credit(stream) > 0
    }

    /// Nothing more can come of it.
    fn is_over(&self) -> bool {
        self.up_ended && self.down_closed
    }

    /// Gives the job what it takes. True when the job takes nothing more.
    fn write(&mut self, say: &mut impl FnMut(Tunnel) -> Result<(), Trouble>) -> Result<bool, Trouble> {
        while self.taken < self.waiting.len() {
            match self.socket.write(&self.waiting[self.taken..]) {
                Ok(bytes) => {
                    self.taken += bytes;
                    self.owed = self.owed.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.forget(say)?;
                    return Ok(true);
                }
            }
        }
        if self.taken == self.waiting.len() {
            self.waiting.clear();
            self.taken = 0;
            if self.down_ended && !self.down_closed {
                self.down_closed = true;
                // A job that has closed it already knows.
                let _: std::io::Result<()> = self.socket.shutdown(Shutdown::Write);
            }
        }
        if self.taken >= MAX_DATA {
            self.waiting.drain(..self.taken);
            self.taken = 0;
        }
        // What waits for more credit is what the executor holds: grants go out while there is nothing else to write too.
        if !self.down_ended && (self.owed >= GRANT_FROM || self.owed > 0 && self.waiting.is_empty()) {
            say(Tunnel::Credit(std::mem::take(&mut self.owed)))?;
        }
        Ok(false)
    }

    /// The job's side is gone.
    fn forget(&mut self, say: &mut impl FnMut(Tunnel) -> Result<(), Trouble>) -> Result<(), Trouble> {
        self.waiting = Vec::new();
        self.taken = 0;
        self.down_closed = true;
        if !self.up_ended || !self.down_ended {
            self.up_ended = true;
            say(Tunnel::Reset)?;
        }
        Ok(())
    }

    /// The next frame that the job has for the executor.
    fn read(&mut self, most: usize) -> Option<Tunnel> {
        let mut data = vec![0; most];
        match self.socket.read(&mut data) {
            Ok(0) => {
                self.up_ended = true;
                Some(Tunnel::End)
            }
            Ok(got) => {
                data.truncate(got);
                Some(Tunnel::Data(data))
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            Err(_) => {
                self.waiting = Vec::new();
                self.taken = 0;
                (self.up_ended, self.down_closed) = (true, true);
                Some(Tunnel::Reset)
            }
        }
    }
}

fn say_of(
    queue: &mut Queue,
    order: &mut CommandOrder,
    stream: StreamId,
    frame: Tunnel,
) -> Result<(), Trouble> {
    say(queue, order, FromGuest::Tunnel { stream, frame })
}

fn say(queue: &mut Queue, order: &mut CommandOrder, frame: FromGuest) -> Result<(), Trouble> {
    order.accept_tunnel(&frame)?;
    queue.push(&frame)?;
    Ok(())
}
