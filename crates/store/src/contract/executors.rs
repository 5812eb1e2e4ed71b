//! Which executors there are, and which of them take jobs.

use std::sync::Arc;

use mayfly_core::{
    digest::Digest,
    id::{ExecutorId, KeyId, TenantId},
    outcome::EndState,
    self_test::{SelfTest, SelfTestFailure, SelfTestResult},
    state::JobState,
};
use mayfly_dispatch::{
    message::{ExecutorFacts, READS, SessionEvent, Verdict},
    record::{SessionEnd, SessionState},
};

use super::{
    Place,
    bench::{Bench, Client, Plan, success, verdict},
};
use crate::{
    error::StoreError,
    executors::{ExecutorRecord, ExecutorState, NewExecutor},
};

async fn enroll(bench: &Bench, name: &str) -> ExecutorId {
    let id = ExecutorId::new();
    let executor = NewExecutor {
        id,
        name: name.to_owned(),
        pool: super::bench::POOL.to_owned(),
    };
    let enrolled = bench.store.enroll_executor(executor, None, bench.date()).await;
    enrolled.expect("the executor is enrolled");
    id
}

async fn find(bench: &Bench, id: ExecutorId) -> ExecutorRecord {
    let found = bench.store.find_executor(id).await.expect("finding works");
    found.expect("the executor is there")
}

async fn cordon(bench: &Bench, id: ExecutorId, cordoned: bool) -> bool {
    let done = bench.store.cordon(id, cordoned, None, bench.date()).await;
    done.expect("cordoning works")
}

fn facts(reads: u32, images: Option<Vec<Digest>>) -> ExecutorFacts {
    ExecutorFacts {
        build: "1.2.3".to_owned(),
        reads,
        host: "a\0host".to_owned(),
        engine: "Docker 20.10".to_owned(),
        kernel: "Linux 6.1".to_owned(),
        images,
    }
}

/// The kinds of events in the log of nobody's jobs.
async fn kinds(bench: &Bench) -> Vec<String> {
    let events = bench.events(Default::default()).await;
    events.into_iter().map(|event| event.kind).collect()
}

/// By its id, by its name, and in the list, page by page.
pub async fn an_executor_is_found_as_it_was_enrolled(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let names = ["b", "a-1", "c", "a"];
    for name in names {
        let id = enroll(&bench, name).await;
        let found = find(&bench, id).await;
        assert_eq!(
            (found.id, found.name.as_str(), found.pool.as_str()),
            (id, name, super::bench::POOL)
        );
        assert_eq!(
            (found.enrolled_at, found.cordoned, &found.session),
            (bench.date(), false, &None)
        );
        assert_eq!(found.state(), ExecutorState::NeverSeen);
        let by_name = bench.store.find_executor_by_name(name).await;
        assert_eq!(by_name.expect("finding works"), Some(found));
    }
    let none = bench.store.find_executor(ExecutorId::new()).await;
    assert_eq!(none.expect("finding works"), None);
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = bench
            .store
            .list_executors(after.as_deref(), 3)
            .await
            .expect("listing works");
        let Some(last) = page.last() else { break };
        after = Some(last.name.clone());
        listed.extend(page.into_iter().map(|executor| executor.name));
    }
    assert_eq!(listed, ["a", "a-1", "b", "c"]);
    assert_eq!(kinds(&bench).await, ["executor_enrolled"; 4]);
}

/// Neither the name nor the id, and nothing is left behind.
pub async fn a_name_is_one_executors(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let first = enroll(&bench, "one").await;
    let before = bench.everything().await;
    let new = |id, name: &str| NewExecutor {
        id,
        name: name.to_owned(),
        pool: "gpu".to_owned(),
    };
    for (id, name) in [(ExecutorId::new(), "one"), (first, "two")] {
        let error = bench
            .store
            .enroll_executor(new(id, name), None, bench.date())
            .await;
        assert!(matches!(error, Err(StoreError::ExecutorExists(_))), "{error:?}");
    }
    for name in ["", "A", "a b", "-a", "a/../b", &"a".repeat(64)] {
        let error = bench
            .store
            .enroll_executor(new(ExecutorId::new(), name), None, bench.date())
            .await;
        assert!(
            matches!(error, Err(StoreError::Refused { .. })),
            "{name:?}: {error:?}"
        );
    }
    assert_eq!(bench.everything().await, before);
    assert_eq!(find(&bench, first).await.name, "one");
}

/// What its newest session has said, as it stands.
pub async fn a_session_shows_what_it_has_said_of_itself(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let id = enroll(&bench, "one").await;
    let (of_jobs, other) = (Plan::default().resolved.pin.digest, Digest::of(b"other"));
    let mut client = Client::of(id);
    let given = facts(READS, Some(vec![of_jobs]));
    let opened = client.opened_with(7, given.clone());
    bench.send(&opened).await;
    let view = find(&bench, id).await.session.expect("it has a session");
    assert_eq!((view.session, view.state), (client.session, SessionState::Live));
    assert_eq!((view.slots, view.free_slots, view.running), (7, 7, 0));
    assert_eq!((view.opened_at, view.ended_at), (bench.date(), None));
    assert_eq!(view.lease_end, bench.date() + bench.timing.lease);
    assert_eq!(view.facts, given);
    assert_eq!(find(&bench, id).await.state(), ExecutorState::Live);

    let message = bench.started(&Plan::once(), &mut client).await;
    let both = vec![of_jobs, other];
    let images = client.batch(vec![SessionEvent::Images { images: both.clone() }]);
    bench.send(&images).await;
    bench.send(&client.beat(&[message.attempt])).await;
    let view = find(&bench, id).await.session.expect("it has a session");
    assert_eq!((view.free_slots, view.running), (1, 1));
    assert_eq!(view.facts, facts(READS, Some(both)));

    bench.pass(std::time::Duration::from_secs(1));
    let closed = client.batch(vec![SessionEvent::Closed]);
    bench.send(&closed).await;
    let gone = find(&bench, id).await;
    assert_eq!(gone.state(), ExecutorState::Gone);
    let view = gone.session.expect("it has had a session");
    assert_eq!(
        (view.state, view.running),
        (SessionState::Ended(SessionEnd::Closed), 0)
    );
    assert_eq!(view.ended_at, Some(bench.date()));
    let mut next = Client::of(id);
    let opened = next.opened_with(1, facts(1, None));
    bench.send(&opened).await;
    let view = find(&bench, id).await.session.expect("it has a session");
    assert_eq!((view.session, view.facts.images), (next.session, None));
}

/// Its slots are no room, what it has goes on and counts, and its heartbeat changes nothing of that.
pub async fn a_cordoned_executor_gets_nothing_new_and_keeps_what_it_has(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let (one, other) = (enroll(&bench, "one").await, enroll(&bench, "other").await);
    let mut client = Client::of(one);
    let opened = client.opened(100);
    bench.send(&opened).await;
    let message = bench.started(&Plan::once(), &mut client).await;
    assert!(cordon(&bench, one, true).await);
    assert_eq!(find(&bench, one).await.state(), ExecutorState::Cordoned);
    for _ in 0..20 {
        bench.submit(&Plan::once()).await;
    }
    let ahead = bench.dispatch().await;
    assert_eq!(ahead.len(), 2, "as where there is no executor");
    let mut second = Client::of(other);
    let opened = second.opened(3);
    bench.send(&opened).await;
    assert_eq!(
        bench.dispatch().await.len(),
        3,
        "what the cordoned one runs is no load of the other"
    );
    assert_eq!(find(&bench, other).await.state(), ExecutorState::Live);

    bench.pass(std::time::Duration::from_secs(5));
    bench.send(&client.beat(&[message.attempt])).await;
    let view = find(&bench, one).await;
    assert!(view.cordoned);
    let lease_end = view.session.expect("it has a session").lease_end;
    assert_eq!(lease_end, bench.date() + bench.timing.lease);
    assert!(bench.dispatch().await.is_empty());
    // It had taken that before it heard of it.
    assert_eq!(verdict(&bench.send(&client.ask(&ahead[0])).await), Verdict::Grant);
    bench.send(&client.finish(message.attempt, success())).await;
    assert_eq!(
        bench.state(message.job).await,
        JobState::Ended(EndState::Succeeded)
    );

    assert!(cordon(&bench, one, false).await);
    assert_eq!(
        bench.dispatch().await.len(),
        15,
        "its slots are room again: all that is left"
    );
}

/// A self-test that failed, or one that passed.
fn self_test(bench: &Bench, result: SelfTestResult) -> SelfTest {
    let failure = SelfTestFailure {
        runtime: "runc".to_owned(),
        probe: "memory".to_owned(),
        why: "it got\0 more than its limit".to_owned(),
    };
    SelfTest {
        at: bench.date(),
        result,
        runtimes: vec!["runc".to_owned()],
        programs: 20,
        failures: match result {
            SelfTestResult::Failed => vec![failure],
            SelfTestResult::Passed | SelfTestResult::LeftOut => Vec::new(),
        },
        accepted: vec!["engine.lsm".to_owned()],
    }
    .bounded()
}

/// Each with what it found in the log of the fleet; an executor that has failed is no room for jobs until one has passed.
pub async fn a_self_test_is_on_record_and_one_that_failed_takes_the_slots_away(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let id = enroll(&bench, "one").await;
    let mut client = Client::of(id);
    let opened = client.opened(100);
    bench.send(&opened).await;
    assert_eq!(
        find(&bench, id)
            .await
            .session
            .expect("it has a session")
            .self_test,
        None
    );
    let held = bench.started(&Plan::once(), &mut client).await;
    let failed = self_test(&bench, SelfTestResult::Failed);
    let told = client.batch(vec![SessionEvent::SelfTested(Box::new(failed.clone()))]);
    bench.send(&told).await;
    // A batch that is delivered again is no further test.
    bench.send(&told).await;
    let view = find(&bench, id).await;
    assert_eq!(view.state(), ExecutorState::Unfit);
    assert_eq!(
        view.session.expect("it has a session").self_test,
        Some(failed.clone())
    );
    let job = bench.submit(&Plan::once()).await;
    for _ in 0..19 {
        bench.submit(&Plan::once()).await;
    }
    assert_eq!(bench.dispatch().await.len(), 2, "as where there is no executor");
    let waiting = bench.store.waiting_for(TenantId::LOCAL, job, bench.date()).await;
    let waiting = waiting.expect("looking works").expect("it waits");
    assert!(
        waiting.sentence().contains("have failed their self-test (1)"),
        "{}",
        waiting.sentence()
    );
    bench.send(&client.finish(held.attempt, success())).await;
    assert_eq!(
        bench.state(held.job).await,
        JobState::Ended(EndState::Succeeded),
        "what it has goes on"
    );

    let passed = self_test(&bench, SelfTestResult::Passed);
    let told = client.batch(vec![SessionEvent::SelfTested(Box::new(passed.clone()))]);
    bench.send(&told).await;
    let view = find(&bench, id).await;
    assert_eq!(view.state(), ExecutorState::Live);
    assert_eq!(view.session.expect("it has a session").self_test, Some(passed));
    assert_eq!(
        bench.dispatch().await.len(),
        18,
        "its slots are room again: all that is left"
    );
    let events = bench.events(Default::default()).await;
    let tests: Vec<serde_json::Value> = events
        .iter()
        .filter(|event| event.kind == "self_tested")
        .map(|event| serde_json::from_slice(&event.body).expect("a body is JSON"))
        .collect();
    assert_eq!(tests.len(), 2);
    assert_eq!(tests[0]["tenant"], TenantId::LOCAL.to_string());
    assert_eq!(tests[0]["fact"]["executor"], id.to_string());
    assert_eq!(tests[0]["fact"]["session"], client.session.to_string());
    assert_eq!(
        serde_json::from_value::<SelfTest>(tests[0]["fact"]["test"].clone()).expect("it reads back"),
        failed
    );
    assert_eq!(tests[1]["fact"]["test"]["result"], "passed");
    // The next session stands on what it says itself.
    bench.pass(std::time::Duration::from_secs(1));
    let mut next = Client::of(id);
    let opened = next.opened(1);
    bench.send(&opened).await;
    assert_eq!(
        find(&bench, id)
            .await
            .session
            .expect("it has a session")
            .self_test,
        None
    );
}

/// With each reply, also where it begins anew; one that can't read that is not told.
pub async fn a_session_is_told_that_it_is_cordoned(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let id = enroll(&bench, "one").await;
    cordon(&bench, id, true).await;
    for (reads, told) in [(READS, true), (1, false)] {
        let mut client = Client::of(id);
        let opened = client.opened_with(1, facts(reads, None));
        assert_eq!(bench.send(&opened).await.cordoned, told, "reads {reads}");
        assert_eq!(bench.send(&client.beat(&[])).await.cordoned, told);
    }
    let mut client = Client::of(id);
    let opened = client.opened_with(1, facts(READS, None));
    assert!(bench.send(&opened).await.cordoned);
    cordon(&bench, id, false).await;
    assert!(!bench.send(&client.beat(&[])).await.cordoned);
    let mut stranger = Client::new();
    let opened = stranger.opened_with(1, facts(READS, None));
    assert!(
        !bench.send(&opened).await.cordoned,
        "it is not enrolled, and takes part"
    );
}

/// By whom, and once for each change.
pub async fn cordoning_is_on_record_where_it_changes_anything(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let id = enroll(&bench, "one").await;
    let mut commits = bench.store.commits();
    assert!(!cordon(&bench, id, false).await);
    assert!(!commits.has_changed().expect("the store is there"));
    let by = KeyId::new();
    for (cordoned, changes) in [(true, true), (true, false), (false, true), (false, false)] {
        let done = bench.store.cordon(id, cordoned, Some(by), bench.date()).await;
        assert_eq!(done.expect("cordoning works"), changes);
        assert_eq!(commits.has_changed().expect("the store is there"), changes);
        commits.borrow_and_update();
    }
    assert_eq!(
        kinds(&bench).await,
        ["executor_enrolled", "executor_cordoned", "executor_uncordoned"]
    );
    let events = bench.events(Default::default()).await;
    let body: serde_json::Value = serde_json::from_slice(&events[1].body).expect("a body is JSON");
    assert_eq!(body["fact"]["by"], by.to_string());
    assert_eq!(body["fact"]["executor"], id.to_string());
    assert_eq!(body["tenant"], TenantId::LOCAL.to_string());
    let unknown = ExecutorId::new();
    let error = bench.store.cordon(unknown, true, None, bench.date()).await;
    assert!(matches!(error, Err(StoreError::NoSuchExecutor(id)) if id == unknown));
}
