//! Submissions that are repeated under a key, jobs that wait for their time, and content that goes with its job's end.

use std::{sync::Arc, time::Duration};

use mayfly_core::{
    digest::Digest,
    id::{JobId, TenantId},
    job::RetryPolicy,
    outcome::{Cause, EndState},
    state::JobState,
};
use mayfly_dispatch::{message::Verdict, scheduler::MAX_DEAD_LETTERS};

use super::{
    Place,
    bench::{Bench, Client, POOL, Plan, report, success, verdict},
    jobs::tenant,
};
use crate::{
    error::StoreError,
    records::{IDEMPOTENCY_KEPT, Idempotency, JobFilter, NewJob, Submitted},
};

/// A submission under a key.
fn keyed(bench: &Bench, tenant: TenantId, key: &str, body: &str) -> NewJob {
    let plan = Plan {
        tenant,
        ..Plan::once()
    };
    let idempotency = Idempotency::new(key, Digest::of(body.as_bytes())).expect("it is a key");
    NewJob {
        idempotency: Some(idempotency),
        ..plan.job(bench.date())
    }
}

async fn submit(bench: &Bench, job: NewJob) -> Result<Submitted, StoreError> {
    bench.store.submit(job, bench.date()).await
}

/// How many jobs a tenant has.
async fn count(bench: &Bench, tenant: TenantId) -> usize {
    bench
        .list(tenant, &JobFilter::default(), None, 1000)
        .await
        .jobs
        .len()
}

/// Whoever does not know what came of it gets what came of it.
pub async fn a_submission_that_is_repeated_is_the_same_job(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let first = keyed(&bench, TenantId::LOCAL, "a key", "a body");
    let id = first.id;
    assert_eq!(
        submit(&bench, first).await.expect("it is accepted"),
        Submitted::Accepted
    );
    let before = bench.everything().await;
    for _ in 0..3 {
        let again = keyed(&bench, TenantId::LOCAL, "a key", "a body");
        let answer = submit(&bench, again).await.expect("it is known");
        assert_eq!(answer, Submitted::Existing(id));
    }
    assert_eq!(
        bench.everything().await,
        before,
        "nothing of a repetition is kept"
    );
    let another = keyed(&bench, TenantId::LOCAL, "another key", "a body");
    assert_eq!(
        submit(&bench, another).await.expect("it is accepted"),
        Submitted::Accepted
    );
    let without = Plan::once().job(bench.date());
    assert_eq!(
        submit(&bench, without).await.expect("it is accepted"),
        Submitted::Accepted
    );
    assert_eq!(count(&bench, TenantId::LOCAL).await, 3);
}

/// It would be no repetition. The job that stands is named, and nothing of the call is accepted.
pub async fn a_key_with_another_body_is_refused(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let first = keyed(&bench, TenantId::LOCAL, "a key", "a body");
    let id = first.id;
    submit(&bench, first).await.expect("it is accepted");
    let before = bench.everything().await;
    let other = keyed(&bench, TenantId::LOCAL, "a key", "another body");
    let error = submit(&bench, other.clone())
        .await
        .expect_err("it is another body");
    assert!(
        matches!(error, StoreError::KeyConflict(job) if job == id),
        "{error:?}"
    );
    assert!(!error.is_temporary());
    let together = vec![Plan::once().job(bench.date()), other];
    let error = bench.store.submit_many(together, bench.date()).await;
    assert!(matches!(error, Err(StoreError::KeyConflict(job)) if job == id));
    assert_eq!(bench.everything().await, before);
    let twice =
        ["one body", "one body", "other body"].map(|body| keyed(&bench, TenantId::LOCAL, "twice", body));
    let error = bench.store.submit_many(twice.to_vec(), bench.date()).await;
    assert!(matches!(error, Err(StoreError::KeyConflict(job)) if job == twice[0].id));
    let answers = bench.submit_many(twice[..2].to_vec()).await;
    assert_eq!(answers, [Submitted::Accepted, Submitted::Existing(twice[0].id)]);
}

/// Another tenant's key means nothing, and says nothing of what that tenant has.
pub async fn a_key_is_its_tenants_own(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    for (number, body) in [(1, "a body"), (2, "another body"), (3, "a body")] {
        let job = keyed(&bench, tenant(number), "a key", body);
        assert_eq!(
            submit(&bench, job).await.expect("it is accepted"),
            Submitted::Accepted
        );
        assert_eq!(count(&bench, tenant(number)).await, 1);
    }
}

/// However many come at once, by way of two processes.
pub async fn of_submissions_at_once_one_makes_the_job(place: Arc<dyn Place>) {
    let bench = Arc::new(Bench::new(place).await);
    let second = bench.place.open().await;
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..200 {
        let (bench, second) = (Arc::clone(&bench), Arc::clone(&second));
        calls.spawn(async move {
            let job = keyed(&bench, TenantId::LOCAL, "a key", "a body");
            let id = job.id;
            let store = if number % 2 == 0 { &bench.store } else { &second };
            match store
                .submit(job, bench.date())
                .await
                .expect("it is accepted or known")
            {
                Submitted::Accepted => (true, id),
                Submitted::Existing(job) => (false, job),
            }
        });
    }
    let answers = calls.join_all().await;
    let accepted: Vec<JobId> = answers
        .iter()
        .filter(|(new, _)| *new)
        .map(|(_, id)| *id)
        .collect();
    assert_eq!(accepted.len(), 1, "{accepted:?}");
    assert!(
        answers.iter().all(|(_, id)| *id == accepted[0]),
        "all of them name one job"
    );
    assert_eq!(count(&bench, TenantId::LOCAL).await, 1);
    let other = keyed(&bench, TenantId::LOCAL, "a key", "another body");
    let error = second
        .submit(other, bench.date())
        .await
        .expect_err("it is another body");
    assert!(matches!(error, StoreError::KeyConflict(job) if job == accepted[0]));
}

/// Then it may be used for another job.
pub async fn a_key_is_known_for_a_day_whatever_becomes_of_its_job(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let first = keyed(&bench, TenantId::LOCAL, "a key", "a body");
    let id = first.id;
    submit(&bench, first).await.expect("it is accepted");
    let message = bench.dispatch().await.remove(0);
    bench.send(&client.ask(&message)).await;
    bench.send(&client.finish(message.attempt, success())).await;
    assert_eq!(bench.state(id).await, JobState::Ended(EndState::Succeeded));
    bench.pass(IDEMPOTENCY_KEPT - Duration::from_micros(1));
    let again = keyed(&bench, TenantId::LOCAL, "a key", "a body");
    assert_eq!(
        submit(&bench, again).await.expect("it is known"),
        Submitted::Existing(id)
    );
    bench.pass(Duration::from_micros(1));
    let other = keyed(&bench, TenantId::LOCAL, "a key", "another body");
    let other_id = other.id;
    assert_eq!(
        submit(&bench, other).await.expect("it is accepted"),
        Submitted::Accepted
    );
    let again = keyed(&bench, TenantId::LOCAL, "a key", "another body");
    let answer = submit(&bench, again).await.expect("it is known");
    assert_eq!(
        answer,
        Submitted::Existing(other_id),
        "it is known for a day from then on"
    );
}

/// It is queued meanwhile, and what is due next is known.
pub async fn a_job_is_not_dispatched_before_the_time_it_names(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    bench.session().await;
    let plan = Plan {
        not_before: Some(Duration::from_secs(60)),
        priority: i16::MAX,
        ..Plan::once()
    };
    let delayed = bench.submit(&plan).await;
    let other = bench.submit(&Plan::once()).await;
    let messages = bench.dispatch().await;
    assert_eq!(
        messages.iter().map(|message| message.job).collect::<Vec<_>>(),
        [other]
    );
    let due = bench
        .store
        .next_due(POOL, bench.now)
        .await
        .expect("looking works");
    assert_eq!(due, Some(bench.now.after(Duration::from_secs(60))));
    bench.pass(Duration::from_secs(60) - Duration::from_micros(1));
    assert!(bench.dispatch().await.is_empty());
    bench.pass(Duration::from_micros(1));
    assert_eq!(bench.dispatch().await.remove(0).job, delayed);
}

/// A time that has passed is none.
pub async fn a_time_that_has_passed_is_no_wait(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    bench.session().await;
    let job = NewJob {
        not_before: Some(bench.date() - Duration::from_secs(3600)),
        ..Plan::once().job(bench.date())
    };
    let id = job.id;
    submit(&bench, job).await.expect("it is accepted");
    let record = bench
        .place
        .ledger(POOL)
        .await
        .job(id)
        .cloned()
        .expect("it is there");
    assert_eq!(record.ready_at, bench.now, "it counts from its submission");
    assert_eq!(bench.dispatch().await.remove(0).job, id);
}

/// Expiry counts from submission, and a canceled job does not come back when its time comes.
pub async fn a_job_that_waits_for_its_time_can_expire_and_be_canceled(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    bench.session().await;
    let plan = Plan {
        not_before: Some(Duration::from_secs(60)),
        expires_after: Some(Duration::from_secs(30)),
        ..Plan::once()
    };
    let (expiring, canceled) = (bench.submit(&plan).await, bench.submit(&plan).await);
    let cancel = bench
        .store
        .cancel(TenantId::LOCAL, canceled, &bench.context())
        .await;
    cancel.expect("cancelling works");
    bench.pass(Duration::from_secs(30));
    bench
        .store
        .expire(POOL, &bench.context())
        .await
        .expect("expiring works");
    assert_eq!(bench.state(expiring).await, JobState::Ended(EndState::Expired));
    assert_eq!(bench.state(canceled).await, JobState::Ended(EndState::Canceled));
    bench.pass(Duration::from_secs(60));
    assert!(bench.dispatch().await.is_empty());
}

fn not_kept(retry: RetryPolicy) -> Plan {
    Plan {
        retain_source: false,
        retry,
        ..Plan::default()
    }
}

fn attempts(max_attempts: u32, on: &[EndState]) -> RetryPolicy {
    RetryPolicy {
        max_attempts,
        on: on.to_vec(),
    }
}

/// However it ends; the job, its result and its events stay. What is kept stays.
pub async fn content_that_is_not_kept_goes_with_its_jobs_end(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let once = || attempts(1, &[]);
    let mut over = Vec::new();

    let reported = bench.started(&not_kept(once()), &mut client).await;
    assert!(bench.job(reported.job).await.resolved.is_some(), "it runs");
    bench.send(&client.finish(reported.attempt, success())).await;
    assert_eq!(bench.job(reported.job).await.report(), Some(&success()));
    over.push(reported.job);

    let queued = bench.submit(&not_kept(once())).await;
    let context = bench.context();
    bench
        .store
        .cancel(TenantId::LOCAL, queued, &context)
        .await
        .expect("cancelling works");
    over.push(queued);

    let dispatched = bench.dispatched(&not_kept(once())).await.job;
    bench
        .store
        .cancel(TenantId::LOCAL, dispatched, &context)
        .await
        .expect("cancelling works");
    over.push(dispatched);

    let undeliverable = bench.dispatched(&not_kept(once())).await;
    for publication in 1..=MAX_DEAD_LETTERS {
        bench
            .store
            .dead_lettered(undeliverable.attempt, publication, &context)
            .await
            .expect("noting works");
    }
    over.push(undeliverable.job);

    let expiring = bench
        .submit(&Plan {
            expires_after: Some(Duration::from_secs(1)),
            ..not_kept(once())
        })
        .await;
    bench.pass(Duration::from_secs(1));
    bench
        .store
        .expire(POOL, &bench.context())
        .await
        .expect("expiring works");
    over.push(expiring);

    let kept = bench.started(&Plan::once(), &mut client).await;
    bench.send(&client.finish(kept.attempt, success())).await;
    let lost = bench.started(&not_kept(once()), &mut client).await;
    let mut next = Client::of(client.executor);
    bench.send(&next.opened(1)).await;
    over.push(lost.job);

    for job in over {
        let details = bench.job(job).await;
        assert!(matches!(details.job.state, JobState::Ended(_)), "{details:?}");
        assert_eq!(details.resolved, None, "{:?}", details.job.state);
        assert!(!bench.kinds(job).await.is_empty());
    }
    let kept = bench.job(kept.job).await;
    assert!(kept.resolved.is_some());
    assert!(bench.dispatch().await.is_empty());
}

/// Each attempt has it, whatever a late result says, and the last one's end takes it along.
pub async fn content_that_is_not_kept_is_there_for_each_attempt(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let plan = not_kept(attempts(2, &[EndState::Failed]));
    let first = bench.started(&plan, &mut client).await;
    let failure = report(EndState::Failed, Cause::Exited, b"no");
    bench.send(&client.finish(first.attempt, failure.clone())).await;
    assert!(
        bench.job(first.job).await.resolved.is_some(),
        "there is a further attempt"
    );
    bench.pass(bench.timing.retry_most);
    let second = bench.dispatch().await.remove(0);
    assert_eq!((second.job, &second.resolved), (first.job, &first.resolved));
    assert_eq!(verdict(&bench.send(&client.ask(&second)).await), Verdict::Grant);
    bench.send(&client.finish(second.attempt, failure.clone())).await;
    let details = bench.job(first.job).await;
    assert_eq!(
        (details.resolved.as_ref(), details.report()),
        (None, Some(&failure))
    );
    assert_eq!(details.attempts[0].report.as_ref(), Some(&failure));
    bench.send(&client.finish(second.attempt, success())).await;
    bench
        .send(&client.contradict(second.attempt, "another exit code"))
        .await;
    assert_eq!(bench.job(first.job).await, details);
    let kinds = bench.kinds(first.job).await;
    assert!(kinds.contains(&"result_superseded".to_owned()), "{kinds:?}");
}
