//! Replies to executors: transient, unconfirmed, and never waited for. What can't be sent at once is lost, and said again
//! when the session asks again.

use std::sync::Arc;

use futures_util::{StreamExt, stream::FuturesUnordered};
use lapin::{BasicProperties, Channel, options::BasicPublishOptions};
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{connection::Connection, health::Slot, topology};
use crate::seam::{Cause, ReplyAddress};

/// How every address of the broker for direct replies begins.
const ADDRESS: &str = "amq.rabbitmq.reply-to.";

/// Replies that wait to be written.
const WAITING: usize = 4096;

/// Replies that are being written at once.
const UNDER_WAY: usize = 64;

pub(super) struct Replies {
    posts: mpsc::Sender<(lapin::types::ShortString, Vec<u8>)>,
    slot: Arc<Slot>,
}

impl Replies {
    pub(super) async fn begin(connection: &Connection, tasks: &TaskTracker) -> Result<Self, Cause> {
        let channel = connection.channel().await?;
        let (to, posts) = mpsc::channel(WAITING);
        tasks.spawn(write(channel, posts, connection.gone().clone()));
        Ok(Self {
            posts: to,
            slot: Arc::clone(connection.slot()),
        })
    }

    /// Sends a reply, or loses it.
    pub(super) fn send(&self, to: &ReplyAddress, reply: Vec<u8>) {
        if !to.0.starts_with(ADDRESS) || self.slot.is_blocked() {
            return;
        }
        if let Ok(address) = topology::short(&to.0)
            && self.posts.try_send((address, reply)).is_err()
        {
            tracing::warn!("a reply could not be sent in time and is lost");
        }
    }
}

async fn write(
    channel: Channel,
    mut posts: mpsc::Receiver<(lapin::types::ShortString, Vec<u8>)>,
    gone: CancellationToken,
) {
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            () = gone.cancelled() => return,
            Some(written) = under_way.next(), if !under_way.is_empty() => {
                if let Err(error) = written {
                    tracing::warn!(error = %mayfly_core::chain::Chain(&error), "replies can't be sent");
                    // Whoever holds the connection sees that it is no good any more.
                    gone.cancel();
                    return;
                }
            }
            post = posts.recv(), if under_way.len() < UNDER_WAY => {
                let Some((address, reply)) = post else { return };
                let channel = channel.clone();
                under_way.push(async move {
                    let published = channel.basic_publish(
                        "".into(),
                        address,
                        BasicPublishOptions::default(),
                        &reply,
                        BasicProperties::default().with_delivery_mode(1),
                    );
                    published.await.map(drop)
                });
            }
        }
    }
}
