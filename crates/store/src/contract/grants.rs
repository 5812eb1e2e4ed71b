//! Who may start an attempt.

use std::sync::Arc;

use mayfly_core::{id::AttemptId, state::JobState};
use mayfly_dispatch::message::{DenyReason, Inbound, SessionEvent, Verdict};

use super::{
    Place,
    bench::{Bench, Client, POOL, Plan, dropped_after, success, verdict},
};

/// The second is told that it is a duplicate, and one start is on record.
pub async fn of_two_sessions_that_ask_one_is_granted(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let (mut one, mut other) = (bench.session().await, bench.session().await);
    let message = bench.dispatched(&Plan::once()).await;
    assert_eq!(verdict(&bench.send(&one.ask(&message)).await), Verdict::Grant);
    let denied = verdict(&bench.send(&other.ask(&message)).await);
    assert_eq!(denied, Verdict::Deny(DenyReason::Duplicate));
    let job = bench.job(message.job).await;
    assert_eq!((job.job.state, job.job.attempts), (JobState::Started, 1));
    let attempt = &job.attempts[0];
    assert_eq!((attempt.id, attempt.number), (message.attempt, 1));
    assert_eq!(
        (attempt.session, attempt.executor),
        (Some(one.session), Some(one.executor))
    );
    assert_eq!(attempt.started_at, Some(bench.date()));
    let kinds = bench.kinds(message.job).await;
    assert_eq!(kinds, ["job_submitted", "attempt_dispatched", "run_started"]);
}

/// Also where they ask at the same time, by way of two processes.
pub async fn of_two_sessions_that_ask_at_once_by_two_handles_one_is_granted(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let second = bench.place.open().await;
    let (mut one, mut other) = (bench.session().await, bench.session().await);
    for round in 0..50 {
        let message = bench.dispatched(&Plan::once()).await;
        let asks = [one.ask(&message), other.ask(&message)].map(|batch| [Inbound::Batch(Box::new(batch))]);
        let context = bench.context();
        let (first, second) = tokio::join!(
            bench.store.process(POOL, &asks[0], &context),
            second.process(POOL, &asks[1], &context)
        );
        let verdicts = [first, second].map(|replies| {
            let reply = replies.expect("processing works").remove(0);
            verdict(&reply.expect("a batch has a reply"))
        });
        let grants = verdicts
            .iter()
            .filter(|verdict| **verdict == Verdict::Grant)
            .count();
        assert_eq!(grants, 1, "round {round}: {verdicts:?}");
        assert!(verdicts.contains(&Verdict::Deny(DenyReason::Duplicate)));
        let holder = if verdicts[0] == Verdict::Grant {
            &one
        } else {
            &other
        };
        let session = bench.job(message.job).await.attempts[0].session;
        assert_eq!(session, Some(holder.session));
        let starts = bench.kinds(message.job).await;
        assert_eq!(starts.iter().filter(|kind| *kind == "run_started").count(), 1);
    }
}

/// It may ask as often as it wants to.
pub async fn the_same_session_gets_the_same_answer(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let message = bench.started(&Plan::once(), &mut client).await;
    for _ in 0..3 {
        let ask = client.ask(&message);
        let reply = bench.send(&ask).await;
        assert_eq!(verdict(&reply), Verdict::Grant);
        assert_eq!(reply.answers[0].ask, ask.first, "the answer names the ask");
    }
    let kinds = bench.kinds(message.job).await;
    assert_eq!(kinds, ["job_submitted", "attempt_dispatched", "run_started"]);
}

/// Every kind of batch, delivered again after each other one.
pub async fn a_batch_that_is_delivered_again_changes_nothing(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = Client::new();
    let opened = client.opened(4);
    bench.send(&opened).await;
    let message = bench.dispatched(&Plan::once()).await;
    let mut sent = vec![opened];
    let next = [
        client.ask(&message),
        client.finish(message.attempt, success()),
        client.finish(message.attempt, success()),
        client.batch(vec![SessionEvent::Closed]),
    ];
    for batch in next {
        let receipt = bench.send(&batch).await.processed;
        assert_eq!(receipt, batch.last());
        sent.push(batch);
        let before = bench.everything().await;
        for old in &sent {
            let reply = bench.send(old).await;
            assert_eq!((reply.processed, reply.gap), (receipt, false));
            assert_eq!(reply.answers, [], "an ask that is delivered again was answered");
        }
        let all: Vec<_> = sent
            .iter()
            .map(|batch| Inbound::Batch(Box::new(batch.clone())))
            .collect();
        let replies = bench.store.process(POOL, &all, &bench.context()).await;
        assert_eq!(replies.expect("processing works").len(), all.len());
        assert_eq!(bench.everything().await, before);
    }
}

/// A heartbeat behind it renews the lease, and that is all.
pub async fn nothing_behind_a_gap_counts_until_it_is_filled(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let first = bench.started(&Plan::once(), &mut client).await;
    let second = bench.dispatched(&Plan::once()).await;
    let lost = client.ask(&second);
    let behind = client.finish(first.attempt, success());
    let before = bench.everything().await;
    let reply = bench.send(&behind).await;
    assert!(reply.gap);
    assert_eq!(reply.processed + 1, lost.first);
    assert_eq!(bench.everything().await, before);

    let lease = bench
        .place
        .ledger(POOL)
        .await
        .session(client.session)
        .map(|session| session.lease_end);
    bench.pass(std::time::Duration::from_secs(5));
    let beat = client.beat(&[]);
    assert!(bench.send(&beat).await.gap);
    let ledger = bench.place.ledger(POOL).await;
    let moved = ledger.session(client.session).map(|session| session.lease_end);
    assert!(moved > lease, "its lease is renewed");
    assert_eq!(
        ledger.held_by(client.session).count(),
        1,
        "what it does not name is not lost"
    );

    assert_eq!(verdict(&bench.send(&lost).await), Verdict::Grant);
    let reply = bench.send(&behind).await;
    assert_eq!((reply.gap, reply.processed), (false, behind.last()));
    assert!(matches!(bench.state(first.job).await, JobState::Ended(_)));
    assert_eq!(bench.state(second.job).await, JobState::Started);
}

/// Denied for a wrong token, for what there is none of, and for what is over.
pub async fn an_ask_without_a_right_to_it_is_denied(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let message = bench.dispatched(&Plan::once()).await;
    let mut forged = message.clone();
    forged.token = bench.key.token(AttemptId::new());
    let mut unknown = message.clone();
    unknown.attempt = AttemptId::new();
    unknown.token = bench.key.token(unknown.attempt);
    let before = bench.events(Default::default()).await;
    for (ask, why) in [(&forged, DenyReason::Token), (&unknown, DenyReason::Unknown)] {
        let denied = verdict(&bench.send(&client.ask(ask)).await);
        assert_eq!(denied, Verdict::Deny(why));
    }
    assert_eq!(bench.state(message.job).await, JobState::Dispatched);
    assert_eq!(bench.events(Default::default()).await, before);
    bench.send(&client.ask(&message)).await;
    bench.send(&client.finish(message.attempt, success())).await;
    let late = verdict(&bench.send(&client.ask(&message)).await);
    assert_eq!(late, Verdict::Deny(DenyReason::Superseded));
}

/// Its events count as processed, so that the session is not held up by it.
pub async fn a_quarantined_batch_has_no_effect_and_what_follows_has(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let message = bench.started(&Plan::once(), &mut client).await;
    let bad = client.batch(vec![SessionEvent::Closed]);
    bench
        .store
        .quarantine(POOL, &bad, &bench.context())
        .await
        .expect("noting works");
    assert_eq!(bench.state(message.job).await, JobState::Started);
    let before = bench.everything().await;
    bench
        .store
        .quarantine(POOL, &bad, &bench.context())
        .await
        .expect("noting works");
    let reply = bench.send(&bad).await;
    assert_eq!((reply.processed, reply.dead), (bad.last(), false));
    assert_eq!(bench.everything().await, before);
    bench.send(&client.finish(message.attempt, success())).await;
    assert!(matches!(bench.state(message.job).await, JobState::Ended(_)));
}

/// A caller that gives up, at whatever point, leaves all of its transaction or nothing, and the next one is served.
pub async fn a_call_that_is_dropped_halfway_leaves_nothing_behind(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let (mut finished, mut dropped) = (0, 0);
    for polls in 0..60 {
        let message = bench.dispatched(&Plan::once()).await;
        let ask = client.ask(&message);
        let done = dropped_after(polls, bench.try_send(&ask)).await;
        if done.is_some_and(|reply| reply.is_ok()) {
            finished += 1;
        } else {
            dropped += 1;
        }
        let ledger = bench.place.ledger(POOL).await;
        let held = ledger
            .held_by(client.session)
            .any(|held| held.attempt == message.attempt);
        let processed = ledger.session(client.session).map(|session| session.processed);
        let recorded = bench.kinds(message.job).await.contains(&"run_started".to_owned());
        assert_eq!(held, recorded, "dropped after {polls} polls");
        assert_eq!(held, processed == Some(ask.last()), "dropped after {polls} polls");
        assert_eq!(bench.send(&ask).await.processed, ask.last());
        let again = client.ask(&message);
        assert_eq!(verdict(&bench.send(&again).await), Verdict::Grant);
        bench.send(&client.finish(message.attempt, success())).await;
    }
    assert!(
        finished > 0 && dropped > 0,
        "{finished} finished, {dropped} dropped"
    );
}
