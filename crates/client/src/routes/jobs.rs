//! Jobs: submitted, shown, listed, followed, canceled.

use std::time::Duration;

use mayfly_core::{
    id::{AttemptId, BatchId, JobId},
    image::ImageName,
    job::JobSpec,
};
use mayfly_wire::{
    MAX_WAIT_SECONDS,
    audit::AuditList,
    job::{Cancel, Job, JobList, State, SubmitMany, Submitted, SubmittedMany},
};

use crate::{
    call::{Call, Client, parse},
    error::ClientError,
    events::JobEvents,
    page::Pages,
};

/// What a submission came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubmitAnswer {
    /// The job is accepted, and has not ended in the time that was waited for.
    Accepted(Submitted),
    /// The job has ended in that time.
    Ended(Box<Job>),
}

/// Which jobs are listed: those that fit everything that is named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// Those in this state.
    pub state: Option<State>,
    /// Those that have this label, as `name=value`.
    pub label: Option<String>,
    /// Those of this batch.
    pub batch: Option<BatchId>,
    /// Those that named this image so.
    pub image: Option<ImageName>,
}

const SUBMIT: &str = "submit the job";

impl Client {
    /// Submits a job, under a key by which the server knows it again: whatever is lost on the way, the same key with the
    /// same job stands for one job, for 24 hours.
    ///
    /// # Errors
    /// The server refuses the job, or does not answer.
    pub async fn submit(&self, job: &JobSpec, idempotency_key: &str) -> Result<Submitted, ClientError> {
        let call = Call::post(SUBMIT, &["v1", "jobs"]).idempotency_key(idempotency_key);
        self.json(call.json(job)?).await
    }

    /// Submits a job and waits for its end, for at most so long and at most a minute.
    ///
    /// # Errors
    /// The server refuses the job, or does not answer.
    pub async fn submit_and_wait(
        &self,
        job: &JobSpec,
        idempotency_key: &str,
        wait: Duration,
    ) -> Result<SubmitAnswer, ClientError> {
        let call = Call::post(SUBMIT, &["v1", "jobs"]).idempotency_key(idempotency_key);
        let call = waiting(call.json(job)?, wait);
        let (status, body) = self.answer(&call).await?;
        // The one route whose answer has two shapes.
        if status == 200 {
            parse(SUBMIT, &body).map(SubmitAnswer::Ended)
        } else {
            parse(SUBMIT, &body).map(SubmitAnswer::Accepted)
        }
    }

    /// Submits many jobs: all are accepted, or none. It is not repeated once the server may have taken it.
    ///
    /// # Errors
    /// The server refuses one of them, or does not answer.
    pub async fn submit_many(&self, jobs: &SubmitMany) -> Result<SubmittedMany, ClientError> {
        let call = Call::post("submit the jobs", &["v1", "jobs", "bulk"]);
        self.json(call.json(jobs)?).await
    }

    /// A job with all that is known of it.
    ///
    /// # Errors
    /// There is no such job, or the server does not answer.
    pub async fn job(&self, job: JobId) -> Result<Job, ClientError> {
        let id = job.to_string();
        self.json(Call::get("show the job", &["v1", "jobs", &id])).await
    }

    /// A job, once it has ended or so much time has passed; at most a minute.
    ///
    /// # Errors
    /// There is no such job, or the server does not answer.
    pub async fn wait(&self, job: JobId, wait: Duration) -> Result<Job, ClientError> {
        let id = job.to_string();
        let path = ["v1", "jobs", &id];
        let call = Call::get("wait for the job", &path);
        self.json(waiting(call, wait)).await
    }

    /// Jobs, newest first, in pages of this many.
    #[must_use]
    pub fn jobs(&self, filter: &JobFilter, page: u32) -> Pages<JobList> {
        Pages::new(self, "list jobs", &["v1", "jobs"])
            .query("limit", Some(page))
            .query("state", filter.state.map(word))
            .query("label", filter.label.as_ref())
            .query("batch", filter.batch)
            .query("image", filter.image.as_ref())
    }

    /// Asks for a job's end.
    ///
    /// # Errors
    /// There is no such job, or the server does not answer.
    pub async fn cancel(&self, job: JobId) -> Result<Cancel, ClientError> {
        let id = job.to_string();
        let path = ["v1", "jobs", &id, "cancel"];
        self.json(Call::post("cancel the job", &path).repeatable()).await
    }

    /// Follows a job until its end.
    #[must_use]
    pub fn events(&self, job: JobId) -> JobEvents {
        JobEvents::new(self.clone(), job)
    }

    /// The newest audit events of a job, oldest of them first.
    ///
    /// # Errors
    /// There is no such job, or the server does not answer.
    pub async fn job_audit(&self, job: JobId, limit: u32) -> Result<AuditList, ClientError> {
        let id = job.to_string();
        let path = ["v1", "jobs", &id, "audit"];
        let call = Call::get("list the job's audit events", &path);
        self.json(call.query("limit", Some(limit))).await
    }

    /// The tenant's newest audit events, oldest of them first.
    ///
    /// # Errors
    /// The key may not, or the server does not answer.
    pub async fn audit(
        &self,
        job: Option<JobId>,
        attempt: Option<AttemptId>,
        limit: u32,
    ) -> Result<AuditList, ClientError> {
        let call = Call::get("list audit events", &["v1", "audit"])
            .query("job", job)
            .query("attempt", attempt)
            .query("limit", Some(limit));
        self.json(call).await
    }
}

fn waiting(call: Call<'_>, wait: Duration) -> Call<'_> {
    let waits = wait.min(Duration::from_secs(MAX_WAIT_SECONDS));
    Call {
        waits,
        ..call.query("wait", Some(format!("{}ms", waits.as_millis())))
    }
}

fn word(state: State) -> String {
    match serde_json::to_value(state) {
        Ok(serde_json::Value::String(word)) => word,
        other => unreachable!("a state is a word: {other:?}"),
    }
}
