//! Uploads are found by their digests, are fetched for jobs that have them, and go when nobody does.

use std::{sync::Arc, time::Duration};

use mayfly_core::{
    artifact::PIECE,
    digest::Digest,
    id::{AttemptId, JobId, KeyId, TenantId, UploadId},
    job::{FetchedFile, FileMode},
};
use serde_json::{Value, json};

use super::{
    Place,
    accounts::facts,
    bench::{Bench, Plan, success},
    jobs::tenant,
};
use crate::{
    blobs::{BlobOwner, PieceAt},
    error::StoreError,
    seam::Store,
    uploads::{Begun, MAX_UNDER_WAY, NewUpload, Removal, UploadBounds, UploadRecord},
};

const BOUNDS: UploadBounds = UploadBounds {
    total: 16 << 20,
    count: 20,
};

fn new(tenant: TenantId, digest: Digest, bytes: usize) -> NewUpload {
    NewUpload {
        tenant,
        id: UploadId::new(),
        digest,
        bytes: bytes as u64,
    }
}

async fn begin(bench: &Bench, upload: NewUpload) -> Begun {
    begin_within(bench, upload, BOUNDS).await
}

async fn begin_within(bench: &Bench, upload: NewUpload, bounds: UploadBounds) -> Begun {
    let begun = bench.store.begin_upload(upload, bounds, bench.date()).await;
    begun.expect("the database answers")
}

async fn piece(bench: &Bench, upload: NewUpload, number: u32, content: &[u8]) -> bool {
    let (tenant, id) = (upload.tenant, upload.id);
    let kept = bench.store.keep_upload_piece(tenant, id, number, content).await;
    kept.expect("the database answers")
}

async fn finish(bench: &Bench, upload: NewUpload, by: Option<KeyId>) -> Option<UploadRecord> {
    let (tenant, id) = (upload.tenant, upload.id);
    let whole = bench.store.finish_upload(tenant, id, by, bench.date()).await;
    whole.expect("the database answers")
}

/// A whole one.
async fn upload(bench: &Bench, tenant: TenantId, content: &[u8]) -> UploadRecord {
    let upload = new(tenant, Digest::of(content), content.len());
    assert_eq!(begin(bench, upload).await, Begun::Begun);
    for (number, part) in (0..).zip(content.chunks(PIECE)) {
        assert!(piece(bench, upload, number, part).await);
    }
    finish(bench, upload, None).await.expect("it is whole")
}

/// A whole upload that a job has which waits for its time.
pub async fn in_use(bench: &Bench, tenant: TenantId, content: &[u8]) {
    upload(bench, tenant, content).await;
    let waiting = Plan {
        not_before: Some(Duration::from_secs(24 * 3600)),
        ..plan(tenant, &[content])
    };
    bench.submit(&waiting).await;
}

async fn find(store: &dyn Store, tenant: TenantId, digests: &[Digest]) -> Vec<UploadRecord> {
    let found = store.find_uploads(tenant, digests).await;
    found.expect("the database answers")
}

async fn remove(bench: &Bench, tenant: TenantId, digest: Digest, by: Option<KeyId>) -> Removal {
    let removed = bench.store.remove_upload(tenant, &digest, by, bench.date()).await;
    removed.expect("the database answers")
}

/// Sweeps until nothing is left to be swept.
async fn sweep(bench: &Bench, unused: Duration, begun: Duration) -> u64 {
    let (now, mut all) = (bench.date(), 0);
    loop {
        let swept = bench.store.sweep_uploads(now - unused, now - begun, now).await;
        match swept.expect("the database answers") {
            0 => return all,
            swept => all += swept,
        }
    }
}

/// A job that has uploads, by what they hold.
fn plan(tenant: TenantId, contents: &[&[u8]]) -> Plan {
    let mut plan = Plan {
        tenant,
        ..Plan::once()
    };
    let file = |(number, content): (usize, &&[u8])| FetchedFile {
        path: number.to_string(),
        mode: FileMode::USUAL,
        digest: Digest::of(content),
        bytes: content.len() as u64,
    };
    plan.resolved.fetched = contents.iter().enumerate().map(file).collect();
    plan
}

async fn fetch(bench: &Bench, owner: BlobOwner, file: u32, piece: u32) -> Option<Vec<u8>> {
    let found = bench.store.find_fetched(owner, PieceAt { file, piece }).await;
    found.expect("the database answers")
}

/// And before that by nobody; the second of the same is the first.
pub async fn an_upload_is_found_once_it_is_whole(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let (one, other, by) = (tenant(1), tenant(2), KeyId::new());
    let content = [vec![7; PIECE], b"\0\xff".to_vec()].concat();
    let digest = Digest::of(&content);
    let first = new(one, digest, content.len());
    assert_eq!(begin(&bench, first).await, Begun::Begun);
    assert!(piece(&bench, first, 0, &content[..PIECE]).await);
    assert_eq!(finish(&bench, first, None).await, None, "a piece is missing");
    assert!(piece(&bench, first, 1, &content[PIECE..]).await);
    assert!(!piece(&bench, first, 1, b"xx").await, "it has that piece");
    assert_eq!(find(&*bench.store, one, &[digest]).await, []);
    let stranger = NewUpload {
        tenant: other,
        ..first
    };
    assert!(!piece(&bench, stranger, 2, b"x").await, "it is another's");
    assert_eq!(finish(&bench, stranger, None).await, None);
    // The same comes a second time before the first is whole, and is gone when both are.
    let second = new(one, digest, content.len());
    assert_eq!(begin(&bench, second).await, Begun::Begun);
    assert!(
        piece(&bench, second, 0, &content[..PIECE]).await
            && piece(&bench, second, 1, &content[PIECE..]).await
    );
    let kept = finish(&bench, first, Some(by)).await.expect("it is whole");
    let expected = UploadRecord {
        id: first.id,
        digest,
        bytes: content.len() as u64,
        kept_at: bench.date(),
        used_at: bench.date(),
    };
    assert_eq!(kept, expected);
    bench.pass(Duration::from_secs(600));
    let used = UploadRecord {
        used_at: bench.date(),
        ..expected
    };
    assert_eq!(finish(&bench, second, None).await, Some(used.clone()));
    assert!(!piece(&bench, second, 2, b"x").await, "it is gone");
    assert_eq!(
        begin(&bench, new(one, digest, content.len())).await,
        Begun::Existing(used.clone())
    );
    assert!(!piece(&bench, first, 2, b"x").await, "it is whole");
    let missing = Digest::of(b"missing");
    let reopened = bench.place.open().await;
    assert_eq!(
        find(&*reopened, one, &[missing, digest, digest]).await,
        std::slice::from_ref(&used)
    );
    assert_eq!(find(&*bench.store, other, &[digest]).await, []);
    let empty = upload(&bench, one, b"").await;
    let list = async |after, limit| {
        let listed = bench.store.list_uploads(one, after, limit).await;
        listed.expect("the database answers")
    };
    assert_eq!(list(None, 10).await, [used.clone(), empty.clone()]);
    assert_eq!(list(None, 1).await, std::slice::from_ref(&used));
    assert_eq!(list(Some(used.id), 10).await, std::slice::from_ref(&empty));
    assert_eq!(
        facts(&bench, one).await,
        [
            json!({"kind": "upload_kept", "upload": first.id, "bytes": content.len(), "by": by}),
            json!({"kind": "upload_kept", "upload": empty.id, "bytes": 0}),
        ]
    );
    let log = serde_json::to_string(&facts(&bench, one).await).expect("it is JSON");
    assert!(!log.contains(&digest.to_string()), "{log}");
}

/// In bytes, in number, and of those under way; what is given up makes room.
pub async fn a_tenant_has_no_more_uploads_than_there_may_be(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let one = tenant(1);
    upload(&bench, one, b"12345678").await;
    let small = UploadBounds {
        total: 10,
        count: 100,
    };
    let refused = |begun: Begun, word: &str| match begun {
        Begun::NoRoom(why) => assert!(why.contains(word), "{why}"),
        other => panic!("{other:?}"),
    };
    refused(
        begin_within(&bench, new(one, Digest::of(b"abc"), 3), small).await,
        "over the 10",
    );
    let fits = new(one, Digest::of(b"ab"), 2);
    assert_eq!(begin_within(&bench, fits, small).await, Begun::Begun);
    let one_more = new(one, Digest::of(b"c"), 1);
    refused(begin_within(&bench, one_more, small).await, "over the 10");
    let few = UploadBounds {
        total: 1000,
        count: 2,
    };
    refused(begin_within(&bench, one_more, few).await, "at most 2");
    // Another tenant has room of its own.
    let theirs = new(tenant(2), Digest::of(b"c"), 10);
    assert_eq!(begin_within(&bench, theirs, small).await, Begun::Begun);
    let give_up = async |tenant, id| {
        let given_up = bench.store.give_up_upload(tenant, id).await;
        given_up.expect("the database answers");
    };
    give_up(tenant(2), fits.id).await;
    refused(begin_within(&bench, one_more, small).await, "over the 10");
    give_up(one, fits.id).await;
    give_up(one, fits.id).await;
    assert!(!piece(&bench, fits, 0, b"ab").await, "it is given up");
    assert_eq!(begin_within(&bench, one_more, small).await, Begun::Begun);
    for number in 1..MAX_UNDER_WAY {
        let upload = new(one, Digest::of(number.to_string().as_bytes()), 1);
        assert_eq!(begin(&bench, upload).await, Begun::Begun);
    }
    refused(begin(&bench, new(one, Digest::of(b"d"), 1)).await, "under way");
    // What is there is there, whatever room is left.
    assert!(matches!(
        begin_within(&bench, new(one, Digest::of(b"12345678"), 8), few).await,
        Begun::Existing(_)
    ));
}

/// By the file's number among those of the job, while the attempt is not over.
pub async fn the_attempt_of_a_job_fetches_its_uploads(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let one = tenant(1);
    let large = [vec![1; PIECE], vec![2; 3]].concat();
    upload(&bench, one, &large).await;
    upload(&bench, one, b"small").await;
    upload(&bench, tenant(2), b"theirs").await;
    let mut client = bench.session().await;
    let message = bench
        .started(&plan(one, &[b"small", &large, b"small"]), &mut client)
        .await;
    let owner = BlobOwner {
        tenant: message.tenant,
        job: message.job,
        attempt: message.attempt,
    };
    assert_eq!(fetch(&bench, owner, 0, 0).await.as_deref(), Some(&b"small"[..]));
    assert_eq!(fetch(&bench, owner, 1, 0).await.as_deref(), Some(&large[..PIECE]));
    assert_eq!(fetch(&bench, owner, 1, 1).await.as_deref(), Some(&large[PIECE..]));
    assert_eq!(fetch(&bench, owner, 2, 0).await.as_deref(), Some(&b"small"[..]));
    for (file, piece) in [(0, 1), (1, 2), (3, 0), (u32::MAX, 0), (0, u32::MAX)] {
        assert_eq!(fetch(&bench, owner, file, piece).await, None, "{file} {piece}");
    }
    for wrong in [
        BlobOwner {
            tenant: tenant(2),
            ..owner
        },
        BlobOwner {
            job: JobId::new(),
            ..owner
        },
        BlobOwner {
            attempt: AttemptId::new(),
            ..owner
        },
    ] {
        assert_eq!(fetch(&bench, wrong, 0, 0).await, None, "{wrong:?}");
    }
    bench.send(&client.finish(message.attempt, success())).await;
    assert_eq!(fetch(&bench, owner, 0, 0).await, None, "it is over");
}

/// Whatever was seen of it before; and where one of many has none, none of them is.
pub async fn no_job_is_accepted_with_an_upload_that_is_not_there(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let one = tenant(1);
    upload(&bench, one, b"there").await;
    upload(&bench, tenant(2), b"theirs").await;
    let under_way = new(one, Digest::of(b"under way"), 9);
    assert_eq!(begin(&bench, under_way).await, Begun::Begun);
    for gone in [&b"gone"[..], b"theirs", b"under way"] {
        let jobs = [plan(one, &[b"there"]), plan(one, &[b"there", gone])];
        let jobs = jobs.map(|plan| plan.job(bench.date()));
        let ids = [jobs[0].id, jobs[1].id];
        let refused = bench.store.submit_many(jobs.to_vec(), bench.date()).await;
        match refused {
            Err(StoreError::NoSuchUpload(digest)) => assert_eq!(digest, Digest::of(gone)),
            other => panic!("{other:?}"),
        }
        for id in ids {
            let found = bench.store.find_job(one, id).await;
            assert!(found.expect("the database answers").is_none());
        }
    }
}

/// While a job is not over that has it: neither asked for nor swept.
pub async fn an_upload_stays_while_a_job_has_it(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let (one, by) = (tenant(1), KeyId::new());
    let kept = upload(&bench, one, b"content").await;
    let digest = kept.digest;
    let mut client = bench.session().await;
    let message = bench
        .started(&plan(one, &[b"content", b"content"]), &mut client)
        .await;
    bench.pass(Duration::from_secs(40));
    let second = bench.submit(&plan(one, &[b"content"])).await;
    const LONG: Duration = Duration::from_secs(100);
    bench.pass(LONG * 2);
    assert_eq!(remove(&bench, one, digest, None).await, Removal::InUse);
    assert_eq!(sweep(&bench, LONG, LONG).await, 0);
    let beat = client.beat(&[message.attempt]);
    bench.send(&beat).await;
    bench.send(&client.finish(message.attempt, success())).await;
    assert_eq!(
        remove(&bench, one, digest, None).await,
        Removal::InUse,
        "the second has it"
    );
    let canceled = bench.store.cancel(one, second, &bench.context()).await;
    canceled.expect("canceling works");
    assert_eq!(remove(&bench, tenant(2), digest, None).await, Removal::Unknown);
    assert_eq!(remove(&bench, one, digest, Some(by)).await, Removal::Removed);
    assert_eq!(remove(&bench, one, digest, Some(by)).await, Removal::Unknown);
    assert_eq!(find(&*bench.store, one, &[digest]).await, []);
    let log = facts(&bench, one).await;
    let removed: Vec<&Value> = log
        .iter()
        .filter(|fact| fact["kind"] == "upload_removed")
        .collect();
    assert_eq!(
        removed,
        [&json!({"kind": "upload_removed", "upload": kept.id, "bytes": 7, "by": by})]
    );
    // The same again is another one.
    assert_ne!(upload(&bench, one, b"content").await.id, kept.id);
}

/// And what broke off with it; a job that is submitted with it is a use.
pub async fn an_upload_goes_some_time_after_its_last_use(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let one = tenant(1);
    const LONG: Duration = Duration::from_secs(1000);
    let unused = upload(&bench, one, b"unused").await;
    let used = upload(&bench, one, b"used").await;
    let broken_off = new(one, Digest::of(b"broken off"), 10);
    assert_eq!(begin(&bench, broken_off).await, Begun::Begun);
    assert!(piece(&bench, broken_off, 0, b"broken").await);
    bench.pass(LONG);
    let job = bench.submit(&plan(one, &[b"used"])).await;
    let canceled = bench.store.cancel(one, job, &bench.context()).await;
    canceled.expect("canceling works");
    assert_eq!(sweep(&bench, LONG, LONG).await, 0, "not before");
    bench.pass(Duration::from_secs(1));
    assert_eq!(sweep(&bench, LONG, LONG).await, 2);
    assert!(!piece(&bench, broken_off, 1, b"off!").await, "it is gone");
    let left = find(&*bench.store, one, &[unused.digest, used.digest]).await;
    assert_eq!(left.iter().map(|upload| upload.id).collect::<Vec<_>>(), [used.id]);
    assert!(left[0].used_at > used.used_at);
    bench.pass(LONG);
    assert_eq!(sweep(&bench, LONG, LONG).await, 1);
    let log = facts(&bench, one).await;
    let removed: Vec<&Value> = log
        .iter()
        .filter(|fact| fact["kind"] == "upload_removed")
        .collect();
    assert_eq!(
        removed,
        [
            &json!({"kind": "upload_removed", "upload": unused.id, "bytes": 6}),
            &json!({"kind": "upload_removed", "upload": used.id, "bytes": 4}),
        ]
    );
}
