//! The end of an attempt, with its result, and of a job.

use mayfly_core::{
    audit::{Fact, Finished, FinishedContext},
    id::{AttemptId, JobId, TenantId},
    outcome::Outcome,
    run::RunReport,
};
use mayfly_dispatch::record::{AttemptEnd, JobNext};
use mayfly_store::error::StoreError;

use super::{Writer, one};
use crate::{
    blobs,
    columns::{json, word},
};

impl Writer<'_> {
    pub(super) async fn attempt_ended(
        &mut self,
        attempt: AttemptId,
        job: JobId,
        how: &AttemptEnd,
        then: &JobNext,
    ) -> Result<(), StoreError> {
        let facts = self.job(job).await?;
        let cause = match how {
            AttemptEnd::Reported { report, .. } => report.outcome.cause,
            AttemptEnd::Lost { cause, .. } | AttemptEnd::NeverStarted { cause } => *cause,
        };
        let (id, cause_word, at) = (attempt.as_uuid(), word(cause), self.now.timestamp_micros());
        let holder = match how {
            AttemptEnd::Reported { session, .. } | AttemptEnd::Lost { session, .. } => {
                Some(session.as_uuid())
            }
            AttemptEnd::NeverStarted { .. } => None,
        };
        let done = sqlx::query!(
            "/* attempt_ended */
             UPDATE attempts SET state = 'ended', ended_at = ?2, cause = ?3
              WHERE attempt_id = ?1 AND state <> 'ended' AND session_id IS ?4",
            id,
            at,
            cause_word,
            holder
        );
        one(done.execute(&mut *self.connection).await, "end the attempt")?;
        // What no report has named goes too: nobody can name it any more.
        let left = blobs::take(self.connection, attempt).await?;
        let named = match how {
            AttemptEnd::Reported { report, .. } => report.artifacts.as_ref(),
            AttemptEnd::Lost { .. } | AttemptEnd::NeverStarted { .. } => None,
        };
        let files = named.iter().flat_map(|artifacts| &artifacts.files);
        let files: Vec<u32> = files.map(|file| file.number).collect();
        blobs::keep_alone(self.connection, attempt, &files).await?;
        match how {
            AttemptEnd::Reported {
                session,
                executor,
                report,
            } => {
                self.result(attempt, report, left).await?;
                let salt = self.salt(job).await?;
                let context = FinishedContext {
                    executor: *executor,
                    session: *session,
                    image_digest: facts.image_digest,
                    policy_version: facts.policy_version,
                    asked: facts.asked,
                    salt: &salt,
                };
                let fact = Fact::RunFinished(Box::new(Finished::new(report, &context)));
                self.audit(facts.tenant, Some(job), Some(attempt), fact).await?;
            }
            AttemptEnd::Lost { session, cause, .. } => {
                let fact = Fact::AttemptLost {
                    session: *session,
                    cause: *cause,
                };
                self.audit(facts.tenant, Some(job), Some(attempt), fact).await?;
            }
            // The job's own event says why.
            AttemptEnd::NeverStarted { .. } => {}
        }
        match then {
            JobNext::Ended(outcome) => self.end_job(facts.tenant, job, Some(attempt), outcome).await,
            JobNext::Queued { ready_at } => {
                let (id, ready_at) = (job.as_uuid(), ready_at.as_micros());
                let done = sqlx::query!(
                    "/* attempt_ended */
                     UPDATE jobs SET state = 'queued', ready_at = ?, ready = 0 WHERE job_id = ? AND state = 'started'",
                    ready_at,
                    id
                );
                one(done.execute(&mut *self.connection).await, "queue the job again")?;
                let fact = Fact::JobRequeued {
                    attempts: facts.attempts,
                };
                self.audit(facts.tenant, Some(job), Some(attempt), fact).await
            }
        }
    }

    /// The one outcome of a job.
    pub(super) async fn end_job(
        &mut self,
        tenant: TenantId,
        job: JobId,
        attempt: Option<AttemptId>,
        outcome: &Outcome,
    ) -> Result<(), StoreError> {
        let (id, at) = (job.as_uuid(), self.now.timestamp_micros());
        let (end, text) = (word(outcome.state), json(outcome));
        let done = sqlx::query!(
            "/* end_job */
             UPDATE jobs SET state = 'ended', end_state = ?2, outcome = ?3, ended_at = ?4
              WHERE job_id = ?1 AND state <> 'ended'",
            id,
            end,
            text,
            at
        );
        one(done.execute(&mut *self.connection).await, "end the job")?;
        let fact = Fact::JobEnded {
            state: outcome.state,
            cause: outcome.cause,
        };
        self.audit(tenant, Some(job), attempt, fact).await
    }

    async fn result(
        &mut self,
        attempt: AttemptId,
        report: &RunReport,
        left: Option<Vec<u8>>,
    ) -> Result<(), StoreError> {
        let id = attempt.as_uuid();
        let mut whole;
        let report = match (&report.uploaded, left) {
            (Some(named), Some(piece)) => {
                whole = report.clone();
                if !whole.give_back_output(&piece, named) {
                    return Err(refused("its output has another length"));
                }
                &whole
            }
            (Some(_), None) => return Err(refused("its output is not there")),
            (None, _) => report,
        };
        let (out, err) = (&report.stdout, &report.stderr);
        let text = json(&report.without_output());
        let done = sqlx::query!(
            "/* result */
             INSERT INTO results (attempt_id, report, stdout_head, stdout_tail, stderr_head, stderr_tail)
             VALUES (?, ?, ?, ?, ?, ?)",
            id,
            text,
            out.head,
            out.tail,
            err.head,
            err.tail
        );
        one(done.execute(&mut *self.connection).await, "keep the result")
    }
}

/// A result that is not as its report says.
fn refused(why: &'static str) -> StoreError {
    StoreError::Refused {
        doing: "keep the result",
        source: why.into(),
    }
}
