//! What a change leaves: its events, outcomes and reports.

use mayfly_core::id::{JobId, TenantId};
use mayfly_dispatch::record::{AttemptEnd, Change, JobNext};

use super::World;

impl World {
    pub(super) fn note(&mut self, change: &Change) {
        let ledger = &self.ledger;
        let of = |job: &JobId| ledger.job(*job).map_or(TenantId::LOCAL, |job| job.tenant);
        let here = TenantId::LOCAL;
        match change {
            Change::Dispatched(attempt) => {
                let (job, id) = (attempt.job, attempt.attempt);
                self.events
                    .push((of(&job), Some(job), Some(id), "attempt_dispatched"));
            }
            Change::CancelRequested { job } => {
                self.events.push((of(job), Some(*job), None, "cancel_requested"))
            }
            Change::JobEnded { job, outcome } => {
                self.events.push((of(job), Some(*job), None, "job_ended"));
                self.outcomes.insert(*job, outcome.clone());
            }
            Change::SessionOpened { .. } => self.events.push((here, None, None, "session_opened")),
            Change::SelfTested { .. } => self.events.push((here, None, None, "self_tested")),
            Change::SessionEnded { .. } => self.events.push((here, None, None, "session_ended")),
            Change::Started { attempt, job, .. } => {
                self.events
                    .push((of(job), Some(*job), Some(*attempt), "run_started"));
            }
            Change::AttemptEnded {
                attempt,
                job,
                how,
                then,
            } => {
                let (tenant, about) = (of(job), (Some(*job), Some(*attempt)));
                self.ended_at.push(self.bench.now);
                match how {
                    AttemptEnd::Reported { report, .. } => {
                        self.reports.insert(*attempt, report.as_ref().clone());
                        self.events.push((tenant, about.0, about.1, "run_finished"));
                    }
                    AttemptEnd::Lost { .. } => self.events.push((tenant, about.0, about.1, "attempt_lost")),
                    AttemptEnd::NeverStarted { .. } => {}
                }
                match then {
                    JobNext::Ended(outcome) => {
                        self.outcomes.insert(*job, outcome.clone());
                        self.events.push((tenant, about.0, about.1, "job_ended"));
                    }
                    JobNext::Queued { .. } => self.events.push((tenant, about.0, about.1, "job_requeued")),
                }
            }
            Change::Superseded { attempt, job, .. } => {
                let tenant = job.as_ref().map_or(here, of);
                self.events
                    .push((tenant, *job, Some(*attempt), "result_superseded"));
            }
            Change::Contradicted { attempt, job, .. } => {
                let tenant = job.as_ref().map_or(here, of);
                self.events
                    .push((tenant, *job, Some(*attempt), "run_contradicted"));
            }
            Change::Published { .. }
            | Change::PublicationConfirmed { .. }
            | Change::EventsProcessed { .. }
            | Change::LeaseMoved { .. }
            | Change::Images { .. }
            | Change::DeadLettered { .. }
            | Change::Adopted { .. }
            | Change::Queue(_) => {}
        }
    }
}
