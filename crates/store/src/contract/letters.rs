//! What was set aside: kept, listed, replayed once, discarded.

use std::sync::Arc;

use mayfly_core::{
    digest::Digest,
    id::{KeyId, TenantId},
    state::JobState,
};
use mayfly_dispatch::message::DispatchMessage;

use super::{
    Place,
    bench::{Bench, POOL, Plan, success},
};
use crate::{
    letters::{AboutAttempt, LetterCause, LetterContent, LetterOrigin, MOST_WITH_CONTENT, NewLetter, Replay},
    records::AuditFilter,
};

fn of_attempt(message: &DispatchMessage) -> NewLetter {
    NewLetter {
        id: Digest::of(&message.publication.to_be_bytes()),
        origin: LetterOrigin::Jobs,
        pool: POOL.to_owned(),
        cause: LetterCause::DeliveryLimit,
        reason: None,
        bytes: 512,
        content: LetterContent::Attempt(AboutAttempt {
            tenant: message.tenant,
            job: message.job,
            attempt: message.attempt,
        }),
    }
}

fn of_events(text: &str) -> NewLetter {
    NewLetter {
        id: Digest::of(text.as_bytes()),
        origin: LetterOrigin::Events,
        pool: POOL.to_owned(),
        cause: LetterCause::SetAside,
        reason: Some("not JSON: \u{0} at 1".to_owned()),
        bytes: text.len() as u64,
        content: LetterContent::Bytes {
            bytes: text.as_bytes().to_vec(),
            sender: "someone".to_owned(),
        },
    }
}

async fn keep(bench: &Bench, letter: &NewLetter) -> bool {
    let kept = bench.store.keep_letter(letter, bench.date()).await;
    kept.expect("keeping works")
}

async fn listed(bench: &Bench) -> Vec<Digest> {
    let letters = bench.store.list_letters(10).await.expect("listing works");
    letters.into_iter().map(|letter| letter.id).collect()
}

async fn replay(bench: &Bench, id: Digest, by: Option<KeyId>) -> Replay {
    let replayed = bench.store.replay_letter(id, by, &bench.context()).await;
    replayed.expect("replaying works")
}

/// With its cause and its time; the newest time where it comes again.
pub async fn a_letter_is_listed_as_it_was_kept_the_oldest_first(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let message = bench.dispatched(&Plan::default()).await;
    let (first, second) = (of_events("one"), of_attempt(&message));
    assert!(keep(&bench, &first).await);
    let begun = bench.date();
    bench.pass(std::time::Duration::from_secs(1));
    assert!(keep(&bench, &second).await);
    let letters = bench.store.list_letters(10).await.expect("listing works");
    let shown: Vec<_> = letters
        .iter()
        .map(|letter| (letter.id, letter.at, letter.cause, letter.reason.as_deref()))
        .collect();
    assert_eq!(
        shown,
        [
            (first.id, begun, LetterCause::SetAside, first.reason.as_deref()),
            (second.id, bench.date(), LetterCause::DeliveryLimit, None),
        ]
    );
    let about = letters[1]
        .about
        .map(|about| (about.tenant, about.job, about.attempt));
    assert_eq!(about, Some((message.tenant, message.job, message.attempt)));
    assert_eq!((letters[0].bytes, letters[0].about), (3, None));
    bench.pass(std::time::Duration::from_secs(1));
    assert!(keep(&bench, &first).await);
    assert_eq!(listed(&bench).await, [second.id, first.id]);
    let one = bench.store.list_letters(1).await.expect("listing works");
    assert_eq!(one.len(), 1);
}

/// Who has it published again is on record, in the log of the attempt's tenant.
pub async fn a_letter_about_an_attempt_becomes_its_next_publication_once(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let message = bench.dispatched(&Plan::default()).await;
    let letter = of_attempt(&message);
    keep(&bench, &letter).await;
    let by = KeyId::new();
    let Replay::Attempt { pool, message: next } = replay(&bench, letter.id, Some(by)).await else {
        panic!("the attempt waits for its start");
    };
    assert_eq!(
        (pool.as_str(), next.attempt, next.publication),
        (POOL, message.attempt, message.publication + 1)
    );
    assert!(listed(&bench).await.is_empty());
    assert!(matches!(
        replay(&bench, letter.id, Some(by)).await,
        Replay::NoSuchLetter
    ));
    let events = bench.events(AuditFilter::default()).await;
    let replayed: Vec<_> = events
        .iter()
        .filter(|event| event.kind == "dead_letter_replayed")
        .collect();
    assert_eq!(replayed.len(), 1);
    let body = String::from_utf8_lossy(&replayed[0].body);
    assert!(
        body.contains(&by.to_string()) && body.contains(&letter.id.to_hex()),
        "{body}"
    );
    assert_eq!(replayed[0].job, Some(message.job));
    // The job ends once, whichever publication starts it.
    bench.send(&client.ask(&next)).await;
    bench.send(&client.finish(message.attempt, success())).await;
    assert!(matches!(bench.state(message.job).await, JobState::Ended(_)));
}

/// Started or over: what there is of it stays, and nothing is recorded.
pub async fn a_letter_about_an_attempt_that_waits_no_more_is_not_replayed(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let message = bench.started(&Plan::default(), &mut client).await;
    let letter = of_attempt(&message);
    keep(&bench, &letter).await;
    let before = bench.everything().await;
    assert!(matches!(
        replay(&bench, letter.id, None).await,
        Replay::NotWaiting
    ));
    assert_eq!(bench.everything().await, before);
    bench.send(&client.finish(message.attempt, success())).await;
    let before = bench.everything().await;
    assert!(matches!(
        replay(&bench, letter.id, None).await,
        Replay::NotWaiting
    ));
    assert_eq!(bench.everything().await, before);
    assert_eq!(listed(&bench).await, [letter.id]);
}

/// It is gone once somebody says that it is published.
pub async fn another_letter_is_handed_out_whole_until_it_is_forgotten(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let letter = of_events("{}");
    keep(&bench, &letter).await;
    for _ in 0..2 {
        let replayed = replay(&bench, letter.id, None).await;
        let Replay::Bytes {
            origin,
            pool,
            bytes,
            sender,
        } = replayed
        else {
            panic!("{replayed:?}");
        };
        assert_eq!(
            (origin, pool.as_str(), &bytes[..], sender.as_str()),
            (LetterOrigin::Events, POOL, &b"{}"[..], "someone")
        );
    }
    bench
        .store
        .forget_letter(letter.id)
        .await
        .expect("forgetting works");
    bench
        .store
        .forget_letter(letter.id)
        .await
        .expect("it is forgotten");
    assert!(listed(&bench).await.is_empty());
    assert!(matches!(
        replay(&bench, letter.id, None).await,
        Replay::NoSuchLetter
    ));
    assert_eq!(
        kinds(&bench).await,
        ["dead_letter_replayed", "dead_letter_replayed"]
    );
}

async fn kinds(bench: &Bench) -> Vec<String> {
    let events = bench
        .store
        .list_audit(TenantId::LOCAL, AuditFilter::default(), 100)
        .await;
    let events = events.expect("listing works");
    events
        .into_iter()
        .map(|event| event.kind)
        .filter(|kind| kind.starts_with("dead_letter"))
        .collect()
}

/// And nothing is recorded where there is none.
pub async fn a_discarded_letter_is_gone_and_on_record(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let message = bench.dispatched(&Plan::default()).await;
    for letter in [of_events("{}"), of_attempt(&message)] {
        keep(&bench, &letter).await;
        for expected in [true, false] {
            let discarded = bench.store.discard_letter(letter.id, None, bench.date()).await;
            assert_eq!(discarded.expect("discarding works"), expected);
        }
    }
    assert!(listed(&bench).await.is_empty());
    assert_eq!(
        kinds(&bench).await,
        ["dead_letter_discarded", "dead_letter_discarded"]
    );
    assert_eq!(bench.state(message.job).await, JobState::Dispatched);
}

/// What holds something is kept until there is no room; nothing that is kept goes for it, and one that is there is no
/// further one.
pub async fn there_is_room_for_so_many_letters(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    for number in 0..MOST_WITH_CONTENT {
        assert!(keep(&bench, &of_events(&number.to_string())).await);
    }
    assert!(!keep(&bench, &of_events("one more")).await);
    assert!(keep(&bench, &of_events("0")).await);
    let message = bench.dispatched(&Plan::default()).await;
    assert!(
        keep(&bench, &of_attempt(&message)).await,
        "others need no such room"
    );
    let id = Digest::of(b"1");
    let discarded = bench.store.discard_letter(id, None, bench.date()).await;
    assert!(discarded.expect("discarding works"));
    assert!(keep(&bench, &of_events("one more")).await);
    let letters = bench.store.list_letters(u32::MAX).await.expect("listing works");
    assert_eq!(letters.len(), MOST_WITH_CONTENT as usize + 1);
}
