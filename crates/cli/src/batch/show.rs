//! `mayfly batch list`, `show` and `cancel`.

use std::{io, process::ExitCode};

use mayfly_core::{
    id::{BatchId, TenantId},
    outcome::EndState,
};
use mayfly_store::{
    records::{BatchJob, BatchRecord, CancelAnswer},
    seam::MAX_PAGE,
};
use serde_json::{Value, json};

use super::{
    lock::{self, Runner},
    progress::Tally,
    run::{find, quoted},
};
use crate::{
    context::Session,
    embedded, exit,
    failure::Failure,
    report::{self, state_word, time, word},
    show::table,
    terminal::{print, shown},
};

pub(super) async fn list(session: &Session, limit: u32, as_json: bool) -> Result<ExitCode, Failure> {
    let batches = session.store.list_batches(TenantId::LOCAL, None, limit).await?;
    if as_json {
        for batch in &batches {
            print(&format!("{}\n", to_json(batch, runner(session, batch.id)?)))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = table(["BATCH", "BEGUN", "STANDS", "ITEMS", "DONE", "SUCCEEDED", "INPUT"]);
    for batch in &batches {
        table.add_row([
            batch.id.to_string(),
            time(batch.created_at),
            stands(batch, runner(session, batch.id)?).to_owned(),
            batch
                .items
                .map_or_else(|| format!("{}…", batch.accepted()), |items| items.to_string()),
            batch.over().to_string(),
            Tally::of(batch.ended.clone()).succeeded().to_string(),
            shown(&batch.input),
        ]);
    }
    print(&format!("{table}\n"))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn one(
    session: &Session,
    id: BatchId,
    failed: bool,
    as_json: bool,
) -> Result<ExitCode, Failure> {
    let batch = find(session, id).await?;
    let runner = runner(session, id)?;
    if as_json {
        print(&format!("{}\n", to_json(&batch, runner)))?;
    } else {
        print(&to_text(&batch, runner))?;
    }
    let mut after = None;
    loop {
        let page = session
            .store
            .list_batch_jobs(TenantId::LOCAL, id, after, MAX_PAGE)
            .await?;
        let Some(last) = page.last() else {
            return Ok(ExitCode::SUCCESS);
        };
        after = Some(last.position);
        let wanted = page.iter().filter(|job| !failed || has_failed(job));
        // A page at a time: a batch may be large.
        let text: String = if as_json {
            wanted.map(item_json).map(|item| format!("{item}\n")).collect()
        } else {
            wanted.map(item_line).collect()
        };
        print(&text)?;
    }
}

pub(super) async fn cancel(session: &Session, id: BatchId) -> Result<ExitCode, Failure> {
    let batch = find(session, id).await?;
    let runner = runner(session, id)?;
    if batch.items.is_none() && runner == Runner::Somebody {
        return Err(Failure::new(
            exit::IN_USE,
            anyhow::anyhow!(
                "the items of batch {id} are still being accepted by another process: stop that one first (Ctrl-C)"
            ),
        ));
    }
    // Where nobody runs it nobody begins to in between.
    let _lock = match runner {
        Runner::Nobody => Some(lock::take(&session.settings.store.path, id).await?),
        Runner::Somebody => None,
    };
    let (mut canceled, mut requested, mut over) = (0u64, 0u64, 0u64);
    let mut after = None;
    loop {
        let page = session
            .store
            .list_batch_jobs(TenantId::LOCAL, id, after, MAX_PAGE)
            .await?;
        let Some(last) = page.last() else { break };
        after = Some(last.position);
        for job in &page {
            let answer = if job.job.state.end().is_some() {
                CancelAnswer::Over
            } else {
                let context = embedded::context(&*session.clock);
                session
                    .store
                    .cancel(TenantId::LOCAL, job.job.id, &context)
                    .await?
            };
            match answer {
                CancelAnswer::Canceled => canceled += 1,
                CancelAnswer::Requested => requested += 1,
                CancelAnswer::Over => over += 1,
            }
        }
    }
    print(&format!(
        "batch {id}: {canceled} canceled, {requested} running and asked to end, {over} had ended before\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn runner(session: &Session, id: BatchId) -> Result<Runner, Failure> {
    lock::runner(&session.settings.store.path, id).map_err(|error: io::Error| {
        let error = anyhow::Error::new(error).context(format!("whether batch {id} runs can't be told"));
        Failure::new(exit::INTERNAL, error)
    })
}

/// Where a batch stands, in a word.
fn stands(batch: &BatchRecord, runner: Runner) -> &'static str {
    match (runner, batch.items) {
        (_, Some(items)) if batch.over() == items => "over",
        (Runner::Somebody, Some(_)) => "running",
        (Runner::Somebody, None) => "being_accepted",
        (Runner::Nobody, Some(_)) => "stopped",
        (Runner::Nobody, None) => "partly_accepted",
    }
}

fn has_failed(job: &BatchJob) -> bool {
    job.job.state.end().is_some_and(|end| end != EndState::Succeeded)
}

fn to_json(batch: &BatchRecord, runner: Runner) -> Value {
    let ended: serde_json::Map<_, _> = batch
        .ended
        .iter()
        .map(|(end, count)| (word(end), json!(count)))
        .collect();
    json!({
        "batch": batch.id,
        "input": batch.input,
        "begun_at": time(batch.created_at),
        "stands": stands(batch, runner),
        "items": batch.items,
        "accepted": batch.accepted(),
        "waiting": batch.waiting,
        "running": batch.running,
        "ended": ended,
    })
}

fn to_text(batch: &BatchRecord, runner: Runner) -> String {
    let id = batch.id;
    let stands = match stands(batch, runner) {
        "over" => "over".to_owned(),
        "running" => "running in another process".to_owned(),
        "being_accepted" => "being accepted and run in another process".to_owned(),
        "stopped" => format!("stopped; `mayfly batch resume {id}` goes on"),
        _ => format!(
            "stopped while it was being accepted; `mayfly batch run {} --batch {id}` goes on",
            shown(&quoted(&batch.input))
        ),
    };
    let items = batch.items.map_or_else(
        || format!("{} so far", batch.accepted()),
        |items| items.to_string(),
    );
    format!(
        "batch    {id}\ninput    {}\nbegun    {}\nstands   {stands}\nitems    {items}\nwaiting  {}\nrunning  {}\nended    \
         {}\n\n",
        shown(&batch.input),
        time(batch.created_at),
        batch.waiting,
        batch.running,
        Tally::of(batch.ended.clone()).words(),
    )
}

fn item_json(job: &BatchJob) -> Value {
    let mut line = report::to_json_line(&job.job);
    line["item"] = json!(job.item);
    line["position"] = json!(job.position);
    line
}

fn item_line(job: &BatchJob) -> String {
    let outcome = job.job.outcome.as_ref();
    let cause = outcome.map_or_else(String::new, |outcome| format!(" ({})", word(outcome.cause)));
    format!(
        "{}  {}{cause}  {}\n",
        job.job.id,
        state_word(&job.job),
        shown(&job.item)
    )
}
