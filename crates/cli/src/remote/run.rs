//! `mayfly run` and `mayfly submit` at a server.

use std::process::ExitCode;

use mayfly_client::Client;
use mayfly_core::{
    id::JobId,
    job::JobSpec,
    outcome::{Evidence, Outcome},
    state::JobState,
};
use mayfly_wire::{
    job::{Job, Submitted},
    stream::EndEvent,
};
use serde_json::json;
use uuid::Uuid;

use super::{
    Remote,
    artifacts::AtServer,
    follow::{self, FOLLOW, Followed},
    show,
};
use crate::{
    args::{RunArgs, remote::SubmitArgs},
    artifacts,
    embedded::Requests,
    exit,
    failure::Failure,
    live,
    run::{saved, spec},
    terminal::{print, say, unwritten},
    uploads::{self, Asked},
};

/// Submits a program, shows its output as it comes, and ends as it has ended.
pub(crate) async fn run(remote: &Remote, args: RunArgs) -> Result<ExitCode, Failure> {
    let (json, quiet) = (args.json, args.quiet);
    let Asked { spec, large } = spec(args.program, &remote.settings.image.default)?;
    for file in &large {
        uploads::send(&remote.client, file).await?;
    }
    let mut requests = Requests::new();
    let (submitted, is_canceled) = accepted(&remote.client, &spec, &new_key(), &mut requests).await?;
    let job = submitted.job;
    let ending = Ending {
        client: &remote.client,
        job,
        is_canceled,
        json,
        quiet,
    };
    let outcome = ending.wait(&mut requests).await?;
    if let Some(out) = args.out {
        let files = AtServer::new(remote.client.clone(), job);
        saved(&outcome, artifacts::save_all(&files, &out)).await?;
    }
    Ok(ExitCode::from(exit::of_outcome(&outcome)))
}

/// Submits a program, and says under which id.
pub(crate) async fn submit(remote: &Remote, args: SubmitArgs) -> Result<ExitCode, Failure> {
    let Asked { spec, large } = spec(args.program, &remote.settings.image.default)?;
    for file in &large {
        uploads::send(&remote.client, file).await?;
    }
    let key = args.idempotency_key.unwrap_or_else(new_key);
    let mut requests = Requests::new();
    let (submitted, is_canceled) = accepted(&remote.client, &spec, &key, &mut requests).await?;
    if !args.wait {
        let line = if args.json {
            json!({"job": submitted.job, "existing": submitted.existing}).to_string()
        } else {
            submitted.job.to_string()
        };
        return print(&format!("{line}\n")).map(|()| ExitCode::SUCCESS);
    }
    if !args.json && !args.quiet {
        say(&format!("mayfly: job {}", submitted.job));
    }
    let ending = Ending {
        client: &remote.client,
        job: submitted.job,
        is_canceled,
        json: args.json,
        quiet: args.quiet,
    };
    let outcome = ending.wait(&mut requests).await?;
    Ok(ExitCode::from(exit::of_outcome(&outcome)))
}

/// A key by which the server knows a submission again, whatever is lost on its way.
fn new_key() -> String {
    Uuid::new_v4().to_string()
}

/// Submits a job. Whoever asks for the end meanwhile gets it as soon as it is known which job it is; the second value
/// says whether that has happened.
async fn accepted(
    client: &Client,
    spec: &JobSpec,
    key: &str,
    requests: &mut Requests,
) -> Result<(Submitted, bool), Failure> {
    let mut answer = std::pin::pin!(client.submit(spec, key));
    tokio::select! {
        submitted = &mut answer => return Ok((submitted?, false)),
        () = requests.next() => {
            say("mayfly: the job is canceled once the server has answered; ask again to leave at once");
        }
    }
    tokio::select! {
        submitted = answer => {
            let submitted = submitted?;
            client.cancel(submitted.job).await?;
            Ok((submitted, true))
        }
        () = requests.next() => Err(Failure::new(
            exit::STOPPED,
            anyhow::anyhow!("stopped before the server had answered: the job may be accepted, and `mayfly job list` shows it"),
        )),
    }
}

/// The wait for a job's end.
struct Ending<'a> {
    client: &'a Client,
    job: JobId,
    /// Its end was asked for already.
    is_canceled: bool,
    json: bool,
    quiet: bool,
}

impl Ending<'_> {
    async fn wait(self, requests: &mut Requests) -> Result<Outcome, Failure> {
        if self.json {
            self.record(requests).await
        } else {
            self.output(requests).await
        }
    }

    /// Waits, and prints the record.
    async fn record(&self, requests: &mut Requests) -> Result<Outcome, Failure> {
        let patient = self.client.with_patience(FOLLOW.max(self.client.patience()));
        let ended = async {
            loop {
                let job = patient
                    .wait(self.job, follow::LONGEST_WAIT)
                    .await
                    .map_err(|error| self.left(error))?;
                if job.state.is_over() {
                    return Ok(job);
                }
            }
        };
        let job = self.unless_stopped(ended, requests).await?;
        let outcome = self.outcome(&job)?;
        let text = serde_json::to_string(&job).map_err(|error| Failure::new(exit::INTERNAL, error))?;
        print(&format!("{text}\n")).map_err(|failure| self.unwritten(failure))?;
        Ok(outcome)
    }

    /// Shows the output as it comes, then says how it ended.
    async fn output(&self, requests: &mut Requests) -> Result<Outcome, Failure> {
        let (live, printer) = live::start();
        let followed = follow::follow(self.client, self.job, &live, None);
        let followed = async { followed.await.map_err(|error| self.left(error)) };
        let followed = self.unless_stopped(followed, requests).await;
        let written = printer.finish().map_err(unwritten);
        let Followed { end, incomplete } = followed?;
        let outcome = if self.quiet {
            of_event(&end)
        } else {
            let job = self.client.job(self.job).await?;
            let outcome = self.outcome(&job)?;
            if incomplete {
                say(&format!(
                    "mayfly: some of the output is not shown above; `mayfly logs {}` prints what is kept of it",
                    self.job
                ));
            }
            say(&show::summary(&job, &outcome));
            Some(outcome)
        };
        written.map_err(|failure| self.unwritten(failure))?;
        outcome.ok_or_else(|| self.no_end())
    }

    /// What was waited for. The first request to stop cancels the job, the second leaves it to the server.
    async fn unless_stopped<T>(
        &self,
        waited: impl Future<Output = Result<T, Failure>>,
        requests: &mut Requests,
    ) -> Result<T, Failure> {
        let mut waited = std::pin::pin!(waited);
        if !self.is_canceled {
            tokio::select! {
                done = &mut waited => return done,
                () = requests.next() => {}
            }
            // What has come meanwhile waits in the connection; the end is what is wanted now.
            self.client
                .cancel(self.job)
                .await
                .map_err(|error| self.left(error))?;
        }
        tokio::select! {
            done = waited => done,
            () = requests.next() => Err(Failure::new(
                exit::STOPPED,
                anyhow::anyhow!("job {} is being canceled; `mayfly job show {}` shows when it has ended", self.job, self.job),
            )),
        }
    }

    fn outcome(&self, job: &Job) -> Result<Outcome, Failure> {
        show::outcome(job).ok_or_else(|| self.no_end())
    }

    fn no_end(&self) -> Failure {
        let error = anyhow::anyhow!("the server says that job {} has ended, and not how", self.job);
        Failure::new(exit::PROTOCOL, error)
    }

    /// The job goes on without us.
    fn left(&self, error: mayfly_client::ClientError) -> Failure {
        Failure::from(error).about(format!(
            "job {} goes on without this process, and `mayfly logs -f {}` follows it",
            self.job, self.job
        ))
    }

    fn unwritten(&self, failure: Failure) -> Failure {
        failure.about(format!(
            "job {} has ended, and its output can't be written here",
            self.job
        ))
    }
}

/// How a job has ended, by the last event of its stream.
fn of_event(end: &EndEvent) -> Option<Outcome> {
    Some(Outcome {
        state: JobState::from(end.state).end()?,
        cause: end.cause,
        exit_code: end.exit_code,
        signal: end.signal,
        evidence: Evidence::default(),
    })
}
