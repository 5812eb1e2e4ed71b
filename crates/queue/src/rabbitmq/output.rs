//! Live output: unconfirmed from the executors, to an exclusive queue of each listener.
//!
//! The body is what the run has written; what it belongs to stands in headers.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt;
use lapin::{
    BasicProperties, Channel, Consumer,
    message::Delivery,
    options::{
        BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, QueueBindOptions,
        QueueDeclareOptions,
    },
    types::{AMQPValue, FieldTable, ShortString},
};
use mayfly_core::{chain::Chain, id::JobId};
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Shared,
    connection::{CALL_LIMIT, Connection, bounded},
    dead_letters::sender,
    topology,
    user::Sender,
};
use crate::seam::{
    Cause, Closed, Heard, MAX_OUTPUT_BYTES, MAX_OUTPUT_WAITING, Output, OutputListener, QueueError, Stream,
};

/// Pieces that wait to be written to the broker.
const WAITING: usize = 256;

/// Pieces that the broker sends a listener ahead.
const PREFETCH: u16 = 64;

const ATTEMPT: &str = "mayfly-attempt";
const SESSION: &str = "mayfly-session";
const STREAM: &str = "mayfly-stream";
const OFFSET: &str = "mayfly-offset";

/// Publishes output on a channel of its own, which is of no consequence to the rest of the link.
pub(super) struct OutputPublisher {
    pieces: mpsc::Sender<Output>,
}

impl OutputPublisher {
    pub(super) async fn begin(
        connection: &Connection,
        user: ShortString,
        tasks: &TaskTracker,
    ) -> Result<Self, Cause> {
        let channel = connection.channel().await?;
        let (to, pieces) = mpsc::channel(WAITING);
        tasks.spawn(write(channel, user, pieces, connection.gone().clone()));
        Ok(Self { pieces: to })
    }

    /// Sends a piece, or loses it.
    pub(super) fn send(&self, output: Output) {
        if output.bytes.len() <= MAX_OUTPUT_BYTES {
            // A listener sees the gap.
            self.pieces.try_send(output).unwrap_or_default();
        }
    }
}

async fn write(
    channel: Channel,
    user: ShortString,
    mut pieces: mpsc::Receiver<Output>,
    gone: CancellationToken,
) {
    loop {
        let output = tokio::select! {
            () = gone.cancelled() => return,
            output = pieces.recv() => match output {
                Some(output) => output,
                None => return,
            },
        };
        let properties = BasicProperties::default()
            .with_delivery_mode(1)
            .with_user_id(user.clone())
            .with_headers(headers(&output));
        let published = channel.basic_publish(
            topology::output_exchange(),
            output.job.to_string().into(),
            BasicPublishOptions::default(),
            &output.bytes,
            properties,
        );
        // Until it is written: a broker with an alarm stops this here, and what comes meanwhile is lost.
        tokio::select! {
            () = gone.cancelled() => return,
            published = published => if let Err(error) = published {
                tracing::warn!(error = %Chain(&error), "live output can't be published on this connection any more");
                return;
            },
        }
    }
}

fn headers(output: &Output) -> FieldTable {
    let mut headers = FieldTable::default();
    let stream = match output.stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    };
    for (name, value) in [
        (ATTEMPT, output.attempt.to_string()),
        (SESSION, output.session.to_string()),
        (STREAM, stream.to_owned()),
        (OFFSET, output.offset.to_string()),
    ] {
        headers.insert(name.into(), AMQPValue::LongString(value.as_str().into()));
    }
    headers
}

/// A piece of output, if it is one and somebody vouches for it.
fn heard(job: JobId, delivery: &Delivery) -> Option<Heard> {
    let by = match sender(&delivery.properties) {
        Sender::Server => None,
        Sender::Executor { id, .. } => Some(id),
        Sender::Nobody => return None,
    };
    let headers = delivery.properties.headers().as_ref()?.inner();
    let text = |name: &str| match headers.get(name)? {
        AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok(),
        _ => None,
    };
    if delivery.data.len() > MAX_OUTPUT_BYTES {
        return None;
    }
    let output = Output {
        job,
        attempt: text(ATTEMPT)?.parse().ok()?,
        session: text(SESSION)?.parse().ok()?,
        stream: match text(STREAM)? {
            "stdout" => Stream::Stdout,
            "stderr" => Stream::Stderr,
            _ => return None,
        },
        offset: text(OFFSET)?.parse().ok()?,
        bytes: delivery.data.clone(),
    };
    Some(Heard { by, output })
}

pub(super) struct RabbitListener {
    job: JobId,
    connection: Arc<Connection>,
    channel: Channel,
    consumer: Consumer,
}

impl RabbitListener {
    pub(super) async fn begin(shared: &Shared, job: JobId) -> Result<Self, QueueError> {
        let connection = shared.consuming().await?;
        let opened = open(&connection, job).await;
        let (channel, consumer) = opened.map_err(|cause| QueueError::Disconnected { cause: Some(cause) })?;
        Ok(Self {
            job,
            connection,
            channel,
            consumer,
        })
    }
}

/// Listens: the queue goes with the connection, or with its consumer.
async fn open(connection: &Connection, job: JobId) -> Result<(Channel, Consumer), Cause> {
    let channel = connection.channel().await?;
    let mut arguments = FieldTable::default();
    let most = i64::try_from(MAX_OUTPUT_WAITING).unwrap_or(i64::MAX);
    arguments.insert("x-max-length".into(), AMQPValue::LongLongInt(most));
    let queue = exclusive(&channel, arguments).await?;
    let bound = channel.queue_bind(
        queue.clone(),
        topology::output_exchange(),
        job.to_string().into(),
        QueueBindOptions::default(),
        FieldTable::default(),
    );
    bounded(CALL_LIMIT, bound).await?;
    bounded(
        CALL_LIMIT,
        channel.basic_qos(PREFETCH, BasicQosOptions::default()),
    )
    .await?;
    let consumer = channel.basic_consume(
        queue,
        "".into(),
        BasicConsumeOptions::default(),
        FieldTable::default(),
    );
    let consumer = bounded(CALL_LIMIT, consumer).await?;
    Ok((channel, consumer))
}

/// A queue of this connection alone, by a name that the broker gives.
pub(super) async fn exclusive(channel: &Channel, arguments: FieldTable) -> Result<ShortString, Cause> {
    let options = QueueDeclareOptions {
        exclusive: true,
        auto_delete: true,
        ..QueueDeclareOptions::default()
    };
    let declared = channel.queue_declare("".into(), options, arguments);
    Ok(bounded(CALL_LIMIT, declared).await?.name().clone())
}

#[async_trait]
impl OutputListener for RabbitListener {
    async fn next(&mut self) -> Result<Heard, Closed> {
        loop {
            let next = tokio::select! {
                next = self.consumer.next() => next,
                () = self.connection.gone().cancelled() => None,
            };
            let Some(Ok(delivery)) = next else {
                return Err(if self.connection.gone().is_cancelled() {
                    Closed::Disconnected {
                        cause: self.connection.cause(),
                    }
                } else {
                    Closed::Cancelled
                });
            };
            let heard = heard(self.job, &delivery);
            // Nothing is awaited between here and the answer: the ack goes out by itself, and where it is lost only this
            // listener is the poorer.
            let (channel, tag) = (self.channel.clone(), delivery.delivery_tag);
            self.connection.spawn(async move {
                bounded(CALL_LIMIT, channel.basic_ack(tag, BasicAckOptions::default()))
                    .await
                    .ok();
            });
            if let Some(heard) = heard {
                return Ok(heard);
            }
        }
    }
}
