//! `mayfly job`, `mayfly audit` and `mayfly image`: tables for people, JSON lines for programs.

use std::{process::ExitCode, sync::Arc};

use comfy_table::{Table, presets::NOTHING};
use mayfly_core::id::{JobId, TenantId};
use mayfly_store::records::{AuditFilter, JobFilter, JobRecord};
use serde_json::json;

use crate::{
    args::{AuditCommand, ImageCommand, JobCommand},
    artifacts,
    context::Session,
    exit,
    failure::Failure,
    report::{self, state_word, time, word},
    terminal::{print, shown},
};

pub(crate) async fn job(session: &Session, command: JobCommand) -> Result<ExitCode, Failure> {
    match command {
        JobCommand::Show { id, json, .. } => {
            let id = match id {
                Some(id) => id,
                None => newest(session).await?,
            };
            let found = session.store.find_job(TenantId::LOCAL, id).await?;
            let details = found
                .ok_or_else(|| Failure::new(exit::NOT_FOUND, anyhow::anyhow!("there is no job {id}")))?;
            let waiting = session
                .store
                .waiting_for(TenantId::LOCAL, id, session.clock.now())
                .await?;
            print(&if json {
                format!("{}\n", report::to_json(&details, waiting.as_ref()))
            } else {
                report::to_text(&details, waiting.as_ref())
            })?;
        }
        JobCommand::Artifacts(command) => {
            let files = artifacts::Local {
                store: Arc::clone(&session.store),
                job: command.job(),
            };
            return artifacts::artifacts(&files, command).await;
        }
        JobCommand::List { limit, json, filter } => {
            let filter = JobFilter {
                state: filter.state,
                label: filter.label,
                batch: filter.batch,
                image: filter.image,
                ..JobFilter::default()
            };
            let jobs = listed(session, &filter, limit).await?;
            if json {
                let lines: String = jobs
                    .iter()
                    .map(|job| format!("{}\n", report::to_json_line(job)))
                    .collect();
                return print(&lines).map(|()| ExitCode::SUCCESS);
            }
            let mut table = table(["JOB", "STATE", "CAUSE", "EXIT CODE", "IMAGE", "SUBMITTED"]);
            for job in &jobs {
                let outcome = job.outcome.as_ref();
                table.add_row([
                    job.id.to_string(),
                    state_word(job),
                    outcome.map_or_else(String::new, |outcome| word(outcome.cause)),
                    outcome
                        .and_then(|outcome| outcome.exit_code)
                        .map_or_else(String::new, |code| code.to_string()),
                    shown(&job.image.to_string()),
                    time(job.submitted_at),
                ]);
            }
            print(&format!("{table}\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The newest jobs that a filter lets through.
async fn listed(session: &Session, filter: &JobFilter, limit: u32) -> Result<Vec<JobRecord>, Failure> {
    let (mut jobs, mut before) = (Vec::new(), None);
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    loop {
        // A page may be short of what fits: a store looks at so many jobs and no more.
        let page = session.store.list_jobs(TenantId::LOCAL, filter, before, limit);
        let page = page.await?;
        jobs.extend(page.jobs);
        before = page.next;
        if before.is_none() || jobs.len() >= most {
            jobs.truncate(most);
            return Ok(jobs);
        }
    }
}

async fn newest(session: &Session) -> Result<JobId, Failure> {
    let newest = session
        .store
        .list_jobs(TenantId::LOCAL, &JobFilter::default(), None, 1)
        .await?
        .jobs;
    newest.first().map(|job| job.id).ok_or_else(|| {
        Failure::new(
            exit::NOT_FOUND,
            anyhow::anyhow!("there is no job yet: `mayfly run FILE` makes the first one"),
        )
    })
}

pub(crate) async fn audit(session: &Session, command: AuditCommand) -> Result<ExitCode, Failure> {
    let AuditCommand::List {
        job,
        attempt,
        fleet,
        before,
        limit,
        json,
    } = command;
    let store = &session.store;
    let events = if fleet {
        store.list_fleet_audit(before, limit).await?
    } else {
        let filter = AuditFilter { job, attempt };
        store.list_audit(TenantId::LOCAL, filter, limit).await?
    };
    if json {
        let lines: String = events
            .iter()
            .map(|event| format!("{}\n", String::from_utf8_lossy(&event.body)))
            .collect();
        return print(&lines).map(|()| ExitCode::SUCCESS);
    }
    let mut table = table(["AT", "EVENT", "JOB", "WHAT"]);
    for event in &events {
        let job = event.job.map_or_else(String::new, |job| job.to_string());
        table.add_row([time(event.at), event.kind.clone(), job, what(&event.body)]);
    }
    print(&format!("{table}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// What an event says beside its kind: the fields that a person asks for first, from its canonical form. Digests are
/// shortened; `--json` has all of it.
pub(crate) fn what(body: &[u8]) -> String {
    let value: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let fact = &value["fact"];
    let field = |name: &&str| {
        let value = fact
            .get(name)
            .filter(|value| !value.is_null() && !value.is_object())?;
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), ToOwned::to_owned);
        let text = match text.strip_prefix("sha256:") {
            Some(digest) => format!("sha256:{}…", &digest[..digest.len().min(12)]),
            None => shown(&text),
        };
        Some(format!("{} {text}", name.replace('_', " ")))
    };
    let names = [
        "number",
        "state",
        "cause",
        "exit_code",
        "signal",
        "name",
        "digest",
        "image_digest",
        "policy_version",
        "why",
        "attempts",
        "executor",
    ];
    let test = fact["test"].as_object().map(|test| {
        let failures = test["failures"].as_array().into_iter().flatten();
        let failed = failures.filter_map(|failure| failure["probe"].as_str());
        let failed: Vec<_> = failed.map(shown).collect();
        let result = test["result"].as_str().unwrap_or_default().replace('_', " ");
        [shown(&result), failed.join(" and ")].join(" ").trim().to_owned()
    });
    let streams = ["stdout", "stderr"].into_iter().filter_map(|stream| {
        let bytes = fact[stream]["bytes"].as_u64()?;
        Some(format!("{stream} {bytes} B"))
    });
    names
        .iter()
        .filter_map(field)
        .chain(test)
        .chain(streams)
        .collect::<Vec<_>>()
        .join(", ")
}

pub(crate) async fn image(session: &Session, command: ImageCommand) -> Result<ExitCode, Failure> {
    match command {
        ImageCommand::List { json } => {
            let images = session.store.list_images().await?;
            if json {
                let line = |image: &mayfly_store::records::ImageEntry| {
                    let (pin, at) = (&image.pin, time(image.pinned_at));
                    format!("{}\n", json!({"name": image.name, "pin": pin, "pinned_at": at}))
                };
                let lines: String = images.iter().map(line).collect();
                return print(&lines).map(|()| ExitCode::SUCCESS);
            }
            let mut table = table(["NAME", "DIGEST", "PLATFORM", "PINNED FROM", "PINNED"]);
            for image in &images {
                let pin = &image.pin;
                table.add_row([
                    image.name.clone(),
                    pin.digest.to_string(),
                    shown(&pin.platform),
                    shown(&pin.reference),
                    time(image.pinned_at),
                ]);
            }
            print(&format!("{table}\n"))?;
        }
        ImageCommand::Pin { name, reference } => {
            let engine = session.engine().await?;
            let pin = session.catalog(&engine).pin(&name, &reference).await?;
            print(&format!("{name} {}\n", pin.digest))?;
        }
        ImageCommand::Ensure { name } => {
            let engine = session.engine().await?;
            let pin = session.catalog(&engine).ensure(&name).await?;
            print(&format!("{name} {}\n", pin.digest))?;
        }
        ImageCommand::Build { name } => {
            let engine = session.engine().await?;
            let built = session.catalog(&engine).build(&name).await;
            let pin = built.map_err(|error| Failure::new(exit::NO_IMAGE, anyhow::anyhow!(error)))?;
            print(&format!("{name} {}\n", pin.digest))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn table<const COLUMNS: usize>(head: [&str; COLUMNS]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(head);
    table.set_content_arrangement(comfy_table::ContentArrangement::Disabled);
    table
}
