//! What becomes of what a session holds: results, fences, deaths.

use std::{sync::Arc, time::Duration};

use mayfly_core::{
    outcome::{Cause, EndState},
    state::JobState,
};
use mayfly_dispatch::{
    message::{Inbound, StopReason, Verdict},
    record::{SessionEnd, SessionState},
};

use super::{
    Place,
    bench::{Bench, Client, POOL, Plan, report, success, verdict},
};
use crate::records::AuditFilter;

const SECOND: Duration = Duration::from_secs(1);

/// Anybody else's is on record as superseded, and changes nothing.
pub async fn a_result_counts_from_the_holder_alone(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let (mut holder, mut other) = (bench.session().await, bench.session().await);
    let message = bench.started(&Plan::once(), &mut holder).await;
    let forged = report(EndState::Failed, Cause::Exited, b"forged");
    bench.send(&other.finish(message.attempt, forged)).await;
    assert_eq!(bench.state(message.job).await, JobState::Started);
    assert_eq!(bench.job(message.job).await.attempts[0].report, None);
    bench.send(&holder.finish(message.attempt, success())).await;
    let job = bench.job(message.job).await;
    assert_eq!(job.job.state, JobState::Ended(EndState::Succeeded));
    assert_eq!(job.job.ended_at, Some(bench.date()));
    assert_eq!(job.attempts[0].cause, Some(Cause::Exited));
    assert_eq!(job.attempts[0].ended_at, Some(bench.date()));
    assert_eq!(job.report(), Some(&success()));
    let kinds = bench.kinds(message.job).await;
    assert_eq!(
        kinds[2..],
        ["run_started", "result_superseded", "run_finished", "job_ended"]
    );
    let unknown = mayfly_core::id::AttemptId::new();
    bench.send(&other.finish(unknown, success())).await;
    let filter = AuditFilter {
        job: None,
        attempt: Some(unknown),
    };
    assert_eq!(bench.events(filter).await[0].kind, "result_superseded");
}

/// The session that comes back late does not replace what was decided.
pub async fn a_result_after_the_lease_is_superseded(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let message = bench.started(&Plan::once(), &mut client).await;
    bench.pass(bench.timing.lease);
    bench.tick().await;
    assert_eq!(bench.state(message.job).await, JobState::Ended(EndState::Lost));
    let decided = bench.job(message.job).await;
    let reply = bench.send(&client.finish(message.attempt, success())).await;
    assert!(reply.dead);
    assert_eq!(bench.job(message.job).await, decided);
    let kinds = bench.kinds(message.job).await;
    assert_eq!(
        kinds[2..],
        ["run_started", "attempt_lost", "job_ended", "result_superseded"]
    );
    let beat = client.beat(&[message.attempt]);
    assert!(bench.send(&beat).await.dead, "a lease that has ended is final");
    let ended = bench
        .place
        .ledger(POOL)
        .await
        .session(client.session)
        .map(|session| session.state);
    assert_eq!(ended, Some(SessionState::Ended(SessionEnd::LeaseEnded)));
}

/// It is `lost`, rather than a guess.
pub async fn a_dead_sessions_job_is_lost_where_it_may_be_tried_once(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let message = bench.started(&Plan::once(), &mut client).await;
    bench.pass(bench.timing.lease - SECOND);
    bench.tick().await;
    assert_eq!(
        bench.state(message.job).await,
        JobState::Started,
        "its lease stands"
    );
    bench.pass(SECOND);
    bench.tick().await;
    let job = bench.job(message.job).await;
    assert_eq!(job.job.state, JobState::Ended(EndState::Lost));
    let outcome = job.job.outcome.expect("a job that is over has an outcome");
    assert_eq!(outcome.cause, Cause::ExecutorLost);
    assert_eq!(job.attempts[0].cause, Some(Cause::ExecutorLost));
    bench.pass(100 * SECOND);
    assert!(bench.dispatch().await.is_empty());
}

/// The next attempt comes after a wait, and in another session.
pub async fn a_dead_sessions_job_is_tried_again_after_a_wait(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let first = bench.started(&Plan::default(), &mut client).await;
    bench.pass(bench.timing.lease);
    bench.tick().await;
    assert_eq!(bench.state(first.job).await, JobState::Queued);
    assert!(bench.dispatch().await.is_empty(), "it waits");
    let ready_at = bench
        .store
        .next_due(POOL, bench.now)
        .await
        .expect("looking works");
    let ready_at = ready_at.expect("it is due some time");
    let wait = ready_at.since(bench.now);
    assert!(
        wait >= bench.timing.retry_first / 2 && wait <= bench.timing.retry_first,
        "{wait:?}"
    );
    bench.now = ready_at;
    let mut next = bench.session().await;
    let second = bench.dispatch().await.remove(0);
    assert_eq!((second.job, second.number, second.publication), (first.job, 2, 1));
    assert_ne!(second.attempt, first.attempt);
    assert_eq!(verdict(&bench.send(&next.ask(&second)).await), Verdict::Grant);
    let late = client.finish(first.attempt, report(EndState::Failed, Cause::Exited, b"late"));
    bench.send(&late).await;
    bench.send(&next.finish(second.attempt, success())).await;
    let job = bench.job(first.job).await;
    assert_eq!(
        (job.job.state, job.job.attempts),
        (JobState::Ended(EndState::Succeeded), 2)
    );
    let causes: Vec<_> = job.attempts.iter().map(|attempt| attempt.cause).collect();
    assert_eq!(causes, [Some(Cause::ExecutorLost), Some(Cause::Exited)]);
    assert_eq!(job.attempts[0].report, None, "a late result is not kept");
    assert_eq!(job.report(), Some(&success()));
}

/// It judged a lease that the session no longer has.
pub async fn a_heartbeat_since_the_tick_voids_it(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let message = bench.started(&Plan::once(), &mut client).await;
    bench.pass(bench.timing.lease);
    let tick = bench
        .store
        .next_tick(POOL, &bench.context())
        .await
        .expect("a tick is made");
    assert_eq!(tick.judged.len(), 1);
    let beat = Inbound::Batch(Box::new(client.beat(&[message.attempt])));
    let both = [beat, Inbound::Tick(tick)];
    bench
        .store
        .process(POOL, &both, &bench.context())
        .await
        .expect("processing works");
    assert_eq!(bench.state(message.job).await, JobState::Started);
    bench.send(&client.finish(message.attempt, success())).await;
    assert_eq!(
        bench.state(message.job).await,
        JobState::Ended(EndState::Succeeded)
    );
}

/// What renewed a lease may have been lost with it.
pub async fn a_lost_tick_starts_every_lease_afresh(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let message = bench.started(&Plan::once(), &mut client).await;
    bench.pass(bench.timing.lease);
    let store = &bench.store;
    store
        .next_tick(POOL, &bench.context())
        .await
        .expect("a tick is made");
    bench.tick().await;
    assert_eq!(bench.state(message.job).await, JobState::Started);
    bench.pass(bench.timing.lease - SECOND);
    bench.tick().await;
    assert_eq!(
        bench.state(message.job).await,
        JobState::Started,
        "its lease began afresh"
    );
    bench.pass(SECOND);
    bench.tick().await;
    assert_eq!(bench.state(message.job).await, JobState::Ended(EndState::Lost));
}

/// And a tick of the queue before it is void.
pub async fn a_queue_that_is_gone_starts_every_lease_afresh(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let message = bench.started(&Plan::once(), &mut client).await;
    bench.pass(bench.timing.lease);
    let old = bench
        .store
        .next_tick(POOL, &bench.context())
        .await
        .expect("a tick is made");
    bench
        .store
        .queue_is_gone(POOL, &bench.context())
        .await
        .expect("noting works");
    bench.deliver(Inbound::Tick(old)).await;
    bench.tick().await;
    assert_eq!(bench.state(message.job).await, JobState::Started);
    let tick = bench
        .store
        .next_tick(POOL, &bench.context())
        .await
        .expect("a tick is made");
    assert_eq!((tick.epoch, tick.number), (2, 2));
}

/// One executor has one session; what the old one held is lost.
pub async fn a_new_session_ends_the_old_one(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut old = bench.session().await;
    let message = bench.started(&Plan::once(), &mut old).await;
    let mut new = Client::of(old.executor);
    let opened = new.opened(2);
    bench.send(&opened).await;
    assert_eq!(bench.state(message.job).await, JobState::Ended(EndState::Lost));
    assert!(bench.send(&old.beat(&[message.attempt])).await.dead);
    let ledger = bench.place.ledger(POOL).await;
    let live: Vec<_> = ledger
        .live_sessions_of(old.executor)
        .map(|session| session.session)
        .collect();
    assert_eq!(live, [new.session]);
    let ended = ledger.session(old.session).map(|session| session.state);
    assert_eq!(ended, Some(SessionState::Ended(SessionEnd::SucceededByAnother)));
    let kinds: Vec<_> = bench
        .events(AuditFilter::default())
        .await
        .into_iter()
        .map(|event| event.kind)
        .collect();
    assert_eq!(
        kinds[4..],
        ["attempt_lost", "job_ended", "session_ended", "session_opened"]
    );
    assert!(bench.send(&old.finish(message.attempt, success())).await.dead);
    assert_eq!(bench.state(message.job).await, JobState::Ended(EndState::Lost));
}

/// A session that no longer names an attempt does not run it; one that names what is not its own is told to stop.
pub async fn what_a_heartbeat_does_not_name_is_lost(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let kept = bench.started(&Plan::once(), &mut client).await;
    let gone = bench.started(&Plan::once(), &mut client).await;
    let reply = bench.send(&client.beat(&[kept.attempt])).await;
    assert_eq!(reply.stops, []);
    assert_eq!(bench.state(kept.job).await, JobState::Started);
    assert_eq!(bench.state(gone.job).await, JobState::Ended(EndState::Lost));
    let reply = bench.send(&client.beat(&[kept.attempt, gone.attempt])).await;
    let stops: Vec<_> = reply.stops.iter().map(|stop| (stop.attempt, stop.why)).collect();
    assert_eq!(stops, [(gone.attempt, StopReason::NotYours)]);
}

/// Each pool has its own queue, and its own ticks.
pub async fn pools_are_judged_apart(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let mut here = bench.session().await;
    let message = bench.started(&Plan::once(), &mut here).await;
    let mut there = Client::new();
    let opened = [Inbound::Batch(Box::new(there.opened_in("gpu", 1)))];
    bench
        .store
        .process("gpu", &opened, &bench.context())
        .await
        .expect("processing works");
    bench.pass(bench.timing.lease);
    let context = bench.context();
    let tick = bench
        .store
        .next_tick("gpu", &context)
        .await
        .expect("a tick is made");
    let judged: Vec<_> = tick.judged.iter().map(|judged| judged.session).collect();
    assert_eq!(judged, [there.session]);
    let inbound = [Inbound::Tick(tick)];
    bench
        .store
        .process("gpu", &inbound, &context)
        .await
        .expect("processing works");
    assert_eq!(bench.state(message.job).await, JobState::Started);
    bench.tick().await;
    assert_eq!(bench.state(message.job).await, JobState::Ended(EndState::Lost));
}
