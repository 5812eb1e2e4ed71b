//! Batches as clients see them.

use std::{collections::BTreeMap, sync::Arc};

use mayfly_core::{
    id::{BatchId, TenantId},
    outcome::EndState,
};

use super::{
    Place,
    bench::{Bench, Plan, dropped_after, success},
    jobs::tenant,
};
use crate::{
    error::StoreError,
    records::{AuditFilter, BatchRecord, MAX_ITEM_BYTES, NewBatch, Submitted},
    seam::MAX_PAGE,
};

/// What comes back is what was given, and nothing is counted that is not there.
pub async fn a_batch_is_found_as_it_was_begun(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let id = bench.batch().await;
    let expected = BatchRecord {
        id,
        tenant: TenantId::LOCAL,
        input: "programs/".to_owned(),
        created_at: bench.date(),
        items: None,
        waiting: 0,
        running: 0,
        ended: BTreeMap::new(),
    };
    assert_eq!(bench.find_batch(id).await, expected);
    let listed = bench.store.list_batches(TenantId::LOCAL, None, 10).await;
    assert_eq!(listed.expect("listing works"), [expected]);
    let none = bench.store.find_batch(TenantId::LOCAL, BatchId::new()).await;
    assert_eq!(none.expect("finding works"), None);
    let again = NewBatch {
        id,
        tenant: TenantId::LOCAL,
        input: "others/".to_owned(),
    };
    let error = bench.store.begin_batch(again, bench.date()).await;
    assert!(matches!(error, Err(StoreError::Refused { .. })), "{error:?}");
    assert_eq!(bench.find_batch(id).await.input, "programs/");
}

/// Places count from 1 and have no gaps, whatever was submitted between.
pub async fn the_jobs_of_a_batch_come_in_the_order_of_their_places(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let (batch, other) = (bench.batch().await, bench.batch().await);
    bench.submit_items(batch, ["b", "a"]).await;
    bench.submit(&Plan::once()).await;
    bench.submit_items(other, ["a", "z"]).await;
    bench.submit_items(batch, ["c", "a", "A"]).await;
    let jobs = bench.batch_jobs(batch).await;
    let seen: Vec<_> = jobs.iter().map(|job| (job.position, job.item.as_str())).collect();
    assert_eq!(seen, [(1, "b"), (2, "a"), (3, "c"), (4, "A")]);
    for job in &jobs {
        let found = bench.job(job.job.id).await.job;
        assert_eq!((&found, found.batch), (&job.job, Some(batch)));
    }
    let others: Vec<_> = bench
        .batch_jobs(other)
        .await
        .iter()
        .map(|job| job.position)
        .collect();
    assert_eq!(others, [1, 2]);
    let alone = bench.job(bench.submit(&Plan::once()).await).await;
    assert_eq!(alone.job.batch, None);
}

/// Whoever does not know what came of a submission repeats it, and the first one stands.
pub async fn an_item_is_accepted_once_however_often_it_is_submitted(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let batch = bench.batch().await;
    let first = bench.items(batch, ["a", "b"]);
    let ids: Vec<_> = first.iter().map(|job| job.id).collect();
    let answers = bench.submit_many(first.clone()).await;
    assert_eq!(answers, [Submitted::Accepted, Submitted::Accepted]);
    let before = bench.everything().await;
    let mut commits = bench.store.commits();
    commits.borrow_and_update();
    for again in [first.clone(), bench.items(batch, ["a", "b"])] {
        let answers = bench.submit_many(again).await;
        assert_eq!(
            answers,
            ids.clone()
                .into_iter()
                .map(Submitted::Existing)
                .collect::<Vec<_>>()
        );
    }
    assert_eq!(bench.everything().await, before);
    assert!(
        !commits.has_changed().expect("the store is there"),
        "nothing was committed"
    );
    // What is new among it is accepted; of two in one call the first.
    let mixed = bench.items(batch, ["b", "c", "c", "d"]);
    let c = mixed[1].id;
    let answers = bench.submit_many(mixed).await;
    let expected = [
        Submitted::Existing(ids[1]),
        Submitted::Accepted,
        Submitted::Existing(c),
        Submitted::Accepted,
    ];
    assert_eq!(answers, expected);
    assert_eq!(bench.find_batch(batch).await.accepted(), 4);
    let again = bench.store.submit(first[0].clone(), bench.date()).await;
    assert_eq!(again.expect("it is known"), Submitted::Existing(ids[0]));
}

/// Also where the last of the jobs is the one that can't be accepted.
pub async fn a_submission_is_accepted_whole_or_not_at_all(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let batch = bench.batch().await;
    let known = bench.submit(&Plan::once()).await;
    let before = bench.everything().await;
    let mut twice = bench.items(batch, ["a", "b", "c"]);
    twice[2].id = known;
    let mut unknown = bench.items(batch, ["a", "b"]);
    unknown.extend(bench.items(BatchId::new(), ["c"]));
    let mut strange = bench.items(batch, ["a", "b"]);
    strange[1].tenant = tenant(1);
    let too_many = std::iter::repeat_with(|| Plan::once().job(bench.date()))
        .take(usize::try_from(MAX_PAGE).expect("a page fits into memory") + 1)
        .collect();
    for (jobs, of_the_batch) in [
        (twice, false),
        (unknown, true),
        (strange, true),
        (too_many, false),
    ] {
        let error = bench
            .store
            .submit_many(jobs, bench.date())
            .await
            .expect_err("it can't be accepted");
        assert_eq!(
            matches!(error, StoreError::NoSuchBatch(_)),
            of_the_batch,
            "{error:?}"
        );
        assert!(!error.is_temporary());
        assert_eq!(bench.everything().await, before);
        assert_eq!(bench.batch_jobs(batch).await, []);
    }
    // A call that is dropped halfway leaves nothing behind either.
    let (mut finished, mut dropped) = (0, 0);
    for polls in 0..60 {
        let batch = bench.batch().await;
        let jobs = bench.items(batch, ["a", "b", "c"]);
        let call = bench.store.submit_many(jobs.clone(), bench.date());
        let done = dropped_after(polls, call).await.is_some();
        let accepted = bench.find_batch(batch).await.accepted();
        assert!(
            accepted == 3 || (accepted == 0 && !done),
            "{accepted} after {polls} polls"
        );
        if done {
            finished += 1
        } else {
            dropped += 1
        }
        bench.submit_many(jobs).await;
        assert_eq!(bench.batch_jobs(batch).await.len(), 3);
    }
    assert!(
        finished > 0 && dropped > 0,
        "{finished} finished, {dropped} dropped"
    );
}

/// A call may be about anything.
pub async fn jobs_without_a_batch_are_submitted_together_too(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let batch = bench.batch().await;
    let mut jobs = bench.items(batch, ["a"]);
    jobs.push(Plan::once().job(bench.date()));
    let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
    assert_eq!(bench.submit_many(jobs).await, [Submitted::Accepted; 2]);
    assert_eq!(bench.submit_many(Vec::new()).await, []);
    for (id, expected) in ids.iter().zip([Some(batch), None]) {
        assert_eq!(bench.job(*id).await.job.batch, expected);
        assert_eq!(bench.kinds(*id).await, ["job_submitted"]);
    }
}

/// The number says that all are there, so that it has to be the right one.
pub async fn a_batch_that_is_complete_takes_no_further_job(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let batch = bench.batch().await;
    bench.submit_items(batch, ["a", "b"]).await;
    for wrong in [0, 1, 3, u64::MAX] {
        let error = bench.store.complete_batch(TenantId::LOCAL, batch, wrong).await;
        assert!(matches!(error, Err(StoreError::Refused { .. })), "{error:?}");
        assert_eq!(bench.find_batch(batch).await.items, None);
    }
    bench.complete(batch, 2).await;
    bench.complete(batch, 2).await;
    assert_eq!(bench.find_batch(batch).await.items, Some(2));
    let more = bench.items(batch, ["b", "c"]);
    let error = bench.store.submit_many(more, bench.date()).await;
    assert!(matches!(error, Err(StoreError::Refused { .. })), "{error:?}");
    assert_eq!(bench.batch_jobs(batch).await.len(), 2);
    let unknown = BatchId::new();
    let error = bench.store.complete_batch(TenantId::LOCAL, unknown, 0).await;
    assert!(
        matches!(error, Err(StoreError::NoSuchBatch(id)) if id == unknown),
        "{error:?}"
    );
    // One without jobs is complete with none.
    let empty = bench.batch().await;
    bench.complete(empty, 0).await;
    assert_eq!(bench.find_batch(empty).await.items, Some(0));
}

/// Every job is counted once, wherever it stands; those of others are not.
pub async fn how_its_jobs_stand_is_counted(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let batch = bench.batch().await;
    bench.submit_items(batch, ["a", "b", "c", "d", "e"]).await;
    let messages = bench.dispatch().await;
    bench.submit(&Plan::once()).await;
    bench.submit_items(batch, ["f"]).await;
    let other = bench.batch().await;
    bench.submit_items(other, ["a"]).await;
    for message in &messages[..3] {
        let ask = client.ask(message);
        bench.send(&ask).await;
    }
    let finish = client.finish(messages[0].attempt, success());
    bench.send(&finish).await;
    for message in &messages[2..4] {
        let context = bench.context();
        let canceled = bench.store.cancel(TenantId::LOCAL, message.job, &context).await;
        canceled.expect("cancelling works");
    }
    // One has succeeded, one runs, one is to end, one was canceled before its start, one is dispatched, one is queued.
    let found = bench.find_batch(batch).await;
    assert_eq!((found.waiting, found.running), (2, 2));
    let ended = BTreeMap::from([(EndState::Succeeded, 1), (EndState::Canceled, 1)]);
    assert_eq!(found.ended, ended);
    assert_eq!((found.accepted(), found.over()), (6, 2));
    assert_eq!(bench.find_batch(other).await.waiting, 1);
}

/// Whoever follows a batch by its marks hears of each end once, in the order in which they were committed, and of nothing
/// that was before the first mark.
pub async fn its_ends_come_in_the_order_of_their_commits_each_once(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let batch = bench.batch().await;
    let other = bench.batch().await;
    bench.submit_items(batch, ["a", "b", "c", "d", "e"]).await;
    bench.submit_items(other, ["z"]).await;
    let messages = bench.dispatch().await;
    let ends = async |since, limit| {
        let ends = bench.store.list_batch_ends(TenantId::LOCAL, batch, since, limit);
        ends.await.expect("listing works")
    };
    let cancel = async |job| {
        let context = bench.context();
        let canceled = bench.store.cancel(TenantId::LOCAL, job, &context).await;
        canceled.expect("cancelling works");
    };
    cancel(messages[1].job).await;
    let begin = ends(None, 10).await;
    assert_eq!(begin.jobs, [], "without a mark there are none");
    // Of a batch, not of it; not by request, by request; and one that only starts.
    cancel(messages[3].job).await;
    cancel(messages[5].job).await;
    for message in [&messages[0], &messages[2]] {
        let ask = client.ask(message);
        bench.send(&ask).await;
    }
    let finish = client.finish(messages[0].attempt, success());
    bench.send(&finish).await;
    let first = ends(Some(begin.upto), 1).await;
    let second = ends(Some(first.upto), 10).await;
    let items: Vec<_> = [&first, &second]
        .iter()
        .flat_map(|ends| &ends.jobs)
        .map(|job| (job.position, job.item.as_str(), job.job.state.end()))
        .collect();
    let expected = [
        (4, "d", Some(EndState::Canceled)),
        (1, "a", Some(EndState::Succeeded)),
    ];
    assert_eq!(items, expected);
    let nothing = ends(Some(second.upto), 10).await;
    assert_eq!((nothing.jobs.len(), nothing.upto), (0, second.upto));
    let finish = client.finish(messages[2].attempt, success());
    bench.send(&finish).await;
    let last = ends(Some(nothing.upto), 10).await;
    assert_eq!(last.jobs.len(), 1);
    assert_eq!(last.jobs[0].job, bench.job(messages[2].job).await.job);
    let stranger = bench
        .store
        .list_batch_ends(tenant(2), batch, Some(begin.upto), 10)
        .await;
    assert_eq!(stranger.expect("listing works").jobs, []);
}

/// A cursor goes on where the page before it ended, whatever has begun meanwhile.
pub async fn batches_are_listed_newest_first_page_by_page(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut ids = Vec::new();
    for _ in 0..7 {
        ids.push(bench.batch().await);
    }
    ids.reverse();
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let page = bench.store.list_batches(TenantId::LOCAL, before, 3).await;
        let page = page.expect("listing works");
        assert!(page.len() <= 3);
        let Some(last) = page.last() else { break };
        assert!(seen.len() < ids.len(), "a page begins again");
        before = Some(last.id);
        seen.extend(page.iter().map(|batch| batch.id));
        bench.batch().await;
    }
    assert_eq!(seen, ids);
}

/// Nothing of another tenant is found, listed or changed.
pub async fn another_tenants_batch_is_not_there(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let batch = bench.batch().await;
    bench.submit_items(batch, ["a"]).await;
    let before = bench.everything().await;
    let (stranger, store) = (tenant(2), &bench.store);
    let found = store.find_batch(stranger, batch).await.expect("finding works");
    assert_eq!(found, None);
    let listed = store
        .list_batches(stranger, None, 10)
        .await
        .expect("listing works");
    assert_eq!(listed, []);
    let jobs = store.list_batch_jobs(stranger, batch, None, 10).await;
    assert_eq!(jobs.expect("listing works"), []);
    let completed = store.complete_batch(stranger, batch, 1).await;
    assert!(
        matches!(completed, Err(StoreError::NoSuchBatch(_))),
        "{completed:?}"
    );
    let mut job = bench.items(batch, ["b"]);
    job[0].tenant = stranger;
    let submitted = store.submit_many(job, bench.date()).await;
    assert!(
        matches!(submitted, Err(StoreError::NoSuchBatch(_))),
        "{submitted:?}"
    );
    assert_eq!(bench.everything().await, before);
    assert_eq!(bench.find_batch(batch).await.items, None);
}

/// No page is larger than asked for or than a page may be, and all of them together are all.
pub async fn a_large_batch_is_read_page_by_page_after_a_restart(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let batch = bench.batch().await;
    let most = u64::from(MAX_PAGE);
    for first in [0, most] {
        let names: Vec<_> = (first..first + most).map(|n| format!("item-{n}")).collect();
        bench.submit_items(batch, names.iter().map(String::as_str)).await;
    }
    bench.submit_items(batch, ["last"]).await;
    bench.complete(batch, 2 * most + 1).await;
    bench.store = bench.place.open().await;
    let mut after = None;
    for expected in [most, most, 1, 0] {
        let page = bench
            .store
            .list_batch_jobs(TenantId::LOCAL, batch, after, u32::MAX)
            .await
            .expect("listing works");
        assert_eq!(page.len() as u64, expected);
        let begin = after.unwrap_or(0);
        assert!(
            page.iter()
                .map(|job| job.position)
                .eq(begin + 1..=begin + expected)
        );
        after = Some(begin + expected);
    }
    let few = bench
        .store
        .list_batch_jobs(TenantId::LOCAL, batch, Some(2 * most - 1), 1)
        .await;
    let few = few.expect("listing works");
    assert_eq!(few.len(), 1);
    assert_eq!(few[0].item, format!("item-{}", 2 * most - 1));
    let beyond = bench
        .store
        .list_batch_jobs(TenantId::LOCAL, batch, Some(u64::MAX), 1)
        .await;
    assert_eq!(beyond.expect("listing works"), []);
    let found = bench.find_batch(batch).await;
    assert_eq!((found.waiting, found.items), (2 * most + 1, Some(2 * most + 1)));
}

/// The bound is in bytes, and any text within it is a name.
pub async fn a_name_that_no_item_may_have_is_refused(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let batch = bench.batch().await;
    let longest = "é".repeat(MAX_ITEM_BYTES / 2);
    for bad in ["", &format!("{longest}ab")] {
        let error = bench
            .store
            .submit_many(bench.items(batch, [bad]), bench.date())
            .await;
        assert!(matches!(error, Err(StoreError::Refused { .. })), "{error:?}");
    }
    let good = [longest.as_str(), "../a b\n\u{202e}", "'; --", "a\0b"];
    bench.submit_items(batch, good).await;
    let names: Vec<_> = bench
        .batch_jobs(batch)
        .await
        .into_iter()
        .map(|job| job.item)
        .collect();
    assert_eq!(names, good);
}

/// The event names the batch; the name of the item is a commitment under the job's salt, and what the batch was made
/// from stands nowhere.
pub async fn no_name_of_an_item_stands_in_the_log(place: Arc<dyn Place>) {
    use mayfly_core::digest::Digest;
    let bench = Bench::new(place).await;
    let batch = bench.batch().await;
    let jobs = bench.items(batch, ["customer-4711.py"]);
    let commitment = jobs[0].salt.commit(&Digest::of(b"customer-4711.py"));
    bench.submit_many(jobs).await;
    let events = bench.events(AuditFilter::default()).await;
    let text: String = events
        .iter()
        .map(|event| String::from_utf8_lossy(&event.body).into_owned())
        .collect();
    assert!(
        text.contains(&batch.to_string()) && text.contains(&commitment.to_string()),
        "{text}"
    );
    for absent in [
        "customer",
        "4711",
        "programs/",
        &Digest::of(b"customer-4711.py").to_hex(),
    ] {
        assert!(!text.contains(absent), "{absent}: {text}");
    }
}
