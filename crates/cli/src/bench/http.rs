//! A rig as it is reached over HTTP: the API of `mayfly dev` on a port of its own, and a client that waits for its jobs.

use std::time::{Duration, Instant};

use mayfly_client::{ApiKey, Client, ClientConfig, ServerUrl, SubmitAnswer};
use mayfly_core::{id::JobId, job::JobSpec};
use mayfly_wire::job::State;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    context::Session,
    embedded::Embedded,
    exit,
    failure::Failure,
    fleet::{api::Serving, dev, hub::SharedHub},
};

/// Longest wait for a job of the bench, and for an answer beside it.
const WAIT: Duration = Duration::from_secs(60);
/// Most of an answer: a job with all that is kept of its output.
const MAX_ANSWER: usize = 64 << 20;

/// An API, and its client.
pub(crate) struct Door {
    client: Client,
    job: JobSpec,
    serving: Serving,
    stop: CancellationToken,
}

impl Door {
    /// Serves the roles of a session, which must listen on loopback.
    pub(crate) async fn open(session: &Session, embedded: &Embedded, job: JobSpec) -> Result<Self, Failure> {
        let internal = |error: anyhow::Error| Failure::new(exit::INTERNAL, error);
        let key = dev::first_key(session, true).await?;
        let key = key.ok_or_else(|| internal(anyhow::anyhow!("the bench has got no key")))?;
        let (stop, failed) = (CancellationToken::new(), CancellationToken::new());
        let serving = dev::serve(session, embedded, SharedHub::default(), stop.clone(), failed).await?;
        let client = ClientConfig {
            server: ServerUrl::parse(&serving.url, true).map_err(|error| internal(error.into()))?,
            key: Some(ApiKey::new(&key.reveal()).map_err(|error| internal(error.into()))?),
            ca: None,
            timeout: WAIT,
            patience: Duration::ZERO,
            max_answer: MAX_ANSWER,
        };
        let client = Client::new(client).map_err(|error| internal(error.into()))?;
        Ok(Self {
            client,
            job,
            serving,
            stop,
        })
    }

    /// One request: a job is submitted, and the answer is the job when it has ended, with its output.
    pub(crate) async fn run(&self) -> Result<(Duration, JobId), Failure> {
        let key = Uuid::new_v4().to_string();
        let begun = Instant::now();
        let answer = self.client.submit_and_wait(&self.job, &key, WAIT).await;
        let took = begun.elapsed();
        let internal = |error: anyhow::Error| Failure::new(exit::INTERNAL, error);
        match answer.map_err(|error| internal(error.into()))? {
            SubmitAnswer::Ended(job) if job.state == State::Succeeded => Ok((took, job.job)),
            SubmitAnswer::Ended(job) => Err(internal(anyhow::anyhow!(
                "a job of the bench did not succeed: {:?}",
                job.state
            ))),
            SubmitAnswer::Accepted(_) => Err(internal(anyhow::anyhow!(
                "a job of the bench did not end within {} s",
                WAIT.as_secs()
            ))),
        }
    }

    /// Ends what it serves.
    pub(crate) async fn close(self) {
        self.stop.cancel();
        // A panic of its is in the log.
        self.serving.task.await.ok();
    }
}
