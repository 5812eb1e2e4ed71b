//! The suite that every queue has to pass.

use std::sync::Arc;

use async_trait::async_trait;
use lapin::{
    BasicProperties, Confirmation,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use mayfly_core::id::ExecutorId;
use mayfly_queue::{
    contract::Subject,
    rabbitmq::{RabbitQueue, events_queue, jobs_queue, user_name},
    seam::{Origin, Queue},
};

use crate::broker::{Broker, JOBS_LIMIT, Place};

struct Rabbit {
    place: Arc<Place>,
    server: RabbitQueue,
}

#[async_trait]
impl Subject for Rabbit {
    fn queue(&self) -> Arc<dyn Queue> {
        Arc::new(self.server.clone())
    }

    async fn queue_of(&self, pool: &str, executor: ExecutorId) -> Arc<dyn Queue> {
        self.place.enroll(pool, executor).await;
        Arc::new(self.place.executor(pool, executor))
    }

    fn jobs_limit(&self) -> usize {
        JOBS_LIMIT as usize
    }

    async fn put(&self, to: &Origin, by: Option<ExecutorId>, bytes: &[u8]) {
        let (exchange, key, pool) = match to {
            Origin::Jobs { pool } => ("mayfly.jobs", pool.clone(), pool),
            Origin::Events { pool } => ("mayfly.events", format!("events.{pool}"), pool),
        };
        let connection = self.place.bare(by.map(|by| (pool.as_str(), by))).await;
        let channel = connection.create_channel().await.expect("a channel");
        channel
            .confirm_select(ConfirmSelectOptions::default())
            .await
            .expect("confirms");
        let user = by.map_or_else(|| self.place.server_user().to_owned(), |by| user_name(by, pool));
        let mandatory = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let properties = BasicProperties::default().with_user_id(user.into());
        let published = channel.basic_publish(exchange.into(), key.into(), mandatory, bytes, properties);
        let confirmed = published.await.expect("bytes are sent").await.expect("a confirm");
        assert_eq!(confirmed, Confirmation::Ack(None));
        connection
            .close(200, "OK".into())
            .await
            .expect("the connection closes");
    }

    async fn cancel_consumers(&self, pool: &str) {
        // Consumers are told what they are told when their queue is deleted, but the queue is kept. The channels of
        // executors close then, which is waited for.
        let [jobs, events] = [jobs_queue(pool), events_queue(pool)];
        let expression = format!(
            "Told = fun(N) -> {{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"{}\">>, queue, N)), \
             [begin Ch = element(1, C), M = monitor(process, Ch), \
             gen_server2:cast(Ch, {{command, {{'basic.cancel', element(2, C), true}}}}), M end \
             || C <- rabbit_amqqueue:consumers(Q)] end, \
             Told(<<\"{events}\">>), \
             [receive {{'DOWN', M, _, _, _}} -> closed after 10000 -> exit(open) end || M <- Told(<<\"{jobs}\">>)].",
            self.place.vhost
        );
        let broker = self.place.broker.clone();
        tokio::task::spawn_blocking(move || broker.ctl(&["eval", &expression]))
            .await
            .expect("the consumers are canceled");
    }

    async fn cut_connections(&self) {
        self.place.proxy.cut();
    }

    async fn wipe(&self) {
        self.place.lose().await;
        self.place.make().await;
    }
}

async fn subject() -> Option<Arc<dyn Subject>> {
    let broker = Broker::of_environment()?;
    let place = Place::new(broker).await;
    let server = place.server();
    Some(Arc::new(Rabbit { place, server }))
}

mayfly_queue::queue_contract!(subject());
