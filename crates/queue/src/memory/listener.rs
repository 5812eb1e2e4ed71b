use std::sync::Arc;

use async_trait::async_trait;
use mayfly_core::id::JobId;
use tokio::sync::Notify;

use super::Broker;
use crate::seam::{Closed, Heard, OutputListener};

pub(super) struct MemoryListener {
    broker: Broker,
    listener: u64,
    wake: Arc<Notify>,
}

impl MemoryListener {
    pub(super) fn begin(broker: &Broker, job: JobId) -> Self {
        let wake = Arc::new(Notify::new());
        let listener = broker.state().listen(job, Arc::clone(&wake));
        Self {
            broker: broker.clone(),
            listener,
            wake,
        }
    }
}

impl Drop for MemoryListener {
    fn drop(&mut self) {
        self.broker.state().drop_listener(self.listener);
    }
}

#[async_trait]
impl OutputListener for MemoryListener {
    async fn next(&mut self) -> Result<Heard, Closed> {
        loop {
            let heard = self.broker.state().hear(self.listener)?;
            match heard {
                Some(heard) => return Ok(heard),
                None => self.wake.notified().await,
            }
        }
    }
}
