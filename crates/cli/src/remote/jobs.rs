//! `mayfly job`, `mayfly logs` and `mayfly cancel` at a server.

use std::process::ExitCode;

use mayfly_client::JobFilter;
use mayfly_core::id::JobId;
use mayfly_wire::job::{CancelWord, JobLine, State, StreamName};

use super::{Remote, follow, lists::json_lines, show};
use crate::{
    args::{
        JobCommand,
        remote::{CancelArgs, LogsArgs},
    },
    artifacts, exit,
    failure::Failure,
    live,
    report::{time, word},
    show::table,
    terminal::{print, say, shown, unwritten},
};

pub(crate) async fn job(remote: &Remote, command: JobCommand) -> Result<ExitCode, Failure> {
    match command {
        JobCommand::Show { id, json, .. } => {
            let id = match id {
                Some(id) => id,
                None => newest(remote).await?,
            };
            let text = if json {
                json_lines(&[remote.client.job(id).await?])?
            } else {
                show::text(&remote.client.job(id).await?)
            };
            print(&text)?;
        }
        JobCommand::Artifacts(command) => {
            let files = super::artifacts::AtServer::new(remote.client.clone(), command.job());
            return artifacts::artifacts(&files, command).await;
        }
        JobCommand::List { limit, json, filter } => {
            let filter = JobFilter {
                state: filter.state.map(State::from),
                label: filter.label.map(|(name, value)| format!("{name}={value}")),
                batch: filter.batch,
                image: filter.image,
            };
            let jobs = remote.client.jobs(&filter, limit).take(limit as usize).await?;
            print(&if json { json_lines(&jobs)? } else { listed(&jobs) })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A table of jobs.
pub(super) fn listed(jobs: &[JobLine]) -> String {
    let mut table = table(["JOB", "STATE", "CAUSE", "EXIT CODE", "IMAGE", "SUBMITTED"]);
    for job in jobs {
        table.add_row([
            job.job.to_string(),
            word(job.state),
            job.cause.map_or_else(String::new, word),
            job.exit_code.map_or_else(String::new, |code| code.to_string()),
            shown(&job.image.to_string()),
            time(job.submitted_at),
        ]);
    }
    format!("{table}\n")
}

async fn newest(remote: &Remote) -> Result<JobId, Failure> {
    let newest = remote.client.jobs(&JobFilter::default(), 1).next().await?;
    newest.map(|job| job.job).ok_or_else(|| {
        let error = anyhow::anyhow!("there is no job yet: `mayfly run FILE` makes the first one");
        Failure::new(exit::NOT_FOUND, error)
    })
}

/// Prints what a job has written, or is writing.
pub(crate) async fn logs(remote: &Remote, args: LogsArgs) -> Result<ExitCode, Failure> {
    let (client, job) = (&remote.client, args.job);
    let (live, printer) = live::start();
    let shown = if args.follow {
        follow::follow(client, job, &live, args.stream)
            .await
            .map(drop)
            .map_err(Failure::from)
    } else {
        kept(remote, &args, &live).await
    };
    let written = printer.finish().map_err(unwritten);
    shown?;
    written?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what is kept of the output of a job that has ended.
async fn kept(remote: &Remote, args: &LogsArgs, live: &live::Live) -> Result<(), Failure> {
    use mayfly_sandbox::seam::{LiveOutput as _, OutputStream};
    let job = remote.client.job(args.job).await?;
    let id = job.job;
    if !job.state.is_over() {
        let error = anyhow::anyhow!(
            "job {id} is {}, and its output is not on record yet: `mayfly logs -f {id}` follows it",
            word(job.state)
        );
        return Err(Failure::new(exit::IN_USE, error));
    }
    let streams = [
        (StreamName::Stdout, OutputStream::Stdout, job.stdout),
        (StreamName::Stderr, OutputStream::Stderr, job.stderr),
    ];
    for (name, to, stream) in streams {
        let Some(stream) = stream.filter(|_| args.stream.is_none_or(|only| only == name)) else {
            continue;
        };
        let omitted = stream.omitted_bytes;
        let (head, tail) = stream
            .into_kept()
            .map_err(|error| Failure::new(exit::PROTOCOL, error))?;
        live.output(to, &head);
        live.ready().await;
        if let Some(omitted) = omitted {
            say(&format!(
                "mayfly: {omitted} bytes in the middle of {} are not kept",
                name.as_str()
            ));
        }
        live.output(to, &tail);
    }
    Ok(())
}

pub(crate) async fn cancel(remote: &Remote, args: CancelArgs) -> Result<ExitCode, Failure> {
    for job in args.jobs {
        let cancel = remote.client.cancel(job).await?;
        let line = if args.json {
            json_lines(&[cancel])?
        } else {
            let became = match cancel.answer {
                CancelWord::Canceled => "is canceled, and had not started",
                CancelWord::Requested => "has started; it is being ended, and `canceled` is its outcome",
                CancelWord::Over => "was over already, and stays as it was",
            };
            format!("job {job} {became}\n")
        };
        print(&line)?;
    }
    Ok(ExitCode::SUCCESS)
}
