//! The command line of `mayfly bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use mayfly_core::{image::ImageName, units::Span};

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// How long one run takes: `docker run` with the same flags, the engine's API alone, mayfly cold, mayfly warm, the last
    /// also over HTTP.
    Latency(LatencyArgs),
    /// How many runs a second: the engine's API alone, mayfly cold, mayfly warm, with so many at once.
    Throughput(ThroughputArgs),
    /// How many jobs a second a fleet takes, dispatches and records, without running them: its PostgreSQL and RabbitMQ by
    /// the settings, a server and executors as processes of their own. Beside it, what both can do with nothing of ours.
    #[cfg(feature = "fleet")]
    ControlPlane(ControlPlaneArgs),
    /// An executor whose sandbox ends each job at once: a part of `control-plane`.
    #[cfg(feature = "fleet")]
    #[command(hide = true)]
    NullExecutor(NullExecutorArgs),
    /// Make the page docs/performance.md of what `--json` has printed. Needs no engine.
    Render {
        /// A file with one report, or a list of them.
        file: PathBuf,
        /// Only the few figures that README shows.
        #[arg(long)]
        short: bool,
    },
}

/// The ways take turns, so that what changes on the machine meanwhile hits all alike. Nothing but the one run is going
/// on while it is timed: a pool that refills, or a removal, is waited for first (unless --pause says otherwise).
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  mayfly bench latency\n  mayfly bench latency --runs 500 --slow-runs 100 --json > latency.json\n  \
                  mayfly bench latency --program job.py --pause 10ms"
)]
pub(crate) struct LatencyArgs {
    /// Runs of each way that are counted.
    #[arg(long, default_value_t = 50, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) runs: u32,

    /// Runs of each way but the warm ones, spread over the same time; as many as --runs if it is left out.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) slow_runs: Option<u32>,

    /// Runs of each way before the first that is counted.
    #[arg(long, default_value_t = 3, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) warm_up: u32,

    /// Rest this long between two runs, instead of until the pool is full again and nothing is being removed.
    #[arg(long, value_name = "TIME")]
    pub(crate) pause: Option<Span>,

    /// The engine's command line, for the first way.
    #[arg(long, default_value = "docker", value_name = "PROGRAM")]
    pub(crate) docker: PathBuf,

    #[command(flatten)]
    pub(crate) subject: SubjectArgs,

    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Blocks of the ways take turns. A block's time ends when all its jobs' outcomes can be seen and all its containers
/// are removed.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  mayfly bench throughput\n  mayfly bench throughput --slots 8 --jobs 1000 --seconds 300"
)]
pub(crate) struct ThroughputArgs {
    /// Jobs of each way.
    #[arg(long, default_value_t = 200, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) jobs: u32,

    /// Sandboxes at once, and containers at once on the engine's API alone.
    #[arg(long, default_value_t = 4, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) slots: u32,

    /// In how many blocks each way's jobs are done.
    #[arg(long, default_value_t = 4, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) blocks: u32,

    /// End a way's blocks early that together have taken this long; what runs is finished and counted.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) seconds: Option<u32>,

    #[command(flatten)]
    pub(crate) subject: SubjectArgs,

    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Needs `database.owner_url` of a superuser, `database.api_url`, `database.engine_url` and `broker.url`, in a database
/// and a virtual host that nothing else uses: its tenant, image and jobs stay there. Every job is looked at in the end, in
/// the record and over HTTP; where one is not whole there are no figures.
#[cfg(feature = "fleet")]
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  mayfly bench control-plane\n  mayfly bench control-plane --seconds 600 --stored 1000000 --old-snapshot --json"
)]
pub(crate) struct ControlPlaneArgs {
    /// How long jobs are submitted.
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) seconds: u32,

    /// Executors, each a process.
    #[arg(long, default_value_t = 3, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) executors: u32,

    /// Jobs that each has at a time.
    #[arg(long, default_value_t = 64, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) slots: u32,

    /// Requests with many jobs at once; one more submits a job every 50 ms.
    #[arg(long, default_value_t = 4, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) submitters: u32,

    /// Jobs of each of these requests.
    #[arg(long, default_value_t = 100, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) bulk: u32,

    /// Also measure submissions and ticks once the database holds so many jobs, most of them copies: about 5 GB a million.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) stored: Option<u64>,

    /// Also measure them after the load, under a snapshot that was held open from before it.
    #[arg(long)]
    pub(crate) old_snapshot: bool,

    /// Leave the bare broker and database out.
    #[arg(long)]
    pub(crate) no_bare: bool,

    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The broker by the settings.
#[cfg(feature = "fleet")]
#[derive(Debug, Args)]
pub(crate) struct NullExecutorArgs {
    /// The pool whose jobs it takes.
    #[arg(long)]
    pub(crate) pool: String,

    /// Jobs that it has at a time.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) slots: u32,
}

/// What is run.
#[derive(Debug, Args)]
pub(crate) struct SubjectArgs {
    /// The program, instead of one that prints a number: a file (`.sh` runs by sh, all else by Python). It gets no
    /// input, and must end with exit code 0.
    #[arg(long, value_name = "FILE")]
    pub(crate) program: Option<PathBuf>,

    /// Sandboxes that the warm pool keeps ready; 0 leaves the warm ways out.
    #[arg(long, default_value_t = 4, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(0..=16))]
    pub(crate) pool: u32,

    /// A name of `mayfly image list`, or `repository@sha256:…`.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<ImageName>,

    /// OCI runtime: runc, crun or runsc.
    #[arg(long, value_name = "NAME")]
    pub(crate) runtime: Option<String>,
}

impl SubjectArgs {
    /// The same as flags, for a report. A program is named without its folder.
    pub(crate) fn flags(&self) -> String {
        let mut flags = format!(" --pool {}", self.pool);
        if let Some(name) = self.program.as_ref().and_then(|program| program.file_name()) {
            flags.push_str(&format!(" --program {}", name.to_string_lossy()));
        }
        if let Some(image) = &self.image {
            flags.push_str(&format!(" --image {image}"));
        }
        if let Some(runtime) = &self.runtime {
            flags.push_str(&format!(" --runtime {runtime}"));
        }
        flags
    }
}
