//! What the API of a server asks of the broker: the output of running jobs, and orders to executors.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use mayfly_api::seams::{Fleet, LiveOutput, LiveOutputSource, Order, OutputPiece, SourceError};
use mayfly_core::{
    chain::Chain,
    id::{AttemptId, ExecutorId, JobId, SessionId, TenantId},
};
use mayfly_dispatch::message::{self, Control, VERSION};
use mayfly_queue::seam::{Heard, OutputListener, PublishError, Queue, Stream};
use mayfly_store::seam::Store;
use mayfly_wire::job::StreamName;
use tokio::time::Instant;

/// How long it is believed that a session does not hold an attempt: its start may have been committed since.
const BELIEVED: Duration = Duration::from_secs(1);
/// Most runs of one job that are remembered; a job has fewer attempts.
const REMEMBERED: usize = 64;

/// The output of running jobs, by the broker.
pub(crate) struct BrokerOutput {
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) store: Arc<dyn Store>,
}

#[async_trait]
impl LiveOutputSource for BrokerOutput {
    async fn listen(&self, tenant: TenantId, job: JobId) -> Result<Box<dyn LiveOutput>, SourceError> {
        let listener = self.queue.listen(job).await;
        Ok(Box::new(Listening {
            listener: listener.map_err(|error| SourceError::Unavailable(Box::new(error)))?,
            store: Arc::clone(&self.store),
            tenant,
            job,
            runs: HashMap::new(),
        }))
    }
}

/// Who says that it runs an attempt.
type Claim = (AttemptId, SessionId, Option<ExecutorId>);

struct Listening {
    listener: Box<dyn OutputListener>,
    store: Arc<dyn Store>,
    tenant: TenantId,
    job: JobId,
    /// Whether a claim is true, and since when that is known.
    runs: HashMap<Claim, (bool, Instant)>,
}

#[async_trait]
impl LiveOutput for Listening {
    async fn next(&mut self) -> Option<OutputPiece> {
        loop {
            let Heard { by, output } = match self.listener.next().await {
                Ok(heard) => heard,
                Err(error) => {
                    tracing::debug!(job.id = %self.job, error = %Chain(&error), "the live output ends");
                    return None;
                }
            };
            // The broker knows which executor it is; that this session of it holds the attempt is on record.
            if output.job == self.job && self.holds((output.attempt, output.session, by)).await {
                return Some(OutputPiece {
                    attempt: output.attempt,
                    stream: match output.stream {
                        Stream::Stdout => StreamName::Stdout,
                        Stream::Stderr => StreamName::Stderr,
                    },
                    offset: output.offset,
                    bytes: output.bytes,
                });
            }
        }
    }
}

impl Listening {
    /// Whether a session of that executor holds the attempt, by the record.
    async fn holds(&mut self, claim: Claim) -> bool {
        match self.runs.get(&claim) {
            Some((true, _)) => return true,
            Some((false, at)) if at.elapsed() < BELIEVED => return false,
            _ => {}
        }
        let (attempt, session, by) = claim;
        let found = match self.store.find_job(self.tenant, self.job).await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(job.id = %self.job, error = %Chain(&error), "whose output it is can't be looked up");
                return false;
            }
        };
        let holds = found.is_some_and(|details| {
            details.attempts.iter().any(|held| {
                held.id == attempt
                    && held.session == Some(session)
                    && held.executor.is_some()
                    && held.executor == by
            })
        });
        if self.runs.len() >= REMEMBERED {
            self.runs.clear();
        }
        self.runs.insert(claim, (holds, Instant::now()));
        holds
    }
}

/// Orders to executors, by the broker.
pub(crate) struct BrokerFleet(pub(crate) Arc<dyn Queue>);

#[async_trait]
impl Fleet for BrokerFleet {
    async fn order(&self, pool: &str, executor: ExecutorId, order: Order) -> Result<(), SourceError> {
        let control = Control {
            v: VERSION,
            order: match order {
                Order::Cordon => message::Order::Cordon,
                Order::Uncordon => message::Order::Uncordon,
                Order::Drain => message::Order::Drain,
            },
        };
        match self.0.control(pool, executor, &control).await {
            // One that is not there does not hear it.
            Ok(()) | Err(PublishError::Unroutable { .. }) => Ok(()),
            Err(error) => Err(SourceError::Unavailable(Box::new(error))),
        }
    }
}
