//! A report for a person at a terminal.

use std::fmt::Write as _;

use super::{
    grid::{self, two},
    machine::Build,
    report::{Head, Latency, Report, Throughput},
};

/// All of it, ready to be printed.
pub(crate) fn text(report: &Report) -> String {
    match report {
        Report::Latency(latency) => of_latency(latency),
        Report::Throughput(throughput) => of_throughput(throughput),
        #[cfg(feature = "fleet")]
        Report::ControlPlane(found) => super::control_plane::text(found),
    }
}

fn of_latency(latency: &Latency) -> String {
    let mut text = head(&latency.head);
    text.push_str(&grid::times(latency).text());
    for way in &latency.ways {
        if let Some(reason) = &way.skipped {
            writeln!(text, "{}: skipped, {reason}", way.way.name()).unwrap_or_default();
        }
    }
    let ratios = grid::ratios(latency);
    if !ratios.is_empty() {
        write!(text, "\n{}", ratios.text()).unwrap_or_default();
    }
    for way in &latency.ways {
        let parts = grid::parts(way);
        if !parts.is_empty() {
            write!(
                text,
                "\n{}: where the time goes\n{}",
                way.way.name(),
                parts.text()
            )
            .unwrap_or_default();
        }
    }
    if latency.head.subject.pool > 0 {
        writeln!(text, "\n{}", pool(latency)).unwrap_or_default();
    }
    text
}

/// What the pool did for the runs that were counted.
pub(crate) fn pool(latency: &Latency) -> String {
    format!(
        "pool of {}: {} runs found a sandbox ready, {} of them with the interpreter started; {} did not",
        latency.head.subject.pool, latency.pool_hits, latency.pool_booted, latency.pool_misses
    )
}

fn of_throughput(throughput: &Throughput) -> String {
    let mut text = head(&throughput.head);
    text.push_str(&grid::rates(throughput).text());
    for way in &throughput.ways {
        if let Some(reason) = &way.skipped {
            writeln!(text, "{}: skipped, {reason}", way.way.name()).unwrap_or_default();
        }
    }
    writeln!(
        text,
        "\nmayfly cold does {} of what the engine's API alone does, {} at once",
        two(throughput.cold_to_engine),
        throughput.slots
    )
    .unwrap_or_default();
    text
}

fn head(head: &Head) -> String {
    let [machine, program] = head.machine.lines();
    let subject = &head.subject;
    let mut text = format!(
        "{machine}\n{program}\nprogram: {} ({} B) · image {} {} · runtime {}\n\n",
        subject.program, subject.program_bytes, subject.image, subject.image_digest, subject.runtime
    );
    if head.machine.build == Build::Debug {
        text.push_str(
            "WARNING: a debug build. These figures say nothing about mayfly: build it with --release.\n\n",
        );
    }
    text
}
