//! Single submissions that wait at the same time, in one transaction: whoever has the turn takes all that wait, so that a
//! commit's wait for the disk is shared. Nobody waits for others to come.

use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, Utc};
use mayfly_core::{chain::Chain, id::JobId};
use mayfly_store::{
    error::StoreError,
    records::{NewJob, Submitted},
};
use tokio::sync::oneshot;

use crate::{database::Database, jobs, submit};

/// Most submissions in one transaction, so that none waits long for it.
const MOST_TOGETHER: usize = 256;

type Answer = Result<Submitted, StoreError>;

/// Submissions that wait.
#[derive(Default)]
pub(crate) struct Together {
    waiting: Mutex<Vec<Waiting>>,
    /// Held by whoever submits.
    turn: tokio::sync::Mutex<()>,
}

struct Waiting {
    job: NewJob,
    now: DateTime<Utc>,
    answer: oneshot::Sender<Answer>,
}

impl Together {
    pub(crate) async fn submit(&self, database: &Database, job: NewJob, now: DateTime<Utc>) -> Answer {
        let (sender, mut answer) = oneshot::channel();
        let waiting = Waiting {
            job: job.clone(),
            now,
            answer: sender,
        };
        self.lock().push(waiting);
        loop {
            tokio::select! {
                biased;
                answered = &mut answer => {
                    return match answered {
                        Ok(answer) => answer,
                        Err(_) => again(database, job, now).await,
                    };
                }
                turn = self.turn.lock() => {
                    let taken = self.take();
                    // Empty where its own is answered, or lost with whoever had taken it: the next look says which.
                    if !taken.is_empty() {
                        submit_all(database, taken).await;
                    }
                    drop(turn);
                }
            }
        }
    }

    fn take(&self) -> Vec<Waiting> {
        let mut waiting = self.lock();
        // Whoever has given up is not waited for.
        waiting.retain(|one| !one.answer.is_closed());
        let count = waiting.len().min(MOST_TOGETHER);
        waiting.drain(..count).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn submit_all(database: &Database, taken: Vec<Waiting>) {
    let jobs: Vec<_> = taken.iter().map(|one| one.job.clone()).collect();
    let Some(now) = taken.first().map(|one| one.now) else {
        return;
    };
    match submit::submit_many(database, jobs, now).await {
        Ok(answers) => {
            for (one, answer) in taken.into_iter().zip(answers) {
                // Whoever has gone finds it by its id.
                one.answer.send(Ok(answer)).ok();
            }
        }
        // One of them can't be accepted, and the others are not to suffer for it.
        Err(error) if !error.is_temporary() && taken.len() > 1 => {
            for one in taken {
                let answer = submit::submit(database, one.job, one.now).await;
                one.answer.send(answer).ok();
            }
        }
        Err(error) => {
            let text = Chain(&error).to_string();
            let mut error = Some(error);
            for one in taken {
                let own = error.take().unwrap_or_else(|| StoreError::Query {
                    doing: "accept the job",
                    source: text.clone().into(),
                });
                one.answer.send(Err(own)).ok();
            }
        }
    }
}

/// Whoever submitted this together with others was dropped in the middle of it, perhaps while the commit was on its way:
/// then the job is there, by its own id.
async fn again(database: &Database, job: NewJob, now: DateTime<Utc>) -> Answer {
    let (tenant, id): (_, JobId) = (job.tenant, job.id);
    match submit::submit(database, job, now).await {
        Err(error @ StoreError::Refused { .. }) => {
            if jobs::standings(database, tenant, &[id]).await?.is_empty() {
                Err(error)
            } else {
                Ok(Submitted::Accepted)
            }
        }
        answer => answer,
    }
}
