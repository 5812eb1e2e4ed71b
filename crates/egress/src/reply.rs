//! What the job is told.

use crate::Reason;

/// A TLS alert for a name that may not be asked for: fatal, `unrecognized_name` (RFC 6066, section 3).
pub(crate) const WRONG_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// An answer that ends the connection. `target` is what was asked for, of printable ASCII.
pub(crate) fn refusal(reason: Reason, target: &str) -> Vec<u8> {
    let (status, words, more) = words(reason);
    let about = if target.is_empty() {
        String::new()
    } else {
        format!("{target}: ")
    };
    let body = format!("mayfly: egress: {about}{words}. {more}\n");
    format!(
        "HTTP/1.1 {status} {words}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The status, what is wrong, what to do.
const fn words(reason: Reason) -> (u16, &'static str, &'static str) {
    const ASK: &str = "Its policy says what this job may reach; ask for another one, or do without";
    match reason {
        Reason::Allowed => (200, "allowed", ""),
        Reason::BadRequest => (
            400,
            "the request has no one meaning",
            "Send HTTP/1.1 as RFC 9112 has it: CR LF, one Host, one length",
        ),
        Reason::NotForAProxy => (
            400,
            "this is a proxy",
            "Ask for `http://host/path`, or CONNECT to `host:port`",
        ),
        Reason::SchemeRefused => (
            400,
            "only http:// is asked for like this",
            "Use CONNECT for https://",
        ),
        Reason::MethodRefused => (405, "this method is not passed on", "Use another one"),
        Reason::HostMismatch => (
            400,
            "Host is another than what is asked for",
            "Send the same host in both",
        ),
        Reason::BadName => (
            400,
            "the host is no name of a host",
            "Send a name, as ASCII and with its port",
        ),
        Reason::NameNotAllowed => (403, "the policy does not name this host", ASK),
        Reason::PortNotAllowed => (403, "the policy does not name this port of the host", ASK),
        Reason::AddressNotAllowed => (403, "the policy does not name this address", ASK),
        Reason::AddressRefused => (403, "the host has an address that may not be reached", ASK),
        Reason::OwnAddress => (403, "the address is one of the service's own", ASK),
        Reason::TooManyNames => (403, "too many different names below a wildcard", ASK),
        Reason::NotTls
        | Reason::BadHello
        | Reason::NoServerName
        | Reason::ServerNameMismatch
        | Reason::EncryptedHello => (403, "CONNECT is for TLS to the name that it asks for", ASK),
        Reason::NoCredential => (
            403,
            "no credential rule names this method and path of the host",
            "The operator of the executor says what may be asked of it",
        ),
        Reason::AmbiguousPath => (
            400,
            "the path can be read in more than one way",
            "Send it without dots, empty parts, `;`, and codes for what can stand as it is",
        ),
        Reason::ConnectRefused => (
            403,
            "this host is reached with a credential alone",
            "Ask for `http://host/path`: it goes on by TLS, with the credential",
        ),
        Reason::NotTrusted => (
            502,
            "the host's certificate is not trusted, or it speaks no TLS",
            "Tell the operator of the executor",
        ),
        Reason::OpaqueAnswer => (
            502,
            "the host's answer is coded, so that nobody can look through it",
            "Ask for something else",
        ),
        Reason::CredentialEchoed => (
            502,
            "the host's answer has the credential in it",
            "Ask for something else",
        ),
        Reason::NotResolved => (502, "the name has no address", "Is it spelled as it should be?"),
        Reason::NotReached => (502, "the host can't be reached", "Try again later"),
        Reason::BadResponse => (
            502,
            "the host's answer has no one meaning",
            "It can't be used like this",
        ),
        Reason::TooManyConnections => (
            503,
            "too many connections at a time",
            "Close some before you open more",
        ),
        Reason::TooManyRequests => (
            503,
            "the run has used up its requests",
            "No more will be let through",
        ),
        Reason::BytesUsedUp => (
            503,
            "the run has used up its bytes",
            "No more will be let through",
        ),
        Reason::TimeUp | Reason::Idle => (504, "it took too long", "Try again later"),
        Reason::Broken | Reason::RunOver => (502, "the connection broke", "Try again later"),
    }
}
