//! The command line.

#[cfg(feature = "fleet")]
pub(crate) mod ask;
mod batch;
#[cfg(feature = "fleet")]
pub(crate) mod fleet;
mod job;
#[cfg(feature = "fleet")]
pub(crate) mod mcp;
#[cfg(feature = "fleet")]
pub(crate) mod remote;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use mayfly_core::{
    id::{AttemptId, AuditEventId, BatchId, JobId},
    image::ImageName,
    state::JobState,
};

pub(crate) use self::{
    batch::{BatchCommand, BatchResumeArgs, BatchRunArgs, Pace},
    job::JobFlags,
};

use crate::bench::BenchCommand;

/// Runs code that nobody has reviewed, each job in a container that lives for this one job.
#[derive(Debug, Parser)]
#[command(name = "mayfly", version, max_term_width = 110, propagate_version = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Settings file (TOML), instead of ~/.config/mayfly/mayfly.toml or /etc/mayfly/mayfly.toml.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Which log lines, on stderr: `warn`, `info`, `warn,mayfly=debug`.
    #[arg(long, global = true, value_name = "FILTER")]
    pub(crate) log: Option<String>,

    /// Do the work on this host, even where the setting `client.server` names a server.
    #[arg(long, global = true)]
    pub(crate) local: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one program in a sandbox, wait for it, and keep its record.
    Run(Box<RunArgs>),
    /// Ask a language model that solves a task with programs, which run in sandboxes.
    #[cfg(feature = "fleet")]
    Ask(Box<ask::AskArgs>),
    /// Have a server run one program, and print the job's id.
    #[cfg(feature = "fleet")]
    Submit(Box<remote::SubmitArgs>),
    /// Run many programs, several at a time, and collect their results.
    #[command(subcommand)]
    Batch(BatchCommand),
    /// Look at jobs.
    #[command(subcommand)]
    Job(JobCommand),
    /// Print what a job of a server has written, or is writing.
    #[cfg(feature = "fleet")]
    Logs(remote::LogsArgs),
    /// Ask a server for the end of jobs.
    #[cfg(feature = "fleet")]
    Cancel(remote::CancelArgs),
    /// Look at the audit log.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Look at images, and pin names to digests.
    #[command(subcommand)]
    Image(ImageCommand),
    /// Serve the API of a fleet on this host alone, with no service but a container engine.
    #[cfg(feature = "fleet")]
    Dev(fleet::DevArgs),
    /// Serve a fleet: the HTTP API, and the scheduler and recorder of its pools. Any number may run beside each other.
    #[cfg(feature = "fleet")]
    Server(fleet::ServerArgs),
    /// Bring a fleet's database up to date, and give the server's two roles their passwords.
    #[cfg(feature = "fleet")]
    Migrate(fleet::MigrateArgs),
    /// Take jobs of a fleet and run them: the role of a host with a container engine.
    #[cfg(feature = "fleet")]
    Executor(fleet::ExecutorArgs),
    /// Look at messages that a server's broker or a role has set aside.
    #[cfg(feature = "fleet")]
    #[command(subcommand)]
    DeadLetter(remote::DeadLetterCommand),
    /// Look at a server's tenants, and make them.
    #[cfg(feature = "fleet")]
    #[command(subcommand)]
    Tenant(remote::TenantCommand),
    /// Look at keys of the API, make and revoke them.
    #[cfg(feature = "fleet")]
    #[command(subcommand)]
    Key(remote::KeyCommand),
    /// Set, list and remove the named secrets of a tenant.
    #[cfg(feature = "fleet")]
    #[command(subcommand)]
    Secret(remote::SecretCommand),
    /// Upload files that jobs name, list and remove them.
    #[cfg(feature = "fleet")]
    #[command(subcommand)]
    Upload(remote::UploadCommand),
    /// Watch a server's executors and jobs.
    #[cfg(feature = "fleet")]
    Top(remote::TopArgs),
    /// Give the tools of a language model to an MCP client, on stdin and stdout.
    #[cfg(feature = "fleet")]
    Mcp(mcp::McpArgs),
    /// Measure, beside what the engine itself can do.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Look at what mayfly needs of this host: what is well, what is not, what that means, how to mend it.
    Doctor(DoctorArgs),
    /// Print the completion script of a shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page.
    Man {
        /// Write one page for each command into this folder instead.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

/// The exit code is 0 where nothing is a problem, and 78 where something is; warnings and notes are none.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Run hostile programs in real sandboxes, too, on each runtime: they attack their limits, the guest, the kernel and
    /// the network, and all have to fail.
    #[arg(long)]
    pub(crate) probe: bool,

    /// Test this runtime alone. May be given again.
    #[arg(long, value_name = "NAME")]
    pub(crate) runtime: Vec<String>,

    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The job's stdout and stderr go to stdout and stderr, live. The exit code is the program's own, 128 and the signal's
/// number if a signal ended it, or: 118 lost, 119 expired, 120 canceled, 121 limit exceeded, 122 out of memory,
/// 123 rejected, 124 timed out, 125 trouble of ours. Before there is a job: 64 wrong flag or job, 66 no such file,
/// 68 no such image, 69 no engine or server, 74 no database, 77 the key may not. With a server
/// configured the job runs there, and Ctrl-C cancels it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  mayfly run hello.py\n  echo 'print(6*7)' | mayfly run -\n  \
                        mayfly run --timeout 5s --memory 128MiB job.py -- --verbose input.csv"
)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) program: ProgramArgs,

    /// Write the files that --artifact names into this folder when it has ended.
    #[arg(long, value_name = "DIR", requires = "artifact")]
    pub(crate) out: Option<PathBuf>,

    /// Print one JSON object, outputs inside, instead of the program's own output.
    #[arg(long)]
    pub(crate) json: bool,

    /// No summary line.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// One program.
#[derive(Debug, Args)]
pub(crate) struct ProgramArgs {
    /// The program: a file (`.sh` runs by sh, `.js`, `.mjs` and `.cjs` by Node.js, all else by Python), or `-` for standard
    /// input.
    pub(crate) file: PathBuf,

    /// Arguments of the program.
    #[arg(last = true, value_name = "ARGS")]
    pub(crate) args: Vec<String>,

    /// The program's standard input: a file, or `-` for ours.
    #[arg(long, value_name = "FILE")]
    pub(crate) stdin: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) job: JobFlags,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// One job with its record.
    Show {
        /// Its id.
        #[arg(required_unless_present = "last")]
        id: Option<JobId>,
        /// The newest one.
        #[arg(long, conflicts_with = "id")]
        last: bool,
        /// As JSON, outputs inside.
        #[arg(long)]
        json: bool,
    },
    /// Files that a job has left.
    #[command(subcommand)]
    Artifacts(ArtifactCommand),
    /// The newest jobs.
    List {
        #[command(flatten)]
        filter: JobFilterFlags,
        /// At most this many, up to 1000.
        #[arg(long, default_value_t = 20, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// As JSON lines.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ArtifactCommand {
    /// Which files were kept of it, and what was not.
    List {
        /// The job's id.
        job: JobId,
        /// As JSON lines.
        #[arg(long)]
        json: bool,
    },
    /// Write its files into a folder, under their own names. No link is followed on the way, and a file that is there stays.
    Get {
        /// The job's id.
        job: JobId,
        /// Names, or numbers of the list; all files where there are none.
        #[arg(value_name = "FILE")]
        names: Vec<String>,
        /// The folder, which is made where there is none.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Replace files that are there.
        #[arg(long)]
        force: bool,
    },
}

impl ArtifactCommand {
    /// Whose files.
    pub(crate) const fn job(&self) -> JobId {
        match self {
            Self::List { job, .. } | Self::Get { job, .. } => *job,
        }
    }
}

/// Which jobs: those that fit everything that is given.
#[derive(Debug, Args)]
pub(crate) struct JobFilterFlags {
    /// Those in this state: queued, dispatched, started, cancel_requested, succeeded, failed, timed_out, out_of_memory,
    /// limit_exceeded, canceled, rejected, expired, error or lost.
    #[arg(long, value_name = "STATE", value_parser = state)]
    pub(crate) state: Option<JobState>,

    /// Those with this label.
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    pub(crate) label: Option<(String, String)>,

    /// Those of this batch.
    #[arg(long, value_name = "ID")]
    pub(crate) batch: Option<BatchId>,

    /// Those that named this image so.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<ImageName>,
}

fn state(text: &str) -> Result<JobState, String> {
    match text {
        "queued" => Ok(JobState::Queued),
        "dispatched" => Ok(JobState::Dispatched),
        "started" => Ok(JobState::Started),
        "cancel_requested" => Ok(JobState::CancelRequested),
        end => serde_json::from_value(end.into())
            .map(JobState::Ended)
            .map_err(|_| "there is no such state".to_owned()),
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// The newest audit events, oldest of them first.
    List {
        /// Those of one job.
        #[arg(long, value_name = "ID")]
        job: Option<JobId>,
        /// Those of one attempt.
        #[arg(long, value_name = "ID")]
        attempt: Option<AttemptId>,
        /// Those of the fleet: executors, their sessions and self-tests, images, dead letters.
        #[arg(long, conflicts_with_all = ["job", "attempt"])]
        fleet: bool,
        /// Of the fleet's, those that are older than this event.
        #[arg(long, value_name = "EVENT", requires = "fleet")]
        before: Option<AuditEventId>,
        /// At most this many, up to 1000.
        #[arg(long, default_value_t = 50, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// As JSON lines: the canonical bytes of each.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// What each name means.
    List {
        /// As JSON lines.
        #[arg(long)]
        json: bool,
    },
    /// Make a name mean what a reference means now; pulled if it is not present.
    Pin {
        /// The name.
        name: String,
        /// `repository:tag`, `repository@sha256:…`, or an image id of the engine.
        reference: String,
    },
    /// Make sure that one of our own images is there: present, else pulled, else built (setting `image.source`).
    Ensure {
        /// `python`, `python-data`, `node` or `shell`; `python` alone is ever pulled.
        name: String,
    },
    /// Build one of our own images from Debian packages, load it into the engine, and pin its name.
    Build {
        /// `python`, `python-data`, `node` or `shell`.
        name: String,
    },
}
