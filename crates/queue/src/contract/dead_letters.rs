use std::sync::Arc;

use super::{
    Subject,
    ground::{Ground, soon},
};
use crate::seam::{Content, JOBS_DELIVERY_LIMIT, SettleError, WhyDead};

const GARBAGE: &[u8] = b"{\"v\":1,\"job\":\"none\"}";

/// Has an executor reject a message.
async fn rejected(ground: &Ground) {
    ground.subject.put(&ground.jobs(), None, GARBAGE).await;
    let mut executor = ground.consuming(1).await;
    let delivery = executor.delivery().await;
    assert!(delivery.message.is_err());
    let rejected = executor.link.dead_letter(delivery.tag).await;
    rejected.expect("the delivery is outstanding");
    // It has left the queue when the next one comes.
    let next = ground.publish().await;
    let delivery = executor.delivery_of(&next).await;
    executor.ack(&delivery).await;
}

pub(super) async fn a_message_that_an_executor_rejects_is_listed_as_often_as_one_looks(
    subject: Arc<dyn Subject>,
) {
    let ground = Ground::declared(subject).await;
    // A reader that is there first gets it as it arrives.
    let mut waiting = ground.reader().await;
    let (letter, ()) = tokio::join!(soon("a dead letter", waiting.next()), rejected(&ground));
    let letter = letter.expect("the reader stands");
    assert_eq!(
        (&letter.origin, &letter.why),
        (&ground.jobs(), &WhyDead::Rejected)
    );
    assert_eq!(letter.bytes, GARBAGE);
    drop(waiting);
    for _ in 0..2 {
        let mut looking = ground.reader().await;
        let seen = soon("the dead letter", looking.next())
            .await
            .expect("the reader stands");
        assert_eq!(
            (seen.origin, seen.why, seen.bytes),
            (ground.jobs(), WhyDead::Rejected, GARBAGE.to_vec())
        );
    }
}

pub(super) async fn a_message_that_comes_back_too_often_is_a_dead_letter(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let message = ground.publish().await;
    let mut executor = ground.consuming(1).await;
    let mut dead = ground.reader().await;
    let mut deliveries = 0;
    let letter = loop {
        tokio::select! {
            letter = dead.next() => break letter.expect("the reader stands"),
            delivery = executor.delivery_of(&message) => {
                deliveries += 1;
                // Brokers count deliveries or returns.
                assert!(deliveries <= JOBS_DELIVERY_LIMIT + 1, "delivery {deliveries}");
                executor.link.hand_back(delivery.tag).await.expect("the delivery is outstanding");
            }
        }
    };
    assert!(
        deliveries >= JOBS_DELIVERY_LIMIT,
        "dead after {deliveries} deliveries"
    );
    assert_eq!(
        (letter.origin, letter.why),
        (ground.jobs(), WhyDead::DeliveryLimit)
    );
    let neighbour = ground.publish().await;
    executor.delivery_of(&neighbour).await;
}

pub(super) async fn a_dead_letter_that_is_published_again_begins_anew(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    rejected(&ground).await;
    let mut dead = ground.reader().await;
    let letter = soon("the dead letter", dead.next())
        .await
        .expect("the reader stands");
    dead.discard(letter.tag).await.expect("the letter is in hands");
    let published = ground
        .queue
        .republish(&letter.origin, &letter.sender, &letter.bytes)
        .await;
    published.expect("the letter is published");
    let mut executor = ground.consuming(1).await;
    let delivery = executor.delivery().await;
    assert!(delivery.message.is_err() && !delivery.redelivered);
}

pub(super) async fn events_that_are_published_again_are_the_word_of_who_said_them(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let mut recorder = ground.recorder().await;
    let lost = ground.executor(1).await;
    lost.say(1).await;
    let said = recorder.one().await;
    let Content::Message(expected) = said.content else {
        panic!("an executor has said it: {:?}", said.content);
    };
    let set_aside = recorder.events.dead_letter(said.tag, "for the case").await;
    set_aside.expect("the message is outstanding");
    let mut dead = ground.reader().await;
    let letter = soon("the dead letter", dead.next())
        .await
        .expect("the reader stands");
    dead.discard(letter.tag).await.expect("the letter is in hands");
    let published = ground
        .queue
        .republish(&letter.origin, &letter.sender, &letter.bytes)
        .await;
    published.expect("the letter is published");
    let again = recorder.one().await;
    assert!(!again.redelivered);
    let Content::Message(found) = again.content else {
        panic!("it is the same executor's word: {:?}", again.content);
    };
    assert_eq!(found, expected);
}

pub(super) async fn a_dead_letter_is_in_one_readers_hands_until_it_is_settled(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    rejected(&ground).await;
    let (mut one, mut other) = (ground.reader().await, ground.reader().await);
    soon("the dead letter", one.next())
        .await
        .expect("the reader stands");
    let none = soon("a look", other.try_next()).await.expect("the reader stands");
    assert_eq!(none, None);
    drop(one);
    let letter = soon("the dead letter", other.next())
        .await
        .expect("the reader stands");
    assert_eq!(letter.bytes, GARBAGE);
    other.discard(letter.tag).await.expect("the letter is in hands");
    let again = other.discard(letter.tag).await;
    assert!(matches!(again, Err(SettleError::NotOutstanding)), "{again:?}");
    drop(other);
    assert!(ground.dead().await.is_empty());
}
