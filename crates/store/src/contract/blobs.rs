//! What travels beside the messages is there for its attempt, and for as long as that is not over.

use std::sync::Arc;

use mayfly_core::{
    digest::Digest,
    id::{AttemptId, JobId, TenantId},
    outcome::{CapturedStream, Cause, EndState, Redacted, StreamCount},
    run::{RunReport, UploadedOutput},
    state::JobState,
};
use mayfly_dispatch::message::{AbandonReason, DispatchMessage, ExecutorFacts, SessionEvent};

use super::{
    Place,
    bench::{Bench, Client, POOL, Plan, report, success},
    jobs::tenant,
};
use crate::blobs::BlobOwner;

fn owner(message: &DispatchMessage) -> BlobOwner {
    BlobOwner {
        tenant: message.tenant,
        job: message.job,
        attempt: message.attempt,
    }
}

async fn is_found(bench: &Bench, owner: BlobOwner) -> bool {
    let found = bench.store.find_input(owner).await;
    found.expect("the database answers").is_some()
}

/// From the first publication to the end, and each attempt's own.
pub async fn what_a_job_brings_is_found_until_its_attempt_is_over(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let plan = Plan::default();
    let first = bench.dispatched(&plan).await;
    let found = bench.store.find_input(owner(&first)).await;
    assert_eq!(found.expect("the database answers"), Some(first.resolved.clone()));
    bench.send(&client.ask(&first)).await;
    assert!(is_found(&bench, owner(&first)).await, "it has started");
    let ours = report(EndState::Error, Cause::EngineFailure, b"");
    bench.send(&client.finish(first.attempt, ours)).await;
    assert!(!is_found(&bench, owner(&first)).await, "it is over");
    bench.pass(bench.timing.retry_most);
    let second = bench.dispatch().await.pop().expect("it is tried again");
    assert!(is_found(&bench, owner(&second)).await);
    assert!(!is_found(&bench, owner(&first)).await);
    let context = bench.context();
    bench
        .store
        .cancel(TenantId::LOCAL, second.job, &context)
        .await
        .expect("cancelling works");
    assert!(!is_found(&bench, owner(&second)).await, "it is canceled");
}

/// Each of the three ids counts.
pub async fn what_a_job_brings_is_its_attempts_alone(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let one = bench.dispatched(&Plan::once()).await;
    let other = Plan {
        tenant: tenant(9),
        ..Plan::once()
    };
    let other = bench.dispatched(&other).await;
    assert!(is_found(&bench, owner(&one)).await && is_found(&bench, owner(&other)).await);
    let mixed = [
        BlobOwner {
            tenant: other.tenant,
            ..owner(&one)
        },
        BlobOwner {
            job: other.job,
            ..owner(&one)
        },
        BlobOwner {
            attempt: other.attempt,
            ..owner(&one)
        },
        BlobOwner {
            job: JobId::new(),
            ..owner(&one)
        },
        BlobOwner {
            attempt: AttemptId::new(),
            ..owner(&one)
        },
    ];
    for mixed in mixed {
        assert!(!is_found(&bench, mixed).await, "{mixed:?}");
    }
}

/// And not a moment longer.
pub async fn content_that_is_not_kept_is_found_until_the_end(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let plan = Plan {
        retain_source: false,
        ..Plan::once()
    };
    let message = bench.started(&plan, &mut client).await;
    assert!(is_found(&bench, owner(&message)).await);
    bench.send(&client.finish(message.attempt, success())).await;
    assert!(!is_found(&bench, owner(&message)).await);
}

/// The oldest of those that live counts, and no other pool's.
pub async fn what_all_of_a_pools_sessions_read_is_known(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let reads = async || {
        let reads = bench.store.oldest_reader(POOL).await;
        reads.expect("the database answers")
    };
    assert_eq!(reads().await, None);
    let mut clients = Vec::new();
    for version in [3, 1, 2] {
        let mut client = Client::new();
        let facts = ExecutorFacts {
            reads: version,
            ..ExecutorFacts::default()
        };
        bench.send(&client.opened_with(1, facts)).await;
        clients.push(client);
    }
    bench.send(&Client::new().opened_in("elsewhere", 1)).await;
    assert_eq!(reads().await, Some(1));
    let close = clients[1].batch(vec![SessionEvent::Closed]);
    bench.send(&close).await;
    assert_eq!(reads().await, Some(2));
}

fn stream(head: &[u8], tail: &[u8]) -> CapturedStream {
    CapturedStream {
        count: StreamCount {
            bytes: 1 << 30,
            digest: Digest::of(head),
            truncated: true,
        },
        head: head.to_vec(),
        tail: tail.to_vec(),
        redacted: Some(Redacted::default()),
    }
}

/// A report with output, the same as its executor sends it, and the piece that it leaves.
fn reports(head: &[u8]) -> (RunReport, RunReport, Vec<u8>) {
    let whole = RunReport {
        stdout: stream(head, b"\0\xff"),
        stderr: stream(b"", b"err"),
        ..success()
    };
    let mut sent = whole.clone();
    let (piece, uploaded) = sent.take_output();
    sent.uploaded = Some(uploaded);
    (whole, sent, piece)
}

async fn keep(bench: &Bench, owner: BlobOwner, content: &[u8]) -> bool {
    let kept = bench.store.keep_output(owner, Digest::of(content), content).await;
    kept.expect("the database answers")
}

/// Every part of both streams, also where there is nothing of it.
pub async fn what_a_run_has_left_becomes_its_result_byte_for_byte(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let long: Vec<u8> = (0..=255).cycle().take(3 << 20).collect();
    for head in [&long[..], b"", b"\0"] {
        let (whole, sent, piece) = reports(head);
        let message = bench.started(&Plan::once(), &mut client).await;
        assert!(keep(&bench, owner(&message), &piece).await);
        assert_eq!(bench.place.outputs().await, 1);
        assert_eq!(bench.job(message.job).await.report(), None, "it is no result yet");
        let finished = client.finish(message.attempt, sent);
        bench.send(&finished).await;
        // Delivered again, it changes nothing.
        bench.send(&finished).await;
        assert_eq!(bench.job(message.job).await.report(), Some(&whole));
        assert_eq!(bench.place.outputs().await, 0);
    }
}

/// By a report that names it not, given up, lost, canceled.
pub async fn what_a_run_has_left_goes_with_its_attempt_whichever_way_that_ends(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let left = async |client: &mut Client| {
        let message = bench.started(&Plan::once(), client).await;
        assert!(keep(&bench, owner(&message), b"output").await);
        message
    };
    let unnamed = left(&mut client).await;
    bench.send(&client.finish(unnamed.attempt, success())).await;
    assert_eq!(bench.place.outputs().await, 0);
    let abandoned = left(&mut client).await;
    let event = SessionEvent::Abandoned {
        attempt: abandoned.attempt,
        why: AbandonReason::Stopped,
        ran: true,
    };
    bench.send(&client.batch(vec![event])).await;
    assert_eq!(bench.place.outputs().await, 0);
    let lost = left(&mut client).await;
    bench.send(&client.beat(&[])).await;
    assert_eq!(bench.state(lost.job).await, JobState::Ended(EndState::Lost));
    assert_eq!(bench.place.outputs().await, 0);
    let canceled = left(&mut client).await;
    let context = bench.context();
    let asked = bench.store.cancel(TenantId::LOCAL, canceled.job, &context).await;
    asked.expect("cancelling works");
    assert_eq!(
        bench.place.outputs().await,
        1,
        "what it wrote until then is wanted"
    );
    let (whole, sent, piece) = reports(b"partial");
    assert!(!keep(&bench, owner(&canceled), &piece).await, "the first counts");
    bench.send(&client.finish(canceled.attempt, sent)).await;
    assert_eq!(
        bench.state(canceled.job).await,
        JobState::Ended(EndState::Canceled)
    );
    assert_ne!(bench.job(canceled.job).await.report(), Some(&whole));
    assert_eq!(bench.place.outputs().await, 0);
}

/// And each id of it counts.
pub async fn only_a_running_attempt_takes_output_and_the_first_counts(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let waiting = bench.dispatched(&Plan::once()).await;
    assert!(!keep(&bench, owner(&waiting), b"a").await, "it has not started");
    bench.send(&client.ask(&waiting)).await;
    let message = waiting;
    let other = bench.started(&Plan::once(), &mut client).await;
    for mixed in [
        BlobOwner {
            tenant: tenant(9),
            ..owner(&message)
        },
        BlobOwner {
            job: other.job,
            ..owner(&message)
        },
        BlobOwner {
            attempt: other.attempt,
            ..owner(&message)
        },
        BlobOwner {
            attempt: AttemptId::new(),
            ..owner(&message)
        },
    ] {
        assert!(!keep(&bench, mixed, b"a").await, "{mixed:?}");
    }
    assert!(keep(&bench, owner(&message), b"a").await);
    assert!(keep(&bench, owner(&message), b"a").await, "the same again");
    assert!(!keep(&bench, owner(&message), b"b").await, "another");
    bench.send(&client.finish(message.attempt, success())).await;
    assert!(!keep(&bench, owner(&message), b"a").await, "it is over");
    assert_eq!(bench.place.outputs().await, 0);
}

/// Never half a result: nothing left, something else left, another length.
pub async fn a_report_that_names_what_is_not_there_is_trouble_of_ours(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let (_, sent, piece) = reports(b"output");
    let mut longer = sent.clone();
    longer.uploaded = longer.uploaded.map(|named| UploadedOutput {
        stderr_tail: named.stderr_tail + 1,
        ..named
    });
    for (left, named) in [
        (None, &sent),
        (Some(&b"else"[..]), &sent),
        (Some(&piece[..]), &longer),
    ] {
        let message = bench.started(&Plan::once(), &mut client).await;
        if let Some(left) = left {
            assert!(keep(&bench, owner(&message), left).await);
        }
        bench.send(&client.finish(message.attempt, named.clone())).await;
        assert_eq!(bench.state(message.job).await, JobState::Ended(EndState::Error));
        let details = bench.job(message.job).await;
        let outcome = details.job.outcome.as_ref().expect("it is over");
        assert_eq!(outcome.cause, Cause::ContentUnavailable);
        let report = details.report().expect("it has reported");
        assert!(report.stdout.head.is_empty() && report.stdout.count.truncated && report.uploaded.is_none());
        assert_eq!(bench.place.outputs().await, 0);
    }
}

/// A session that is dead has left output, and reports: another attempt's result stays what it is.
pub async fn output_of_an_attempt_that_is_over_is_nobodys_result(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let message = bench.started(&Plan::default(), &mut client).await;
    let (_, sent, piece) = reports(b"superseded");
    assert!(keep(&bench, owner(&message), &piece).await);
    let mut successor = Client::of(client.executor);
    bench.send(&successor.opened(1)).await;
    assert_eq!(bench.place.outputs().await, 0, "its attempt is over");
    bench.pass(bench.timing.retry_most);
    let second = bench.dispatch().await.pop().expect("it is tried again");
    bench.send(&successor.ask(&second)).await;
    assert!(!keep(&bench, owner(&message), &piece).await);
    bench.send(&client.finish(message.attempt, sent.clone())).await;
    let (whole, second_sent, second_piece) = reports(b"second");
    assert!(keep(&bench, owner(&second), &second_piece).await);
    // The dead session's report names the first's output, and the second attempt's report names its own.
    bench.send(&successor.finish(second.attempt, second_sent)).await;
    assert_eq!(bench.job(message.job).await.report(), Some(&whole));
    bench.send(&client.finish(second.attempt, sent)).await;
    assert_eq!(bench.job(message.job).await.report(), Some(&whole), "one result");
    assert_eq!(bench.place.outputs().await, 0);
}

/// At once, by two handles, again and again: nothing is left over, and no report is half.
pub async fn of_leaving_output_and_the_end_one_comes_first(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let other = bench.place.open().await;
    let mut client = bench.session().await;
    for _ in 0..8 {
        let message = bench.started(&Plan::once(), &mut client).await;
        let end = client.finish(message.attempt, success());
        let content = [7; 100_000];
        let (_, kept) = tokio::join!(
            bench.send(&end),
            other.keep_output(owner(&message), Digest::of(&content), &content)
        );
        kept.expect("the database answers");
        assert_eq!(bench.place.outputs().await, 0);
    }
}
