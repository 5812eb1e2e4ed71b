//! Ticks, sent through the executors' own queue at regular times: when one comes out, everything before it has.

use std::sync::Arc;

use mayfly_core::chain::Chain;
use mayfly_failpoints::{Point, reach};
use mayfly_queue::seam::PublishError;
use tokio_util::sync::CancellationToken;

use crate::Server;

pub(crate) async fn run(server: Arc<Server>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        tokio::select! {
            () = tokio::time::sleep(server.timing.tick_every) => {}
            () = stop.cancelled() => return,
        }
        let tick = match server.store.next_tick(&server.pool, &server.context()).await {
            Ok(tick) => tick,
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "the reconciler could not make a tick");
                continue;
            }
        };
        reach(Point::TickCommitted);
        // A tick that is lost is noticed by the number of the next one.
        if let Err(error) = server.queue.publish_tick(&server.pool, &tick).await {
            if matches!(error, PublishError::Unroutable { .. }) {
                server.renew_events().await;
            }
            tracing::warn!(tick.number = tick.number, error = %Chain(&error), "a tick could not be published");
        }
    }
}
