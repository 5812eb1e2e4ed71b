//! The report for people: at a terminal, and in docs/performance.md.

use std::fmt::Write as _;

use super::found::ControlPlane;
use crate::bench::{
    grid::{Grid, one, two},
    machine::Build,
    stats::Times,
};

/// At a terminal.
pub(crate) fn text(found: &ControlPlane) -> String {
    let mut text = format!("{}\n\n", found.host.line());
    if found.host.build == Build::Debug {
        text.push_str(
            "WARNING: a debug build. These figures say nothing about mayfly: build it with --release.\n\n",
        );
    }
    for (sentence, grid) in parts(found) {
        writeln!(
            text,
            "{sentence}\n{}",
            grid.map(|grid| format!("\n{}", grid.text())).unwrap_or_default()
        )
        .unwrap_or_default();
    }
    text.push_str(&line(found));
    text
}

/// A section of the page.
pub(crate) fn markdown(found: &ControlPlane) -> String {
    let mut page = format!(
        "\n## How many jobs a second a fleet dispatches and records\n\n`{}`, {} UTC, {:.0} s in all:\n\n    {}\n\n",
        found.command,
        found.at.format("%Y-%m-%d %H:%M"),
        found.seconds,
        found.host.line()
    );
    if found.host.build == Build::Debug {
        page.push_str("**A debug build: these figures say nothing about mayfly.**\n\n");
    }
    page.push_str(
        "All of a fleet but its sandboxes: PostgreSQL and RabbitMQ with durability on, a server and executors as processes \
         of their own, jobs submitted over HTTP. A sandbox of the bench's own ends each job at once.\n\n",
    );
    for (sentence, grid) in parts(found) {
        writeln!(
            page,
            "{sentence}\n{}",
            grid.map(|grid| format!("\n{}", grid.markdown()))
                .unwrap_or_default()
        )
        .unwrap_or_default();
    }
    page
}

/// The one line that says most.
pub(crate) fn line(found: &ControlPlane) -> String {
    let mut line = format!(
        "`{}`: {} jobs a second",
        found.command,
        one(found.jobs_per_second)
    );
    if let Some(bare) = &found.bare {
        write!(
            line,
            ", {} of what the bare broker and database do with as many messages and rows",
            two(bare.ratio)
        )
        .unwrap_or_default();
    }
    let cpu: f64 = found.used.iter().map(|used| used.cpu_us_per_job).sum();
    writeln!(line, ", {cpu:.0} µs of CPU a job.").unwrap_or_default();
    line
}

fn parts(found: &ControlPlane) -> Vec<(String, Option<Grid>)> {
    let messages = &found.messages;
    let record = &found.record;
    let mut parts = vec![
        (
            format!(
                "{} jobs ended in {} s of load: **{}** a second.",
                found.jobs,
                one(found.load_seconds),
                one(found.jobs_per_second)
            ),
            Some(submissions(found)),
        ),
        (
            "CPU time during the load, and most memory:".to_owned(),
            Some(used(found)),
        ),
        (
            format!(
                "Of a job: {} transactions and {} rows by the database's counters; over the whole run {} messages of jobs, {} \
                 of events with {} events in them.",
                two(found.commits_per_job),
                one(found.rows_per_job),
                messages.deliveries,
                messages.batches,
                messages.events
            ),
            None,
        ),
        (
            format!(
                "The record: {} jobs accepted, {} ended, {} results, {} audit events; {} jobs fetched back over HTTP; {} whose \
                 record is not whole.",
                record.accepted,
                record.ended,
                record.results,
                record.events.values().sum::<u64>(),
                record.fetched,
                record.wrong
            ),
            None,
        ),
        ("Without load:".to_owned(), Some(sizes(found))),
    ];
    if let Some(bare) = &found.bare {
        parts.push((
            format!(
                "The bare broker took {} s for the messages of {} jobs and the bare database, at the same time, {} s for their \
                 rows in transactions of {}: {} jobs a second. mayfly does **{}** of that.",
                one(bare.broker_seconds),
                bare.jobs,
                one(bare.database_seconds),
                bare.batch,
                one(bare.jobs_per_second),
                two(bare.ratio)
            ),
            None,
        ));
    }
    parts
}

fn cells(name: String, times: &Times) -> Vec<String> {
    let mut cells = vec![name, times.n.to_string()];
    cells.extend([times.p50, times.p90, times.p99, times.max].map(two));
    cells
}

fn submissions(found: &ControlPlane) -> Grid {
    let mut grid = Grid::new(["under load, ms", "n", "p50", "p90", "p99", "max"]);
    for (name, times) in [
        ("submit many", &found.submit_many_ms),
        ("submit one", &found.submit_ms),
    ] {
        if let Some(times) = times {
            grid.add(cells(name.to_owned(), times));
        }
    }
    grid
}

fn used(found: &ControlPlane) -> Grid {
    let mut grid = Grid::new(["process", "CPU s", "CPU µs a job", "peak MiB"]);
    for used in &found.used {
        grid.add(vec![
            used.process.clone(),
            one(used.cpu_seconds),
            one(used.cpu_us_per_job),
            (used.peak_bytes >> 20).to_string(),
        ]);
    }
    grid
}

fn sizes(found: &ControlPlane) -> Grid {
    let mut grid = Grid::new(["ms", "n", "p50", "p90", "p99", "max"]);
    for size in &found.sizes {
        let under = size
            .snapshot_seconds
            .map_or_else(String::new, |age| format!(", under a snapshot {age:.0} s old"));
        let with = format!("{} jobs stored{under}", size.stored_jobs);
        for (name, times) in [
            ("submit one", &size.submit_ms),
            ("dispatch two", &size.dispatch_ms),
        ] {
            if let Some(times) = times {
                grid.add(cells(format!("{name}, {with}"), times));
            }
        }
    }
    grid
}
