//! What was decided, for the job's record.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use serde::{Deserialize, Serialize};

use crate::address::AddressClass;

/// Most bytes of a name that is kept as it was asked for.
const MAX_ASKED: usize = 300;

/// All decisions of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressRecord {
    /// In the order in which they began, as many as are listed.
    pub decisions: Vec<Decision>,
    /// How many there were of each kind, the listed ones among them.
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
    pub address: Option<IpAddr>,
    /// What kind of address that is, where it was the reason.
    pub class: Option<AddressClass>,
    /// What came of it.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
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
            Self::NotResolved | Self::NotReached | Self::BadResponse => Verdict::Failed,
            Self::BytesUsedUp | Self::TimeUp | Self::Idle | Self::Broken | Self::RunOver => Verdict::Cut,
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
            | Self::TooManyConnections
            | Self::TooManyRequests => Verdict::Refused,
        }
    }
}

/// Keeps decisions. What is refused can't push out of the list what was let through.
#[derive(Debug)]
pub(crate) struct Ledger {
    begun: Instant,
    most: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    record: EgressRecord,
    through: usize,
    others: usize,
}

/// A decision that is being made. It is on the record once this is dropped, however that comes.
#[derive(Debug)]
pub(crate) struct Entry {
    ledger: Arc<Ledger>,
    begun: Instant,
    decision: Decision,
    pub(crate) counts: Arc<Counts>,
}

/// Bytes of one request.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
}

impl Counts {
    /// Of both ways.
    pub(crate) fn both(&self) -> (u64, u64) {
        (
            self.sent.load(Ordering::Relaxed),
            self.received.load(Ordering::Relaxed),
        )
    }
}

impl Ledger {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            most,
            kept: Mutex::default(),
        })
    }

    pub(crate) fn begin(self: &Arc<Self>) -> Entry {
        let begun = Instant::now();
        Entry {
            ledger: Arc::clone(self),
            begun,
            decision: Decision {
                at_ms: millis(begun - self.begun),
                method: String::new(),
                name: String::new(),
                port: None,
                address: None,
                class: None,
                verdict: Verdict::Cut,
                reason: Reason::RunOver,
                sent_bytes: 0,
                received_bytes: 0,
                took_ms: 0,
            },
            counts: Arc::default(),
        }
    }

    /// All that was decided by now; what still runs is not there yet.
    pub(crate) fn record(&self) -> EgressRecord {
        let mut record = self.locked(|kept| kept.record.clone());
        record.decisions.sort_by_key(|decision| decision.at_ms);
        record
    }

    fn locked<T>(&self, work: impl FnOnce(&mut Kept) -> T) -> T {
        // Counts stay true whoever panicked with them.
        work(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Entry {
    pub(crate) fn asks(&mut self, method: &str, name: &str, port: Option<u16>) {
        let cut = |text: &str| text[..text.floor_char_boundary(MAX_ASKED)].to_owned();
        self.decision.method = cut(method);
        self.decision.name = cut(name);
        self.decision.port = port;
    }

    pub(crate) fn at(&mut self, address: IpAddr, class: Option<AddressClass>) {
        self.decision.address = Some(address);
        self.decision.class = class;
    }

    /// What came of it; the last word counts.
    pub(crate) fn is(&mut self, reason: Reason) {
        self.decision.reason = reason;
        self.decision.verdict = reason.verdict();
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let decision = &mut self.decision;
        (decision.sent_bytes, decision.received_bytes) = self.counts.both();
        decision.took_ms = millis(self.begun.elapsed());
        let (decision, most) = (decision.clone(), self.ledger.most);
        self.ledger.locked(|kept| {
            let record = &mut kept.record;
            *record.counts.entry(decision.verdict).or_default() += 1;
            record.sent_bytes += decision.sent_bytes;
            record.received_bytes += decision.received_bytes;
            let listed = match decision.verdict {
                Verdict::Allowed | Verdict::Cut => &mut kept.through,
                Verdict::Refused | Verdict::Failed => &mut kept.others,
            };
            if *listed < most {
                *listed += 1;
                record.decisions.push(decision);
            } else {
                record.not_listed += 1;
            }
        });
    }
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_bounded_and_what_is_beyond_it_is_counted() {
        let ledger = Ledger::new(2);
        for reason in [Reason::NameNotAllowed; 5]
            .into_iter()
            .chain([Reason::Allowed; 3])
        {
            let mut entry = ledger.begin();
            entry.asks("CONNECT", "a.test", Some(443));
            entry.counts.sent.store(10, Ordering::Relaxed);
            entry.is(reason);
        }
        let record = ledger.record();
        let verdicts: Vec<_> = record.decisions.iter().map(|one| one.verdict).collect();
        assert_eq!(verdicts.iter().filter(|one| **one == Verdict::Allowed).count(), 2);
        assert_eq!(verdicts.len(), 4);
        assert_eq!(record.not_listed, 4);
        assert_eq!(
            record.counts,
            [(Verdict::Allowed, 3), (Verdict::Refused, 5)].into()
        );
        assert_eq!(record.sent_bytes, 80);
    }

    #[test]
    fn a_request_that_nobody_ended_is_on_the_record_as_cut() {
        let ledger = Ledger::new(2);
        drop(ledger.begin());
        let record = ledger.record();
        assert_eq!(record.decisions[0].verdict, Verdict::Cut);
        assert_eq!(record.decisions[0].reason, Reason::RunOver);
    }
}
