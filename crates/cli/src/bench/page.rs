//! docs/performance.md, made of the reports that are kept beside it.

use std::fmt::Write as _;

use super::{
    grid::{self, two},
    machine::Build,
    report::{Head, Latency, Report, Throughput},
    text::pool,
};

/// The whole page.
pub(crate) fn page(reports: &[Report]) -> String {
    let mut page = OPENING.to_owned();
    for report in reports {
        match report {
            Report::Latency(latency) => of_latency(&mut page, latency),
            Report::Throughput(throughput) => of_throughput(&mut page, throughput),
            #[cfg(feature = "fleet")]
            Report::ControlPlane(found) => page.push_str(&super::control_plane::markdown(found)),
        }
    }
    page.push_str(CLOSING);
    page
}

/// The few figures that README shows, each with its command.
pub(crate) fn short(reports: &[Report]) -> String {
    let mut text = String::new();
    for report in reports {
        match report {
            Report::Latency(latency) => {
                let machine = &latency.head.machine;
                let load = machine
                    .load_before
                    .map_or_else(String::new, |[one, ..]| format!(", load average {one:.1} before"));
                writeln!(
                    text,
                    "`{}` ({}, {} cores, Linux {}, {}, {} build{load}):\n\n{}",
                    latency.head.command,
                    machine.cpu.as_deref().unwrap_or("unknown CPU"),
                    machine.cores,
                    machine.kernel,
                    machine.engine,
                    machine.build.name(),
                    grid::times(latency).markdown()
                )
                .unwrap_or_default();
            }
            Report::Throughput(throughput) => writeln!(
                text,
                "`{}`: mayfly cold does {} of what the engine's API alone does, {} at once.",
                throughput.head.command,
                two(throughput.cold_to_engine),
                throughput.slots
            )
            .unwrap_or_default(),
            #[cfg(feature = "fleet")]
            Report::ControlPlane(found) => text.push_str(&super::control_plane::line(found)),
        }
    }
    text
}

fn of_latency(page: &mut String, latency: &Latency) {
    page.push_str("\n## How long one run takes\n\n");
    head(page, &latency.head);
    let Latency { runs, slow_runs, .. } = latency;
    let rest = match latency.pause_ms {
        Some(pause) => format!("rested {pause} ms between two runs"),
        None => "waited before each run until the pool was full and nothing was being removed".to_owned(),
    };
    writeln!(
        page,
        "The ways took turns, {runs} warm runs and {slow_runs} of each other way, after {} of each that are not \
         counted, and {rest}.\n\n{}",
        latency.warm_up,
        grid::times(latency).markdown()
    )
    .unwrap_or_default();
    for way in &latency.ways {
        if let Some(reason) = &way.skipped {
            writeln!(page, "{}: skipped, {reason}.\n", way.way.name()).unwrap_or_default();
        }
    }
    if latency.head.subject.pool > 0 {
        writeln!(page, "The {}.\n", pool(latency)).unwrap_or_default();
    }
    let ratios = grid::ratios(latency);
    if !ratios.is_empty() {
        writeln!(page, "{}", ratios.markdown()).unwrap_or_default();
    }
    for way in &latency.ways {
        let parts = grid::parts(way);
        if !parts.is_empty() {
            writeln!(
                page,
                "Where the time goes, {} (medians, which need not add up):\n\n{}",
                way.way.name(),
                parts.markdown()
            )
            .unwrap_or_default();
        }
    }
}

fn of_throughput(page: &mut String, throughput: &Throughput) {
    page.push_str("\n## How many runs a second\n\n");
    head(page, &throughput.head);
    writeln!(
        page,
        "{} jobs of each way, {} sandboxes at once, in {} blocks that took turns.\n\n{}",
        throughput.jobs,
        throughput.slots,
        throughput.blocks,
        grid::rates(throughput).markdown()
    )
    .unwrap_or_default();
    for way in &throughput.ways {
        if let Some(reason) = &way.skipped {
            writeln!(page, "{}: skipped, {reason}.\n", way.way.name()).unwrap_or_default();
        }
    }
    writeln!(
        page,
        "mayfly cold does **{}** of what the engine's API alone does at the same concurrency.",
        two(throughput.cold_to_engine)
    )
    .unwrap_or_default();
}

fn head(page: &mut String, head: &Head) {
    let [machine, program] = head.machine.lines();
    let subject = &head.subject;
    writeln!(
        page,
        "`{}`, {} UTC, {:.0} s in all:\n\n    {machine}\n    {program}\n\nProgram: {} ({} B). Image `{}`, {}. Runtime \
         {}.\n",
        head.command,
        head.at.format("%Y-%m-%d %H:%M"),
        head.seconds,
        subject.program,
        subject.program_bytes,
        subject.image,
        subject.image_digest,
        subject.runtime,
    )
    .unwrap_or_default();
    if head.machine.build == Build::Debug {
        page.push_str("**A debug build: these figures say nothing about mayfly.**\n\n");
    }
}

const OPENING: &str = "\
# Performance

Made by `make bench` out of [performance.json](performance.json), which `mayfly bench` has printed; not written by hand.
Figures are of the machine that is named with them, and of no other.

    mayfly bench latency       # on your machine, 50 runs of each way
    mayfly bench throughput
    mayfly bench control-plane # a fleet's PostgreSQL and RabbitMQ, by the settings; no engine

## How to read it

`latency` and `throughput` measure runs on one host. All their ways run the same program in a container with the same settings.

| way | what is timed |
| --- | --- |
| docker run | the engine's command line as a process, from its start to its end: `docker run --rm -i` with a flag for each setting of our sandboxes |
| engine API | create, attach, start, wait, remove: what any client has to do for a container of its own, with the request of our sandboxes and the program in the guest's place. No guest, no read-back, no record |
| mayfly cold | from the submission until the committed outcome was read. Inside: the commits of submission, dispatch, start and result (SQLite, `synchronous=FULL`), a container made on demand, both read-backs, the run |
| mayfly warm | the same, with a sandbox from the [pool](warm-sandboxes.md): made and read back before, for Python with the interpreter started |
| mayfly warm, over HTTP | the same, submitted to the [API](api.md) of `mayfly dev` by one request that waits for the end and has the output in its answer |

What differs between them, beyond that: the command line has no words for the paths of `/proc` and `/sys` that our
sandboxes hide beyond the engine's own. The first two get the program as an argument (`python3 -c`), ours as a file.
`docker run` and the engine's API end when the container is removed. mayfly's interval ends with the outcome, and its
containers are removed after that: the next run waits for it, and a block of throughput ends only then.

A percentile is by nearest rank: the smallest of the times that at least so many percent of them do not exceed. `n` is how
many times there are. A warm run that found no sandbox ready is reported by itself and is in no other figure.
In throughput the engine's API has as many containers at once as mayfly has slots; mayfly has twice as many jobs on
their way, so that no slot waits for a submission. A job's sandbox may still be in removal when the next one is made.
";

const CLOSING: &str = "
## What is not measured

The first run after an installation (the image, the volume with the guest); `mayfly run` as a process, which starts the
roles anew; a fleet on several hosts; programs that work for long, where all of this is little;
engines, storage drivers and disks other than the ones named above. The CPU time is our own process's, without the engine's.

## The JSON

`--json` prints one object; performance.json is a list of them. `schema` is 1: a field that is taken away or means
something else makes it 2, a new field does not. Times are in milliseconds unless the name says seconds.

| field | in | meaning |
| --- | --- | --- |
| `bench` | both | `latency` or `throughput` |
| `schema`, `command`, `at`, `seconds` | both | this shape's version; the command without folders; when it ended; how long all took |
| `machine` | both | CPU, cores, memory, kernel, engine, API, storage driver, cgroup, client, file system of the database, version, build, commit, load averages before and after |
| `subject` | both | program (name, bytes, digest), image (name, digest), runtime, pool size |
| `runs`, `slow_runs`, `warm_up`, `pause_ms` | latency | what was asked for; no `pause_ms`: rests until nothing was going on |
| `ways[].way` | both | `docker_run`, `engine`, `cold`, `warm`, `http` (latency alone) |
| `ways[].skipped` | both | why this way has no figures |
| `ways[].ms` | latency | `n`, `p50`, `p90`, `p99`, `min`, `max`, `mean` |
| `ways[].stdout_bytes` | latency | what the program printed |
| `ways[].parts[]` | latency | `part`, `n`, `p50_ms` |
| `ratios[]` | latency | `way` is `times_faster` than `than`, by their medians |
| `pool_hits`, `pool_booted`, `pool_misses`, `missed` | latency | warm runs that found a sandbox ready, those of them with the interpreter started, those that did not, and their times |
| `jobs`, `slots`, `blocks`, `limit_seconds` | throughput | what was asked for |
| `ways[].blocks[]` | throughput | `jobs`, `seconds` of each block, in order |
| `ways[].jobs_per_second`, `ways[].cpu_ms_per_job`, `ways[].pool_hits` | throughput | over all blocks |
| `cold_to_engine` | throughput | rate of `cold` by rate of `engine` |

`bench` is `control_plane` for the report of `mayfly bench control-plane`, which has `schema`, `command`, `at` and `seconds` too:

| field | meaning |
| --- | --- |
| `host` | CPU, cores, kernel, version, build, commit, load averages before and after |
| `load_seconds`, `jobs`, `jobs_per_second` | time of the load; jobs that ended in it by the database's clock; their rate |
| `submit_many_ms`, `submit_ms` | requests under load: with many jobs each; with one each, every 50 ms |
| `used[]` | of each process, during the load: `cpu_seconds`, `cpu_us_per_job`; `peak_bytes`, the most resident memory since its start. `postgres` and `rabbitmq` are there where they run on this host and may be looked at |
| `messages` | what all executors saw over the whole run: `deliveries` and `batches` of events, their bytes (estimated from every 64th), `events` |
| `commits_per_job`, `rows_per_job` | of the database's own counters during the load, readers included |
| `record` | in the end: jobs `accepted`, `ended`, `succeeded`; `results`; audit `events` by kind; `wrong`, jobs without exactly one result and the five events of one run; jobs `fetched` over HTTP and shown as succeeded. Unless all agree there is no report |
| `sizes[]` | without load, by the jobs that are stored: `submit_ms` of one job over HTTP, `dispatch_ms` of a tick that makes two attempts; `snapshot_seconds`, how old a snapshot was held open |
| `bare` | the broker and the database with nothing of ours, at the same time, with as many messages of the same lengths and rows like the store's: `jobs_per_second` by the slower, `ratio` of ours to it |
";

#[cfg(test)]
mod tests {
    use super::*;

    /// `make bench` makes all three; `scripts/performance --render` makes the pages anew of the figures that are there.
    #[test]
    fn the_pages_are_what_the_figures_make() {
        let figures = include_bytes!("../../../../docs/performance.json");
        let reports = Report::read(figures).unwrap();
        assert_eq!(include_str!("../../../../docs/performance.md"), page(&reports));
        let readme = include_str!("../../../../README.md");
        assert!(readme.contains(&short(&reports)), "{}", short(&reports));
    }
}
