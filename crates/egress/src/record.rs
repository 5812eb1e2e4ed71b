//! Decisions as they are made, for the job's record.

use std::{
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use crate::{AddressClass, Decision, EgressRecord, Reason, Verdict};

/// Most bytes of a name that is kept as it was asked for.
const MAX_ASKED: usize = 300;

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
                credential: None,
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

    /// The credential rule by which it goes on.
    pub(crate) fn by(&mut self, credential: &str) {
        self.decision.credential = Some(credential.to_owned());
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
