//! Files of a run are kept for as long as its result is, and for nothing else.

use std::sync::Arc;

use mayfly_core::{
    artifact::{Artifact, Artifacts, PIECE},
    digest::Digest,
    id::{AttemptId, JobId, TenantId},
    outcome::{Cause, EndState, Redacted},
    run::RunReport,
    state::JobState,
};
use mayfly_dispatch::message::{AbandonReason, DispatchMessage, SessionEvent};

use super::{
    Place,
    bench::{Bench, Client, Plan, success},
    jobs::tenant,
};
use crate::blobs::{BlobOwner, PieceAt};

fn owner(message: &DispatchMessage) -> BlobOwner {
    BlobOwner {
        tenant: message.tenant,
        job: message.job,
        attempt: message.attempt,
    }
}

async fn keep(bench: &Bench, owner: BlobOwner, at: (u32, u32), content: &[u8]) -> bool {
    keep_within(bench, owner, at, content, 10 << 20).await
}

async fn keep_within(bench: &Bench, owner: BlobOwner, at: (u32, u32), content: &[u8], most: u64) -> bool {
    let at = PieceAt {
        file: at.0,
        piece: at.1,
    };
    let digest = Digest::of(content);
    let kept = bench.store.keep_piece(owner, at, digest, content, most).await;
    kept.expect("the database answers")
}

async fn found(bench: &Bench, tenant: TenantId, attempt: AttemptId, at: (u32, u32)) -> Option<Vec<u8>> {
    let at = PieceAt {
        file: at.0,
        piece: at.1,
    };
    let found = bench.store.find_piece(tenant, attempt, at).await;
    found.expect("the database answers")
}

/// A report that names files, by their numbers and lengths.
fn naming(files: &[(u32, usize)]) -> RunReport {
    let file = |&(number, bytes): &(u32, usize)| Artifact {
        name: format!("out/{number}").as_str().into(),
        bytes: bytes as u64,
        digest: Digest::of(b""),
        redacted: Redacted::default(),
        is_text: false,
        number,
    };
    RunReport {
        artifacts: Some(Artifacts {
            files: files.iter().map(file).collect(),
            ..Artifacts::default()
        }),
        ..success()
    }
}

/// And those that it names not go. An empty file has no piece.
pub async fn the_files_that_a_report_names_are_kept_piece_by_piece(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let message = bench.started(&Plan::once(), &mut client).await;
    let owner = owner(&message);
    let whole = vec![7; PIECE];
    assert!(keep(&bench, owner, (0, 0), &whole).await && keep(&bench, owner, (0, 1), b"\0\xff").await);
    assert!(keep(&bench, owner, (1, 0), b"dropped").await);
    assert!(keep(&bench, owner, (3, 0), b"three").await);
    assert_eq!(bench.place.pieces().await, 4);
    let report = naming(&[(0, PIECE + 2), (2, 0), (3, 5)]);
    let finished = client.finish(message.attempt, report.clone());
    bench.send(&finished).await;
    // Delivered again, it changes nothing.
    bench.send(&finished).await;
    assert_eq!(bench.job(message.job).await.report(), Some(&report));
    assert_eq!(bench.place.pieces().await, 3);
    for (at, expected) in [
        ((0, 0), Some(whole)),
        ((0, 1), Some(b"\0\xff".to_vec())),
        ((0, 2), None),
        ((1, 0), None),
        ((3, 0), Some(b"three".to_vec())),
    ] {
        assert_eq!(
            found(&bench, message.tenant, message.attempt, at).await,
            expected,
            "{at:?}"
        );
    }
    assert_eq!(
        found(&bench, tenant(9), message.attempt, (0, 0)).await,
        None,
        "another tenant"
    );
    assert_eq!(
        found(&bench, message.tenant, AttemptId::new(), (0, 0)).await,
        None
    );
    assert!(!keep(&bench, owner, (4, 0), b"late").await, "it is over");
}

/// By a report that names none, given up, lost.
pub async fn files_go_with_their_attempt_where_no_report_names_them(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let left = async |client: &mut Client| {
        let message = bench.started(&Plan::once(), client).await;
        assert!(keep(&bench, owner(&message), (0, 0), b"file").await);
        message
    };
    let unnamed = left(&mut client).await;
    bench.send(&client.finish(unnamed.attempt, success())).await;
    assert_eq!(bench.place.pieces().await, 0);
    let abandoned = left(&mut client).await;
    let event = SessionEvent::Abandoned {
        attempt: abandoned.attempt,
        why: AbandonReason::Stopped,
        ran: true,
    };
    bench.send(&client.batch(vec![event])).await;
    assert_eq!(bench.place.pieces().await, 0);
    let lost = left(&mut client).await;
    bench.send(&client.beat(&[])).await;
    assert_eq!(bench.state(lost.job).await, JobState::Ended(EndState::Lost));
    assert_eq!(bench.place.pieces().await, 0);
}

/// And each id of it counts.
pub async fn only_a_running_attempt_takes_files_and_the_first_piece_counts(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let message = bench.dispatched(&Plan::once()).await;
    assert!(
        !keep(&bench, owner(&message), (0, 0), b"a").await,
        "it has not started"
    );
    bench.send(&client.ask(&message)).await;
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
            job: JobId::new(),
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
        assert!(!keep(&bench, mixed, (0, 0), b"a").await, "{mixed:?}");
    }
    assert!(keep(&bench, owner(&message), (0, 0), b"a").await);
    assert!(
        keep(&bench, owner(&message), (0, 0), b"a").await,
        "the same again"
    );
    assert!(!keep(&bench, owner(&message), (0, 0), b"b").await, "another");
    assert_eq!(bench.place.pieces().await, 1);
}

/// Those of files that no report will name counted.
pub async fn an_attempts_files_have_a_bound(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let message = bench.started(&Plan::once(), &mut client).await;
    let other = bench.started(&Plan::once(), &mut client).await;
    assert!(keep_within(&bench, owner(&message), (0, 0), b"12345", 8).await);
    assert!(!keep_within(&bench, owner(&message), (1, 0), b"1234", 8).await);
    assert!(keep_within(&bench, owner(&message), (1, 0), b"123", 8).await);
    assert!(
        keep_within(&bench, owner(&message), (1, 0), b"123", 8).await,
        "the same again"
    );
    assert!(!keep_within(&bench, owner(&message), (2, 0), b"1", 8).await);
    assert!(
        keep_within(&bench, owner(&other), (0, 0), b"12345", 8).await,
        "another's"
    );
}

/// Never half a file: none left, one piece too few, another length.
pub async fn a_report_that_names_a_file_that_is_not_there_is_trouble_of_ours(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    for (left, named) in [
        (&[][..], naming(&[(0, 1)])),
        (&[(1, 0)][..], naming(&[(0, 1)])),
        (&[(0, 1)][..], naming(&[(0, 1)])),
        (&[(0, 0)][..], naming(&[(0, PIECE + 1)])),
        (&[(0, 0), (0, 1)][..], naming(&[(0, 2)])),
        (&[(0, 0)][..], naming(&[(0, 2)])),
        (&[(0, 0)][..], naming(&[(0, 1), (1, 1)])),
    ] {
        let message = bench.started(&Plan::once(), &mut client).await;
        for at in left {
            assert!(keep(&bench, owner(&message), *at, b"x").await);
        }
        bench.send(&client.finish(message.attempt, named)).await;
        let details = bench.job(message.job).await;
        let outcome = details.job.outcome.as_ref().expect("it is over");
        assert_eq!(
            (outcome.state, outcome.cause),
            (EndState::Error, Cause::ContentUnavailable)
        );
        assert_eq!(details.report().expect("it has reported").artifacts, None);
        assert_eq!(bench.place.pieces().await, 0);
    }
}
