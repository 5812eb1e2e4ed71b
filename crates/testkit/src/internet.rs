//! An Internet of a test's own: each address that may be dialled stands for a listener on loopback.
#![expect(clippy::unwrap_used, reason = "what is not there ends a test")]

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use mayfly_egress::{CheckedAddress, Dialler, HostName, Outgoing, Resolver};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// Names, and the listeners that stand for their addresses.
/// Nothing else is ever dialled or looked up, whatever a guard lets through.
#[derive(Default)]
pub struct Internet {
    names: HashMap<&'static str, &'static str>,
    doors: HashMap<SocketAddr, SocketAddr>,
    dialled: Mutex<Vec<SocketAddr>>,
    servers: JoinSet<()>,
}

/// A handle of it that is a resolver and a dialler.
#[derive(Clone)]
pub struct Shown(Arc<Internet>);

#[async_trait]
impl Resolver for Shown {
    async fn resolve(&self, name: &HostName) -> io::Result<Vec<IpAddr>> {
        let address = self.0.names.get(name.as_str()).ok_or(io::ErrorKind::NotFound)?;
        Ok(vec![address.parse().unwrap()])
    }
}

#[async_trait]
impl Dialler for Shown {
    async fn dial(&self, address: CheckedAddress) -> io::Result<Box<dyn Outgoing>> {
        self.0.dialled.lock().unwrap().push(address.get());
        let door = self.0.doors.get(&address.get());
        let door = *door.ok_or(io::ErrorKind::ConnectionRefused)?;
        assert!(door.ip().is_loopback());
        let stream = TcpStream::connect(door).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}

impl Internet {
    /// A name that has this address.
    #[must_use]
    pub fn name(mut self, name: &'static str, address: &'static str) -> Self {
        self.names.insert(name, address);
        self
    }

    /// A server at this port of an address, which does this with each connection.
    ///
    /// # Panics
    /// Without a free port.
    #[must_use]
    pub async fn server<F>(
        mut self,
        address: &str,
        port: u16,
        serve: impl Fn(TcpStream) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let door = listener.local_addr().unwrap();
        self.doors
            .insert(SocketAddr::new(address.parse().unwrap(), port), door);
        self.servers.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let serving = serve(stream);
                connections.spawn(async move {
                    // A job that goes away is no fault of the server's.
                    let _: io::Result<()> = serving.await;
                });
            }
        });
        self
    }

    /// What was dialled, in its order.
    ///
    /// # Panics
    /// Where somebody panicked while it was written down.
    pub fn dialled(&self) -> Vec<String> {
        self.dialled
            .lock()
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    /// A resolver and dialler of it.
    #[must_use]
    pub fn shown(self: &Arc<Self>) -> Shown {
        Shown(Arc::clone(self))
    }
}

/// Reads a request's head and answers it with this body.
///
/// # Errors
/// A client that is gone.
pub async fn answer(mut stream: TcpStream, body: &[u8]) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let length = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(length.as_bytes()).await?;
    stream.write_all(body).await?;
    stream.shutdown().await
}
