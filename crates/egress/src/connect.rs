//! CONNECT (RFC 9110, section 9.3.6): a way for TLS that says the name which was asked for.

use std::io;

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy_bidirectional_with_sizes},
    time::timeout,
};

use crate::{
    Host, Inside, Reason, Target,
    head::{Length, RequestHead},
    hello::{self, Hello},
    meter::{Metered, watched},
    outgoing::Shared,
    proxy::Client,
    record::Entry,
    reply,
};

/// Bytes in hand, each way.
const BUFFER: usize = 32 * 1024;

const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// Serves one CONNECT, to the end of its connection.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Send + Unpin>(
    shared: &Shared,
    mut client: Client<S>,
    head: &RequestHead,
    mut entry: Entry,
) {
    let target = match target(head) {
        Ok(target) => target,
        Err(reason) => return client.refuse(entry, reason, "").await,
    };
    let text = target.to_string();
    entry.asks("CONNECT", &target.host.to_string(), Some(target.port));
    let with_credential = shared
        .credentials
        .as_ref()
        .and_then(|picked| picked.target(&target));
    // What may not be reached at all is told nothing of credentials.
    if shared.policy.admit(&target).is_ok() && with_credential.is_some() {
        return client.refuse(entry, Reason::ConnectRefused, &text).await;
    }
    let (admitted, server) = match shared.reach(&target, &mut entry).await {
        Ok(reached) => reached,
        Err(reason) => return client.refuse(entry, reason, &text).await,
    };
    if client.writer.write_all(ESTABLISHED).await.is_err() || client.writer.flush().await.is_err() {
        return entry.is(Reason::Broken);
    }
    let first = match admitted.inside {
        Inside::Anything => Vec::new(),
        Inside::Tls => match hello_for(&target, &mut client, shared).await {
            Ok(hello) => hello.raw,
            Err(reason) => {
                entry.is(reason);
                drop((entry, server));
                let last_words: &[u8] = match reason {
                    Reason::NotTls | Reason::BadHello => b"",
                    _ => &reply::WRONG_NAME,
                };
                return client.end_with(last_words).await;
            }
        },
    };
    let counts = std::sync::Arc::clone(&entry.counts);
    let moved = watched(join(client, server, first), &counts, &shared.caps).await;
    entry.is(match moved {
        Ok(Ok(())) => Reason::Allowed,
        Ok(Err(error)) if error.kind() == io::ErrorKind::QuotaExceeded => Reason::BytesUsedUp,
        Ok(Err(_)) => Reason::Broken,
        Err(reason) => reason,
    });
}

/// What it asks for.
fn target(head: &RequestHead) -> Result<Target, Reason> {
    if head.length() != Ok(Length::None) {
        return Err(Reason::BadRequest);
    }
    let target = Target::parse(&head.target, None).map_err(|_| Reason::BadName)?;
    // Many clients of HTTP/1.1 leave it out here.
    let hosts = head.fields.all("host");
    let host = match hosts.as_slice() {
        [] => return Ok(target),
        [host] => std::str::from_utf8(host).map_err(|_| Reason::BadRequest)?,
        _ => return Err(Reason::BadRequest),
    };
    match Target::parse(host, Some(target.port)) {
        Ok(host) if host == target => Ok(target),
        _ => Err(Reason::HostMismatch),
    }
}

/// The beginning of TLS, if it is for that name.
async fn hello_for<S: AsyncRead + AsyncWrite + Send + Unpin>(
    target: &Target,
    client: &mut Client<S>,
    shared: &Shared,
) -> Result<Hello, Reason> {
    let hello = timeout(shared.caps.head_time, hello::read(&mut client.reader)).await;
    let hello = hello.map_err(|_| Reason::BadHello)??;
    match (&target.host, &hello.server_name) {
        (Host::Name(asked), Some(said)) if asked == said => Ok(hello),
        // RFC 6066: an address is not said; the policy names it.
        (Host::Address(_), None) => Ok(hello),
        (Host::Name(_), None) => Err(Reason::NoServerName),
        (Host::Name(_) | Host::Address(_), Some(_)) => Err(Reason::ServerNameMismatch),
    }
}

/// Moves bytes until both sides are done.
async fn join<S: AsyncRead + AsyncWrite + Send + Unpin>(
    client: Client<S>,
    mut server: Metered,
    first: Vec<u8>,
) -> io::Result<()> {
    let Client { reader, writer } = client;
    server.write_all(&first).await?;
    server.write_all(reader.buffer()).await?;
    server.flush().await?;
    let mut client = reader.into_inner().unsplit(writer);
    copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER, BUFFER).await?;
    Ok(())
}
