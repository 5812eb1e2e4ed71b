//! The queue in memory, held to what every queue has to pass.

use std::sync::Arc;

use async_trait::async_trait;
use mayfly_core::id::ExecutorId;
use mayfly_queue::{
    contract::Subject,
    memory::{Limit, Limits, MemoryQueue},
    seam::{Origin, Queue},
};

const JOBS_LIMIT: usize = 200;

struct Memory(MemoryQueue);

#[async_trait]
impl Subject for Memory {
    fn queue(&self) -> Arc<dyn Queue> {
        Arc::new(self.0.clone())
    }

    async fn queue_of(&self, _pool: &str, _executor: ExecutorId) -> Arc<dyn Queue> {
        self.queue()
    }

    fn jobs_limit(&self) -> usize {
        JOBS_LIMIT
    }

    async fn put(&self, to: &Origin, by: Option<ExecutorId>, bytes: &[u8]) {
        self.0.put(to, by, bytes).expect("the queue takes the bytes");
    }

    async fn cancel_consumers(&self, pool: &str) {
        self.0.cancel_consumers(pool);
    }

    async fn cut_connections(&self) {
        self.0.cut_connections();
    }

    async fn wipe(&self) {
        self.0.wipe();
    }
}

async fn subject() -> Arc<dyn Subject> {
    let jobs = Limit {
        messages: JOBS_LIMIT,
        ..Limits::standard().jobs
    };
    let limits = Limits {
        jobs,
        ..Limits::standard()
    };
    Arc::new(Memory(MemoryQueue::new(limits)))
}

mayfly_queue::queue_contract!(subject());
