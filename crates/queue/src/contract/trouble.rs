use std::{num::NonZeroUsize, sync::Arc};

use super::{
    Subject,
    ground::{Ground, batch_in, never, soon, woken},
    samples,
};
use crate::seam::{Closed, LinkEvent, PublishError, QueueError, SettleError};

pub(super) async fn a_canceled_link_says_so_and_can_consume_again(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let mut executor = ground.consuming(2).await;
    let first = ground.publish().await;
    let delivery = executor.delivery_of(&first).await;
    let second = ground.publish().await;
    ground.ready(0).await;
    ground.subject.cancel_consumers(&ground.pool).await;
    let event = soon("the cancelation", executor.link.next()).await;
    assert!(matches!(event, LinkEvent::Cancelled), "{event:?}");
    let void = executor.link.ack(delivery.tag).await;
    assert!(matches!(void, Err(SettleError::NotOutstanding)), "{void:?}");
    ground.ready(2).await;
    never("a delivery", executor.link.next()).await;
    // The link stands: its events go out, and it can consume again.
    executor.say(1).await;
    executor.consume(true).await;
    assert!(executor.delivery_of(&first).await.redelivered);
    executor.delivery_of(&second).await;
}

pub(super) async fn a_link_to_a_queue_that_is_not_there_is_canceled(subject: Arc<dyn Subject>) {
    let ground = Ground::bare(subject);
    let mut executor = ground.executor(1).await;
    for _ in 0..2 {
        executor.consume(true).await;
        let event = soon("the cancelation", executor.link.next()).await;
        assert!(matches!(event, LinkEvent::Cancelled), "{event:?}");
    }
    ground.declare(1).await;
    let message = ground.publish().await;
    executor.consume(true).await;
    executor.delivery_of(&message).await;
}

pub(super) async fn a_canceled_consumer_of_events_says_so(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let executor = ground.executor(1).await;
    let mut recorder = ground.recorder().await;
    executor.say(1).await;
    let taken = recorder.one().await;
    ground.subject.cancel_consumers(&ground.pool).await;
    let closed = soon("the cancelation", recorder.events.next_batch(NonZeroUsize::MIN)).await;
    assert!(matches!(closed, Err(Closed::Cancelled)), "{closed:?}");
    let void = recorder.events.ack_up_to(taken.tag).await;
    assert!(matches!(void, Err(SettleError::NotOutstanding)), "{void:?}");
    // Although it has not been dropped, the next one is active.
    let mut next = ground.recorder().await;
    let again = next.one().await;
    assert_eq!(batch_in(&again).first, 1);
    assert!(again.redelivered);
}

pub(super) async fn a_cut_link_says_so_and_its_deliveries_go_to_another(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let mut cut = ground.consuming(1).await;
    let message = ground.publish().await;
    let delivery = cut.delivery_of(&message).await;
    let accident = ground.subject.cut_connections();
    let event = woken("the end", cut.link.next(), accident).await;
    assert!(matches!(event, LinkEvent::Disconnected { .. }), "{event:?}");
    let event = soon("the end", cut.link.next()).await;
    assert!(matches!(event, LinkEvent::Disconnected { .. }), "{event:?}");
    let published = cut.try_say(1).await;
    assert!(
        matches!(published, Err(PublishError::Disconnected { .. })),
        "{published:?}"
    );
    for settled in [
        cut.link.ack(delivery.tag).await,
        cut.link.set_consuming(true).await,
    ] {
        assert!(
            matches!(settled, Err(SettleError::Disconnected { .. })),
            "{settled:?}"
        );
    }
    // It holds nothing any more, although it has not been dropped.
    let mut other = ground.consuming(1).await;
    assert!(other.delivery_of(&message).await.redelivered);
}

pub(super) async fn a_cut_consumer_of_events_says_so(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let mut recorder = ground.recorder().await;
    ground.tick(1, 1).await.expect("the tick is confirmed");
    recorder.one().await;
    let accident = ground.subject.cut_connections();
    let closed = woken("the end", recorder.events.next_batch(NonZeroUsize::MIN), accident).await;
    assert!(matches!(closed, Err(Closed::Disconnected { .. })), "{closed:?}");
    let mut next = ground.recorder().await;
    assert!(next.one().await.redelivered);
}

pub(super) async fn a_cut_reader_of_dead_letters_says_so_and_holds_none(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let mut reader = ground.reader().await;
    let mut executor = ground.consuming(1).await;
    ground.subject.put(&ground.jobs(), None, b"garbage").await;
    let delivery = executor.delivery().await;
    let rejected = executor.link.dead_letter(delivery.tag).await;
    rejected.expect("the delivery is outstanding");
    let letter = soon("the dead letter", reader.next())
        .await
        .expect("the reader stands");
    let accident = ground.subject.cut_connections();
    let closed = woken("the end", reader.next(), accident).await;
    assert!(matches!(closed, Err(Closed::Disconnected { .. })), "{closed:?}");
    let settled = reader.discard(letter.tag).await;
    assert!(
        matches!(settled, Err(SettleError::Disconnected { .. })),
        "{settled:?}"
    );
    let mut next = ground.reader().await;
    let again = soon("the dead letter", next.next())
        .await
        .expect("the reader stands");
    assert_eq!(again.bytes, letter.bytes);
}

pub(super) async fn a_wiped_broker_is_noticed_before_a_tick_passes(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let lost = ground.executor(1).await;
    lost.say(1).await;
    ground.publish().await;
    ground.tick(1, 1).await.expect("the tick is confirmed");
    ground.subject.wipe().await;
    let executor = ground.executor_of(lost.id, 1).await;
    for published in [
        ground.tick(1, 2).await,
        ground.try_publish(&samples::attempt()).await,
        executor.try_say(2).await,
    ] {
        assert!(
            matches!(published, Err(PublishError::Unroutable { .. })),
            "{published:?}"
        );
    }
    let events = ground.queue.consume_events(&ground.pool).await;
    assert!(matches!(events, Err(QueueError::NoQueue { .. })));
    // What takes up the work is another life of the queue, in which ticks of the old one don't count.
    ground.declare(2).await;
    let published = ground.tick(1, 3).await;
    assert!(
        matches!(published, Err(PublishError::Unroutable { .. })),
        "{published:?}"
    );
    executor.say(2).await;
    let mut recorder = ground.recorder().await;
    let incoming = recorder.one().await;
    assert_eq!(batch_in(&incoming).first, 2);
    assert!(!incoming.redelivered);
    let message = ground.publish().await;
    ground.ready(1).await;
    let mut executor = executor;
    executor.consume(true).await;
    executor.delivery_of(&message).await;
}
