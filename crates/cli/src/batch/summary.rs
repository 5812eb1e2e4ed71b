//! The last line of a batch, and its exit code.

use std::process::ExitCode;

use mayfly_core::units::Span;
use serde_json::json;

use super::{
    progress::{Progress, warm},
    run::{Plan, quoted, resume_command},
    work::Ended,
};
use crate::{
    exit,
    failure::Failure,
    report::word,
    terminal::{print, say as say_line, shown},
};

/// Says how a batch stands at the end of this process.
pub(super) fn say(plan: &Plan<'_>, progress: &Progress, ended: Ended) -> Result<ExitCode, Failure> {
    let is_over = ended.tally.over() >= plan.items;
    let all_written = ended.written.is_ok();
    if plan.pace.json {
        as_json(plan, progress, &ended)?;
    } else {
        progress.say(&line(plan, progress, &ended));
    }
    if let Some(failure) = ended.failure {
        return Err(failure);
    }
    ended.written.map_err(|error| {
        let then = resume_command(plan.id, None);
        let what = format!("the results can't be written; `{then} --out FILE` writes what is missing");
        Failure::new(exit::NO_OUTPUT, anyhow::Error::new(error).context(what))
    })?;
    Ok(ExitCode::from(if !is_over || !all_written {
        exit::STOPPED
    } else if ended.tally.succeeded() == plan.items {
        exit::OK
    } else {
        exit::SOME_FAILED
    }))
}

fn line(plan: &Plan<'_>, progress: &Progress, ended: &Ended) -> String {
    let (over, items) = (ended.tally.over(), plan.items);
    let (here, rate) = progress.rate(&ended.tally);
    let stopped = if over < items { " stopped" } else { "" };
    let mut line = format!("mayfly: batch {}{stopped}: {over} of {items} done", plan.id);
    if over > 0 {
        line.push_str(&format!(": {}", ended.tally.words()));
    }
    let elapsed = Span::millis(u64::try_from(progress.elapsed().as_millis()).unwrap_or(u64::MAX));
    line.push_str(&format!(" · {elapsed}"));
    if here > 0 {
        line.push_str(&format!(" · {rate:.1} jobs/s"));
    }
    if let Some(pool) = &ended.pool {
        line.push_str(&format!(" · {}", warm(pool)));
    }
    if let (Some(out), true) = (&plan.pace.out, ended.written.is_ok()) {
        line.push_str(&format!(" · results in {}", shown(&out.display().to_string())));
    }
    if over < items {
        line.push_str(&format!(" · `{}` goes on", shown(&next(plan, ended))));
    }
    line
}

/// The command that goes on with a batch.
fn next(plan: &Plan<'_>, ended: &Ended) -> String {
    let out = plan.pace.out.as_ref();
    if ended.accepted {
        return resume_command(plan.id, out);
    }
    let out = out.map_or_else(String::new, |path| {
        format!(" --out {}", quoted(&path.display().to_string()))
    });
    format!(
        "mayfly batch run {} --batch {}{out}",
        quoted(&plan.input),
        plan.id
    )
}

fn as_json(plan: &Plan<'_>, progress: &Progress, ended: &Ended) -> Result<(), Failure> {
    let (over, items) = (ended.tally.over(), plan.items);
    let (here, rate) = progress.rate(&ended.tally);
    let counts: serde_json::Map<_, _> = ended
        .tally
        .by_state()
        .iter()
        .map(|(end, count)| (word(end), json!(count)))
        .collect();
    let object = json!({
        "batch": plan.id,
        "input": plan.input,
        "items": items,
        "accepted": ended.accepted,
        "done": over,
        "ended": counts,
        "done_here": here,
        "elapsed_ms": u64::try_from(progress.elapsed().as_millis()).unwrap_or(u64::MAX),
        "jobs_per_second": (rate * 10.0).round() / 10.0,
        "warm": ended.pool.map(|pool| pool.hits),
        "cold": ended.pool.map(|pool| pool.misses.total()),
        "out": plan.pace.out.as_ref().map(|path| path.display().to_string()),
        "next": (over < items).then(|| next(plan, ended)),
    });
    if plan.pace.out.is_some() {
        return print(&format!("{object}\n"));
    }
    say_line(&object.to_string());
    Ok(())
}
