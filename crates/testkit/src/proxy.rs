//! A TCP proxy that breaks connections as networks do: it cuts them, or lets nothing through any more and says nothing.
//!
//! Each direction is set for itself, for all connections that there are and all to come. What is stopped is not lost: it
//! waits, as packets that are sent again do, and goes on when the direction is opened; the ends learn nothing meanwhile,
//! not even that the other one has closed (a half-open connection). What cuts a connection cuts both its ends.
//!
//! One of several connections is told from the others by what its client has said first, such as the name that clients of
//! AMQP give.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    time::sleep,
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

/// Bytes that are taken and passed on at once.
const CHUNK_BYTES: usize = 16 * 1024;
/// What is remembered of the first words of a connection's client.
const FIRST_WORDS_BYTES: usize = 4 * 1024;

/// One way through the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From those that connect to what they connect to.
    ToServer,
    /// The other way.
    ToClient,
}

/// What happens to bytes on one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// They pass.
    Open,
    /// They pass, each piece after a while.
    Delayed(Duration),
    /// They wait, and so does the end of a connection.
    Stopped,
}

/// A proxy on a port of loopback, until it is dropped, which cuts every connection.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    ways: Arc<Ways>,
    /// Cancelled and replaced by a cut.
    life: watch::Sender<CancellationToken>,
    refusing: watch::Sender<bool>,
    _stop: DropGuard,
}

#[derive(Debug)]
struct Ways {
    to_server: Way,
    to_client: Way,
    connections: Mutex<Vec<Arc<Line>>>,
}

/// One connection.
#[derive(Debug)]
struct Line {
    first_words: Mutex<Vec<u8>>,
    /// Nothing passes, either way.
    stopped: watch::Sender<bool>,
    life: CancellationToken,
}

#[derive(Debug)]
struct Way {
    flow: watch::Sender<Flow>,
    bytes: AtomicU64,
    moved: watch::Sender<u64>,
}

impl Way {
    fn open() -> Self {
        Self {
            flow: watch::Sender::new(Flow::Open),
            bytes: AtomicU64::new(0),
            moved: watch::Sender::new(0),
        }
    }
}

impl Ways {
    const fn of(&self, direction: Direction) -> &Way {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }

    fn lines(&self) -> MutexGuard<'_, Vec<Arc<Line>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn words(&self) -> MutexGuard<'_, Vec<u8>> {
        self.first_words.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_said(&self, words: &[u8]) -> bool {
        self.words().windows(words.len()).any(|said| said == words)
    }
}

impl FaultProxy {
    /// A proxy in front of a server.
    ///
    /// # Errors
    /// No port can be had.
    pub async fn to(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let ways = Arc::new(Ways {
            to_server: Way::open(),
            to_client: Way::open(),
            connections: Mutex::default(),
        });
        let (life, refusing) = (watch::Sender::new(stop.child_token()), watch::Sender::new(false));
        let tasks = TaskTracker::new();
        let accepting = Accepting {
            listener,
            server,
            ways: Arc::clone(&ways),
            life: life.subscribe(),
            refusing: refusing.subscribe(),
            tasks: tasks.clone(),
        };
        tasks.spawn(accepting.run(stop.clone()));
        Ok(Self {
            address,
            ways,
            life,
            refusing,
            _stop: stop.drop_guard(),
        })
    }

    /// Where to connect to.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections there are.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.ways.lines().len()
    }

    /// How many connections there are whose client has these words among its first ones.
    #[must_use]
    pub fn connections_of(&self, words: &str) -> usize {
        self.lines_of(words).len()
    }

    /// The connections whose client has these words among its first ones.
    fn lines_of(&self, words: &str) -> Vec<Arc<Line>> {
        let mut lines = self.ways.lines().clone();
        lines.retain(|line| line.has_said(words.as_bytes()));
        lines
    }

    /// Cuts the connections whose client has these words among its first ones, and says how many those were.
    pub fn cut_those_of(&self, words: &str) -> usize {
        let lines = self.lines_of(words);
        for line in &lines {
            line.life.cancel();
        }
        lines.len()
    }

    /// Lets nothing through any more on the connections whose client has these words among its first ones, until all is
    /// opened again, and says how many those were. Connections to come are not concerned.
    pub fn stop_those_of(&self, words: &str) -> usize {
        let lines = self.lines_of(words);
        for line in &lines {
            line.stopped.send_replace(true);
        }
        lines.len()
    }

    /// Cuts every connection that there is, at once and at both ends. Bytes under way are lost.
    pub fn cut(&self) {
        self.life.send_modify(|life| {
            life.cancel();
            *life = CancellationToken::new();
        });
    }

    /// Closes every new connection as soon as it is there, or no longer.
    pub fn refuse(&self, refuse: bool) {
        self.refusing.send_replace(refuse);
    }

    /// Says what happens to bytes on one way, from now on.
    pub fn set(&self, direction: Direction, flow: Flow) {
        self.ways.of(direction).flow.send_replace(flow);
    }

    /// Lets nothing through any more, either way, and says nothing: every connection is half-open.
    pub fn stop_all(&self) {
        self.set(Direction::ToServer, Flow::Stopped);
        self.set(Direction::ToClient, Flow::Stopped);
    }

    /// Lets everything through.
    pub fn open_all(&self) {
        self.set(Direction::ToServer, Flow::Open);
        self.set(Direction::ToClient, Flow::Open);
        for line in self.ways.lines().iter() {
            line.stopped.send_replace(false);
        }
    }

    /// How many bytes have been passed on so far.
    #[must_use]
    pub fn passed(&self, direction: Direction) -> u64 {
        self.ways.of(direction).bytes.load(Ordering::SeqCst)
    }

    /// Waits until more than so many bytes have been passed on.
    pub async fn passed_more_than(&self, direction: Direction, bytes: u64) {
        let mut moved = self.ways.of(direction).moved.subscribe();
        let reached = moved.wait_for(|moved| *moved > bytes).await;
        reached.expect("the proxy outlives this call");
    }
}

struct Accepting {
    listener: TcpListener,
    server: SocketAddr,
    ways: Arc<Ways>,
    life: watch::Receiver<CancellationToken>,
    refusing: watch::Receiver<bool>,
    tasks: TaskTracker,
}

impl Accepting {
    async fn run(self, stop: CancellationToken) {
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            // Whoever connects sees it end.
            let Ok((client, _)) = accepted else { continue };
            if *self.refusing.borrow() {
                continue;
            }
            let (server, ways) = (self.server, Arc::clone(&self.ways));
            let (life, stop) = (self.life.borrow().clone(), stop.clone());
            let tasks = self.tasks.clone();
            self.tasks.spawn(async move {
                if let Ok(server) = TcpStream::connect(server).await {
                    pair(client, server, &ways, life, stop, &tasks).await;
                }
            });
        }
    }
}

/// Serves one connection.
async fn pair(
    client: TcpStream,
    server: TcpStream,
    ways: &Arc<Ways>,
    life: CancellationToken,
    stop: CancellationToken,
    tasks: &TaskTracker,
) {
    // Small pieces are what is tested; they must not wait for one another.
    for socket in [&client, &server] {
        socket.set_nodelay(true).unwrap_or_default();
    }
    let line = Arc::new(Line {
        first_words: Mutex::default(),
        stopped: watch::Sender::new(false),
        life: life.child_token(),
    });
    ways.lines().push(Arc::clone(&line));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let pump = |from, to, direction| {
        let (ways, line, stop) = (Arc::clone(ways), Arc::clone(&line), stop.clone());
        tasks.spawn(async move {
            tokio::select! {
                () = pass_on(from, to, direction, ways.of(direction), &line) => {}
                () = line.life.cancelled() => {}
                () = stop.cancelled() => {}
            }
        })
    };
    let there = pump(from_client, to_server, Direction::ToServer);
    let back = pump(from_server, to_client, Direction::ToClient);
    // Each has ended in order, with its connection, or with the proxy.
    let _ended = tokio::join!(there, back);
    ways.lines().retain(|other| !Arc::ptr_eq(other, &line));
}

/// Passes bytes on until their end, which is passed on too.
async fn pass_on(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    direction: Direction,
    way: &Way,
    line: &Line,
) {
    let (mut flow, mut stopped) = (way.flow.subscribe(), line.stopped.subscribe());
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = from.read(&mut chunk).await.unwrap_or(0);
        if direction == Direction::ToServer {
            let mut words = line.words();
            let room = FIRST_WORDS_BYTES.saturating_sub(words.len()).min(read);
            words.extend_from_slice(&chunk[..room]);
        }
        let Ok(now) = flow.wait_for(|flow| *flow != Flow::Stopped).await.map(|now| *now) else {
            return;
        };
        if stopped.wait_for(|stopped| !*stopped).await.is_err() {
            return;
        }
        if let Flow::Delayed(by) = now {
            sleep(by).await;
        }
        if read == 0 || to.write_all(&chunk[..read]).await.is_err() {
            return;
        }
        let moved = way.bytes.fetch_add(read as u64, Ordering::SeqCst) + read as u64;
        way.moved.send_replace(moved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    const PATIENCE: Duration = Duration::from_secs(10);
    const QUIET: Duration = Duration::from_millis(50);

    /// A server that says everything twice is none: it says it once.
    async fn echo() -> (SocketAddr, TaskTracker) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (address, tasks) = (listener.local_addr().unwrap(), TaskTracker::new());
        let all = tasks.clone();
        tasks.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                all.spawn(async move {
                    let (mut from, mut to) = socket.into_split();
                    tokio::io::copy(&mut from, &mut to).await.ok();
                });
            }
        });
        (address, tasks)
    }

    async fn said(socket: &mut TcpStream, text: &[u8]) {
        socket.write_all(text).await.unwrap();
        heard(socket, text).await;
    }

    async fn heard(socket: &mut TcpStream, text: &[u8]) {
        let mut back = vec![0; text.len()];
        timeout(PATIENCE, socket.read_exact(&mut back))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(back, text);
    }

    #[tokio::test]
    async fn what_is_cut_ends_and_what_comes_later_does_not() {
        let (server, _tasks) = echo().await;
        let proxy = FaultProxy::to(server).await.unwrap();
        let mut cut = TcpStream::connect(proxy.address()).await.unwrap();
        said(&mut cut, b"before").await;
        assert_eq!(proxy.connections(), 1);
        proxy.cut();
        let end = timeout(PATIENCE, cut.read_u8()).await.unwrap();
        assert!(end.is_err());
        let mut next = TcpStream::connect(proxy.address()).await.unwrap();
        said(&mut next, b"after").await;
        proxy.refuse(true);
        let mut refused = TcpStream::connect(proxy.address()).await.unwrap();
        assert!(timeout(PATIENCE, refused.read_u8()).await.unwrap().is_err());
        said(&mut next, b"still").await;
    }

    #[tokio::test]
    async fn one_way_can_be_stopped_alone_and_loses_nothing() {
        let (server, _tasks) = echo().await;
        let proxy = FaultProxy::to(server).await.unwrap();
        let mut socket = TcpStream::connect(proxy.address()).await.unwrap();
        said(&mut socket, b"one").await;
        proxy.set(Direction::ToClient, Flow::Stopped);
        let before = proxy.passed(Direction::ToServer);
        socket.write_all(b"two").await.unwrap();
        timeout(PATIENCE, proxy.passed_more_than(Direction::ToServer, before))
            .await
            .unwrap();
        assert!(timeout(QUIET, socket.peek(&mut [0])).await.is_err());
        proxy.open_all();
        heard(&mut socket, b"two").await;
    }

    #[tokio::test]
    async fn the_ends_of_a_half_open_connection_learn_nothing_of_each_other() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let proxy = FaultProxy::to(listener.local_addr().unwrap()).await.unwrap();
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        let (mut server, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        proxy.stop_all();
        server.write_all(b"lost").await.unwrap();
        server.shutdown().await.unwrap();
        assert!(timeout(QUIET, client.read_u8()).await.is_err());
        proxy.open_all();
        heard(&mut client, b"lost").await;
        assert!(timeout(PATIENCE, client.read_u8()).await.unwrap().is_err());
    }

    #[tokio::test]
    async fn what_is_delayed_comes_later() {
        let (server, _tasks) = echo().await;
        let proxy = FaultProxy::to(server).await.unwrap();
        let mut socket = TcpStream::connect(proxy.address()).await.unwrap();
        proxy.set(Direction::ToClient, Flow::Delayed(QUIET));
        let began = std::time::Instant::now();
        said(&mut socket, b"late").await;
        assert!(began.elapsed() >= QUIET);
    }

    #[tokio::test]
    async fn one_connection_is_told_from_another_by_its_first_words() {
        let (server, _tasks) = echo().await;
        let proxy = FaultProxy::to(server).await.unwrap();
        let mut publisher = TcpStream::connect(proxy.address()).await.unwrap();
        let mut consumer = TcpStream::connect(proxy.address()).await.unwrap();
        said(&mut publisher, b"I publish").await;
        said(&mut consumer, b"I consume").await;
        assert_eq!(proxy.connections_of("I "), 2);
        assert_eq!(proxy.stop_those_of("consume"), 1);
        said(&mut publisher, b"on").await;
        consumer.write_all(b"held").await.unwrap();
        assert!(timeout(QUIET, consumer.peek(&mut [0])).await.is_err());
        proxy.open_all();
        heard(&mut consumer, b"held").await;
        assert_eq!(proxy.cut_those_of("nobody"), 0);
        assert_eq!(proxy.cut_those_of("publish"), 1);
        assert!(timeout(PATIENCE, publisher.read_u8()).await.unwrap().is_err());
        said(&mut consumer, b"still").await;
    }
}
