//! What is being done for each attempt: a sandbox in the making, one that waits, a run.

use std::{collections::HashMap, sync::Arc, time::Duration};

use mayfly_core::{
    clock::Clock,
    digest::Digest,
    egress::NoRule,
    id::{AttemptId, ExecutorId, SessionId},
    job::ResolvedJob,
    outcome::{CapturedStream, Evidence, KilledFor, StreamCount, Trouble, TroubleKind},
    run::RunReport,
};
use mayfly_dispatch::{
    executor::{ContainerLeft, Input, KillReason},
    message::DispatchMessage,
};
use mayfly_egress::Proxy;
use mayfly_failpoints::{Point, reach};
use mayfly_sandbox::{
    redaction::{Matcher, Matchers, SecretsError},
    seam::{PrepareError, ReadySandbox, Run, RunEnd, Sandbox, SandboxRequest},
};
use tokio::sync::{mpsc, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Listeners, Outside, RunId, artifacts,
    blobs::Blobs,
    fetched,
    input::{self, InputError},
    output, preparation,
};

/// Longest time that a sandbox waits for the grant of its job: a server may be away for a while.
pub const LONGEST_IDLE: Duration = Duration::from_secs(600);

/// The same of a job's sandbox, which waits for the job's files as well.
fn longest_idle(job: &ResolvedJob) -> Duration {
    LONGEST_IDLE.saturating_add(fetched::longest(&job.fetched))
}

/// What comes of work that was begun here.
pub(crate) enum Done {
    /// The engine does not answer; a sandbox is made as soon as it does.
    Delayed(AttemptId),
    /// The containers of this executor's last life are gone.
    Swept,
    /// A sandbox is ready and the job is whole, or not.
    Prepared(AttemptId, Result<Prepared, NoRun>),
    /// A run is over.
    Ended(AttemptId, Box<RunReport>, ContainerLeft),
    /// The container of a run that was over is gone, and the engine said this against its report.
    Destroyed(AttemptId, Vec<String>),
}

/// A sandbox, and the job for it.
pub(crate) struct Prepared {
    sandbox: Box<dyn ReadySandbox>,
    job: Arc<ResolvedJob>,
    matcher: Matcher,
    /// Its way out.
    egress: Option<Arc<Proxy>>,
}

/// A job with all that it is run with.
struct Whole {
    job: ResolvedJob,
    matcher: Matcher,
    egress: Option<Arc<Proxy>>,
}

/// Why an attempt can't run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoRun {
    /// There is no sandbox.
    #[error(transparent)]
    Sandbox(PrepareError),
    /// There is no whole job.
    #[error(transparent)]
    Input(InputError),
    /// Its secrets are more than can be taken out of its output.
    #[error(transparent)]
    Secrets(SecretsError),
    /// What it may reach is not to be understood.
    #[error(transparent)]
    Egress(NoRule),
}

impl NoRun {
    fn evidence(&self) -> Evidence {
        match self {
            Self::Sandbox(error) => error.evidence(),
            Self::Input(error) => error.evidence(),
            Self::Secrets(error) => of_no_use(error),
            Self::Egress(error) => of_no_use(error),
        }
    }
}

/// The order can't be gone by.
fn of_no_use(error: &dyn std::error::Error) -> Evidence {
    Evidence {
        trouble: Some(Trouble {
            kind: TroubleKind::Content,
            message: error.to_string(),
        }),
        ..Evidence::default()
    }
}

/// What the work is done with.
pub(crate) struct Means {
    pub(crate) sandbox: Arc<dyn Sandbox>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) listeners: Arc<dyn Listeners>,
    pub(crate) blobs: Arc<dyn Blobs>,
    pub(crate) outside: Outside,
}

/// The work for all attempts of this process.
pub(crate) struct Jobs {
    means: Means,
    executor: ExecutorId,
    matchers: Arc<Matchers>,
    done: mpsc::UnboundedSender<Done>,
    tasks: TaskTracker,
    jobs: HashMap<AttemptId, Job>,
}

struct Job {
    message: Arc<DispatchMessage>,
    /// In which it was taken.
    session: SessionId,
    stage: Stage,
}

enum Stage {
    /// In the making, for as long as this is not cancelled.
    Preparing(CancellationToken),
    /// Nobody wants it any more; it is destroyed as soon as it is there.
    Unwanted,
    Ready(Prepared),
    Running(watch::Sender<Option<KilledFor>>),
}

impl Jobs {
    /// No work yet; what comes of it goes to `done`, which holds at most four items for each attempt that is held or
    /// whose container is being destroyed.
    pub(crate) fn new(means: Means, executor: ExecutorId, done: mpsc::UnboundedSender<Done>) -> Self {
        Self {
            means,
            executor,
            matchers: Arc::default(),
            done,
            tasks: TaskTracker::new(),
            jobs: HashMap::new(),
        }
    }

    /// Removes what this executor's last life left behind. Where the engine does not do that nothing comes of it, and
    /// the machine waits until the guests have ended by themselves.
    pub(crate) fn sweep(&self) {
        let sandbox = Arc::clone(&self.means.sandbox);
        let (done, executor) = (self.done.clone(), self.executor);
        self.tasks.spawn(async move {
            match sandbox.remove_all_of(executor).await {
                Ok(swept) if swept.failed == 0 => done.send(Done::Swept).unwrap_or_default(),
                Ok(swept) => tracing::warn!(swept.failed, "containers of this executor's last life are left"),
                Err(error) => tracing::warn!(
                    error = %mayfly_core::chain::Chain(&error),
                    "could not look for containers of this executor's last life"
                ),
            }
        });
    }

    /// Begins to make a sandbox for an attempt.
    pub(crate) fn prepare(&mut self, message: DispatchMessage, session: SessionId) {
        let attempt = message.attempt;
        let request = SandboxRequest {
            warm: self.means.sandbox.warm_command(&message.resolved),
            ..SandboxRequest::for_job(
                &message.resolved,
                self.executor,
                session,
                longest_idle(&message.resolved),
            )
        };
        let unwanted = CancellationToken::new();
        let message = Arc::new(message);
        self.jobs.insert(
            attempt,
            Job {
                message: Arc::clone(&message),
                session,
                stage: Stage::Preparing(unwanted.clone()),
            },
        );
        let (sandbox, done) = (Arc::clone(&self.means.sandbox), self.done.clone());
        let blobs = Arc::clone(&self.means.blobs);
        let matchers = Arc::clone(&self.matchers);
        let outside = self.means.outside.clone();
        self.tasks.spawn(async move {
            // The receiver lives as long as the driver, which waits for these tasks.
            let delayed = || done.send(Done::Delayed(attempt)).unwrap_or_default();
            // Without one of the two the other is good for nothing.
            let useless = unwanted.child_token();
            let (sandbox, job) = tokio::join!(
                async {
                    let made = preparation::prepare(&*sandbox, request, &useless, delayed).await;
                    made.inspect_err(|_| useless.cancel())
                },
                async {
                    let whole = whole(&*blobs, &matchers, &outside, &message, &useless).await;
                    whole.inspect_err(|_| useless.cancel())
                },
            );
            let prepared = both(sandbox, job).await;
            done.send(Done::Prepared(attempt, prepared)).unwrap_or_default();
        });
    }

    /// Takes note of what came of some work, and says what the machine is to know of it.
    pub(crate) fn take(&mut self, done: Done) -> Option<Input> {
        match done {
            Done::Delayed(attempt) => Some(Input::SandboxDelayed(attempt)),
            Done::Swept => Some(Input::Swept),
            Done::Prepared(attempt, Ok(prepared)) => match self.jobs.get_mut(&attempt) {
                Some(job) if matches!(job.stage, Stage::Preparing(_)) => {
                    job.stage = Stage::Ready(prepared);
                    Some(Input::SandboxReady(attempt))
                }
                _ => {
                    self.jobs.remove(&attempt);
                    self.tasks.spawn(prepared.sandbox.discard());
                    None
                }
            },
            Done::Prepared(attempt, Err(error)) => {
                let job = self.jobs.remove(&attempt)?;
                tracing::warn!(
                    attempt.id = %attempt,
                    error = %mayfly_core::chain::Chain(&error),
                    "the attempt can't run here"
                );
                match job.stage {
                    Stage::Unwanted => None,
                    Stage::Preparing(_) | Stage::Ready(_) | Stage::Running(_) => Some(Input::SandboxFailed {
                        attempt,
                        report: Box::new(self.without_run(&error)),
                    }),
                }
            }
            Done::Ended(attempt, report, container) => {
                self.jobs.remove(&attempt);
                Some(Input::RunEnded {
                    attempt,
                    report,
                    container,
                })
            }
            Done::Destroyed(attempt, contradictions) => Some(Input::Destroyed {
                attempt,
                contradictions,
            }),
        }
    }

    /// Sends an attempt's job to its sandbox. Whether it may be sent was asked right before.
    pub(crate) fn send(&mut self, attempt: AttemptId) {
        let Some(job) = self.jobs.get_mut(&attempt) else {
            return;
        };
        let (stop, stopped) = watch::channel(None);
        let Stage::Ready(prepared) = std::mem::replace(&mut job.stage, Stage::Running(stop)) else {
            return;
        };
        let run = Run {
            collect: artifacts::wanted(&prepared.job, &job.message, &self.means.blobs),
            fetched: fetched::incoming(&job.message, &self.means.blobs, &self.tasks),
            egress: prepared.egress,
            job: prepared.job,
            matcher: prepared.matcher,
            stop: stopped,
            live: self.means.listeners.listener(RunId {
                job: job.message.job,
                attempt,
                session: job.session,
            }),
        };
        let (done, blobs) = (self.done.clone(), Arc::clone(&self.means.blobs));
        let (message, mut stop) = (Arc::clone(&job.message), run.stop.clone());
        self.tasks.spawn(async move {
            let RunEnd {
                mut report,
                destruction,
                ..
            } = prepared.sandbox.run(run).await;
            output::leave(&*blobs, message.output.as_ref(), attempt, &mut report, &mut stop).await;
            let files = report.artifacts.as_ref();
            if report.uploaded.is_some() || files.is_some_and(|artifacts| !artifacts.files.is_empty()) {
                reach(Point::OutputUploaded);
            }
            let left = match destruction {
                Some(_) => ContainerLeft::BeingDestroyed,
                None => ContainerLeft::Gone,
            };
            done.send(Done::Ended(attempt, Box::new(report), left))
                .unwrap_or_default();
            if let Some(destruction) = destruction {
                let contradictions = destruction.contradictions().await;
                done.send(Done::Destroyed(attempt, contradictions))
                    .unwrap_or_default();
            }
        });
    }

    /// Ends the run of an attempt.
    pub(crate) fn kill(&mut self, attempt: AttemptId, why: KillReason) {
        if let Some(Job {
            stage: Stage::Running(stop),
            ..
        }) = self.jobs.get(&attempt)
        {
            let reason = match why {
                KillReason::Canceled => KilledFor::Cancel,
                KillReason::NotOurs | KillReason::LeaseEnding | KillReason::Stopped => KilledFor::Abandoned,
            };
            // The first reason counts.
            stop.send_if_modified(|stop| {
                let first = stop.is_none();
                stop.get_or_insert(reason);
                first
            });
        }
    }

    /// Destroys the sandbox of an attempt that gets no job, now or when it is there.
    pub(crate) fn discard(&mut self, attempt: AttemptId) {
        let Some(job) = self.jobs.get_mut(&attempt) else {
            return;
        };
        if let Stage::Preparing(unwanted) = &job.stage {
            unwanted.cancel();
            job.stage = Stage::Unwanted;
        } else if matches!(job.stage, Stage::Ready(_))
            && let Some(Job {
                stage: Stage::Ready(prepared),
                ..
            }) = self.jobs.remove(&attempt)
        {
            self.tasks.spawn(prepared.sandbox.discard());
        }
    }

    /// Nothing new will be taken, so that nothing needs to be kept ready for it.
    pub(crate) fn drain(&self) {
        let sandbox = Arc::clone(&self.means.sandbox);
        self.tasks.spawn(async move { sandbox.drain().await });
    }

    /// Waits until no container of this process is left. What was still in the making is destroyed when it comes.
    pub(crate) async fn finish(mut self, mut done: mpsc::UnboundedReceiver<Done>) {
        self.drain();
        let attempts: Vec<AttemptId> = self.jobs.keys().copied().collect();
        for attempt in attempts {
            self.kill(attempt, KillReason::Stopped);
            self.discard(attempt);
        }
        // Every sandbox in the making and every run says once what came of it.
        while !self.jobs.is_empty()
            && let Some(item) = done.recv().await
        {
            self.take(item);
        }
        self.tasks.close();
        self.tasks.wait().await;
        // What was removed last may be owed by an engine that does not answer.
        self.means.sandbox.drain().await;
    }

    /// What is on record of an attempt that could not run.
    fn without_run(&self, error: &NoRun) -> RunReport {
        let nothing = || CapturedStream {
            count: StreamCount {
                bytes: 0,
                digest: Digest::of(b""),
                truncated: false,
            },
            head: Vec::new(),
            tail: Vec::new(),
            redacted: None,
        };
        RunReport {
            outcome: error.evidence().judge(),
            stdout: nothing(),
            stderr: nothing(),
            usage: None,
            sandbox: None,
            started_at: None,
            ended_at: self.means.clock.now(),
            uploaded: None,
            artifacts: None,
            egress: None,
        }
    }
}

/// The job with all that it brings, and what is to be taken out of its output.
async fn whole(
    blobs: &dyn Blobs,
    matchers: &Matchers,
    outside: &Outside,
    message: &DispatchMessage,
    useless: &CancellationToken,
) -> Result<Whole, NoRun> {
    let job = input::complete(blobs, message, useless)
        .await
        .map_err(NoRun::Input)?;
    let matcher = matchers.of(&job).map_err(NoRun::Secrets)?;
    // Without the one who decides nothing is started.
    let egress = outside.proxy(message.tenant, &job).map_err(NoRun::Egress)?;
    Ok(Whole { job, matcher, egress })
}

/// A sandbox and its job, or nothing of either.
async fn both(
    sandbox: Result<Box<dyn ReadySandbox>, PrepareError>,
    job: Result<Whole, NoRun>,
) -> Result<Prepared, NoRun> {
    match (sandbox, job) {
        (Ok(sandbox), Ok(Whole { job, matcher, egress })) => Ok(Prepared {
            sandbox,
            job: Arc::new(job),
            matcher,
            egress,
        }),
        (Ok(sandbox), Err(error)) => {
            sandbox.discard().await;
            Err(error)
        }
        // What was given up for want of a sandbox is not the reason.
        (Err(error), Ok(_) | Err(NoRun::Input(InputError::GivenUp))) => Err(NoRun::Sandbox(error)),
        (Err(_), Err(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use mayfly_core::outcome::{Cause, EndState};
    use mayfly_dispatch::{message::VERSION, token::TokenKey};
    use serde_json::json;

    use super::*;
    use crate::NoBlobs;

    /// An order whose job may reach what this rule says.
    fn order(rule: &str) -> DispatchMessage {
        let mut policy = mayfly_core::policy::Policy::default();
        policy.egress.allow = vec!["*.example.test".to_owned()];
        let mut resolved = mayfly_testkit::job(&["true"], json!({}));
        let asked: mayfly_core::job::JobSpec = serde_json::from_value(
            json!({"image": "python", "command": ["true"], "egress": ["a.example.test"]}),
        )
        .unwrap();
        let asked = asked
            .resolve(&policy, resolved.pin.clone(), &Digest::of(b""))
            .unwrap();
        resolved.egress = asked.egress;
        resolved.egress.as_mut().unwrap().allow = vec![rule.to_owned()];
        let attempt = AttemptId::new();
        DispatchMessage {
            v: VERSION,
            tenant: mayfly_core::id::TenantId::LOCAL,
            job: mayfly_core::id::JobId::new(),
            attempt,
            number: 1,
            publication: 1,
            token: TokenKey::from_bytes([7; 32]).token(attempt),
            resolved,
            input: None,
            output: None,
            artifacts: None,
            secrets: None,
            fetched: None,
        }
    }

    async fn made(rule: &str) -> Result<Whole, NoRun> {
        let (outside, never) = (Outside::of_host(Vec::new()), CancellationToken::new());
        whole(&NoBlobs, &Matchers::default(), &outside, &order(rule), &never).await
    }

    #[tokio::test]
    async fn without_the_one_who_decides_what_a_job_reaches_there_is_nothing_to_start() {
        assert!(made("a.example.test").await.unwrap().egress.is_some());
        let error = made("*").await.err().expect("the rule is none");
        let outcome = error.evidence().judge();
        assert_eq!(
            (outcome.state, outcome.cause),
            (EndState::Error, Cause::ContentUnavailable)
        );
        assert!(error.to_string().contains("\"*\""), "{error}");
    }
}
