use mayfly_core::{id::TenantId, job::RetryPolicy, outcome::Cause};
use uuid::Uuid;

use super::*;
use crate::{
    message::{ExecutorFacts, Opened},
    record::{AttemptState, SessionEnd},
};

fn now() -> ServerTime {
    ServerTime::from_micros(0)
}

fn job() -> JobId {
    JobId::from_uuid(Uuid::from_u128(1))
}

fn attempt() -> AttemptId {
    AttemptId::from_uuid(Uuid::from_u128(2))
}

fn session(n: u128) -> SessionId {
    SessionId::from_uuid(Uuid::from_u128(n))
}

fn executor() -> ExecutorId {
    ExecutorId::from_uuid(Uuid::from_u128(9))
}

fn dispatched() -> Change {
    Change::Dispatched(AttemptRecord {
        attempt: attempt(),
        job: job(),
        number: 1,
        state: AttemptState::Dispatched,
        publication: 1,
        published_at: now(),
        confirmed: false,
        dead_letters: 0,
    })
}

fn opened(n: u128) -> Change {
    let record = SessionRecord {
        session: session(n),
        executor: executor(),
        state: SessionState::Live,
        processed: 0,
        lease_end: now(),
        pool: "default".to_owned(),
        slots: 1,
        reads: 1,
        cordoned: false,
        free_slots: 1,
    };
    let facts = ExecutorFacts::default();
    Change::SessionOpened {
        record,
        opened: Opened {
            slots: 1,
            pool: "default".to_owned(),
            facts,
        },
    }
}

fn published(publication: u32) -> Change {
    Change::Published {
        attempt: attempt(),
        publication,
        at: now(),
    }
}

fn started(n: u128) -> Change {
    Change::Started {
        attempt: attempt(),
        job: job(),
        session: session(n),
        executor: executor(),
        publication: 1,
    }
}

fn lost(n: u128) -> Change {
    let how = AttemptEnd::Lost {
        session: session(n),
        cause: Cause::ExecutorLost,
        ran: true,
    };
    let then = JobNext::Ended(Outcome::decided(EndState::Lost, Cause::ExecutorLost));
    Change::AttemptEnded {
        attempt: attempt(),
        job: job(),
        how,
        then,
    }
}

fn ledger() -> Ledger {
    let mut ledger = Ledger::new(QueueRecord::new(now()));
    ledger.put_job(JobRecord {
        job: job(),
        tenant: TenantId::LOCAL,
        state: JobState::Queued,
        retry: RetryPolicy::default(),
        attempts: 0,
        current: None,
        ready_at: now(),
        expires_at: None,
    });
    ledger
}

/// What a store that compares and sets would find no row for is refused, and leaves everything as it was.
#[test]
fn a_change_to_other_records_than_it_was_decided_on_is_refused_and_changes_nothing() {
    let closed = Change::SessionEnded {
        session: session(1),
        executor: executor(),
        end: SessionEnd::Closed,
    };
    let moved = Change::LeaseMoved {
        session: session(1),
        lease_end: now(),
        free_slots: None,
    };
    let again = Change::DeadLettered {
        attempt: attempt(),
        times: 1,
    };
    let all = [&closed, &moved, &again, &started(1), &lost(1), &published(2)];
    let mut ledger = ledger();
    let refuses = |ledger: &Ledger, refused: &[&Change]| {
        for change in refused {
            let mut after = ledger.clone();
            assert!(after.apply(change).is_err(), "{change:?}");
            assert_eq!(format!("{after:?}"), format!("{ledger:?}"), "{change:?}");
        }
    };
    refuses(&ledger, &all);
    for change in [dispatched(), opened(1), published(3)] {
        assert_eq!(ledger.apply(&change), Ok(()));
    }
    refuses(
        &ledger,
        &[&dispatched(), &opened(1), &published(3), &published(2), &lost(1)],
    );
    assert_eq!(ledger.apply(&started(1)), Ok(()));
    refuses(
        &ledger,
        &[&started(1), &started(2), &published(4), &again, &lost(2)],
    );
    for change in [lost(1), closed.clone()] {
        assert_eq!(ledger.apply(&change), Ok(()));
    }
    refuses(&ledger, &all);
}
