//! What a bench asks of the broker beside the seam: how long it takes with nothing of ours around it, and the end of a
//! pool's queues. No role uses any of it.

use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use lapin::{
    Channel,
    options::{
        BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
        QueueDeleteOptions,
    },
    types::FieldTable,
};
use tokio_util::task::TaskTracker;

use super::{
    RabbitConfig, Shared,
    connection::{CALL_LIMIT, Connection, bounded},
    publisher::persistent,
    topology::{self, Part},
};
use crate::seam::Cause;

/// Messages of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// How many.
    pub messages: u64,
    /// How long each is, in bytes.
    pub bytes: usize,
    /// How many are acked at a time.
    pub acked_together: u64,
}

/// Confirms that are waited for at once.
const UNDER_WAY: usize = 256;
/// Messages that the broker sends ahead.
const PREFETCH: u16 = 512;

impl super::RabbitQueue {
    /// How long the broker takes for messages of jobs and of events, through queues like those of a pool, at the same time:
    /// published, confirmed, delivered, acked. The queues are made for this and removed.
    ///
    /// # Errors
    /// Trouble with the broker.
    pub async fn bare(
        config: &RabbitConfig,
        pool: &str,
        jobs: Load,
        events: Load,
    ) -> Result<Duration, Cause> {
        let queue = Self::connect(config.clone())?;
        let parts = [
            Part::Exchanges,
            Part::DeadLetters,
            Part::Jobs { pool },
            Part::Events { pool, epoch: 1 },
        ];
        queue.shared.declare(&parts).await?;
        let begun = Instant::now();
        let done = tokio::try_join!(
            pump(
                &queue.shared,
                topology::jobs_exchange(),
                pool.to_owned(),
                topology::jobs_queue(pool),
                jobs
            ),
            pump(
                &queue.shared,
                topology::events_exchange(),
                topology::events_key(pool),
                topology::events_queue(pool),
                events
            ),
        );
        let took = begun.elapsed();
        queue.remove_pool(pool).await?;
        done.map(|_| took)
    }

    /// Removes the queues of a pool, with what is in them.
    ///
    /// # Errors
    /// Trouble with the broker.
    pub async fn remove_pool(&self, pool: &str) -> Result<(), Cause> {
        let connection = self.shared.consuming().await?;
        let channel = connection.channel().await?;
        for queue in [topology::jobs_queue(pool), topology::events_queue(pool)] {
            let deleted = channel.queue_delete(topology::short(&queue)?, QueueDeleteOptions::default());
            bounded(CALL_LIMIT, deleted).await?;
        }
        super::close(&channel).await;
        Ok(())
    }
}

async fn pump(
    shared: &Shared,
    exchange: lapin::types::ShortString,
    key: String,
    queue: String,
    load: Load,
) -> Result<(), Cause> {
    let tasks = TaskTracker::new();
    let (publishing, consuming) = tokio::try_join!(
        Connection::open(&shared.dial, "bare publish", shared.registry.slot(), &tasks),
        Connection::open(&shared.dial, "bare consume", shared.registry.slot(), &tasks),
    )?;
    let (out, back) = (publishing.channel().await?, consuming.channel().await?);
    tokio::try_join!(publish(&out, exchange, &key, load), consume(&back, &queue, load))?;
    Ok(())
}

async fn publish(
    channel: &Channel,
    exchange: lapin::types::ShortString,
    key: &str,
    load: Load,
) -> Result<(), Cause> {
    bounded(
        CALL_LIMIT,
        channel.confirm_select(ConfirmSelectOptions::default()),
    )
    .await?;
    let (body, key) = (vec![b'x'; load.bytes], topology::short(key)?);
    let mandatory = BasicPublishOptions {
        mandatory: true,
        ..BasicPublishOptions::default()
    };
    let mut under_way = FuturesUnordered::new();
    for _ in 0..load.messages {
        if under_way.len() >= UNDER_WAY
            && let Some(confirmed) = under_way.next().await
        {
            let _: lapin::Confirmation = confirmed?;
        }
        let published = channel.basic_publish(exchange.clone(), key.clone(), mandatory, &body, persistent());
        under_way.push(published.await?);
    }
    while let Some(confirmed) = under_way.next().await {
        confirmed?;
    }
    Ok(())
}

async fn consume(channel: &Channel, queue: &str, load: Load) -> Result<(), Cause> {
    bounded(
        CALL_LIMIT,
        channel.basic_qos(PREFETCH, BasicQosOptions::default()),
    )
    .await?;
    let consumer = channel.basic_consume(
        topology::short(queue)?,
        "".into(),
        BasicConsumeOptions::default(),
        FieldTable::default(),
    );
    let mut consumer = bounded(CALL_LIMIT, consumer).await?;
    let (all, mut taken) = (BasicAckOptions { multiple: true }, 0);
    while taken < load.messages {
        let Some(delivery) = consumer.next().await else {
            return Err("the consumer has ended".into());
        };
        let delivery = delivery?;
        taken += 1;
        if taken % load.acked_together.max(1) == 0 || taken == load.messages {
            channel.basic_ack(delivery.delivery_tag, all).await?;
        }
    }
    // What was acked is read by the broker before the channel's end.
    super::close(channel).await;
    Ok(())
}
