//! Requests in clear: `GET http://host/path` (RFC 9112, section 3.2.2), each on a connection of its own to the server.

use std::{
    io,
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
};

use mayfly_redact::Matcher;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, split};

use crate::{
    Caps, Host, Outgoing, Reason, Target, body,
    credential::Credential,
    head::{self, Length, RequestHead, ResponseHead},
    meter::watched,
    outgoing::Shared,
    proxy::Client,
    record::Entry,
    reply,
    screen::{Echo, Screen},
};

/// The port of `http://` without one.
const USUAL_PORT: u16 = 80;
/// And of `https://`.
const USUAL_TLS_PORT: u16 = 443;
/// The status of an answer that is a part of what was asked for.
const PARTIAL: u16 = 206;
/// Answers that come before the answer and are passed on.
const MOST_INTERIM: usize = 8;

/// What is asked for.
struct Asked {
    target: Target,
    /// Path and query.
    path: String,
    length: Length,
}

/// A request on its way, and what its answer has to be like.
struct Exchange<'a> {
    head: &'a RequestHead,
    asked: &'a Asked,
    /// What it gets, and what finds that in the answer.
    with: Option<(&'a Credential, &'a Matcher)>,
    caps: &'a Caps,
    /// Whether the head of its answer was begun to be passed on.
    said: &'a AtomicBool,
}

/// How the answer went.
enum Answered {
    /// Whole; whether its end is to be seen without the connection's end.
    Whole { delimited: bool },
    /// It is none that may be passed on, or it ended too early.
    Not(Reason),
}

/// Serves one request. Gives the connection back where another may come on it.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Send + Unpin>(
    shared: &Shared,
    mut client: Client<S>,
    head: &RequestHead,
    mut entry: Entry,
) -> Option<Client<S>> {
    let mut asked = match asked(head) {
        Ok(asked) => asked,
        Err(reason) => {
            client.refuse(entry, reason, "").await;
            return None;
        }
    };
    let text = asked.target.to_string();
    let (server, with) = match reach(shared, head, &mut asked, &mut entry).await {
        Ok(reached) => reached,
        Err(reason) => {
            client.refuse(entry, reason, &text).await;
            return None;
        }
    };
    let counts = std::sync::Arc::clone(&entry.counts);
    let said = AtomicBool::new(false);
    let exchange = Exchange {
        head,
        asked: &asked,
        with,
        caps: &shared.caps,
        said: &said,
    };
    let (reason, goes_on) = match watched(exchange.run(&mut client, server), &counts, &shared.caps).await {
        Ok(ended) => ended,
        Err(reason) => (reason, false),
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
    let last_words = if said.load(Ordering::Relaxed) {
        Vec::new()
    } else {
        reply::refusal(reason, &text)
    };
    client.end_with(&last_words).await;
    None
}

/// A connection to the server, by TLS where the request gets a credential; then it is the rule's port that is asked for.
async fn reach<'a>(
    shared: &'a Shared,
    head: &RequestHead,
    asked: &mut Asked,
    entry: &mut Entry,
) -> Result<(Box<dyn Outgoing>, Option<(&'a Credential, &'a Matcher)>), Reason> {
    let by_rule = shared.credentials.as_ref().and_then(|picked| {
        let target = picked.target(&asked.target)?;
        Some((picked, target))
    });
    let port = by_rule
        .as_ref()
        .map_or(asked.target.port, |(_, target)| target.port);
    entry.asks(&head.method, &asked.target.host.to_string(), Some(port));
    let Some((picked, target)) = by_rule else {
        let (_, server) = shared.reach(&asked.target, entry).await?;
        return Ok((Box::new(server), None));
    };
    // What may not be reached at all is told nothing of credentials.
    shared.policy.admit(&target)?;
    let credential = picked.judge(&asked.target, &head.method, &asked.path)?;
    entry.by(credential.name());
    let (_, connection) = shared.reach(&target, entry).await?;
    let Host::Name(name) = &target.host else {
        return Err(Reason::NotTrusted);
    };
    let server = picked.tls().on(connection, name, shared.caps.dial_time).await?;
    asked.target = target;
    Ok((Box::new(server), Some((credential, picked.matcher()))))
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
fn outgoing_head(head: &RequestHead, asked: &Asked, credential: Option<&Credential>) -> Vec<u8> {
    let Asked { target, path, length } = asked;
    let usual = match credential {
        Some(_) => USUAL_TLS_PORT,
        None => USUAL_PORT,
    };
    let host = match target.port {
        port if port == usual => target.host.to_string(),
        _ => target.to_string(),
    };
    let mut out = format!("{} {path} HTTP/1.1\r\nHost: {host}\r\n", head.method).into_bytes();
    head.fields
        .write_end_to_end(&mut out, |name| credential.is_some_and(|one| one.replaces(name)));
    if let Some(credential) = credential {
        credential.write_fields(&mut out);
    }
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

impl Exchange<'_> {
    /// Sends the request and passes the answer on, at the same time: a server may answer before it has all of the request.
    /// Whether another request may follow.
    async fn run<S: AsyncRead + AsyncWrite + Send + Unpin>(
        &self,
        client: &mut Client<S>,
        server: Box<dyn Outgoing>,
    ) -> (Reason, bool) {
        let (from_server, mut to_server) = split(server);
        let mut from_server = BufReader::with_capacity(32 * 1024, from_server);
        let Client { reader, writer } = client;
        let mut send = pin!(async {
            let head = outgoing_head(self.head, self.asked, self.with.map(|(credential, _)| credential));
            to_server
                .write_all(&head)
                .await
                .map_err(|error| io::Error::new(io::ErrorKind::WriteZero, error))?;
            body::pass(reader, &mut to_server, self.asked.length, true, None).await
        });
        let mut answer = pin!(self.answer(&mut from_server, writer));
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
                let goes_on = delimited && sent == Some(true) && self.head.goes_on();
                (Reason::Allowed, goes_on)
            }
            Answered::Not(reason) => (reason, false),
        }
    }

    /// Passes the answer on.
    async fn answer(
        &self,
        from: &mut (impl AsyncBufRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Answered {
        let request = self.head;
        for _ in 0..=MOST_INTERIM {
            let mut bytes = Vec::new();
            match head::read(from, self.caps.head_bytes, &mut bytes).await {
                Ok(true) => {}
                Ok(false) | Err(_) => return Answered::Not(Reason::BadResponse),
            }
            let Ok(head) = ResponseHead::parse(&bytes) else {
                return Answered::Not(Reason::BadResponse);
            };
            let Ok(length) = head.length(&request.method) else {
                return Answered::Not(Reason::BadResponse);
            };
            match head.status {
                // Nothing is upgraded: no such field was passed on.
                101 => return Answered::Not(Reason::BadResponse),
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
            let goes_on = delimited && request.goes_on();
            let out = incoming_head(&head, length, chunks, goes_on, self.with.is_some());
            let screen = match self.look_at(&head, &out) {
                Ok(screen) => screen,
                Err(reason) => return Answered::Not(reason),
            };
            if !interim {
                self.said.store(true, Ordering::Relaxed);
            }
            if to.write_all(&out).await.is_err() {
                return Answered::Not(Reason::Broken);
            }
            if !interim {
                return match body::pass(from, to, length, chunks, screen).await {
                    Ok(()) => Answered::Whole { delimited },
                    Err(error) if Echo::is(&error) => Answered::Not(Reason::CredentialEchoed),
                    Err(_) => Answered::Not(Reason::Broken),
                };
            }
            if to.flush().await.is_err() {
                return Answered::Not(Reason::Broken);
            }
        }
        Answered::Not(Reason::BadResponse)
    }

    /// What looks through the body of an answer, where the request had a credential; or why nothing of it goes on. `out` is
    /// its head as it would.
    fn look_at(&self, head: &ResponseHead, out: &[u8]) -> Result<Option<Screen>, Reason> {
        let Some((_, matcher)) = self.with else {
            return Ok(None);
        };
        // Nobody asked for a part, and of parts each can have a part of the credential.
        let coded = head.fields.all("content-encoding");
        let clear = |coding: &&[u8]| coding.is_empty() || coding.eq_ignore_ascii_case(b"identity");
        if head.status == PARTIAL || !coded.iter().all(clear) {
            return Err(Reason::OpaqueAnswer);
        }
        Screen::judge(matcher, out).map_err(|Echo| Reason::CredentialEchoed)?;
        Ok(Some(Screen::new(matcher)))
    }
}

/// The answer's head as the job gets it.
fn incoming_head(
    head: &ResponseHead,
    length: Length,
    chunks: bool,
    goes_on: bool,
    had_credential: bool,
) -> Vec<u8> {
    let mut out = format!("HTTP/1.1 {} {}\r\n", head.status, head.words).into_bytes();
    // A cookie would be a credential that the job has.
    head.fields
        .write_end_to_end(&mut out, |name| had_credential && name.starts_with("set-cookie"));
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
