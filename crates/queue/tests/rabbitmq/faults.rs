//! What happens to a broker and to the way there, and what of it must not matter.

use std::{num::NonZeroU16, sync::Arc, time::Duration};

use mayfly_core::id::ExecutorId;
use mayfly_dispatch::message::{DispatchMessage, EventBatch, MAX_MESSAGE_BYTES, SessionEvent, VERSION};
use mayfly_queue::{
    contract::{PATIENCE, sample_attempt},
    rabbitmq::RabbitQueue,
    seam::{Content, ExecutorLink, LinkEvent, Origin, PublishError, Queue, WhyDead},
};
use mayfly_testkit::proxy::{Direction, Flow};
use tokio::time::timeout;

use crate::broker::{Broker, OwnBroker, Place};

const POOL: &str = "pool";

/// A place with a pool that is declared.
struct Ground {
    place: Arc<Place>,
    server: RabbitQueue,
}

impl Ground {
    async fn of(broker: Broker) -> Self {
        Self::at(Place::new(broker).await).await
    }

    async fn at(place: Arc<Place>) -> Self {
        let server = place.server();
        let ground = Self { place, server };
        ground.declare().await;
        ground
    }

    async fn declare(&self) {
        self.server.declare(POOL).await.expect("a pool can be declared");
        self.server
            .declare_events(POOL, 1)
            .await
            .expect("a pool can be declared");
    }

    /// An executor by this queue, which consumes.
    async fn executor(&self) -> (RabbitQueue, Box<dyn ExecutorLink>, ExecutorId) {
        let id = ExecutorId::new();
        self.place.enroll(POOL, id).await;
        let queue = self.place.executor(POOL, id);
        let link = join(&queue, id).await;
        (queue, link, id)
    }

    /// Publishes until it is confirmed, as a scheduler does.
    async fn publish(&self, message: &DispatchMessage) {
        soon("a confirm", async {
            while let Err(error) = self.server.publish_attempt(POOL, message).await {
                assert!(!matches!(error, PublishError::TooLong { .. }), "{error}");
            }
        })
        .await;
    }
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(PATIENCE * 3, future)
        .await
        .unwrap_or_else(|_| panic!("{what} did not come"))
}

async fn join(queue: &RabbitQueue, id: ExecutorId) -> Box<dyn ExecutorLink> {
    let joined = async {
        loop {
            if let Ok(link) = queue.join(POOL, id, NonZeroU16::MIN).await {
                return link;
            }
        }
    };
    let link = soon("a link", joined).await;
    link.set_consuming(true).await.expect("the link stands");
    link
}

async fn delivery(link: &mut Box<dyn ExecutorLink>) -> (DispatchMessage, bool) {
    match soon("a delivery", link.next()).await {
        LinkEvent::Delivery(delivery) => {
            link.ack(delivery.tag).await.expect("the delivery is outstanding");
            (
                *delivery.message.expect("the message can be read"),
                delivery.redelivered,
            )
        }
        other => panic!("{other:?} came in place of a delivery"),
    }
}

fn batch(executor: ExecutorId) -> EventBatch {
    EventBatch {
        v: VERSION,
        executor,
        session: mayfly_core::id::SessionId::new(),
        first: 1,
        events: vec![SessionEvent::Closed],
        heartbeat: None,
    }
}

#[tokio::test]
async fn a_connection_that_is_cut_before_a_confirm_leaves_the_message_in_doubt_and_goes_on() {
    let Some(broker) = Broker::of_environment() else {
        return;
    };
    let ground = Ground::of(broker).await;
    let message = sample_attempt();
    ground.publish(&message).await;
    // The confirm is held back, the message is not.
    let proxy = &ground.place.proxy;
    proxy.set(Direction::ToClient, Flow::Stopped);
    let before = proxy.passed(Direction::ToServer);
    let doubtful = sample_attempt();
    let publish = ground.server.publish_attempt(POOL, &doubtful);
    let cut = async {
        proxy.passed_more_than(Direction::ToServer, before + 200).await;
        proxy.cut();
    };
    let (published, ()) = soon("an answer", async { tokio::join!(publish, cut) }).await;
    let error = published.expect_err("nobody has confirmed it");
    assert!(error.may_have_arrived(), "{error:?}");
    // Not before: a confirm that is held would come through after all.
    proxy.open_all();
    // Published again it may be there twice, and both are the same attempt.
    ground.publish(&doubtful).await;
    let (_queue, mut link, _) = ground.executor().await;
    assert_eq!(delivery(&mut link).await.0, message);
    assert_eq!(delivery(&mut link).await.0, doubtful);
}

#[tokio::test]
async fn many_messages_under_way_at_a_cut_are_confirmed_or_in_doubt_and_none_is_lost() {
    let Some(broker) = Broker::of_environment() else {
        return;
    };
    let ground = Ground::of(broker).await;
    let messages: Vec<DispatchMessage> = (0..64).map(|_| sample_attempt()).collect();
    let (confirmed, doubtful) = messages.split_at(32);
    let publish = |messages| {
        let all =
            <[DispatchMessage]>::iter(messages).map(|message| ground.server.publish_attempt(POOL, message));
        soon("the answers", futures_util::future::join_all(all))
    };
    let mut published = publish(confirmed).await;
    // From here on no confirm comes, so that the cut hits all that is under way, however slow this is.
    let proxy = &ground.place.proxy;
    proxy.set(Direction::ToClient, Flow::Stopped);
    let before = proxy.passed(Direction::ToServer);
    let cut = async {
        proxy.passed_more_than(Direction::ToServer, before + 8_000).await;
        proxy.cut();
    };
    published.extend(tokio::join!(publish(doubtful), cut).0);
    assert!(published[..32].iter().all(Result::is_ok), "{published:?}");
    assert!(published[32..].iter().any(Result::is_err), "the cut hit nothing");
    // Not before: a confirm that is held would come through after all.
    proxy.open_all();
    for (message, published) in messages.iter().zip(&published) {
        if let Err(error) = published {
            assert!(error.may_have_arrived(), "{error:?}");
            ground.publish(message).await;
        }
    }
    let mut missing: std::collections::BTreeSet<_> = messages.iter().map(|message| message.attempt).collect();
    let (_queue, mut link, _) = ground.executor().await;
    while !missing.is_empty() {
        missing.remove(&delivery(&mut link).await.0.attempt);
    }
}

#[tokio::test]
async fn unroutable_among_many_is_told_of_the_right_ones() {
    let Some(broker) = Broker::of_environment() else {
        return;
    };
    let ground = Ground::of(broker).await;
    // Every third goes to a pool that is not there; all are under way together.
    let publish = (0..150).map(|n| {
        let pool = if n % 3 == 0 { "nowhere" } else { POOL };
        let server = &ground.server;
        async move { (n, server.publish_attempt(pool, &sample_attempt()).await) }
    });
    for (n, published) in soon("the answers", futures_util::future::join_all(publish)).await {
        match published {
            Ok(()) => assert_ne!(n % 3, 0, "{n} is in no queue"),
            Err(PublishError::Unroutable { .. }) => assert_eq!(n % 3, 0, "{n} is in its queue"),
            Err(other) => panic!("{n}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_half_open_connection_is_noticed_on_both_sides() {
    let Some(broker) = Broker::of_environment() else {
        return;
    };
    // A second apart.
    let ground = Ground::at(Place::with_heartbeat(broker, NonZeroU16::MIN).await).await;
    let (queue, mut held, id) = ground.executor().await;
    let message = sample_attempt();
    ground.publish(&message).await;
    // Delivered, not acked.
    let event = soon("a delivery", held.next()).await;
    assert!(matches!(event, LinkEvent::Delivery(_)), "{event:?}");
    ground.place.proxy.stop_all();
    // Heartbeats are missing, and nothing else is said.
    let event = soon("the end", held.next()).await;
    assert!(matches!(event, LinkEvent::Disconnected { .. }), "{event:?}");
    let published = held.publisher().publish_events(&batch(id)).await;
    assert!(
        matches!(published, Err(PublishError::Disconnected { .. })),
        "{published:?}"
    );
    soon("the server's notice", async {
        while ground.server.health().connected {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    // By another way the message is to be had: the broker has noticed too.
    let (other, direct) = (ExecutorId::new(), &ground.place);
    direct.enroll(POOL, other).await;
    let mut taker = join(&direct.executor_direct(POOL, other), other).await;
    let (taken, redelivered) = delivery(&mut taker).await;
    assert!(taken == message && redelivered);
    // What waits in the proxy belongs to connections that are over.
    ground.place.proxy.cut();
    ground.place.proxy.open_all();
    drop(taker);
    drop(held);
    let mut back = join(&queue, id).await;
    let next = sample_attempt();
    ground.publish(&next).await;
    assert_eq!(delivery(&mut back).await.0, next);
}

#[tokio::test]
async fn a_deleted_queue_of_jobs_is_declared_again_and_executors_go_on() {
    let Some(broker) = Broker::of_environment() else {
        return;
    };
    let ground = Ground::of(broker).await;
    let (_queue, mut link, _) = ground.executor().await;
    let vhost = &ground.place.vhost;
    ground
        .place
        .broker
        .delete(&format!("queues/{vhost}/mayfly.jobs.{POOL}"))
        .await;
    let event = soon("the cancelation", link.next()).await;
    assert!(matches!(event, LinkEvent::Cancelled), "{event:?}");
    let message = sample_attempt();
    let lost = ground.server.publish_attempt(POOL, &message).await;
    assert!(matches!(lost, Err(PublishError::Unroutable { .. })), "{lost:?}");
    ground.publish(&message).await;
    link.set_consuming(true).await.expect("the link stands");
    assert_eq!(delivery(&mut link).await.0, message);
}

#[tokio::test]
async fn an_alarm_stops_publishing_and_not_acks_and_is_told() {
    let Some(own) = OwnBroker::start().await else {
        return;
    };
    let ground = Ground::of(own.broker.clone()).await;
    let (_queue, mut link, _) = ground.executor().await;
    let (first, second) = (sample_attempt(), sample_attempt());
    ground.publish(&first).await;
    ground.publish(&second).await;
    own.ctl(&["set_vm_memory_high_watermark", "0.0001"]).await;
    // The broker tells those that publish: the first message is in doubt, or refused.
    let error = soon("an answer", async {
        loop {
            if let Err(error) = ground.server.publish_attempt(POOL, &sample_attempt()).await {
                break error;
            }
        }
    })
    .await;
    assert!(
        matches!(
            error,
            PublishError::Refused { .. } | PublishError::NotConfirmed { .. }
        ),
        "{error:?}"
    );
    soon("the alarm", async {
        while ground.server.health().blocked.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    // Jobs are delivered and acked meanwhile.
    assert_eq!(delivery(&mut link).await.0, first);
    assert_eq!(delivery(&mut link).await.0, second);
    own.ctl(&["set_vm_memory_high_watermark", "0.6"]).await;
    ground.publish(&sample_attempt()).await;
    assert_eq!(ground.server.health().blocked, None);
}

#[tokio::test]
async fn a_restarted_broker_has_what_it_confirmed_and_everyone_comes_back() {
    let Some(own) = OwnBroker::start().await else {
        return;
    };
    let ground = Ground::of(own.broker.clone()).await;
    let messages: Vec<DispatchMessage> = (0..20).map(|_| sample_attempt()).collect();
    for message in &messages {
        ground.publish(message).await;
    }
    let (queue, mut link, id) = ground.executor().await;
    assert_eq!(delivery(&mut link).await.0, messages[0]);
    own.broker_does("kill").await;
    let lost = async {
        loop {
            if let LinkEvent::Disconnected { .. } = link.next().await {
                break;
            }
        }
    };
    soon("the end", lost).await;
    let refused = ground.server.publish_attempt(POOL, &messages[0]).await;
    assert!(refused.is_err());
    own.broker_does("start").await;
    let mut link = join(&queue, id).await;
    let mut missing: std::collections::BTreeSet<_> =
        messages[1..].iter().map(|message| message.attempt).collect();
    while !missing.is_empty() {
        missing.remove(&delivery(&mut link).await.0.attempt);
    }
    let next = sample_attempt();
    ground.publish(&next).await;
    while delivery(&mut link).await.0 != next {}
}

#[tokio::test]
async fn a_broker_that_has_forgotten_its_users_is_asked_until_it_knows_them() {
    let Some(own) = OwnBroker::start().await else {
        return;
    };
    let ground = Ground::of(own.broker.clone()).await;
    let user = ground.place.server_user().to_owned();
    let (queue, mut link, id) = ground.executor().await;
    own.ctl(&["delete_user", &user]).await;
    own.ctl(&["delete_user", &mayfly_queue::rabbitmq::user_name(id, POOL)])
        .await;
    ground.place.proxy.cut();
    let event = soon("the end", link.next()).await;
    assert!(matches!(event, LinkEvent::Disconnected { .. }), "{event:?}");
    let refused = ground.server.publish_attempt(POOL, &sample_attempt()).await;
    assert!(
        matches!(refused, Err(PublishError::Disconnected { .. })),
        "{refused:?}"
    );
    assert!(queue.join(POOL, id, NonZeroU16::MIN).await.is_err());
    own.ctl(&["add_user", &user, own.broker.password()]).await;
    own.ctl(&["set_user_tags", &user, "administrator"]).await;
    own.ctl(&[
        "set_permissions",
        "-p",
        &ground.place.vhost,
        &user,
        ".*",
        ".*",
        ".*",
    ])
    .await;
    let message = sample_attempt();
    ground.publish(&message).await;
    ground.place.enroll(POOL, id).await;
    let mut link = join(&queue, id).await;
    assert_eq!(delivery(&mut link).await.0, message);
}

#[tokio::test]
async fn a_batch_that_is_longer_than_any_of_ours_is_set_aside_and_holds_up_nobody() {
    let Some(broker) = Broker::of_environment() else {
        return;
    };
    let ground = Ground::of(broker).await;
    let (_queue, link, id) = ground.executor().await;
    // An executor of ours sends none; its user may.
    let bare = ground.place.bare(Some((POOL, id))).await;
    let channel = bare.create_channel().await.expect("a channel");
    let user = mayfly_queue::rabbitmq::user_name(id, POOL);
    let long = vec![b' '; MAX_MESSAGE_BYTES + 1];
    let published = channel.basic_publish(
        "mayfly.events".into(),
        format!("events.{POOL}").into(),
        lapin::options::BasicPublishOptions::default(),
        &long,
        lapin::BasicProperties::default().with_user_id(user.as_str().into()),
    );
    published.await.expect("it is sent");
    let mut recorder = ground
        .server
        .consume_events(POOL)
        .await
        .expect("the queue is there");
    let one = std::num::NonZeroUsize::MIN;
    let taken = soon("the long one", recorder.next_batch(one))
        .await
        .expect("the consumer stands");
    assert!(matches!(taken[0].content, Content::Bad { .. }));
    let set_aside = recorder.dead_letter(taken[0].tag, "too long").await;
    set_aside.expect("the message is outstanding");
    soon("a confirm", async {
        while link.publisher().publish_events(&batch(id)).await.is_err() {}
    })
    .await;
    let taken = soon("what is behind it", recorder.next_batch(one))
        .await
        .expect("the consumer stands");
    assert!(matches!(taken[0].content, Content::Message(_)), "{:?}", taken[0]);
    let mut letters = ground.server.dead_letters().await.expect("the queue is there");
    let letter = soon("the dead letter", letters.next())
        .await
        .expect("the reader stands");
    assert_eq!(letter.bytes.len(), MAX_MESSAGE_BYTES + 1);
    assert_eq!(letter.why, WhyDead::Rejected);
    assert_eq!(letter.origin, Origin::Events { pool: POOL.into() });
}
