use std::{num::NonZeroUsize, sync::Arc};

use mayfly_core::id::{ExecutorId, SessionId};
use mayfly_dispatch::message::{Inbound, Opened, SessionEvent, Wire};

use super::{
    Subject,
    ground::{Ground, batch_in, never, numbers, soon, woken},
    samples,
};
use crate::seam::{Bad, Content, DeliveryTag, Incoming, MAX_TAKE_BYTES, PublishError, SettleError, WhyDead};

const SOME: NonZeroUsize = NonZeroUsize::new(64).expect("64 is not zero");

pub(super) async fn one_consumer_is_active_and_each_publishers_order_is_kept(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let mut active = ground.recorder().await;
    let mut waiting = ground.recorder().await;
    let (a, b) = (ground.executor(1).await, ground.executor(1).await);
    let say = async |executor: &super::ground::Executor| {
        for number in 1..=20 {
            executor.say(number).await;
        }
    };
    tokio::join!(say(&a), say(&b));
    let taken = active.take(40).await;
    assert!(
        taken
            .iter()
            .all(|incoming| !incoming.redelivered && incoming.reply_to.is_some())
    );
    assert!(taken.is_sorted_by(|one, next| one.tag < next.tag));
    let numbers = numbers(&taken);
    for executor in [&a, &b] {
        let own = numbers.iter().filter(|(session, _)| *session == executor.session);
        let own: Vec<u64> = own.map(|(_, number)| *number).collect();
        assert_eq!(own, (1..=20).collect::<Vec<u64>>());
    }
    never("an event for a second consumer", waiting.events.next_batch(SOME)).await;
}

pub(super) async fn the_next_consumer_gets_what_was_not_acked_in_order_and_marked(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let executor = ground.executor(1).await;
    for number in 1..=6 {
        executor.say(number).await;
    }
    let mut first = ground.recorder().await;
    let taken = first.take(4).await;
    first.ack(&taken[1]).await;
    let again = first.events.ack_up_to(taken[0].tag).await;
    assert!(matches!(again, Err(SettleError::NotOutstanding)), "{again:?}");
    let unknown = first.events.ack_up_to(DeliveryTag(u64::MAX)).await;
    assert!(matches!(unknown, Err(SettleError::NotOutstanding)), "{unknown:?}");
    let mut second = ground.recorder().await;
    never("an event for a second consumer", second.events.next_batch(SOME)).await;
    drop(first);
    let taken = second.take(4).await;
    let session = executor.session;
    let expected: Vec<(SessionId, u64)> = (3..=6).map(|number| (session, number)).collect();
    assert_eq!(numbers(&taken), expected);
    assert!(taken[0].redelivered && taken[1].redelivered);
    second.ack(&taken[3]).await;
    executor.say(7).await;
    let last = second.one().await;
    assert_eq!(batch_in(&last).first, 7);
    assert!(!last.redelivered);
}

pub(super) async fn a_consumer_that_waits_is_woken_by_the_end_of_the_active_one(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let executor = ground.executor(1).await;
    let active = ground.recorder().await;
    let mut waiting = ground.recorder().await;
    // The active one has not asked for it, and never does.
    executor.say(1).await;
    let end = async { drop(active) };
    let taken = woken("the event", waiting.events.next_batch(SOME), end).await;
    let taken = taken.expect("the consumer stands");
    assert_eq!(numbers(&taken), [(executor.session, 1)]);
    let taken = woken("the next event", waiting.events.next_batch(SOME), executor.say(2)).await;
    let taken = taken.expect("the consumer stands");
    assert_eq!(numbers(&taken), [(executor.session, 2)]);
}

pub(super) async fn what_waits_is_taken_up_to_the_bounds(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let executor = ground.executor(1).await;
    for number in 1..=5 {
        executor.say(number).await;
    }
    let mut recorder = ground.recorder().await;
    let most = NonZeroUsize::new(3).expect("3 is not zero");
    let taken = soon("a message", recorder.events.next_batch(most)).await;
    let taken = taken.expect("the consumer stands");
    assert!(
        (1..=3).contains(&taken.len()),
        "{} messages were taken",
        taken.len()
    );
    let rest = recorder.take(5 - taken.len()).await;
    assert_eq!(batch_in(&rest[rest.len() - 1]).first, 5);
    recorder.ack(&rest[rest.len() - 1]).await;
    // Each has more than half of the bytes, so that a take ends behind the second.
    let mut long = executor.batch(6);
    long.events = vec![SessionEvent::Opened(Opened {
        slots: 1,
        pool: "x".repeat(MAX_TAKE_BYTES / 2 + 1),
        facts: mayfly_dispatch::message::ExecutorFacts::default(),
    })];
    for _ in 0..3 {
        let published = soon("the confirm", executor.events.publish_events(&long)).await;
        published.expect("the batch is confirmed");
    }
    let mut calls = 0;
    let mut taken = 0;
    while taken < 3 {
        let more = soon("a message", recorder.events.next_batch(SOME)).await;
        let more = more.expect("the consumer stands").len();
        assert!(more <= 2, "{more} long messages were taken at once");
        taken += more;
        calls += 1;
    }
    assert!(calls >= 2);
}

pub(super) async fn ticks_and_batches_come_in_the_order_of_their_confirms(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let executor = ground.executor(1).await;
    executor.say(1).await;
    ground.tick(1, 1).await.expect("the tick is confirmed");
    executor.say(2).await;
    ground.tick(1, 2).await.expect("the tick is confirmed");
    let mut recorder = ground.recorder().await;
    let mut taken = recorder.take(4).await;
    assert!(taken[1].reply_to.is_none());
    let messages: Vec<Inbound> = taken.drain(..).map(message).collect();
    let expected = vec![
        Inbound::Batch(Box::new(executor.batch(1))),
        Inbound::Tick(samples::tick(1, 1)),
        Inbound::Batch(Box::new(executor.batch(2))),
        Inbound::Tick(samples::tick(1, 2)),
    ];
    assert_eq!(messages, expected);
}

pub(super) async fn a_tick_of_an_epoch_that_was_not_declared_is_unroutable(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let unroutable = |published: Result<(), PublishError>| {
        assert!(
            matches!(published, Err(PublishError::Unroutable { .. })),
            "{published:?}"
        );
    };
    unroutable(ground.tick(2, 1).await);
    ground.declare(2).await;
    ground.tick(2, 1).await.expect("the tick is confirmed");
    unroutable(ground.tick(1, 9).await);
    // A server that declares late opens nothing to an epoch that it does not know of.
    ground.declare(1).await;
    unroutable(ground.tick(3, 1).await);
    ground.tick(2, 2).await.expect("the tick is confirmed");
    let mut recorder = ground.recorder().await;
    let messages: Vec<Inbound> = recorder.take(2).await.into_iter().map(message).collect();
    let expected = [samples::tick(2, 1), samples::tick(2, 2)].map(Inbound::Tick);
    assert_eq!(messages, expected);
}

pub(super) async fn bytes_that_are_no_message_are_shown_and_can_be_set_aside(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let executor = ground.executor(1).await;
    executor.say(1).await;
    let bad: [&[u8]; 4] = [b"", b"\xff\xfe\x00", b"{\"v\":1}", b"{\"v\":0}"];
    for bytes in bad {
        ground
            .subject
            .put(&ground.events(), Some(executor.id), bytes)
            .await;
    }
    executor.say(2).await;
    let mut recorder = ground.recorder().await;
    let taken = recorder.take(6).await;
    for (incoming, expected) in taken[1..5].iter().zip(bad) {
        let Content::Bad { bytes, why } = &incoming.content else {
            panic!("{incoming:?} is not bad");
        };
        assert_eq!(bytes, expected);
        assert!(matches!(why, Bad::Unreadable(_)) && !why.is_newer(), "{why:?}");
        let set_aside = recorder.events.dead_letter(incoming.tag, "no message").await;
        set_aside.expect("the message is outstanding");
        let again = recorder.events.dead_letter(incoming.tag, "no message").await;
        assert!(matches!(again, Err(SettleError::NotOutstanding)), "{again:?}");
    }
    recorder.ack(&taken[5]).await;
    assert_eq!(batch_in(&taken[5]).first, 2);
    drop(recorder);
    let letters = ground.dead().await;
    assert_eq!(
        letters.iter().map(|letter| &letter.bytes[..]).collect::<Vec<_>>(),
        bad
    );
    let why = WhyDead::SetAside {
        reason: "no message".into(),
    };
    assert!(
        letters
            .iter()
            .all(|letter| letter.origin == ground.events() && letter.why == why)
    );
    // All of it is settled.
    executor.say(3).await;
    let mut next = ground.recorder().await;
    assert_eq!(batch_in(&next.one().await).first, 3);
}

pub(super) async fn a_newer_batch_waits_for_the_next_consumer(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let by = ExecutorId::new();
    ground.subject.queue_of(&ground.pool, by).await;
    ground
        .subject
        .put(&ground.events(), Some(by), &samples::newer())
        .await;
    for redelivered in [false, true] {
        let mut recorder = ground.recorder().await;
        let incoming = recorder.one().await;
        let Content::Bad { why, .. } = &incoming.content else {
            panic!("{incoming:?} is not bad");
        };
        assert!(why.is_newer(), "{why:?}");
        assert_eq!(incoming.redelivered, redelivered);
    }
    assert!(ground.dead().await.is_empty());
}

pub(super) async fn no_executor_speaks_for_another_or_for_the_server(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let (honest, liar) = (ground.executor(1).await, ground.executor(1).await);
    let forged = honest.batch(1);
    let published = soon("the confirm", liar.events.publish_events(&forged)).await;
    published.expect("the batch is confirmed");
    let tick = samples::tick(1, 1).encode();
    ground.subject.put(&ground.events(), Some(liar.id), &tick).await;
    honest.say(1).await;
    let mut recorder = ground.recorder().await;
    let taken = recorder.take(3).await;
    match &taken[0].content {
        Content::Bad {
            why: Bad::Sender { says, by },
            ..
        } => assert_eq!((*says, *by), (honest.id, liar.id)),
        other => panic!("{other:?} is not a forged batch"),
    }
    match &taken[1].content {
        Content::Bad {
            why: Bad::Tick { by },
            ..
        } => assert_eq!(*by, liar.id),
        other => panic!("{other:?} is not a forged tick"),
    }
    assert_eq!(*batch_in(&taken[2]), honest.batch(1));
}

pub(super) async fn a_wait_for_events_that_is_dropped_takes_nothing(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let executor = ground.executor(1).await;
    let mut recorder = ground.recorder().await;
    let mut taken: Vec<Incoming> = Vec::new();
    for number in 1..=40 {
        let say = executor.say(number);
        tokio::pin!(say);
        loop {
            tokio::select! {
                () = &mut say => break,
                more = recorder.events.next_batch(SOME) => taken.extend(more.expect("the consumer stands")),
            }
        }
    }
    let missing = 40 - taken.len();
    taken.extend(recorder.take(missing).await);
    assert!(taken.iter().all(|incoming| !incoming.redelivered));
    let numbers: Vec<u64> = taken.iter().map(|incoming| batch_in(incoming).first).collect();
    assert_eq!(numbers, (1..=40).collect::<Vec<u64>>());
}

fn message(incoming: Incoming) -> Inbound {
    match incoming.content {
        Content::Message(message) => message,
        other @ Content::Bad { .. } => panic!("{other:?} came in place of a message"),
    }
}
