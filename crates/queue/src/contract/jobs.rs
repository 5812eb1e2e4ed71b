use std::{collections::BTreeSet, sync::Arc};

use mayfly_dispatch::message::DecodeError;

use super::{
    Subject,
    ground::{Ground, never, soon, woken},
    samples,
};
use crate::seam::{LinkEvent, SettleError};

pub(super) async fn what_is_not_acked_is_delivered_again_when_its_link_is_lost(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let message = ground.publish().await;
    let mut lost = ground.consuming(1).await;
    assert!(!lost.delivery_of(&message).await.redelivered);
    drop(lost);
    let mut other = ground.consuming(1).await;
    assert!(other.delivery_of(&message).await.redelivered);
    // The publisher of a link that is gone says so.
    let gone = ground.executor(1).await;
    let events = Arc::clone(&gone.events);
    let batch = gone.batch(1);
    drop(gone);
    let error = soon("an answer", events.publish_events(&batch)).await;
    assert!(error.is_err());
}

pub(super) async fn a_wait_for_a_delivery_ends_when_one_comes(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let mut executor = ground.consuming(1).await;
    let message = samples::attempt();
    let publish = async {
        ground
            .try_publish(&message)
            .await
            .expect("the attempt is confirmed")
    };
    let event = woken("the delivery", executor.link.next(), publish).await;
    assert!(matches!(event, LinkEvent::Delivery(_)), "{event:?}");
}

pub(super) async fn what_is_acked_is_not_delivered_again(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let message = ground.publish().await;
    let mut executor = ground.consuming(1).await;
    let delivery = executor.delivery_of(&message).await;
    executor.ack(&delivery).await;
    // The ack is not confirmed, but it goes before whatever this link does next: that the next one comes shows it.
    let next = ground.publish().await;
    let delivery = executor.delivery_of(&next).await;
    executor.ack(&delivery).await;
    let last = ground.publish().await;
    executor.delivery_of(&last).await;
    drop(executor);
    let mut other = ground.consuming(3).await;
    assert!(other.delivery_of(&last).await.redelivered);
    never("an acked message", other.link.next()).await;
}

pub(super) async fn what_is_handed_back_goes_to_another_executor(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let message = ground.publish().await;
    let mut full = ground.consuming(1).await;
    let delivery = full.delivery_of(&message).await;
    full.consume(false).await;
    // Behind the message that comes back, which goes near the head.
    let behind = ground.publish().await;
    ground.ready(1).await;
    full.link
        .hand_back(delivery.tag)
        .await
        .expect("it is outstanding");
    ground.ready(2).await;
    let mut idle = ground.consuming(1).await;
    let delivery = idle.delivery_of(&message).await;
    assert!(delivery.redelivered);
    idle.ack(&delivery).await;
    let delivery = idle.delivery_of(&behind).await;
    assert!(!delivery.redelivered);
    never("something", full.link.next()).await;
}

pub(super) async fn no_more_than_the_prefetch_is_delivered(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let mut executor = ground.consuming(2).await;
    for _ in 0..3 {
        ground.publish().await;
    }
    let first = executor.delivery().await;
    executor.delivery().await;
    ground.ready(1).await;
    never("a delivery beyond the prefetch", executor.link.next()).await;
    executor.ack(&first).await;
    executor.delivery().await;
    ground.ready(0).await;
}

pub(super) async fn a_link_that_was_not_told_to_consume_gets_nothing(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let mut executor = ground.executor(1).await;
    let message = ground.publish().await;
    never("a delivery", executor.link.next()).await;
    ground.ready(1).await;
    // Twice is once: there is no second consumer with a prefetch of its own.
    executor.consume(true).await;
    executor.consume(true).await;
    let delivery = executor.delivery_of(&message).await;
    let next = ground.publish().await;
    ground.ready(1).await;
    never("a delivery beyond the prefetch", executor.link.next()).await;
    executor.ack(&delivery).await;
    executor.delivery_of(&next).await;
}

pub(super) async fn the_end_of_consuming_frees_what_was_not_taken(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let mut busy = ground.consuming(3).await;
    for _ in 0..3 {
        ground.publish().await;
    }
    ground.ready(0).await;
    let taken = busy.delivery().await;
    busy.consume(false).await;
    busy.consume(false).await;
    ground.ready(2).await;
    never("a delivery after the end", busy.link.next()).await;
    let mut idle = ground.consuming(3).await;
    idle.delivery().await;
    idle.delivery().await;
    // What was taken is outstanding still: nobody else has it, and it can be settled.
    never("what another holds", idle.link.next()).await;
    busy.ack(&taken).await;
    drop(busy);
    let marker = ground.publish().await;
    idle.delivery_of(&marker).await;
}

pub(super) async fn nothing_waits_at_a_busy_executor_while_another_is_idle(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let mut busy = ground.consuming(1).await;
    let mut idle = ground.executor(1).await;
    let first = ground.publish().await;
    let held = busy.delivery_of(&first).await;
    idle.consume(true).await;
    // As often as one likes: the one that holds something is passed over.
    for _ in 0..5 {
        let next = ground.publish().await;
        let delivery = idle.delivery_of(&next).await;
        idle.ack(&delivery).await;
    }
    // Both are busy, and what waits goes to whoever is free first.
    let held_too = ground.publish().await;
    let held_too = idle.delivery_of(&held_too).await;
    let waits = ground.publish().await;
    ground.ready(1).await;
    busy.ack(&held).await;
    busy.delivery_of(&waits).await;
    idle.ack(&held_too).await;
}

pub(super) async fn a_delivery_is_settled_once(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let mut executor = ground.consuming(1).await;
    ground.publish().await;
    let delivery = executor.delivery().await;
    executor.ack(&delivery).await;
    for again in [
        executor.link.ack(delivery.tag).await,
        executor.link.hand_back(delivery.tag).await,
        executor.link.dead_letter(delivery.tag).await,
    ] {
        assert!(matches!(again, Err(SettleError::NotOutstanding)), "{again:?}");
    }
    // It costs the link nothing, and brings nothing back.
    let next = ground.publish().await;
    executor.delivery_of(&next).await;
    assert!(ground.dead().await.is_empty());
}

pub(super) async fn a_newer_message_is_handed_back_and_no_dead_letter(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    ground.subject.put(&ground.jobs(), None, &samples::newer()).await;
    let mut old = ground.consuming(1).await;
    let delivery = old.delivery().await;
    let read = &delivery.message;
    assert!(matches!(read, Err(DecodeError::NewerVersion { .. })), "{read:?}");
    old.consume(false).await;
    old.link.hand_back(delivery.tag).await.expect("it is outstanding");
    let mut other = ground.consuming(1).await;
    let delivery = other.delivery().await;
    assert!(matches!(delivery.message, Err(DecodeError::NewerVersion { .. })));
    assert!(delivery.redelivered);
    assert!(ground.dead().await.is_empty());
}

pub(super) async fn a_wait_for_a_delivery_that_is_dropped_takes_nothing(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let mut executor = ground.consuming(100).await;
    let mut missing = BTreeSet::new();
    for _ in 0..40 {
        // Dropped at each point that a wait of this length has, before, while and after the message arrives.
        let publish = ground.publish();
        tokio::pin!(publish);
        let message = loop {
            tokio::select! {
                message = &mut publish => break message,
                event = executor.link.next() => {
                    take(&mut missing, &event);
                }
            }
        };
        toggle(&mut missing, message.attempt);
    }
    while !missing.is_empty() {
        let event = soon("a delivery", executor.link.next()).await;
        take(&mut missing, &event);
    }
    never("a second delivery", executor.link.next()).await;

    fn take(missing: &mut BTreeSet<mayfly_core::id::AttemptId>, event: &LinkEvent) {
        let LinkEvent::Delivery(delivery) = event else {
            panic!("{event:?} came in place of a delivery");
        };
        assert!(!delivery.redelivered);
        let message = delivery.message.as_ref().expect("the message can be read");
        toggle(missing, message.attempt);
    }

    /// A message may be delivered before its confirm has come.
    fn toggle(missing: &mut BTreeSet<mayfly_core::id::AttemptId>, attempt: mayfly_core::id::AttemptId) {
        if !missing.remove(&attempt) {
            missing.insert(attempt);
        }
    }
}
