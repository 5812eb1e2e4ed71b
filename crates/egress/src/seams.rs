//! What stands between a decision and the network: who looks names up, and who dials.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use async_trait::async_trait;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
};

use crate::name::HostName;

/// Looks names up.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// All addresses of a name.
    ///
    /// # Errors
    /// Where it has none, or nobody answers.
    ///
    /// # Cancel safety
    /// It may be dropped; a question may have been asked then.
    async fn resolve(&self, name: &HostName) -> io::Result<Vec<IpAddr>>;
}

/// Makes connections.
#[async_trait]
pub trait Dialler: Send + Sync {
    /// A connection to this very address.
    ///
    /// # Errors
    /// Where there is none.
    ///
    /// # Cancel safety
    /// It may be dropped; a connection may have begun then.
    async fn dial(&self, address: CheckedAddress) -> io::Result<Box<dyn Outgoing>>;
}

/// A connection to a server.
pub trait Outgoing: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Outgoing for T {}

/// An address that the policy lets through. Nobody but the policy makes one, so that what is dialled was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckedAddress(SocketAddr);

impl CheckedAddress {
    pub(crate) fn new(address: IpAddr, port: u16) -> Self {
        Self(SocketAddr::new(address, port))
    }

    /// The address and the port.
    #[must_use]
    pub const fn get(self) -> SocketAddr {
        self.0
    }
}

/// Asks the host's resolver. A name is asked for as it stands: no search list of the host's applies.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, name: &HostName) -> io::Result<Vec<IpAddr>> {
        let found = lookup_host((format!("{name}."), 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// Connects by TCP.
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpDialler;

#[async_trait]
impl Dialler for TcpDialler {
    async fn dial(&self, address: CheckedAddress) -> io::Result<Box<dyn Outgoing>> {
        let stream = TcpStream::connect(address.get()).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}
