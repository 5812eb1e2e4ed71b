//! Whose job is next, and why a job waits.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use mayfly_core::{
    digest::Digest,
    id::{AttemptId, ExecutorId, JobId, TenantId},
    job::RetryPolicy,
    outcome::{Cause, EndState},
};
use mayfly_dispatch::{
    message::{DispatchMessage, ExecutorFacts, READS, SessionEvent},
    waiting::{Place as Standing, Waiting, WaitingReason},
};

use super::{
    Place,
    bench::{Bench, Client, POOL, Plan, report, success},
    jobs::tenant,
};
use crate::{
    accounts::{NewTenant, Quotas},
    error::StoreError,
    executors::NewExecutor,
    records::NewJob,
    records::Submitted,
};

const SECOND: Duration = Duration::from_secs(1);

async fn fill(bench: &Bench, whose: TenantId, jobs: usize) {
    let plan = Plan {
        tenant: whose,
        ..Plan::once()
    };
    let jobs = std::iter::repeat_with(|| plan.job(bench.date()))
        .take(jobs)
        .collect();
    bench.submit_many(jobs).await;
}

fn count(messages: &[DispatchMessage], whose: TenantId) -> usize {
    messages.iter().filter(|message| message.tenant == whose).count()
}

/// Its next job has the next slot, whatever another tenant has queued.
pub async fn a_tenant_with_many_jobs_holds_up_nobody(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let (greedy, modest) = (tenant(1), tenant(2));
    let mut client = Client::new();
    let opened = client.opened(4);
    bench.send(&opened).await;
    fill(&bench, greedy, 500).await;
    let mut running: Vec<AttemptId> = Vec::new();
    for message in bench.dispatch().await {
        if running.len() < 4 {
            bench.send(&client.ask(&message)).await;
            running.push(message.attempt);
        }
    }
    for _ in 0..3 {
        bench.pass(SECOND);
        bench.send(&client.finish(running.remove(0), success())).await;
        fill(&bench, modest, 1).await;
        let next = bench.dispatch().await;
        assert_eq!(count(&next, modest), 1, "{next:?}");
        for message in next.iter().filter(|message| message.tenant == modest) {
            bench.send(&client.ask(message)).await;
            bench.send(&client.finish(message.attempt, success())).await;
        }
        let mut next = bench.dispatch().await;
        let message = next.pop().expect("the greedy one has more");
        assert_eq!(message.tenant, greedy);
        bench.send(&client.ask(&message)).await;
        running.push(message.attempt);
    }
}

/// Slot time over many runs, within 20 %, also where another process goes on in the middle of it.
pub async fn slots_go_by_weight(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let weights = [(1, 3), (2, 1)].map(|(number, weight)| (tenant(number), weight));
    for (id, weight) in weights {
        let new = NewTenant {
            id,
            name: format!("team-{weight}"),
            weight,
            quotas: Quotas::default(),
        };
        let made = bench.store.create_tenant(new, None, bench.date()).await;
        made.expect("the tenant is made");
        fill(&bench, id, 400).await;
    }
    let mut client = Client::new();
    let opened = client.opened(8);
    bench.send(&opened).await;
    let mut queue: Vec<DispatchMessage> = Vec::new();
    let mut running: Vec<DispatchMessage> = Vec::new();
    let mut had = [0_u32; 2];
    for round in 0..300 {
        if round == 150 {
            bench.store = bench.place.open().await;
        }
        queue.extend(bench.dispatch().await);
        while running.len() < 8 && !queue.is_empty() {
            let message = queue.remove(0);
            bench.send(&client.ask(&message)).await;
            running.push(message);
        }
        bench.pass(SECOND);
        for (share, (whose, _)) in had.iter_mut().zip(weights) {
            *share += u32::try_from(count(&running, whose)).expect("there are 8 slots");
        }
        let over = running.remove(round % running.len());
        bench.send(&client.finish(over.attempt, success())).await;
    }
    let share = f64::from(had[0]) / f64::from(had[0] + had[1]);
    assert!((0.6..=0.9).contains(&share), "{had:?} of 3 to 1");
}

fn facts(images: &[Digest]) -> ExecutorFacts {
    ExecutorFacts {
        reads: READS,
        images: Some(images.to_vec()),
        ..ExecutorFacts::default()
    }
}

/// A job of an image.
fn of_image(bench: &Bench, image: Digest) -> NewJob {
    let mut plan = Plan::once();
    plan.resolved.pin.digest = image;
    plan.job(bench.date())
}

async fn submit(bench: &Bench, job: NewJob) -> JobId {
    let id = job.id;
    bench
        .store
        .submit(job, bench.date())
        .await
        .expect("the job is accepted");
    id
}

async fn waiting(bench: &Bench, job: JobId) -> Option<Waiting> {
    let waiting = bench.store.waiting_for(TenantId::LOCAL, job, bench.date()).await;
    waiting.expect("looking works")
}

async fn reason(bench: &Bench, job: JobId) -> Option<WaitingReason> {
    waiting(bench, job).await.map(|waiting| waiting.reason)
}

/// Of each session that takes jobs, since nobody knows which of them will; others go ahead of it meanwhile.
pub async fn a_job_waits_until_every_session_has_its_image(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let (old, new) = (Digest::of(b"old"), Digest::of(b"new"));
    let (mut one, mut other) = (Client::new(), Client::new());
    bench.send(&one.opened_with(5, facts(&[old, new]))).await;
    bench.send(&other.opened_with(5, facts(&[old]))).await;
    let waits = submit(&bench, of_image(&bench, new)).await;
    let goes = submit(&bench, of_image(&bench, old)).await;
    let jobs = |messages: Vec<DispatchMessage>| {
        messages
            .into_iter()
            .map(|message| message.job)
            .collect::<Vec<_>>()
    };
    assert_eq!(jobs(bench.dispatch().await), [goes]);
    let lacking = WaitingReason::Image {
        lacking: 1,
        executors: 2,
    };
    assert_eq!(reason(&bench, waits).await, Some(lacking));
    let images = vec![old, new];
    bench
        .send(&other.batch(vec![SessionEvent::Images { images }]))
        .await;
    assert_eq!(reason(&bench, waits).await, Some(WaitingReason::Turn));
    assert_eq!(jobs(bench.dispatch().await), [waits]);

    // One that takes nothing new need not have it, and one that makes sure of each image by itself has it.
    let executor = ExecutorId::new();
    let enrolled = NewExecutor {
        id: executor,
        name: "third".to_owned(),
        pool: POOL.to_owned(),
    };
    let done = bench.store.enroll_executor(enrolled, None, bench.date()).await;
    done.expect("the executor is enrolled");
    let mut third = Client::of(executor);
    bench.send(&third.opened_with(5, facts(&[]))).await;
    bench.send(&Client::new().opened(5)).await;
    let waits = submit(&bench, of_image(&bench, new)).await;
    assert!(bench.dispatch().await.is_empty());
    let cordoned = bench.store.cordon(executor, true, None, bench.date()).await;
    assert!(cordoned.expect("cordoning works"));
    assert_eq!(jobs(bench.dispatch().await), [waits]);
}

/// Each reason, as the job goes through them.
pub async fn why_a_job_waits_is_said(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let plan = Plan {
        not_before: Some(SECOND),
        retry: RetryPolicy {
            max_attempts: 2,
            on: vec![EndState::Failed],
        },
        ..Plan::default()
    };
    let job = bench.submit(&plan).await;
    let until = bench.now.after(SECOND);
    assert_eq!(
        reason(&bench, job).await,
        Some(WaitingReason::NotBefore { until })
    );
    bench.pass(SECOND);
    let none = WaitingReason::NoExecutor {
        cordoned: 0,
        unfit: 0,
    };
    assert_eq!(reason(&bench, job).await, Some(none));
    let mut client = bench.session().await;
    assert_eq!(reason(&bench, job).await, Some(WaitingReason::Turn));
    let message = bench.dispatch().await.remove(0);
    assert_eq!(reason(&bench, job).await, Some(WaitingReason::Dispatched));
    bench.send(&client.ask(&message)).await;
    assert_eq!(reason(&bench, job).await, None, "it has started");
    let failed = report(EndState::Failed, Cause::Exited, b"");
    bench.send(&client.finish(message.attempt, failed)).await;
    let ready_at = bench
        .place
        .ledger(POOL)
        .await
        .job(job)
        .map(|record| record.ready_at);
    let until = ready_at.expect("the job is there");
    assert!(until > bench.now);
    assert_eq!(reason(&bench, job).await, Some(WaitingReason::Retry { until }));
    let canceled = bench.store.cancel(TenantId::LOCAL, job, &bench.context()).await;
    canceled.expect("cancelling works");
    assert_eq!(reason(&bench, job).await, None, "it is over");
    for (whose, job) in [(tenant(1), job), (TenantId::LOCAL, JobId::new())] {
        let error = bench.store.waiting_for(whose, job, bench.date()).await;
        assert!(matches!(error, Err(StoreError::NoSuchJob(id)) if id == job));
    }
}

/// How many of its tenant's go first, and how many other tenants want slots: nothing else of them.
pub async fn a_job_that_waits_for_its_turn_knows_its_place(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut expected: Vec<(i16, JobId)> = Vec::new();
    for (number, priority) in [0, 5, 0, -5, 5, 0].into_iter().enumerate() {
        let mut job = of_image(
            &bench,
            Digest::of(&[u8::try_from(number % 2).expect("it is small")]),
        );
        job.priority = priority;
        expected.push((-priority, submit(&bench, job).await));
    }
    let later = Plan {
        not_before: Some(SECOND),
        priority: 9,
        ..Plan::once()
    };
    bench.submit(&later).await;
    let elsewhere = Plan {
        pool: "gpu".to_owned(),
        tenant: tenant(9),
        ..Plan::once()
    };
    bench.submit(&elsewhere).await;
    fill(&bench, tenant(1), 3).await;
    fill(&bench, tenant(2), 1).await;
    expected.sort();
    for (ahead, (_, job)) in expected.iter().enumerate() {
        let place = waiting(&bench, *job).await.and_then(|waiting| waiting.place);
        let standing = Standing {
            ahead: ahead as u64,
            other_tenants: 2,
        };
        assert_eq!(place, Some(standing));
    }
    let places: BTreeSet<JobId> = expected.iter().map(|(_, job)| *job).collect();
    assert_eq!(places.len(), 6);
}

async fn bounded(bench: &Bench, id: TenantId, quotas: Quotas) {
    let new = NewTenant {
        id,
        name: "bounded".to_owned(),
        weight: 1,
        quotas,
    };
    let made = bench.store.create_tenant(new, None, bench.date()).await;
    made.expect("the tenant is made");
}

/// Its jobs wait, and say so, while others' go; each that ends lets the next one go.
pub async fn a_tenant_has_no_more_in_flight_than_it_may(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let quotas = Quotas {
        most_in_flight: Some(3),
        most_queued: None,
    };
    bounded(&bench, TenantId::LOCAL, quotas).await;
    let mut client = Client::new();
    let opened = client.opened(20);
    bench.send(&opened).await;
    fill(&bench, TenantId::LOCAL, 6).await;
    fill(&bench, tenant(2), 4).await;
    let last = bench.submit(&Plan::once()).await;
    let mut messages = bench.dispatch().await;
    assert_eq!(count(&messages, TenantId::LOCAL), 3);
    assert_eq!(count(&messages, tenant(2)), 4);
    let quota = WaitingReason::Quota { most: 3 };
    assert_eq!(reason(&bench, last).await, Some(quota));
    messages.retain(|message| message.tenant == TenantId::LOCAL);
    bench.send(&client.ask(&messages[0])).await;
    assert!(
        bench.dispatch().await.is_empty(),
        "what has started is in flight too"
    );
    bench.send(&client.finish(messages[0].attempt, success())).await;
    assert_eq!(reason(&bench, last).await, Some(WaitingReason::Turn));
    assert_eq!(count(&bench.dispatch().await, TenantId::LOCAL), 1);
    let canceled = bench
        .store
        .cancel(TenantId::LOCAL, messages[1].job, &bench.context())
        .await;
    canceled.expect("cancelling works");
    assert_eq!(count(&bench.dispatch().await, TenantId::LOCAL), 1);
    assert_eq!(reason(&bench, last).await, Some(quota));
}

/// In each pool, with those that wait for their time; what is refused leaves nothing, and what was accepted before counts
/// once.
pub async fn a_tenant_has_no_more_queued_than_it_may(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let quotas = Quotas {
        most_in_flight: None,
        most_queued: Some(3),
    };
    bounded(&bench, TenantId::LOCAL, quotas).await;
    let later = Plan {
        not_before: Some(SECOND),
        ..Plan::once()
    };
    let elsewhere = Plan {
        pool: "gpu".to_owned(),
        ..Plan::once()
    };
    bench.submit(&later).await;
    let jobs = |count| {
        let jobs = std::iter::repeat_with(|| Plan::once().job(bench.date()));
        jobs.take(count).collect::<Vec<_>>()
    };
    let submit = async |jobs| bench.store.submit_many(jobs, bench.date()).await;
    let refused = submit(jobs(3)).await.expect_err("they are too many");
    assert!(!refused.is_temporary());
    let is_over = |error: &StoreError, by| matches!(error, StoreError::OverQuota { pool, most: 3, would_be } if pool == POOL && *would_be == by);
    assert!(is_over(&refused, 4), "{refused:?}");
    let first = jobs(2);
    submit(first.clone()).await.expect("so many are accepted");
    let refused = submit(jobs(1)).await.expect_err("there is no room");
    assert!(is_over(&refused, 4), "{refused:?}");
    bench.submit(&elsewhere).await;
    let other = Plan {
        tenant: tenant(2),
        ..Plan::once()
    };
    for _ in 0..5 {
        bench.submit(&other).await;
    }
    // What is dispatched is queued no longer, and neither is what was canceled.
    let canceled = bench
        .store
        .cancel(TenantId::LOCAL, first[0].id, &bench.context())
        .await;
    canceled.expect("cancelling works");
    submit(jobs(1)).await.expect("there is room for one");
    let refused = submit(jobs(1)).await.expect_err("there is no room");
    assert!(is_over(&refused, 4), "{refused:?}");
    let mut client = Client::new();
    let opened = client.opened(20);
    bench.send(&opened).await;
    assert_eq!(count(&bench.dispatch().await, TenantId::LOCAL), 2);
    submit(jobs(2)).await.expect("there is room for two");
    let refused = submit(jobs(1)).await.expect_err("there is no room");
    assert!(is_over(&refused, 4), "{refused:?}");
}

/// By several handles.
pub async fn of_submissions_at_once_no_more_are_accepted_than_a_quota_allows(place: Arc<dyn Place>) {
    let one = place.open().await;
    let bench = Bench::new(place).await;
    let quotas = Quotas {
        most_in_flight: None,
        most_queued: Some(5),
    };
    bounded(&bench, TenantId::LOCAL, quotas).await;
    let submit = async |store: &Arc<dyn crate::seam::Store>| {
        let mut accepted = 0;
        for _ in 0..6 {
            match store.submit(Plan::once().job(bench.date()), bench.date()).await {
                Ok(Submitted::Accepted) => accepted += 1,
                Err(StoreError::OverQuota { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        accepted
    };
    let (here, there) = tokio::join!(submit(&one), submit(&bench.store));
    assert_eq!(here + there, 5);
}
