//! Jobs as clients see them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use mayfly_core::{
    id::{JobId, TenantId},
    state::JobState,
};
use mayfly_dispatch::message::Inbound;

use super::{
    Place,
    bench::{Bench, Client, POOL, Plan, success},
};
use crate::{
    error::StoreError,
    records::{AuditFilter, JobFilter, JobStanding},
    seam::MAX_PAGE,
};

/// What comes back is what was given.
pub async fn a_job_is_found_as_it_was_submitted(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let new = Plan::once().job(bench.date());
    bench
        .store
        .submit(new.clone(), bench.date())
        .await
        .expect("the job is accepted");
    let found = bench.job(new.id).await;
    assert_eq!(found.resolved.as_ref(), Some(&*new.resolved));
    assert!(found.attempts.is_empty());
    assert_eq!(found.report(), None);
    let job = found.job;
    assert_eq!((job.id, job.tenant), (new.id, TenantId::LOCAL));
    assert_eq!((job.state, job.attempts), (JobState::Queued, 0));
    assert_eq!((job.ended_at, &job.outcome), (None, &None));
    assert_eq!(job.submitted_at, bench.date());
    assert_eq!(job.labels, BTreeMap::from([("team".into(), "a".into())]));
    assert_eq!(job.image, new.resolved.image);
    assert_eq!(job.image_digest, new.resolved.pin.digest);
    assert_eq!(job.policy_version, new.resolved.policy_version);
    let listed = bench.list(TenantId::LOCAL, &JobFilter::default(), None, 10).await;
    assert_eq!((listed.jobs, listed.next), (vec![job], None));
    let none = bench.store.find_job(TenantId::LOCAL, JobId::new()).await;
    assert_eq!(none.expect("finding works"), None);
}

/// A submission that is repeated under its id is refused, and the first stands.
pub async fn a_job_is_accepted_once(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let first = Plan::once().job(bench.date());
    let mut second = Plan::default().job(bench.date());
    second.id = first.id;
    bench
        .store
        .submit(first.clone(), bench.date())
        .await
        .expect("the job is accepted");
    let before = bench.everything().await;
    let error = bench
        .store
        .submit(second, bench.date())
        .await
        .expect_err("it was accepted before");
    assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
    assert!(!error.is_temporary());
    assert_eq!(bench.everything().await, before);
    assert_eq!(
        bench.job(first.id).await.resolved.as_ref(),
        Some(&*first.resolved)
    );
}

/// A cursor goes on where the page before it ended, whatever was submitted meanwhile.
pub async fn jobs_are_listed_newest_first_page_by_page(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut ids = Vec::new();
    for _ in 0..7 {
        ids.push(bench.submit(&Plan::once()).await);
    }
    ids.reverse();
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let page = bench
            .list(TenantId::LOCAL, &JobFilter::default(), before, 3)
            .await;
        assert!(page.jobs.len() <= 3 && seen.len() < ids.len());
        seen.extend(page.jobs.iter().map(|job| job.id));
        assert_eq!(page.next, seen.last().copied().filter(|_| seen.len() < ids.len()));
        before = page.next;
        if before.is_none() {
            break;
        }
        bench.submit(&Plan::once()).await;
    }
    assert_eq!(seen, ids);
}

/// Whoever asks for all gets a page.
pub async fn a_page_has_a_bound(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let most = usize::try_from(MAX_PAGE).expect("a page fits into memory");
    for _ in 0..=most {
        bench.submit(&Plan::once()).await;
    }
    let page = bench
        .list(TenantId::LOCAL, &JobFilter::default(), None, u32::MAX)
        .await;
    assert_eq!(page.jobs.len(), most);
    assert_eq!(page.next, page.jobs.last().map(|job| job.id));
    let events = bench
        .store
        .list_audit(TenantId::LOCAL, AuditFilter::default(), u32::MAX);
    assert_eq!(events.await.expect("listing works").len(), most);
    let messages = bench.dispatch().await;
    assert_eq!(messages.len(), 102, "a hundred free slots, and two ahead");
    let ask = client.ask(&messages[0]);
    bench.send(&ask).await;
}

/// Nothing of another tenant is found, listed or changed.
pub async fn another_tenants_job_is_not_there(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let (one, other) = (tenant(1), tenant(2));
    let plan = Plan {
        tenant: one,
        ..Plan::once()
    };
    let job = bench.submit(&plan).await;
    let before = bench.everything().await;
    let store = &bench.store;
    for stranger in [other, TenantId::LOCAL] {
        assert_eq!(store.find_job(stranger, job).await.expect("finding works"), None);
        assert_eq!(
            bench.list(stranger, &JobFilter::default(), None, 10).await.jobs,
            []
        );
        let beyond = store
            .list_jobs(stranger, &JobFilter::default(), Some(job), 10)
            .await;
        assert!(matches!(beyond, Err(StoreError::NoSuchJob(id)) if id == job));
        let canceled = store.cancel(stranger, job, &bench.context()).await;
        assert!(matches!(canceled, Err(StoreError::NoSuchJob(id)) if id == job));
        for job in [None, Some(job)] {
            let filter = AuditFilter { job, attempt: None };
            assert_eq!(
                store
                    .list_audit(stranger, filter, 10)
                    .await
                    .expect("listing works"),
                []
            );
        }
    }
    assert_eq!(bench.everything().await, before);
    let message = bench.dispatch().await.remove(0);
    assert_eq!(message.tenant, one);
    let filter = AuditFilter {
        job: None,
        attempt: Some(message.attempt),
    };
    let strange = store.list_audit(other, filter.clone(), 10).await;
    assert_eq!(strange.expect("listing works"), []);
    let own = store.list_audit(one, filter, 10).await;
    assert_eq!(own.expect("listing works").len(), 1);
    assert!(store.find_job(one, job).await.expect("finding works").is_some());
}

/// Whoever waits for a state is woken by what changes one, and by nothing else.
pub async fn commits_are_noticed_and_what_changes_nothing_is_none(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let mut commits = bench.store.commits();
    let mut noticed = || {
        let changed = commits.has_changed().expect("the store is there");
        commits.borrow_and_update();
        changed
    };
    assert!(!noticed());
    bench.submit(&Plan::once()).await;
    assert!(noticed());
    let mut client = Client::new();
    let opened = client.opened(1);
    bench.send(&opened).await;
    assert!(noticed());
    let message = bench.dispatch().await.remove(0);
    assert!(noticed());
    let ask = client.ask(&message);
    bench.send(&ask).await;
    assert!(noticed());
    let finish = client.finish(message.attempt, success());
    bench.send(&finish).await;
    assert!(noticed());

    let context = bench.context();
    bench.send(&finish).await;
    bench.send(&ask).await;
    assert!(bench.dispatch().await.is_empty());
    bench.store.expire(POOL, &context).await.expect("expiring works");
    let again = bench
        .store
        .publish_again(POOL, 0, &mut Default::default(), &context)
        .await;
    assert!(again.expect("publishing works").is_empty());
    let canceled = bench.store.cancel(TenantId::LOCAL, message.job, &context).await;
    canceled.expect("cancelling works");
    bench
        .store
        .cancel(TenantId::LOCAL, JobId::new(), &context)
        .await
        .expect_err("there is no such job");
    bench
        .store
        .dead_lettered(message.attempt, message.publication, &context)
        .await
        .expect("noting works");
    bench
        .store
        .next_due(POOL, bench.now)
        .await
        .expect("looking works");
    bench.job(message.job).await;
    assert!(!noticed(), "none of this has changed anything");

    bench.pass(Duration::from_secs(1));
    let tick = bench
        .store
        .next_tick(POOL, &bench.context())
        .await
        .expect("a tick is made");
    assert!(noticed());
    bench.deliver(Inbound::Tick(tick.clone())).await;
    assert!(noticed());
    bench.deliver(Inbound::Tick(tick)).await;
    assert!(!noticed(), "the tick was processed before");
}

/// A tenant of its own for each number.
pub(crate) fn tenant(number: u8) -> TenantId {
    format!("00000000-0000-7000-8000-0000000000{number:02x}")
        .parse()
        .expect("it is an id")
}

/// A tenant's own alone, each as it stands; ids of nobody's job are passed over.
pub async fn how_many_jobs_stand_is_read_at_once(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let over = bench.started(&Plan::once(), &mut client).await;
    bench.send(&client.finish(over.attempt, success())).await;
    let running = bench.started(&Plan::once(), &mut client).await;
    let waiting = bench.submit(&Plan::once()).await;
    let strange = Plan {
        tenant: tenant(1),
        ..Plan::once()
    };
    let strange = bench.submit(&strange).await;
    let ids = [waiting, JobId::new(), over.job, strange, running.job, waiting];
    let standings = |tenant: TenantId, ids: Vec<JobId>| {
        let store = Arc::clone(&bench.store);
        async move { store.job_standings(tenant, &ids).await }
    };
    let mut found = standings(TenantId::LOCAL, ids.to_vec())
        .await
        .expect("looking works");
    found.sort_by_key(|standing| standing.id);
    found.dedup();
    let mut expected = Vec::new();
    for id in [over.job, running.job, waiting] {
        let job = bench.job(id).await.job;
        expected.push(JobStanding {
            id,
            state: job.state,
            attempts: job.attempts,
        });
    }
    expected.sort_by_key(|standing| standing.id);
    assert_eq!(found, expected);
    assert_eq!(
        standings(tenant(2), ids.to_vec()).await.expect("looking works"),
        []
    );
    assert_eq!(
        standings(TenantId::LOCAL, vec![]).await.expect("looking works"),
        []
    );
    let all = usize::try_from(MAX_PAGE).expect("a page fits into memory");
    assert!(standings(TenantId::LOCAL, vec![waiting; all]).await.is_ok());
    let many = standings(TenantId::LOCAL, vec![waiting; all + 1]).await;
    assert!(matches!(many, Err(StoreError::Refused { .. })));
}
