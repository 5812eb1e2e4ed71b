//! What a job may reach outside of its sandbox, and the proxy that alone lets it.
//!
//! A sandbox has no network. Where a job's policy names hosts, what its programs say to the proxy on their own loopback
//! comes here, to the executor, one stream for each connection; [`Proxy::serve`] takes one. It parses, decides and dials;
//! whatever carries the bytes here does none of that.
//!
//! Start reading at [`Proxy`], then [`Policy`] of `mayfly-reach`, which judges names, ports and addresses. `hello.rs` looks at how TLS begins, `head.rs` and `body.rs` hold every rule about HTTP.
//! docs/egress.md is what users read.
//!
//! Decided here:
//! - Every request is judged by itself, also the second on a connection; each has a connection of its own to the server.
//! - The name is looked up once, by us; each address that it has must be one that may be dialled, and only a
//!   [`CheckedAddress`] can be dialled at all.
//! - An own reader of HTTP heads rather than `httparse` or hyper: both take a bare LF for the end of a line, and hyper
//!   makes the best of lengths that contradict one another. Here what two readers could understand differently is refused,
//!   and what is sent on is written anew from what was understood.
//! - Inside of CONNECT there must be TLS that says, in clear, the same name; a rule can lift that for one host and port.
//! - A host with credential rules (`credential.rs`) is asked in clear and reached by TLS; what it answers is looked through
//!   (`screen.rs`) before it goes on.
//!
//! Absent on purpose: another proxy behind this one, HTTP/2 and upgrades in clear (inside of TLS nobody sees them), and any
//! look into TLS, so that an allowed host which serves other names behind one certificate serves them to the job too.

mod body;
mod connect;
mod credential;
mod head;
mod hello;
mod meter;
mod outgoing;
mod plain;
mod proxy;
mod record;
mod reply;
mod screen;
mod seams;
mod tls;

pub use credential::{Credential, CredentialFault, Credentials, LEAST_CREDENTIAL_BYTES, NoCredentials};
pub use mayfly_reach::{
    AddressClass, Admitted, Caps, CheckedAddress, CredentialRule, CredentialRuleFault, Decision,
    EgressRecord, Host, HostName, Inside, IpNet, NameFault, Policy, Reason, Rule, RuleFault, Target, Verdict,
};
pub use proxy::Proxy;
pub use seams::{Dialler, Outgoing, Resolver, SystemResolver, TcpDialler};
pub use tls::{NoTrust, Trust};
