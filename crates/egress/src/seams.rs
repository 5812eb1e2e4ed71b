//! What stands between a decision and the network: who looks names up, and who dials.

use std::{io, net::IpAddr};

use async_trait::async_trait;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
};

use crate::{CheckedAddress, HostName};

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
