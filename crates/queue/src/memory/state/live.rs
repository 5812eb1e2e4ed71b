//! What is kept by nobody: live output, and what is said to executors out of turn.

use std::{collections::VecDeque, sync::Arc};

use mayfly_core::id::{ExecutorId, JobId};
use tokio::sync::Notify;

use super::{State, consumers::Over};
use crate::seam::{Heard, MAX_OUTPUT_BYTES, MAX_OUTPUT_WAITING, Output, PublishError};

/// Orders that wait in a link for somebody to read them.
const MAX_CONTROLS: usize = 64;

pub(in crate::memory) struct Listener {
    job: JobId,
    waiting: VecDeque<Heard>,
    wake: Arc<Notify>,
}

impl State {
    pub(in crate::memory) fn control(
        &mut self,
        pool: &str,
        executor: ExecutorId,
        bytes: Vec<u8>,
    ) -> Result<(), PublishError> {
        let mut links = self.links.values_mut();
        let Some(link) = links.find(|link| link.is_of(pool, executor)) else {
            return Err(PublishError::Unroutable {
                queue: format!("mayfly.control ({pool}.{executor})"),
            });
        };
        if link.controls.len() < MAX_CONTROLS {
            link.controls.push_back(bytes);
            link.wake.notify_one();
        }
        Ok(())
    }

    pub(in crate::memory) fn listen(&mut self, job: JobId, wake: Arc<Notify>) -> u64 {
        let listener = self.number();
        let waiting = VecDeque::new();
        self.listeners.insert(listener, Listener { job, waiting, wake });
        listener
    }

    pub(in crate::memory) fn hear(&mut self, listener: u64) -> Result<Option<Heard>, Over> {
        let listener = self.listeners.get_mut(&listener).ok_or(Over::Disconnected)?;
        Ok(listener.waiting.pop_front())
    }

    pub(in crate::memory) fn drop_listener(&mut self, listener: u64) {
        if let Some(listener) = self.listeners.remove(&listener) {
            listener.wake.notify_one();
        }
    }

    pub(in crate::memory) fn output(&mut self, link: u64, output: &Output) {
        let Some(by) = self.links.get(&link).and_then(super::LinkState::sender) else {
            return;
        };
        if output.bytes.len() > MAX_OUTPUT_BYTES {
            return;
        }
        let listeners = self.listeners.values_mut();
        for listener in listeners.filter(|listener| listener.job == output.job) {
            if listener.waiting.len() < MAX_OUTPUT_WAITING {
                listener.waiting.push_back(Heard {
                    by: Some(by),
                    output: output.clone(),
                });
                listener.wake.notify_one();
            }
        }
    }
}
