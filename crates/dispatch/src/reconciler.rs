//! Who is dead. A lease that has ended by the database's clock proves nothing: what renewed it may wait in the queue, as
//! after an outage of every server. So the reconciler sends a tick through that queue and judges when it comes out.

use mayfly_core::id::SessionId;

use crate::{
    ledger::{Context, Ledger},
    message::{Judged, MAX_JUDGED, Tick, VERSION},
    record::{Change, QueueRecord, SessionEnd, SessionRecord},
    recorder::{end_session, moved_lease},
    rules::Rule,
};

#[cfg(test)]
mod tests;

/// Makes the next tick: every [`crate::timing::Timing::tick_every`], also with nobody to judge. Load every live session
/// and the queue; commit the changes; then publish the tick to the recorder's queue, once. A tick that is not confirmed
/// is lost, which the next one shows.
#[must_use]
pub fn tick(ledger: &mut Ledger, context: &Context) -> (Tick, Vec<Change>) {
    let mut changes = Vec::new();
    let now = context.now;
    let ended = ledger
        .sessions()
        .filter(|record| record.is_live() && record.lease_end <= now);
    let judged: Vec<Judged> = ended
        .map(|record| Judged {
            session: record.session,
            lease_end: record.lease_end,
        })
        .take(MAX_JUDGED)
        .collect();
    if !context.hold(Rule::TickBeforeDeath) {
        for judged in &judged {
            end_session(
                judged.session,
                SessionEnd::LeaseEnded,
                ledger,
                context,
                &mut changes,
            );
        }
    }
    let queue = QueueRecord {
        ticks_sent: ledger.queue().ticks_sent + 1,
        last_tick_at: now,
        ..*ledger.queue()
    };
    ledger.decide(Change::Queue(queue), &mut changes);
    (
        Tick {
            v: VERSION,
            epoch: queue.epoch,
            number: queue.ticks_sent,
            judged,
        },
        changes,
    )
}

/// Takes note that the recorder's queue is gone, with whatever was in it. To be committed before it is declared anew:
/// otherwise a tick could pass through the new queue as though nothing had been lost. Load every live session and the
/// queue.
#[must_use]
pub fn queue_is_gone(ledger: &mut Ledger, context: &Context) -> Vec<Change> {
    let mut changes = Vec::new();
    let epoch = ledger.queue().epoch + 1;
    ledger.decide(
        Change::Queue(QueueRecord {
            epoch,
            ..QueueRecord::new(context.now)
        }),
        &mut changes,
    );
    if context.hold(Rule::AfreshWithTheQueue) {
        start_afresh(ledger, context, &mut changes);
    }
    changes
}

/// Processes a tick that the recorder found in its queue. Load every live session, what those hold that it judges, and the
/// queue.
#[must_use]
pub fn process_tick(tick: &Tick, ledger: &mut Ledger, context: &Context) -> Vec<Change> {
    let mut changes = Vec::new();
    let queue = *ledger.queue();
    if context.hold(Rule::NumberedTicks) {
        let old = tick.epoch != queue.epoch || tick.number <= queue.ticks_processed;
        if old {
            return changes;
        }
        let gap = tick.number > queue.ticks_processed + 1;
        ledger.decide(
            Change::Queue(QueueRecord {
                ticks_processed: tick.number,
                ..queue
            }),
            &mut changes,
        );
        if gap {
            // Heartbeats may have been lost with the ticks that are missing.
            start_afresh(ledger, context, &mut changes);
            return changes;
        }
    }
    for judged in &tick.judged {
        if ledger
            .session(judged.session)
            .is_some_and(|record| is_dead(record, judged, context))
        {
            end_session(
                judged.session,
                SessionEnd::LeaseEnded,
                ledger,
                context,
                &mut changes,
            );
        }
    }
    changes
}

/// Whether a tick that judges a session's lease still speaks of the lease that it has.
fn is_dead(record: &SessionRecord, judged: &Judged, context: &Context) -> bool {
    let same = record.lease_end == judged.lease_end || !context.hold(Rule::HeartbeatVoidsTick);
    record.is_live() && same
}

/// Starts every lease afresh. What older ticks judge is void by that.
fn start_afresh(ledger: &mut Ledger, context: &Context, changes: &mut Vec<Change>) {
    let live: Vec<SessionId> = ledger
        .sessions()
        .filter(|record| record.is_live())
        .map(|record| record.session)
        .collect();
    for session in live {
        let lease_end = moved_lease(ledger.session(session), context);
        ledger.decide(
            Change::LeaseMoved {
                session,
                lease_end,
                free_slots: None,
            },
            changes,
        );
    }
}
