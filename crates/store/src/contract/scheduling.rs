//! Which attempts are made, when they are published again, and what waits too long.

use std::{sync::Arc, time::Duration};

use mayfly_core::{
    id::{AttemptId, JobId},
    job::InputFile,
    outcome::{Cause, EndState},
    state::JobState,
};
use mayfly_dispatch::{
    message::{DenyReason, DispatchMessage, Inbound, Verdict},
    scheduler::{LowSince, MAX_DEAD_LETTERS},
};

use super::{
    Place,
    bench::{Bench, Client, POOL, Plan, success, verdict},
};

const SECOND: Duration = Duration::from_secs(1);

async fn confirm(bench: &Bench, message: &DispatchMessage, publication: u32) {
    let context = bench.context();
    let confirmed = [(message.attempt, publication)];
    let noted = bench.store.publications_confirmed(&confirmed, &context);
    noted.await.expect("noting works");
}

async fn again(bench: &Bench, ready: u64, low: &mut LowSince) -> Vec<DispatchMessage> {
    let taken = bench
        .store
        .publish_again(POOL, ready, low, &bench.context())
        .await;
    taken.expect("publishing works")
}

/// Free slots, and two ahead; a start takes a slot, an end gives it back, and a session that ends takes its own away.
pub async fn as_many_are_dispatched_as_there_is_room_for(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    for _ in 0..20 {
        bench.submit(&Plan::once()).await;
    }
    let first = bench.dispatch().await;
    assert_eq!(first.len(), 2, "with no executor at all, two wait for the first");
    assert!(bench.dispatch().await.is_empty());
    let mut client = Client::new();
    let opened = client.opened(3);
    bench.send(&opened).await;
    assert_eq!(bench.dispatch().await.len(), 3);
    assert!(bench.dispatch().await.is_empty());
    bench.send(&client.ask(&first[0])).await;
    assert!(
        bench.dispatch().await.is_empty(),
        "it waits no more, and has a slot"
    );
    bench.send(&client.finish(first[0].attempt, success())).await;
    assert_eq!(bench.dispatch().await.len(), 1);
    let mut elsewhere = Client::new();
    let opened = [Inbound::Batch(Box::new(elsewhere.opened_in("gpu", 9)))];
    bench
        .store
        .process("gpu", &opened, &bench.context())
        .await
        .expect("processing works");
    assert!(
        bench.dispatch().await.is_empty(),
        "another pool's slots are no room"
    );
    let mut next = Client::of(client.executor);
    let opened = next.opened(1);
    bench.send(&opened).await;
    assert!(
        bench.dispatch().await.is_empty(),
        "there are fewer slots than before"
    );
}

/// Where much ends in ten seconds more is dispatched ahead, so that no slot waits; and no longer once it is over.
pub async fn a_pool_that_is_quick_has_more_ahead(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let mut client = Client::new();
    let opened = client.opened(300);
    bench.send(&opened).await;
    for _ in 0..201 {
        bench.submit(&Plan::once()).await;
    }
    for message in bench.dispatch().await {
        bench.send(&client.ask(&message)).await;
        bench.send(&client.finish(message.attempt, success())).await;
    }
    let mut idle = Client::of(client.executor);
    let opened = idle.opened(1);
    bench.send(&opened).await;
    for _ in 0..10 {
        bench.submit(&Plan::once()).await;
    }
    bench.pass(10 * SECOND - Duration::from_micros(1));
    let messages = bench.dispatch().await;
    assert_eq!(messages.len(), 4, "one slot, and three ahead of it");
    bench.send(&idle.ask(&messages[0])).await;
    bench.pass(Duration::from_micros(1));
    assert!(bench.dispatch().await.is_empty());
    bench.send(&idle.ask(&messages[1])).await;
    assert!(
        bench.dispatch().await.is_empty(),
        "two wait, and there is no free slot"
    );
}

/// Among a tenant's own jobs.
pub async fn the_higher_priority_goes_first_and_then_the_older(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut jobs: Vec<(i16, JobId)> = Vec::new();
    for priority in [0, -5, 7, 0, i16::MAX, i16::MIN, 7] {
        let plan = Plan {
            priority,
            ..Plan::once()
        };
        jobs.push((priority, bench.submit(&plan).await));
    }
    bench.session().await;
    let messages = bench.dispatch().await;
    jobs.sort_by_key(|(priority, job)| (-i32::from(*priority), *job));
    let order: Vec<_> = messages.iter().map(|message| message.job).collect();
    assert_eq!(order, jobs.iter().map(|(_, job)| *job).collect::<Vec<_>>());
    for message in &messages {
        assert_eq!((message.number, message.publication), (1, 1));
        assert!(bench.key.verify(message.attempt, &message.token));
        assert_eq!(
            message.resolved,
            Plan {
                retry: Plan::once().retry,
                ..Plan::once()
            }
            .job(bench.date())
            .resolved
            .as_ref()
            .clone()
        );
    }
}

/// A job that waits for its next attempt does not hold up others.
pub async fn nothing_is_dispatched_before_its_time(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let urgent = Plan {
        priority: 9,
        ..Plan::default()
    };
    let lost = bench.started(&urgent, &mut client).await;
    bench.send(&client.beat(&[])).await;
    assert_eq!(bench.state(lost.job).await, JobState::Queued);
    let other = bench.dispatched(&Plan::once()).await;
    assert_ne!(other.job, lost.job);
    let due = bench
        .store
        .next_due(POOL, bench.now)
        .await
        .expect("looking works");
    let due = due.expect("it is due some time");
    bench.pass(due.since(bench.now) - Duration::from_micros(1));
    assert!(bench.dispatch().await.is_empty());
    bench.pass(Duration::from_micros(1));
    assert_eq!(bench.dispatch().await.remove(0).job, lost.job);
}

/// Others' are for others.
pub async fn a_pool_gets_its_own_jobs(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let elsewhere = Plan {
        pool: "gpu".to_owned(),
        ..Plan::once()
    };
    let there = bench.submit(&elsewhere).await;
    let here = bench.dispatched(&Plan::once()).await;
    let messages = bench
        .store
        .dispatch("gpu", &bench.context())
        .await
        .expect("dispatching works");
    assert_eq!(
        messages.iter().map(|message| message.job).collect::<Vec<_>>(),
        [there]
    );
    assert_ne!(here.job, there);
}

/// The rest goes out with the next call; an attempt is not taken and then forgotten.
pub async fn a_call_makes_no_more_messages_than_memory_allows(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    bench.session().await;
    let mut plan = Plan::once();
    plan.resolved.files.push(InputFile {
        path: "data".to_owned(),
        content: vec![b'x'; 12 << 20].into(),
        executable: false,
        mode: None,
    });
    for _ in 0..8 {
        bench.submit(&plan).await;
    }
    let mut seen = Vec::new();
    for expected in [6, 2, 0] {
        let messages = bench.dispatch().await;
        assert_eq!(messages.len(), expected);
        seen.extend(messages.iter().map(|message| message.job));
    }
    seen.dedup();
    assert_eq!(seen.len(), 8);
    bench.pass(bench.timing.publish_again);
    let mut low = LowSince::default();
    for expected in [6, 2, 0] {
        assert_eq!(again(&bench, 8, &mut low).await.len(), expected);
    }
}

/// The same attempt, so that it still starts at most once.
pub async fn an_unconfirmed_publication_is_taken_again_with_the_next_number(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let first = bench.dispatched(&Plan::once()).await;
    let mut low = LowSince::default();
    assert!(
        again(&bench, 1, &mut low).await.is_empty(),
        "its confirm may still come"
    );
    for publication in 2..5 {
        bench.pass(bench.timing.publish_again);
        let [message] = <[_; 1]>::try_from(again(&bench, 1, &mut low).await).expect("one is due");
        let expected = DispatchMessage {
            publication,
            ..first.clone()
        };
        assert_eq!(message, expected);
        assert!(again(&bench, 1, &mut low).await.is_empty());
    }
    confirm(&bench, &first, 4).await;
    bench.pass(bench.timing.publish_again);
    assert!(again(&bench, 1, &mut low).await.is_empty());
    let kinds = bench.kinds(first.job).await;
    assert_eq!(kinds, ["job_submitted", "attempt_dispatched"]);
}

/// A confirmed one too, where the queue has fewer messages than there are attempts that wait; and no started one.
pub async fn a_lost_publication_is_taken_again_once_the_queue_is_low_for_long(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let started = bench.started(&Plan::once(), &mut client).await;
    let (one, two) = (
        bench.dispatched(&Plan::once()).await,
        bench.dispatched(&Plan::once()).await,
    );
    for message in [&started, &one, &two] {
        confirm(&bench, message, 1).await;
    }
    let mut low = LowSince::default();
    assert!(again(&bench, 1, &mut low).await.is_empty());
    bench.pass(bench.timing.publish_again - SECOND);
    assert!(
        again(&bench, 1, &mut low).await.is_empty(),
        "it has not been low for long"
    );
    bench.pass(SECOND);
    let messages = again(&bench, 1, &mut low).await;
    let taken: Vec<_> = messages
        .iter()
        .map(|message| (message.attempt, message.publication))
        .collect();
    assert_eq!(
        taken,
        [(one.attempt, 2)],
        "one is missing, and the oldest is taken for it"
    );
}

/// Those that count change what is published again, and whatever stands beside them; and they are one commit.
pub async fn confirms_are_noted_together(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let over = bench.started(&Plan::once(), &mut client).await;
    bench.send(&client.finish(over.attempt, success())).await;
    let started = bench.started(&Plan::once(), &mut client).await;
    let (one, two, three) = (
        bench.dispatched(&Plan::once()).await,
        bench.dispatched(&Plan::once()).await,
        bench.dispatched(&Plan::once()).await,
    );
    let mut commits = bench.store.commits();
    commits.borrow_and_update();
    let before = *commits.borrow();
    let confirmed = [
        (over.attempt, 1),
        (AttemptId::new(), 1),
        (one.attempt, 1),
        (started.attempt, 1),
        (two.attempt, 2),
        (three.attempt, 1),
        (one.attempt, 1),
    ];
    let context = bench.context();
    let noted = bench.store.publications_confirmed(&confirmed, &context).await;
    noted.expect("noting works");
    assert_eq!(*commits.borrow_and_update(), before + 1, "it is one transaction");
    bench.pass(bench.timing.publish_again);
    let mut low = LowSince::default();
    let taken: Vec<_> = again(&bench, 3, &mut low)
        .await
        .iter()
        .map(|message| message.attempt)
        .collect();
    assert_eq!(taken, [two.attempt], "it alone is not confirmed");
    commits.borrow_and_update();
    let none = bench
        .store
        .publications_confirmed(&confirmed[..2], &context)
        .await;
    none.expect("noting works");
    assert!(
        !commits.has_changed().expect("the store is there"),
        "what counts for nothing is no commit"
    );
}

/// The newer one may be lost.
pub async fn a_confirm_of_an_older_publication_counts_for_nothing(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let message = bench.dispatched(&Plan::once()).await;
    let mut low = LowSince::default();
    bench.pass(bench.timing.publish_again);
    assert_eq!(again(&bench, 1, &mut low).await.len(), 1);
    let before = bench.everything().await;
    confirm(&bench, &message, 1).await;
    confirm(&bench, &message, 3).await;
    assert_eq!(bench.everything().await, before);
    bench.pass(bench.timing.publish_again);
    assert_eq!(again(&bench, 1, &mut low).await.len(), 1);
}

/// The letter that is read twice, and the confirm of the dead publication that comes after it.
pub async fn a_dead_letter_counts_once_and_its_confirm_no_more(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let _client = bench.session().await;
    let message = bench.dispatched(&Plan::default()).await;
    let noted = bench
        .store
        .dead_lettered(message.attempt, 1, &bench.context())
        .await;
    noted.expect("noting works").expect("it is published at once");
    let before = bench.everything().await;
    let twice = bench
        .store
        .dead_lettered(message.attempt, 1, &bench.context())
        .await;
    assert!(twice.expect("noting works").is_none());
    confirm(&bench, &message, 1).await;
    assert_eq!(bench.everything().await, before);
    // Nobody has confirmed the second one.
    bench.pass(bench.timing.publish_again);
    let due = again(&bench, 1, &mut LowSince::default()).await;
    assert_eq!(due.iter().map(|due| due.publication).collect::<Vec<_>>(), [3]);
}

/// Four times it is published again.
pub async fn an_attempt_that_is_a_dead_letter_five_times_ends_its_job(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let message = bench.dispatched(&Plan::default()).await;
    for publication in 1..MAX_DEAD_LETTERS {
        let noted = bench
            .store
            .dead_lettered(message.attempt, publication, &bench.context())
            .await;
        let next = noted.expect("noting works").expect("it is published at once");
        let same = (next.attempt, next.publication, next.resolved == message.resolved);
        assert_eq!(same, (message.attempt, publication + 1, true));
        assert_eq!(bench.state(message.job).await, JobState::Dispatched);
    }
    let noted = bench
        .store
        .dead_lettered(message.attempt, MAX_DEAD_LETTERS, &bench.context())
        .await;
    assert!(noted.expect("noting works").is_none());
    let job = bench.job(message.job).await;
    assert_eq!(job.job.state, JobState::Ended(EndState::Error));
    assert_eq!(
        job.job.outcome.map(|outcome| outcome.cause),
        Some(Cause::Undeliverable)
    );
    let denied = verdict(&bench.send(&client.ask(&message)).await);
    assert_eq!(denied, Verdict::Deny(DenyReason::Superseded));
    let kinds = bench.kinds(message.job).await;
    assert_eq!(kinds, ["job_submitted", "attempt_dispatched", "job_ended"]);
}

/// Queued or dispatched; what has started runs on, and what is tried again is not dropped.
pub async fn a_job_expires_before_its_first_start_alone(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let soon = Plan {
        expires_after: Some(60 * SECOND),
        ..Plan::default()
    };
    let started = bench.started(&soon, &mut client).await;
    let retried = bench.started(&soon, &mut client).await;
    bench.send(&client.beat(&[started.attempt])).await;
    let dispatched = bench.dispatched(&soon).await;
    let queued = bench.submit(&soon).await;
    let patient = bench.submit(&Plan::default()).await;
    let expire = async |bench: &Bench| {
        bench
            .store
            .expire(POOL, &bench.context())
            .await
            .expect("expiring works")
    };
    bench.pass(60 * SECOND - Duration::from_micros(1));
    expire(&bench).await;
    assert_eq!(bench.state(queued).await, JobState::Queued);
    bench.pass(Duration::from_micros(1));
    bench
        .store
        .expire("gpu", &bench.context())
        .await
        .expect("expiring works");
    assert_eq!(
        bench.state(queued).await,
        JobState::Queued,
        "another pool's are not looked at"
    );
    expire(&bench).await;
    for job in [queued, dispatched.job] {
        let job = bench.job(job).await.job;
        assert_eq!(job.state, JobState::Ended(EndState::Expired));
        assert_eq!(
            job.outcome.map(|outcome| outcome.cause),
            Some(Cause::WaitedTooLong)
        );
    }
    assert_eq!(bench.state(started.job).await, JobState::Started);
    assert_eq!(bench.state(retried.job).await, JobState::Queued);
    assert_eq!(bench.state(patient).await, JobState::Queued);
    let denied = verdict(&bench.send(&client.ask(&dispatched)).await);
    assert_eq!(denied, Verdict::Deny(DenyReason::Superseded));
}

/// However many of them there are.
pub async fn a_job_that_has_started_does_not_stand_in_the_way_of_what_expires(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let soon = |seconds: u32| Plan {
        expires_after: Some(seconds * SECOND),
        ..Plan::default()
    };
    let mut client = Client::new();
    let opened = client.opened(1000);
    bench.send(&opened).await;
    for _ in 0..300 {
        bench.submit(&soon(1)).await;
    }
    let mut messages = bench.dispatch().await;
    messages.extend(bench.dispatch().await);
    assert_eq!(messages.len(), 300);
    for asks in messages.chunks(64) {
        let events = asks
            .iter()
            .map(|message| client.ask(message).events.remove(0))
            .collect();
        client.next -= asks.len() as u64;
        let batch = client.batch(events);
        bench.send(&batch).await;
    }
    bench.send(&client.beat(&[])).await;
    let waits = bench.submit(&soon(2)).await;
    bench.pass(3 * SECOND);
    bench
        .store
        .expire(POOL, &bench.context())
        .await
        .expect("expiring works");
    assert_eq!(bench.state(waits).await, JobState::Ended(EndState::Expired));
    assert_eq!(bench.state(messages[0].job).await, JobState::Queued);
}

/// The nearest moment of all that waits, and none of what does not.
pub async fn what_is_due_next_is_known(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let due = async |bench: &Bench| {
        bench
            .store
            .next_due(POOL, bench.now)
            .await
            .expect("looking works")
    };
    assert_eq!(due(&bench).await, None);
    bench.submit(&Plan::once()).await;
    assert_eq!(due(&bench).await, None, "it is ready now");
    let late = Plan {
        expires_after: Some(90 * SECOND),
        ..Plan::default()
    };
    bench.submit(&late).await;
    let early = Plan {
        expires_after: Some(30 * SECOND),
        ..Plan::default()
    };
    let mut client = bench.session().await;
    bench.submit(&early).await;
    let (begin, messages) = (bench.now, bench.dispatch().await);
    assert_eq!(
        due(&bench).await,
        Some(begin.after(30 * SECOND)),
        "also of one that is dispatched"
    );
    bench.send(&client.ask(&messages[2])).await;
    assert_eq!(
        due(&bench).await,
        Some(begin.after(90 * SECOND)),
        "not of one that has started"
    );
    bench.pass(60 * SECOND);
    bench.send(&client.beat(&[])).await;
    let ready_at = due(&bench).await.expect("it is tried again some time");
    assert!(ready_at > bench.now && ready_at < begin.after(90 * SECOND));
    bench.now = ready_at;
    assert_eq!(due(&bench).await, Some(begin.after(90 * SECOND)));
    assert_eq!(
        bench.store.next_due("gpu", begin).await.expect("looking works"),
        None
    );
}
