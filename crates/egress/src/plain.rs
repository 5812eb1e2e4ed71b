//! Requests in clear: `GET http://host/path` (RFC 9112, section 3.2.2), each on a connection of its own to the server.

use std::{io, pin::pin};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, split};

use crate::{
    Caps, Reason, Target, body,
    head::{self, Length, RequestHead, ResponseHead},
    meter::{Metered, watched},
    outgoing::Shared,
    proxy::Client,
    record::Entry,
    reply,
};

/// The port of `http://` without one.
const USUAL_PORT: u16 = 80;
/// Answers that come before the answer and are passed on.
const MOST_INTERIM: usize = 8;

/// What is asked for.
struct Asked {
    target: Target,
    /// Path and query.
    path: String,
    length: Length,
}

/// How the answer went.
enum Answered {
    /// Whole; whether its end is to be seen without the connection's end.
    Whole { delimited: bool },
    /// It is none, and nothing of it was passed on.
    Bad,
    /// It broke after its head was passed on.
    Broken,
}

/// Serves one request. Gives the connection back where another may come on it.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Send + Unpin>(
    shared: &Shared,
    mut client: Client<S>,
    head: &RequestHead,
    mut entry: Entry,
) -> Option<Client<S>> {
    let asked = match asked(head) {
        Ok(asked) => asked,
        Err(reason) => {
            client.refuse(entry, reason, "").await;
            return None;
        }
    };
    let target = &asked.target;
    let text = target.to_string();
    entry.asks(&head.method, &target.host.to_string(), Some(target.port));
    let server = match shared.reach(target, &mut entry).await {
        Ok((_, server)) => server,
        Err(reason) => {
            client.refuse(entry, reason, &text).await;
            return None;
        }
    };
    let counts = std::sync::Arc::clone(&entry.counts);
    let exchange = exchange(&mut client, server, head, &asked, &shared.caps);
    let (reason, goes_on, said) = match watched(exchange, &counts, &shared.caps).await {
        Ok((reason, goes_on)) => (reason, goes_on, reason != Reason::BadResponse),
        Err(reason) => (reason, false, counts.both().1 > 0),
    };
    let reason = match reason {
        Reason::Broken if shared.budget.is_used_up() => Reason::BytesUsedUp,
        other => other,
    };
    entry.is(reason);
    drop(entry);
    if goes_on {
        return Some(client);
    }
    let last_words = if said {
        Vec::new()
    } else {
        reply::refusal(reason, &text)
    };
    client.end_with(&last_words).await;
    None
}

fn asked(head: &RequestHead) -> Result<Asked, Reason> {
    // TRACE gives back what was sent, credentials among it; PRI begins HTTP/2.
    if ["TRACE", "TRACK", "PRI"]
        .iter()
        .any(|method| head.method.eq_ignore_ascii_case(method))
    {
        return Err(Reason::MethodRefused);
    }
    let Some((scheme, rest)) = head.target.split_once("://") else {
        return Err(Reason::NotForAProxy);
    };
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(if scheme.starts_with('/') {
            Reason::NotForAProxy
        } else {
            Reason::SchemeRefused
        });
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if path.contains('#') {
        return Err(Reason::BadRequest);
    }
    let target = Target::parse(authority, Some(USUAL_PORT)).map_err(|_| Reason::BadName)?;
    if let Some(host) = head.host().map_err(|_| Reason::BadRequest)? {
        match Target::parse(host, Some(USUAL_PORT)) {
            Ok(host) if host == target => {}
            _ => return Err(Reason::HostMismatch),
        }
    }
    let path = match path.as_bytes().first() {
        None if head.method == "OPTIONS" => "*".to_owned(),
        Some(b'/') => path.to_owned(),
        None | Some(_) => format!("/{path}"),
    };
    Ok(Asked {
        target,
        path,
        length: head.length().map_err(|_| Reason::BadRequest)?,
    })
}

/// The request's head as it goes on: written anew from what was understood.
fn outgoing_head(head: &RequestHead, asked: &Asked) -> Vec<u8> {
    let Asked { target, path, length } = asked;
    let host = match target.port {
        USUAL_PORT => target.host.to_string(),
        _ => target.to_string(),
    };
    let mut out = format!("{} {path} HTTP/1.1\r\nHost: {host}\r\n", head.method).into_bytes();
    head.fields.write_end_to_end(&mut out);
    write_length(*length, &mut out);
    out.extend(b"Connection: close\r\n\r\n");
    out
}

fn write_length(length: Length, out: &mut Vec<u8>) {
    match length {
        Length::Exactly(bytes) => out.extend(format!("Content-Length: {bytes}\r\n").as_bytes()),
        Length::Chunked => out.extend(b"Transfer-Encoding: chunked\r\n"),
        Length::None | Length::ToTheEnd => {}
    }
}

/// Sends the request and passes the answer on, at the same time: a server may answer before it has all of the request.
/// Whether another request may follow.
async fn exchange<S: AsyncRead + AsyncWrite + Send + Unpin>(
    client: &mut Client<S>,
    server: Metered,
    head: &RequestHead,
    asked: &Asked,
    caps: &Caps,
) -> (Reason, bool) {
    let (from_server, mut to_server) = split(server);
    let mut from_server = BufReader::with_capacity(32 * 1024, from_server);
    let Client { reader, writer } = client;
    let mut send = pin!(async {
        let head = outgoing_head(head, asked);
        to_server
            .write_all(&head)
            .await
            .map_err(|error| io::Error::new(io::ErrorKind::WriteZero, error))?;
        body::pass(reader, &mut to_server, asked.length, true).await
    });
    let mut answer = pin!(answer(&mut from_server, writer, head, caps));
    let mut sent = None;
    let answered = loop {
        tokio::select! {
            biased;
            answered = &mut answer => break answered,
            result = &mut send, if sent.is_none() => match result {
                Ok(()) => sent = Some(true),
                // The server takes no more, and may say why.
                Err(error) if error.kind() == io::ErrorKind::WriteZero => sent = Some(false),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => return (Reason::BadRequest, false),
                Err(_) => return (Reason::Broken, false),
            },
        }
    };
    match answered {
        Answered::Whole { delimited } => {
            let goes_on = delimited && sent == Some(true) && head.goes_on();
            (Reason::Allowed, goes_on)
        }
        Answered::Bad => (Reason::BadResponse, false),
        Answered::Broken => (Reason::Broken, false),
    }
}

/// Passes the answer on.
async fn answer(
    from: &mut (impl AsyncBufRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    request: &RequestHead,
    caps: &Caps,
) -> Answered {
    for _ in 0..=MOST_INTERIM {
        let mut bytes = Vec::new();
        match head::read(from, caps.head_bytes, &mut bytes).await {
            Ok(true) => {}
            Ok(false) | Err(_) => return Answered::Bad,
        }
        let Ok(head) = ResponseHead::parse(&bytes) else {
            return Answered::Bad;
        };
        let Ok(length) = head.length(&request.method) else {
            return Answered::Bad;
        };
        match head.status {
            // Nothing is upgraded: no such field was passed on.
            101 => return Answered::Bad,
            100..200 if request.minor == 0 => continue,
            _ => {}
        }
        // An old client knows no chunks: it gets the body to the connection's end.
        let chunks = request.minor == 1;
        let interim = head.status < 200;
        let delimited = match length {
            Length::ToTheEnd => false,
            Length::Chunked => chunks,
            Length::None | Length::Exactly(_) => true,
        };
        let out = incoming_head(&head, length, chunks, delimited && request.goes_on());
        if to.write_all(&out).await.is_err() {
            return Answered::Broken;
        }
        if !interim {
            return match body::pass(from, to, length, chunks).await {
                Ok(()) => Answered::Whole { delimited },
                Err(_) => Answered::Broken,
            };
        }
        if to.flush().await.is_err() {
            return Answered::Broken;
        }
    }
    Answered::Bad
}

/// The answer's head as the job gets it.
fn incoming_head(head: &ResponseHead, length: Length, chunks: bool, goes_on: bool) -> Vec<u8> {
    let mut out = format!("HTTP/1.1 {} {}\r\n", head.status, head.words).into_bytes();
    head.fields.write_end_to_end(&mut out);
    if length != Length::Chunked || chunks {
        write_length(length, &mut out);
    }
    // What a HEAD, or an answer without a body, says of a length is about what there would have been.
    if let (Length::None, [said]) = (length, head.fields.all("content-length").as_slice())
        && head.status >= 200
        && head.status != 204
    {
        out.extend(b"Content-Length: ");
        out.extend(*said);
        out.extend(b"\r\n");
    }
    if head.status >= 200 && !goes_on {
        out.extend(b"Connection: close\r\n");
    }
    out.extend(b"\r\n");
    out
}
