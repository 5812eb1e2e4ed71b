use std::{collections::BTreeSet, sync::Arc};

use mayfly_dispatch::message::{MAX_MESSAGE_BYTES, Opened, SessionEvent};

use super::{
    Subject,
    ground::{Ground, batch_in, soon},
    samples,
};
use crate::seam::{PublishError, QueueError};

pub(super) async fn a_confirmed_attempt_is_in_the_queue(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let message = ground.publish().await;
    ground.ready(1).await;
    let mut executor = ground.consuming(1).await;
    let delivery = executor.delivery_of(&message).await;
    assert!(!delivery.redelivered);
    ground.ready(0).await;
}

pub(super) async fn what_is_published_to_no_queue_is_unroutable_and_names_it(subject: Arc<dyn Subject>) {
    let ground = Ground::bare(subject);
    // Another pool, so that what pools share is there.
    Ground::declared(Arc::clone(&ground.subject)).await;
    let executor = ground.executor(1).await;
    let errors = [
        ground.try_publish(&samples::attempt()).await,
        ground.tick(1, 1).await,
        executor.try_say(1).await,
    ];
    for error in errors {
        let Err(PublishError::Unroutable { queue }) = &error else {
            panic!("{error:?} is not `Unroutable`");
        };
        assert!(queue.contains(&ground.pool), "`{queue}` does not name the pool");
    }
    let ready = ground.queue.ready_count(&ground.pool).await;
    assert!(matches!(ready, Err(QueueError::NoQueue { .. })), "{ready:?}");
    let events = ground.queue.consume_events(&ground.pool).await;
    assert!(matches!(events, Err(QueueError::NoQueue { .. })));
    // Declaring it now brings none of them back.
    ground.declare(1).await;
    let message = ground.publish().await;
    ground.ready(1).await;
    let mut executor = ground.consuming(1).await;
    executor.delivery_of(&message).await;
}

pub(super) async fn a_full_queue_refuses_and_drops_nothing(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let limit = ground.subject.jobs_limit();
    let mut confirmed = BTreeSet::new();
    let refused = loop {
        let message = samples::attempt();
        match ground.try_publish(&message).await {
            Ok(()) => confirmed.insert(message.attempt),
            Err(error) => break error,
        };
        assert!(confirmed.len() <= 2 * limit, "nothing is refused");
    };
    assert!(matches!(refused, PublishError::Refused { .. }), "{refused:?}");
    assert!(!refused.may_have_arrived());
    assert!(confirmed.len() >= limit, "a queue with room refuses");
    // Events have a room of their own: they are what makes room for jobs.
    let mut executor = ground.consuming(50).await;
    executor.say(1).await;
    let mut delivered = BTreeSet::new();
    for _ in 0..confirmed.len() {
        let delivery = executor.delivery().await;
        executor.ack(&delivery).await;
        delivered.insert(delivery.message.expect("the message can be read").attempt);
    }
    assert_eq!(delivered, confirmed);
    ground.publish().await;
}

pub(super) async fn a_message_that_is_too_long_is_not_sent(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let executor = ground.executor(1).await;
    let mut long = executor.batch(1);
    long.events = vec![SessionEvent::Opened(Opened {
        slots: 1,
        pool: "x".repeat(MAX_MESSAGE_BYTES),
        facts: mayfly_dispatch::message::ExecutorFacts::default(),
    })];
    let error = soon("an answer", executor.events.publish_events(&long)).await;
    assert!(matches!(error, Err(PublishError::TooLong { .. })), "{error:?}");
    // The link is none the worse.
    executor.say(1).await;
    let mut recorder = ground.recorder().await;
    assert_eq!(*batch_in(&recorder.one().await), executor.batch(1));
}

pub(super) async fn declaring_again_changes_nothing(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let message = ground.publish().await;
    let mut executor = ground.executor(1).await;
    executor.say(1).await;
    let mut recorder = ground.recorder().await;
    ground.declare(1).await;
    ground.declare(1).await;
    executor.consume(true).await;
    executor.delivery_of(&message).await;
    assert_eq!(*batch_in(&recorder.one().await), executor.batch(1));
    // Neither does the next epoch, to a queue that stands.
    executor.say(2).await;
    ground.declare(2).await;
    assert_eq!(*batch_in(&recorder.one().await), executor.batch(2));
    executor.say(3).await;
    assert_eq!(*batch_in(&recorder.one().await), executor.batch(3));
}
