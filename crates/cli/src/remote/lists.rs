//! Lists of a server, for people and for programs; `mayfly audit`.

use std::process::ExitCode;

use serde::Serialize;

use super::Remote;
use crate::{
    args::AuditCommand,
    exit,
    failure::Failure,
    report::time,
    show::{table, what},
    terminal::{print, shown},
};

/// One JSON object a line.
pub(super) fn json_lines(entries: &[impl Serialize]) -> Result<String, Failure> {
    let mut lines = String::new();
    for entry in entries {
        lines += &serde_json::to_string(entry).map_err(|error| Failure::new(exit::INTERNAL, error))?;
        lines.push('\n');
    }
    Ok(lines)
}

pub(crate) async fn audit(remote: &Remote, command: AuditCommand) -> Result<ExitCode, Failure> {
    let AuditCommand::List {
        job,
        attempt,
        fleet,
        before,
        limit,
        json,
    } = command;
    let events = match (job, attempt) {
        _ if fleet => remote.client.fleet_audit(before, limit).await?,
        // Whoever may read a job may read what is on record of it, too.
        (Some(job), None) => remote.client.job_audit(job, limit).await?,
        (job, attempt) => remote.client.audit(job, attempt, limit).await?,
    }
    .events;
    if json {
        let lines: String = events.iter().map(|event| format!("{}\n", event.body)).collect();
        return print(&lines).map(|()| ExitCode::SUCCESS);
    }
    let mut table = table(["AT", "EVENT", "JOB", "WHAT"]);
    for event in &events {
        let job = event.job.map_or_else(String::new, |job| job.to_string());
        table.add_row([
            time(event.at),
            shown(&event.kind),
            job,
            what(event.body.as_bytes()),
        ]);
    }
    print(&format!("{table}\n"))?;
    Ok(ExitCode::SUCCESS)
}
