//! What was decided about a run's connections, for its job's record.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize};

use crate::address::AddressClass;

/// All decisions of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EgressRecord {
    /// In the order in which they began, as many as are listed.
    pub decisions: Vec<Decision>,
    /// How many there were of each kind, the listed ones among them.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, u64>))]
    pub counts: BTreeMap<Verdict, u64>,
    /// How many are not listed.
    pub not_listed: u64,
    /// Bytes that left, on all connections.
    pub sent_bytes: u64,
    /// Bytes that came.
    pub received_bytes: u64,
}

/// One decision about one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Decision {
    /// When it began, after the run's proxy was made.
    pub at_ms: u64,
    /// `CONNECT`, or the method of a request in clear; empty where there was none to be read.
    pub method: String,
    /// The host as it was asked for, in its one spelling where it has one.
    pub name: String,
    /// The port.
    pub port: Option<u16>,
    /// The address that was dialled, or that was the reason not to.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub address: Option<IpAddr>,
    /// What kind of address that is, where it was the reason.
    pub class: Option<AddressClass>,
    /// What came of it.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
    /// The name of the credential rule by which it went on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// Bytes that went to the server.
    pub sent_bytes: u64,
    /// Bytes that came from it.
    pub received_bytes: u64,
    /// How long it took, to its end.
    pub took_ms: u64,
}

/// What came of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Verdict {
    /// It was let through.
    Allowed,
    /// It was not.
    Refused,
    /// It would have been, and the network or the server failed.
    Failed,
    /// It was let through and ended before its time.
    Cut,
}

/// Why a request came to what it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Reason {
    /// The policy lets it through.
    Allowed,
    /// It is no request that has one meaning.
    BadRequest,
    /// It asks this proxy itself for something.
    NotForAProxy,
    /// It asks for `https://…` in clear; that is what CONNECT is for.
    SchemeRefused,
    /// A method that is never passed on.
    MethodRefused,
    /// Its `Host` is another than its target.
    HostMismatch,
    /// A name that is none, or is spelled like an address.
    BadName,
    /// No rule names the host.
    NameNotAllowed,
    /// A rule names the host, at other ports.
    PortNotAllowed,
    /// An address, which no rule names.
    AddressNotAllowed,
    /// The name has an address that may not be dialled.
    AddressRefused,
    /// It is an address of services of ours.
    OwnAddress,
    /// More different names than wildcards may let through.
    TooManyNames,
    /// The name has no address, or nobody answered.
    NotResolved,
    /// No address of the server's could be reached.
    NotReached,
    /// What is said through CONNECT is not TLS.
    NotTls,
    /// Its first message is not what TLS says it must be, or did not come in time.
    BadHello,
    /// It names no server.
    NoServerName,
    /// It names another server than CONNECT did.
    ServerNameMismatch,
    /// It hides the server's name.
    EncryptedHello,
    /// The host is reached with a credential alone, and no rule gives this method and path one.
    NoCredential,
    /// Its path could be read in more than one way, where a credential depends on it.
    AmbiguousPath,
    /// CONNECT to a host that is reached with a credential alone.
    ConnectRefused,
    /// More connections at a time than there may be.
    TooManyConnections,
    /// More requests than there may be.
    TooManyRequests,
    /// The run has used up its bytes.
    BytesUsedUp,
    /// It took too long.
    TimeUp,
    /// Nothing came or went for too long.
    Idle,
    /// The server's answer is none that has one meaning.
    BadResponse,
    /// The server proves to be nobody whom this host trusts, or speaks no TLS.
    NotTrusted,
    /// The answer is coded or a part, so that nobody can see whether the credential is in it.
    OpaqueAnswer,
    /// The credential was in the answer.
    CredentialEchoed,
    /// A connection broke.
    Broken,
    /// The run was over.
    RunOver,
}

impl Reason {
    /// What that makes of the request.
    #[must_use]
    pub const fn verdict(self) -> Verdict {
        match self {
            Self::Allowed => Verdict::Allowed,
            Self::NotResolved
            | Self::NotReached
            | Self::NotTrusted
            | Self::BadResponse
            | Self::OpaqueAnswer => Verdict::Failed,
            Self::BytesUsedUp
            | Self::TimeUp
            | Self::Idle
            | Self::CredentialEchoed
            | Self::Broken
            | Self::RunOver => Verdict::Cut,
            Self::BadRequest
            | Self::NotForAProxy
            | Self::SchemeRefused
            | Self::MethodRefused
            | Self::HostMismatch
            | Self::BadName
            | Self::NameNotAllowed
            | Self::PortNotAllowed
            | Self::AddressNotAllowed
            | Self::AddressRefused
            | Self::OwnAddress
            | Self::TooManyNames
            | Self::NotTls
            | Self::BadHello
            | Self::NoServerName
            | Self::ServerNameMismatch
            | Self::EncryptedHello
            | Self::NoCredential
            | Self::AmbiguousPath
            | Self::ConnectRefused
            | Self::TooManyConnections
            | Self::TooManyRequests => Verdict::Refused,
        }
    }
}
