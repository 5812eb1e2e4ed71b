//! Ends that somebody asks for.

use std::sync::Arc;

use mayfly_core::{
    id::{JobId, TenantId},
    outcome::{Cause, EndState},
    state::JobState,
};
use mayfly_dispatch::message::{DenyReason, Inbound, StopReason, Verdict};

use super::{
    Place,
    bench::{Bench, POOL, Plan, report, success, verdict},
};
use crate::{records::CancelAnswer, seam::Store};

async fn cancel(bench: &Bench, job: JobId) -> CancelAnswer {
    let answer = bench.store.cancel(TenantId::LOCAL, job, &bench.context()).await;
    answer.expect("cancelling works")
}

const CANCELED: JobState = JobState::Ended(EndState::Canceled);

/// And is not dispatched.
pub async fn a_queued_job_ends_at_once(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let job = bench.submit(&Plan::default()).await;
    assert_eq!(cancel(&bench, job).await, CancelAnswer::Canceled);
    let found = bench.job(job).await.job;
    assert_eq!((found.state, found.ended_at), (CANCELED, Some(bench.date())));
    assert_eq!(
        found.outcome.map(|outcome| outcome.cause),
        Some(Cause::CanceledByRequest)
    );
    assert!(bench.dispatch().await.is_empty());
    assert_eq!(cancel(&bench, job).await, CancelAnswer::Over);
}

/// Its message may still be in the queue.
pub async fn a_dispatched_job_ends_at_once_and_never_starts(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let message = bench.dispatched(&Plan::default()).await;
    assert_eq!(cancel(&bench, message.job).await, CancelAnswer::Canceled);
    let denied = verdict(&bench.send(&client.ask(&message)).await);
    assert_eq!(denied, Verdict::Deny(DenyReason::Canceled));
    assert_eq!(bench.state(message.job).await, CANCELED);
    assert_eq!(bench.job(message.job).await.attempts[0].started_at, None);
}

/// With what it wrote until then.
pub async fn a_started_job_ends_as_canceled_whatever_its_run_reports(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    for reported in [
        success(),
        report(EndState::Canceled, Cause::CanceledByRequest, b"part"),
        report(EndState::Error, Cause::EngineFailure, b""),
    ] {
        let message = bench.started(&Plan::default(), &mut client).await;
        assert_eq!(cancel(&bench, message.job).await, CancelAnswer::Requested);
        assert_eq!(cancel(&bench, message.job).await, CancelAnswer::Requested);
        assert_eq!(bench.state(message.job).await, JobState::CancelRequested);
        let stops = bench.send(&client.beat(&[message.attempt])).await.stops;
        let told: Vec<_> = stops.iter().map(|stop| (stop.attempt, stop.why)).collect();
        assert_eq!(told, [(message.attempt, StopReason::Canceled)]);
        bench
            .send(&client.finish(message.attempt, reported.clone()))
            .await;
        let job = bench.job(message.job).await;
        assert_eq!(job.job.state, CANCELED);
        assert_eq!(job.report(), Some(&reported));
        let kinds = bench.kinds(message.job).await;
        assert_eq!(
            kinds[2..],
            ["run_started", "cancel_requested", "run_finished", "job_ended"]
        );
    }
}

/// It is not tried again, and not lost.
pub async fn a_canceled_job_that_is_lost_is_canceled(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let message = bench.started(&Plan::default(), &mut client).await;
    cancel(&bench, message.job).await;
    bench.pass(bench.timing.lease);
    bench.tick().await;
    assert_eq!(bench.state(message.job).await, CANCELED);
    let asked = {
        let mut client = bench.session().await;
        let message = bench.started(&Plan::default(), &mut client).await;
        cancel(&bench, message.job).await;
        // The grant was lost: the session asks again, and must not start.
        let denied = verdict(&bench.send(&client.ask(&message)).await);
        assert_eq!(denied, Verdict::Deny(DenyReason::Canceled));
        message.job
    };
    assert_eq!(bench.state(asked).await, CANCELED);
}

/// Whichever end it had.
pub async fn a_job_that_is_over_stays_as_it_is(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let message = bench.started(&Plan::default(), &mut client).await;
    bench.send(&client.finish(message.attempt, success())).await;
    let before = bench.everything().await;
    assert_eq!(cancel(&bench, message.job).await, CancelAnswer::Over);
    assert_eq!(bench.everything().await, before);
}

/// And the answer says which: a request that was taken means that no other outcome is ever seen.
pub async fn of_cancel_and_finish_one_wins(place: Arc<dyn Place>) {
    async fn ask(store: Arc<dyn Store>, bench: &Bench, job: JobId) -> CancelAnswer {
        let answer = store.cancel(TenantId::LOCAL, job, &bench.context()).await;
        answer.expect("cancelling works")
    }
    let bench = Bench::new(place).await;
    let second = bench.place.open().await;
    let mut client = bench.session().await;
    let mut answers = Vec::new();
    for round in 0..60 {
        let message = bench.started(&Plan::default(), &mut client).await;
        let batch = [Inbound::Batch(Box::new(
            client.finish(message.attempt, success()),
        ))];
        let context = bench.context();
        let cancel = ask(Arc::clone(&second), &bench, message.job);
        let finish = bench.store.process(POOL, &batch, &context);
        // Each order once for certain; the rest race, and may all end alike on a slow machine.
        let (answer, finished) = match round {
            0 => (cancel.await, finish.await),
            1 => {
                let finished = finish.await;
                (cancel.await, finished)
            }
            even if even % 2 == 0 => tokio::join!(biased; cancel, finish),
            _ => {
                let (finished, answer) = tokio::join!(biased; finish, cancel);
                (answer, finished)
            }
        };
        finished.expect("processing works");
        let expected = match answer {
            CancelAnswer::Requested => CANCELED,
            CancelAnswer::Over => JobState::Ended(EndState::Succeeded),
            CancelAnswer::Canceled => panic!("it has started"),
        };
        assert_eq!(bench.state(message.job).await, expected);
        let kinds = bench.kinds(message.job).await;
        let requested = kinds.contains(&"cancel_requested".to_owned());
        assert_eq!(requested, answer == CancelAnswer::Requested);
        assert_eq!(kinds.iter().filter(|kind| *kind == "job_ended").count(), 1);
        answers.push(answer);
    }
    for answer in [CancelAnswer::Requested, CancelAnswer::Over] {
        assert!(answers.contains(&answer), "{answer:?} has not been seen");
    }
}
