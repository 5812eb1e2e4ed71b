//! `mayfly top`: the fleet as it stands, drawn again and again.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, IsTerminal as _},
    process::ExitCode,
};

use mayfly_client::{ClientError, JobFilter};
use mayfly_wire::{
    executor::{Executor, ExecutorState},
    job::{JobLine, State},
    problem::Code,
};

use super::{Remote, fleet, jobs};
use crate::{
    args::remote::TopArgs,
    embedded::Requests,
    failure::Failure,
    show::table,
    terminal::{draw, print, shown},
};

/// Jobs of one state that are shown.
const SHOWN: u32 = 10;
/// Of jobs that are not over, those that are furthest first.
const STATES: [State; 4] = [
    State::CancelRequested,
    State::Started,
    State::Dispatched,
    State::Queued,
];

pub(crate) async fn top(remote: &Remote, args: TopArgs) -> Result<ExitCode, Failure> {
    let is_drawn = io::stdout().is_terminal();
    let most = args.count.unwrap_or(if is_drawn { u32::MAX } else { 1 });
    let mut requests = Requests::new();
    for drawn in 1..=most {
        let picture = tokio::select! {
            picture = picture(remote) => picture?,
            () = requests.next() => break,
        };
        if is_drawn {
            draw(&picture)?;
        } else {
            print(&picture)?;
        }
        if drawn == most {
            break;
        }
        tokio::select! {
            () = tokio::time::sleep(args.every.as_duration()) => {}
            () = requests.next() => break,
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn picture(remote: &Remote) -> Result<String, Failure> {
    let client = &remote.client;
    let ready = client.ready().await?;
    let mut text = format!(
        "{}  {}\n",
        client.server(),
        if ready.ready { "ready" } else { "not ready" }
    );
    for check in ready.checks.iter().filter(|check| !check.ok) {
        let reason = check.reason.as_deref().unwrap_or("not there");
        writeln!(text, "{}: {}", shown(&check.name), shown(reason)).unwrap_or_default();
    }
    if let Some(executors) = permitted(fleet::executors(client).await)? {
        write!(text, "\n{}\n{}", pools(&executors), fleet::listed(&executors)).unwrap_or_default();
    }
    let mut under_way = Vec::new();
    for state in STATES {
        let filter = JobFilter {
            state: Some(state),
            ..JobFilter::default()
        };
        let listed = client.jobs(&filter, SHOWN).take(SHOWN as usize).await;
        match permitted(listed)? {
            Some(jobs) => under_way.push((state, jobs)),
            None => return Ok(text),
        }
    }
    write!(text, "\n{}", jobs_under_way(&under_way)).unwrap_or_default();
    Ok(text)
}

/// What the key may see; none where its role or its tenant does not let it.
fn permitted<T>(seen: Result<T, ClientError>) -> Result<Option<T>, Failure> {
    match seen {
        Ok(seen) => Ok(Some(seen)),
        Err(error) if matches!(error.code(), Some(Code::Forbidden | Code::NotSupported)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A table of pools, by what their executors say.
fn pools(executors: &[Executor]) -> String {
    /// Of one pool.
    #[derive(Default)]
    struct Pool {
        executors: u64,
        slots: u64,
        running: u64,
    }
    let mut pools: BTreeMap<&str, Pool> = BTreeMap::new();
    for executor in executors {
        let pool = pools.entry(executor.pool.as_str()).or_default();
        let is_there = fleet::is_there(executor.state);
        let Some(session) = executor.session.as_ref().filter(|_| is_there) else {
            continue;
        };
        pool.running += session.running;
        if executor.state == ExecutorState::Live {
            pool.executors += 1;
            pool.slots += u64::from(session.slots);
        }
    }
    let mut table = table(["POOL", "EXECUTORS", "RUNNING", "SLOTS"]);
    for (name, pool) in pools {
        let numbers = [pool.executors, pool.running, pool.slots].map(|number| number.to_string());
        let [executors, running, slots] = numbers;
        table.add_row([shown(name), executors, running, slots]);
    }
    format!("{table}\n")
}

/// How many jobs are where, and the newest of them.
fn jobs_under_way(under_way: &[(State, Vec<JobLine>)]) -> String {
    let counts: Vec<_> = under_way
        .iter()
        .map(|(state, jobs)| {
            // More than are asked for are not counted: a tenant may have a million.
            let more = if jobs.len() >= SHOWN as usize { "+" } else { "" };
            format!(
                "{} {}{more}",
                jobs.len(),
                crate::report::word(*state).replace('_', " ")
            )
        })
        .collect();
    let jobs: Vec<JobLine> = under_way
        .iter()
        .flat_map(|(_, jobs)| jobs.iter().cloned())
        .collect();
    format!("jobs: {}\n{}", counts.join(", "), jobs::listed(&jobs))
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use mayfly_core::id::{ExecutorId, SessionId};
    use mayfly_wire::executor::ExecutorSession;

    use super::*;

    fn executor(pool: &str, state: ExecutorState, slots: u32, running: u64) -> Executor {
        let session = ExecutorSession {
            session: SessionId::new(),
            opened_at: DateTime::UNIX_EPOCH,
            ended_at: None,
            lease_end: DateTime::UNIX_EPOCH,
            slots,
            free_slots: 0,
            running,
            build: "9".to_owned(),
            host: "h\u{1b}[2J".to_owned(),
            engine: "docker".to_owned(),
            kernel: "6".to_owned(),
            images: None,
            self_test: None,
        };
        Executor {
            executor: ExecutorId::new(),
            name: format!("{pool}-1"),
            pool: pool.to_owned(),
            state,
            cordoned: state == ExecutorState::Cordoned,
            enrolled_at: DateTime::UNIX_EPOCH,
            session: (state != ExecutorState::NeverSeen).then_some(session),
        }
    }

    #[test]
    fn a_pool_has_the_slots_of_those_who_take_jobs_and_all_that_runs() {
        let text = pools(&[
            executor("a", ExecutorState::Live, 4, 3),
            executor("a", ExecutorState::Cordoned, 4, 1),
            executor("a", ExecutorState::Unfit, 4, 0),
            executor("a", ExecutorState::Gone, 4, 2),
            executor("b", ExecutorState::NeverSeen, 0, 0),
        ]);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[1], ["a", "1", "4", "4"]);
        assert_eq!(rows[2], ["b", "0", "0", "0"]);
    }

    #[test]
    fn what_a_host_calls_itself_does_not_act_on_the_terminal() {
        let text = fleet::listed(&[executor("a", ExecutorState::Live, 4, 3)]);
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
