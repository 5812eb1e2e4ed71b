//! One connection: made within a bound, watched, and closed whatever state it is in.
//!
//! The client library runs each connection in a thread of its own, which ends with the socket and not before: a broker
//! that accepts and then says nothing would keep it for ever. So a handle of the socket is kept, and shut down in the end.

use std::{
    net::{Shutdown, TcpStream},
    os::fd::AsFd,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::StreamExt;
use lapin::{
    ConnectionProperties, Event,
    tcp::{AMQPUriTcpExt, AsyncTcpStream, OwnedTLSConfig},
    uri::AMQPUri,
};
use tokio::time::{interval, timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::health::Slot;
use crate::seam::Cause;

/// How long a connection may take until it can be used.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// How long one call to the broker may take. A broker that needs longer is taken for gone.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(10);

/// How long a connection may take to say goodbye.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// How often a connection is looked at, beside the events that it tells.
const LOOK: Duration = Duration::from_millis(500);

/// Where and as whom to connect.
#[derive(Clone)]
pub(super) struct Dial {
    pub(super) uri: AMQPUri,
    /// What the operators of the broker see.
    pub(super) name: String,
    /// Certificates of authorities in PEM, beside those of the host.
    pub(super) authorities: Option<String>,
    pub(super) heartbeat_seconds: u16,
}

impl Dial {
    pub(super) fn user(&self) -> &str {
        &self.uri.authority.userinfo.username
    }
}

/// A connection that stood when it was handed out. Dropping it closes it.
pub(super) struct Connection {
    lapin: Option<lapin::Connection>,
    socket: Arc<Socket>,
    slot: Arc<Slot>,
    gone: CancellationToken,
    why: Arc<Mutex<Option<lapin::Error>>>,
    tasks: TaskTracker,
}

/// A handle of the socket, to end what can't be ended otherwise.
#[derive(Default)]
struct Socket(Mutex<Option<TcpStream>>);

impl Socket {
    fn keep(&self, socket: &impl AsFd) -> std::io::Result<()> {
        let handle = TcpStream::from(socket.as_fd().try_clone_to_owned()?);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
        Ok(())
    }

    fn shut_down(&self) {
        if let Some(socket) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // It may be closed already; that is what is wanted.
            socket.shutdown(Shutdown::Both).unwrap_or_default();
        }
    }
}

/// Ends the socket of an attempt to connect that is given up.
struct GivenUp(Option<Arc<Socket>>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        if let Some(socket) = self.0.take() {
            socket.shut_down();
        }
    }
}

impl Connection {
    /// Connects.
    pub(super) async fn open(
        dial: &Dial,
        purpose: &str,
        slot: Arc<Slot>,
        tasks: &TaskTracker,
    ) -> Result<Arc<Self>, Cause> {
        let socket = Arc::new(Socket::default());
        let mut given_up = GivenUp(Some(Arc::clone(&socket)));
        let lapin = bounded(CONNECT_LIMIT, connect(dial, purpose, Arc::clone(&socket))).await?;
        given_up.0 = None;
        let connection = Self {
            gone: CancellationToken::new(),
            why: Arc::default(),
            lapin: Some(lapin),
            socket,
            slot,
            tasks: tasks.clone(),
        };
        connection.watch(connection.slot.connected());
        Ok(Arc::new(connection))
    }

    /// Notices alarms and the end.
    fn watch(&self, life: u64) {
        let Some(lapin) = &self.lapin else { return };
        let (events, status) = (lapin.events_listener(), lapin.status().clone());
        let (gone, why, slot) = (self.gone.clone(), Arc::clone(&self.why), Arc::clone(&self.slot));
        self.tasks.spawn(async move {
            let mut events = std::pin::pin!(events);
            let mut look = interval(LOOK);
            loop {
                tokio::select! {
                    event = events.next() => match event {
                        Some(Event::ConnectionBlocked(reason)) => {
                            tracing::warn!(reason, "the broker has an alarm and takes no messages");
                            slot.blocked(life, Some(reason));
                        }
                        Some(Event::ConnectionUnblocked) => {
                            tracing::info!("the broker takes messages again");
                            slot.blocked(life, None);
                        }
                        // Of a channel, perhaps: whether the connection stands is asked below.
                        Some(Event::Error(error)) => {
                            *why.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                        }
                        Some(_) => {}
                        None => break,
                    },
                    _ = look.tick() => {}
                    () = gone.cancelled() => break,
                }
                if !status.connected() {
                    break;
                }
            }
            slot.lost(life);
            gone.cancel();
        });
    }

    /// A new channel.
    pub(super) async fn channel(&self) -> Result<lapin::Channel, Cause> {
        let Some(lapin) = self.lapin.as_ref().filter(|_| !self.gone.is_cancelled()) else {
            return Err(self.cause().unwrap_or_else(|| "the connection is closed".into()));
        };
        bounded(CALL_LIMIT, lapin.create_channel()).await
    }

    /// Cancelled when the connection is gone.
    pub(super) fn gone(&self) -> &CancellationToken {
        &self.gone
    }

    /// Why it is gone, or what its last channel that failed said.
    pub(super) fn cause(&self) -> Option<Cause> {
        let why = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        why.clone().map(|error| Box::new(error) as Cause)
    }

    /// Runs something on its own that belongs to this connection.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// An alarm keeps the broker from taking messages.
    pub(super) fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.gone.cancel();
        let (lapin, socket) = (self.lapin.take(), Arc::clone(&self.socket));
        if tokio::runtime::Handle::try_current().is_err() {
            socket.shut_down();
            return;
        }
        self.tasks.spawn(async move {
            if let Some(lapin) = &lapin {
                // With an error, or late: then the socket's end is the goodbye.
                timeout(CLOSE_LIMIT, lapin.close(200, "OK".into())).await.ok();
            }
            socket.shut_down();
        });
    }
}

async fn connect(dial: &Dial, purpose: &str, socket: Arc<Socket>) -> Result<lapin::Connection, lapin::Error> {
    let mut uri = dial.uri.clone();
    uri.query.heartbeat = Some(dial.heartbeat_seconds);
    let properties =
        ConnectionProperties::default().with_connection_name(format!("{} {purpose}", dial.name).into());
    let tls = OwnedTLSConfig {
        identity: None,
        cert_chain: dial.authorities.clone(),
    };
    lapin::Connection::connector(
        uri,
        lapin::runtime::default_runtime()?,
        async move |uri, runtime| {
            let stream = uri.connect_with_config_async(tls.as_ref(), &runtime).await?;
            match &stream {
                AsyncTcpStream::Plain(plain) => socket.keep(plain.get_ref())?,
                AsyncTcpStream::Rustls(tls) => socket.keep(tls.get_ref().0.get_ref())?,
                // The library has no other kind, as it is built here.
                _ => {}
            }
            Ok(stream)
        },
        properties,
    )
    .await
}

/// Waits for an answer of the broker, within a bound.
pub(super) async fn bounded<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, lapin::Error>>,
) -> Result<T, Cause> {
    match timeout(limit, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(Box::new(error)),
        Err(_) => Err(Box::new(NoAnswer(limit))),
    }
}

/// The broker did not answer.
#[derive(Debug, thiserror::Error)]
#[error("the broker did not answer within {} s", .0.as_secs())]
struct NoAnswer(Duration);

/// The code of AMQP that the broker gave, if it gave one.
pub(super) fn code(cause: &Cause) -> Option<u16> {
    match cause.downcast_ref::<lapin::Error>()?.kind() {
        lapin::ErrorKind::ProtocolError(error) => Some(error.get_id()),
        _ => None,
    }
}

/// The broker knows no such queue or exchange.
pub(super) const NOT_FOUND: u16 = 404;
/// It exists with other properties, or what was said is not so.
pub(super) const PRECONDITION_FAILED: u16 = 406;
