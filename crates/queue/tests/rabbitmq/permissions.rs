//! An executor's user tries more than it may. Each try is made with the bare protocol, as a stolen one would.

use std::sync::Arc;

use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ErrorKind, ExchangeKind,
    options::{
        BasicConsumeOptions, BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions,
        ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions, QueuePurgeOptions,
    },
    types::FieldTable,
};
use mayfly_core::id::{ExecutorId, JobId};
use mayfly_queue::{
    rabbitmq::{RabbitQueue, events_queue, jobs_queue, user_name},
    seam::{Bad, Content, Queue},
};

use crate::broker::{Broker, Place};

const ACCESS_REFUSED: u16 = 403;
const PRECONDITION_FAILED: u16 = 406;

/// Two pools, and an executor of one.
struct Thief {
    place: Arc<Place>,
    server: RabbitQueue,
    executor: ExecutorId,
    connection: Connection,
}

const OWN: &str = "own";
const OTHER: &str = "other";

impl Thief {
    async fn new() -> Option<Self> {
        let place = Place::new(Broker::of_environment()?).await;
        let server = place.server();
        for pool in [OWN, OTHER] {
            server.declare(pool).await.expect("a pool can be declared");
            server
                .declare_events(pool, 1)
                .await
                .expect("a pool can be declared");
        }
        let executor = ExecutorId::new();
        place.enroll(OWN, executor).await;
        let connection = place.bare(Some((OWN, executor))).await;
        Some(Self {
            place,
            server,
            executor,
            connection,
        })
    }

    async fn channel(&self) -> Channel {
        self.connection.create_channel().await.expect("a channel")
    }

    /// Publishes something and says what the broker makes of it.
    async fn publish(
        &self,
        exchange: &str,
        key: &str,
        by: Option<&str>,
    ) -> Result<Confirmation, lapin::Error> {
        let channel = self.channel().await;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let mut properties = BasicProperties::default();
        if let Some(by) = by {
            properties = properties.with_user_id(by.into());
        }
        let mandatory = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let published = channel.basic_publish(exchange.into(), key.into(), mandatory, b"{}", properties);
        published.await?.await
    }

    /// A queue of its own, which it may have.
    async fn own_queue(&self, channel: &Channel) -> String {
        let exclusive = QueueDeclareOptions {
            exclusive: true,
            ..QueueDeclareOptions::default()
        };
        let queue = channel
            .queue_declare("".into(), exclusive, FieldTable::default())
            .await;
        queue.expect("a queue of its own").name().to_string()
    }
}

fn refused<T: std::fmt::Debug>(what: &str, tried: Result<T, lapin::Error>) {
    refused_with(ACCESS_REFUSED, what, tried);
}

fn refused_with<T: std::fmt::Debug>(code: u16, what: &str, tried: Result<T, lapin::Error>) {
    let error = tried.map(|done| panic!("{what}: {done:?}")).unwrap_err();
    let ErrorKind::ProtocolError(said) = error.kind() else {
        panic!("{what}: {error:?}");
    };
    assert_eq!(said.get_id(), code, "{what}: {said:?}");
}

#[tokio::test]
async fn an_executor_reads_no_queue_but_its_pools_jobs() {
    let Some(thief) = Thief::new().await else { return };
    for queue in [
        jobs_queue(OTHER),
        events_queue(OWN),
        events_queue(OTHER),
        "mayfly.dead".into(),
    ] {
        let channel = thief.channel().await;
        let consumed = channel.basic_consume(
            queue.as_str().into(),
            "".into(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        refused(&format!("consume {queue}"), consumed.await);
        let channel = thief.channel().await;
        let got = channel
            .basic_get(queue.as_str().into(), BasicGetOptions::default())
            .await;
        refused(&format!("get from {queue}"), got);
    }
    let channel = thief.channel().await;
    let own = channel
        .basic_get(jobs_queue(OWN).into(), BasicGetOptions::default())
        .await;
    assert!(own.expect("its own pool's jobs").is_none());
}

#[tokio::test]
async fn an_executor_binds_nothing_but_itself_to_what_it_is_told() {
    let Some(thief) = Thief::new().await else { return };
    for (exchange, key) in [
        ("mayfly.jobs", OTHER),
        ("mayfly.jobs", OWN),
        ("mayfly.events", "events.own"),
        ("mayfly.dead", ""),
        ("mayfly.output", "any"),
        ("amq.direct", "any"),
        ("amq.rabbitmq.trace", "#"),
    ] {
        let channel = thief.channel().await;
        let queue = thief.own_queue(&channel).await;
        let bound = channel.queue_bind(
            queue.into(),
            exchange.into(),
            key.into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        );
        refused(&format!("bind to {exchange}"), bound.await);
    }
    // Nor another queue to what it may read.
    for queue in [jobs_queue(OWN), jobs_queue(OTHER)] {
        let channel = thief.channel().await;
        let bound = channel.queue_bind(
            queue.as_str().into(),
            "mayfly.control".into(),
            "any".into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        );
        refused(&format!("bind {queue}"), bound.await);
    }
}

#[tokio::test]
async fn an_executor_publishes_nothing_but_events_and_output() {
    let Some(thief) = Thief::new().await else { return };
    let other = thief.place.server_user().to_owned();
    let reply = "amq.rabbitmq.reply-to.g1h2AA5yZXBseUA".to_owned();
    for (exchange, key) in [
        ("mayfly.jobs", OWN.to_owned()),
        ("mayfly.jobs", OTHER.to_owned()),
        ("mayfly.control", format!("{OWN}.{}", thief.executor)),
        ("mayfly.dead", "jobs.own".to_owned()),
        ("", jobs_queue(OWN)),
        ("", events_queue(OTHER)),
        // A reply to somebody else.
        ("", reply),
        ("amq.direct", "any".to_owned()),
    ] {
        refused(
            &format!("publish to `{exchange}`"),
            thief.publish(exchange, &key, None).await,
        );
    }
    for by in [other.as_str(), &user_name(ExecutorId::new(), OWN), "guest"] {
        let published = thief.publish("mayfly.events", "events.own", Some(by)).await;
        refused_with(PRECONDITION_FAILED, "publish as another", published);
    }
    let own = user_name(thief.executor, OWN);
    let published = thief.publish("mayfly.events", "events.own", Some(&own)).await;
    assert_eq!(published.expect("its own events"), Confirmation::Ack(None));
}

#[tokio::test]
async fn an_executor_declares_and_deletes_nothing() {
    let Some(thief) = Thief::new().await else { return };
    let name = JobId::new().to_string();
    let channel = thief.channel().await;
    let declared = channel.queue_declare(
        name.as_str().into(),
        QueueDeclareOptions::default(),
        FieldTable::default(),
    );
    refused("declare a queue", declared.await);
    let channel = thief.channel().await;
    let declared = channel.exchange_declare(
        name.as_str().into(),
        ExchangeKind::Direct,
        ExchangeDeclareOptions::default(),
        FieldTable::default(),
    );
    refused("declare an exchange", declared.await);
    for queue in [jobs_queue(OWN), events_queue(OWN)] {
        let channel = thief.channel().await;
        let deleted = channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default());
        refused(&format!("delete {queue}"), deleted.await);
    }
    let channel = thief.channel().await;
    let purged = channel.queue_purge(events_queue(OWN).into(), QueuePurgeOptions::default());
    refused("purge the events", purged.await);
}

#[tokio::test]
async fn an_executor_has_no_other_virtual_host() {
    let Some(thief) = Thief::new().await else { return };
    let elsewhere = Place::new(thief.place.broker.clone()).await;
    let url = elsewhere.url_of((OWN, thief.executor));
    let error = Connection::connect(&url, lapin::ConnectionProperties::default()).await;
    assert!(error.is_err());
}

#[tokio::test]
async fn what_nobody_vouches_for_or_another_pool_sends_is_shown_as_that() {
    let Some(thief) = Thief::new().await else { return };
    let own = user_name(thief.executor, OWN);
    for (key, by) in [("events.own", None), ("events.other", Some(own.as_str()))] {
        let published = thief.publish("mayfly.events", key, by).await;
        assert_eq!(published.expect("the broker takes it"), Confirmation::Ack(None));
    }
    let one = std::num::NonZeroUsize::MIN;
    let mut events = thief
        .server
        .consume_events(OWN)
        .await
        .expect("events can be consumed");
    let taken = events
        .next_batch(one)
        .await
        .expect("the consumer stands")
        .remove(0);
    assert!(
        matches!(
            &taken.content,
            Content::Bad {
                why: Bad::Unverified,
                ..
            }
        ),
        "{taken:?}"
    );
    let mut events = thief
        .server
        .consume_events(OTHER)
        .await
        .expect("events can be consumed");
    let taken = events
        .next_batch(one)
        .await
        .expect("the consumer stands")
        .remove(0);
    let Content::Bad {
        why: Bad::Pool { by, of },
        ..
    } = &taken.content
    else {
        panic!("{taken:?} is not of another pool");
    };
    assert_eq!((*by, of.as_str()), (thief.executor, OWN));
}
