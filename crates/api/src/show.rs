//! From what a store keeps to what an answer shows.

use mayfly_core::{
    outcome::{Evidence, Outcome},
    self_test::{SelfTest, SelfTestFailure, SelfTestResult},
};
use mayfly_dispatch::waiting::{Waiting, WaitingReason};
use mayfly_store::{
    accounts::{KeyRecord, Standing, TenantRecord},
    executors::{ExecutorRecord, ExecutorState},
    records::{AttemptSummary, AuditRow, BatchJob, BatchRecord, ImageEntry, JobDetails, JobRecord},
};
use mayfly_wire::{
    account,
    artifact::ArtifactList,
    audit, batch, executor, image,
    job::{Attempt, Job, JobLine, LimitsShown, Stream, WaitWord, WaitingFor},
    stream::EndEvent,
};

use crate::key::prefix;

/// Whether an answer has what a job brought and wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// It has.
    Shown,
    /// It has, output apart.
    WithoutOutput,
    /// It has none of it: whoever asks may know how the job stands, and no more.
    Hidden,
}

/// `waiting`: why it has not started.
pub(crate) fn job(details: &JobDetails, waiting: Option<&Waiting>, content: Content) -> Job {
    let JobDetails {
        job,
        resolved,
        attempts,
    } = details;
    let hidden = content == Content::Hidden;
    let outcome = job.outcome.as_ref();
    let report = details.report();
    let streams = report.filter(|_| content == Content::Shown);
    let mut sandbox = report.and_then(|report| report.sandbox.clone());
    if hidden && let Some(warm) = sandbox.as_mut().and_then(|sandbox| sandbox.warm.as_mut()) {
        // It may name a file or a variable of the job.
        warm.why_cold = None;
    }
    let newest = attempts.last();
    Job {
        job: job.id,
        state: job.state.into(),
        waiting_for: waiting.map(waiting_for),
        cause: outcome.map(|outcome| outcome.cause),
        exit_code: outcome.and_then(|outcome| outcome.exit_code),
        signal: outcome.and_then(|outcome| outcome.signal),
        image: job.image.clone(),
        image_digest: job.image_digest,
        policy_version: job.policy_version,
        stdout: streams.map(|report| Stream::new(&report.stdout)),
        stderr: streams.map(|report| Stream::new(&report.stderr)),
        // The job chose their names.
        artifacts: report
            .and_then(|report| report.artifacts.as_ref())
            .filter(|_| !hidden)
            .map(|artifacts| ArtifactList::new(Some(artifacts))),
        // And those of the hosts that it asked for.
        egress: report
            .and_then(|report| report.egress.clone())
            .filter(|_| !hidden),
        limits: LimitsShown {
            asked: resolved.as_ref().map(|resolved| resolved.asked),
            exact: resolved.as_ref().map(|resolved| resolved.limits),
            in_force: sandbox.as_ref().map(|sandbox| sandbox.in_force),
        },
        source_erased: resolved.is_none(),
        evidence: outcome.map(|outcome| evidence(outcome, hidden)),
        usage: report.and_then(|report| report.usage),
        sandbox,
        labels: if hidden {
            Default::default()
        } else {
            job.labels.clone()
        },
        batch: job.batch,
        attempts: job.attempts,
        attempt: newest.map(|attempt| attempt.id),
        executor: newest.and_then(|attempt| attempt.executor),
        submitted_at: job.submitted_at,
        started_at: newest.and_then(|attempt| attempt.started_at),
        ended_at: job.ended_at,
        history: attempts.iter().map(attempt).collect(),
    }
}

fn waiting_for(waiting: &Waiting) -> WaitingFor {
    let reason = match waiting.reason {
        WaitingReason::NotBefore { .. } => WaitWord::NotBefore,
        WaitingReason::Retry { .. } => WaitWord::Retry,
        WaitingReason::NoExecutor { .. } => WaitWord::NoExecutor,
        WaitingReason::Image { .. } => WaitWord::Image,
        WaitingReason::Quota { .. } => WaitWord::Quota,
        WaitingReason::Turn => WaitWord::Turn,
        WaitingReason::Dispatched => WaitWord::Dispatched,
    };
    WaitingFor {
        reason,
        detail: waiting.sentence(),
        until: waiting.reason.until().map(Into::into),
        ahead: waiting.place.map(|place| place.ahead),
        other_tenants: waiting.place.map(|place| place.other_tenants),
    }
}

fn evidence(outcome: &Outcome, hidden: bool) -> Evidence {
    let mut evidence = outcome.evidence.clone();
    if hidden && let Some(refusal) = &mut evidence.refused {
        // What the job has called its file or program.
        refusal.subject = None;
    }
    evidence
}

fn attempt(summary: &AttemptSummary) -> Attempt {
    Attempt {
        attempt: summary.id,
        number: summary.number,
        executor: summary.executor,
        session: summary.session,
        started_at: summary.started_at,
        ended_at: summary.ended_at,
        cause: summary.cause,
    }
}

pub(crate) fn line(job: JobRecord, content: Content) -> JobLine {
    JobLine {
        job: job.id,
        state: job.state.into(),
        cause: job.outcome.as_ref().map(|outcome| outcome.cause),
        exit_code: job.outcome.as_ref().and_then(|outcome| outcome.exit_code),
        image: job.image,
        image_digest: job.image_digest,
        attempts: job.attempts,
        labels: if content == Content::Hidden {
            Default::default()
        } else {
            job.labels
        },
        batch: job.batch,
        submitted_at: job.submitted_at,
        ended_at: job.ended_at,
    }
}

/// The last event of a job that is over.
pub(crate) fn end(job: &JobRecord) -> Option<EndEvent> {
    let outcome = job.outcome.as_ref()?;
    Some(EndEvent {
        job: job.id,
        state: job.state.into(),
        cause: outcome.cause,
        exit_code: outcome.exit_code,
        signal: outcome.signal,
    })
}

pub(crate) fn batch(record: BatchRecord) -> batch::Batch {
    batch::Batch {
        batch: record.id,
        input: record.input,
        created_at: record.created_at,
        items: record.items,
        waiting: record.waiting,
        running: record.running,
        ended: record.ended,
    }
}

pub(crate) fn batch_job(job: BatchJob) -> batch::BatchJob {
    batch::BatchJob {
        position: job.position,
        item: job.item,
        job: line(job.job, Content::Shown),
    }
}

/// The canonical bytes are JSON, which is text.
pub(crate) fn audit_event(row: AuditRow) -> audit::AuditEvent {
    audit::AuditEvent {
        id: row.id,
        at: row.at,
        kind: row.kind,
        job: row.job,
        attempt: row.attempt,
        body: String::from_utf8_lossy(&row.body).into_owned(),
    }
}

pub(crate) fn image(entry: ImageEntry) -> image::Image {
    image::Image {
        name: entry.name,
        pin: entry.pin,
        pinned_at: entry.pinned_at,
    }
}

pub(crate) fn executor(record: ExecutorRecord) -> executor::Executor {
    let state = match record.state() {
        ExecutorState::NeverSeen => executor::ExecutorState::NeverSeen,
        ExecutorState::Live => executor::ExecutorState::Live,
        ExecutorState::Cordoned => executor::ExecutorState::Cordoned,
        ExecutorState::Unfit => executor::ExecutorState::Unfit,
        ExecutorState::Gone => executor::ExecutorState::Gone,
    };
    executor::Executor {
        executor: record.id,
        name: record.name,
        pool: record.pool,
        state,
        cordoned: record.cordoned,
        enrolled_at: record.enrolled_at,
        session: record.session.map(|session| executor::ExecutorSession {
            session: session.session,
            opened_at: session.opened_at,
            ended_at: session.ended_at,
            lease_end: session.lease_end,
            slots: session.slots,
            free_slots: session.free_slots,
            running: session.running,
            build: session.facts.build,
            host: session.facts.host,
            engine: session.facts.engine,
            kernel: session.facts.kernel,
            images: session.facts.images,
            self_test: session.self_test.map(self_test),
        }),
    }
}

fn self_test(test: SelfTest) -> executor::SelfTest {
    let failure = |failure: SelfTestFailure| executor::SelfTestFailure {
        runtime: failure.runtime,
        probe: failure.probe,
        why: failure.why,
    };
    executor::SelfTest {
        at: test.at,
        result: match test.result {
            SelfTestResult::Passed => executor::SelfTestResult::Passed,
            SelfTestResult::Failed => executor::SelfTestResult::Failed,
            SelfTestResult::LeftOut => executor::SelfTestResult::LeftOut,
        },
        runtimes: test.runtimes,
        programs: test.programs,
        failures: test.failures.into_iter().map(failure).collect(),
        accepted: test.accepted,
    }
}

pub(crate) fn tenant(record: TenantRecord) -> account::Tenant {
    account::Tenant {
        tenant: record.id,
        name: record.name,
        weight: record.weight,
        most_in_flight: record.quotas.most_in_flight,
        most_queued: record.quotas.most_queued,
        created_at: record.created_at,
    }
}

pub(crate) fn key(record: KeyRecord) -> account::Key {
    account::Key {
        key: record.id,
        prefix: prefix(record.id),
        name: record.name,
        role: record.role,
        tenant: record.tenant,
        standing: match record.standing {
            Standing::Valid => account::KeyStanding::Valid,
            Standing::Expired => account::KeyStanding::Expired,
            Standing::Revoked => account::KeyStanding::Revoked,
        },
        created_at: record.created_at,
        expires_at: record.expires_at,
        revoked_at: record.revoked_at,
        last_used_at: record.last_used_at,
    }
}

#[cfg(test)]
mod tests {
    use mayfly_dispatch::time::ServerTime;

    use super::*;

    /// The embedded commands have the same documents, by the reason's own word.
    #[test]
    fn what_a_job_waits_for_is_the_same_word_everywhere() {
        let until = ServerTime::from_micros(1);
        for reason in [
            WaitingReason::NotBefore { until },
            WaitingReason::Retry { until },
            WaitingReason::NoExecutor {
                cordoned: 0,
                unfit: 0,
            },
            WaitingReason::Image {
                lacking: 1,
                executors: 2,
            },
            WaitingReason::Quota { most: 3 },
            WaitingReason::Turn,
            WaitingReason::Dispatched,
        ] {
            let shown = waiting_for(&Waiting { reason, place: None });
            assert_eq!(serde_json::to_value(shown.reason).unwrap(), reason.word());
        }
    }
}
