//! The command line of what is asked of a server.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use mayfly_core::{
    account::Role,
    digest::Digest,
    id::{JobId, KeyId},
    job::SecretName,
    units::Span,
};
use mayfly_store::accounts::MAX_QUOTA;
use mayfly_wire::job::StreamName;

use super::ProgramArgs;

/// The job is accepted when its id is printed: it comes to exactly one end then, whatever becomes of this process. With
/// --wait the exit code is that of `mayfly run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  mayfly submit job.py\n  \
                        mayfly submit --idempotency-key nightly-7 --wait report.py -- 2026-11-29")]
pub(crate) struct SubmitArgs {
    #[command(flatten)]
    pub(crate) program: ProgramArgs,

    /// Wait for its end and show its output, as `mayfly run` does.
    #[arg(long)]
    pub(crate) wait: bool,

    /// By which the server knows this submission again: the same key with the same job stands for one job, for 24 hours.
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,

    /// Print one JSON object: the job's id, or with --wait the whole job.
    #[arg(long)]
    pub(crate) json: bool,

    /// No summary line.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// The exit code is 0, however the job has ended; 75 where its output is not on record yet.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The job's id.
    pub(crate) job: JobId,

    /// Show what it writes as it comes, until its end.
    #[arg(long, short)]
    pub(crate) follow: bool,

    /// Only `stdout`, or only `stderr`.
    #[arg(long, value_name = "STREAM", value_parser = stream)]
    pub(crate) stream: Option<StreamName>,
}

fn stream(text: &str) -> Result<StreamName, String> {
    match text {
        "stdout" => Ok(StreamName::Stdout),
        "stderr" => Ok(StreamName::Stderr),
        _ => Err("a stream is `stdout` or `stderr`".to_owned()),
    }
}

/// A job that has not started is over at once. One that has is ended; one that is over stays as it was.
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// Ids of jobs.
    #[arg(required = true, value_name = "JOB")]
    pub(crate) jobs: Vec<JobId>,

    /// As JSON lines.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetterCommand {
    /// Messages that were set aside, oldest first. What they hold is not shown.
    List {
        /// At most this many, up to 1000.
        #[arg(long, default_value_t = 100, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// As JSON lines.
        #[arg(long)]
        json: bool,
    },
    /// Publish messages again to where they came from.
    Replay {
        /// Their ids, or the first digits of those, at least eight.
        #[arg(required = true, value_name = "ID")]
        letters: Vec<String>,
    },
    /// Forget messages, for good.
    Discard {
        /// Their ids, or the first digits of those, at least eight.
        #[arg(required = true, value_name = "ID")]
        letters: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// Make a tenant.
    Create {
        /// What it is called: lower-case letters, digits and `-`.
        name: String,
        /// Its share of the fleet beside other tenants', 1 to 1000.
        #[arg(long)]
        weight: Option<u32>,
        /// Most attempts that it may have in flight in each pool; no bound where it is left out.
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(..=MOST))]
        most_in_flight: Option<u32>,
        /// Most jobs that it may have queued in each pool; no bound where it is left out.
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(..=MOST))]
        most_queued: Option<u32>,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show a tenant.
    Show {
        /// Its name or its id.
        tenant: String,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Change a tenant's weight and quotas; what is not named stays as it is.
    Set {
        /// Its name or its id.
        tenant: String,
        #[command(flatten)]
        terms: TermArgs,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// All tenants.
    List {
        /// As JSON lines.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct TermArgs {
    /// Its share of the fleet beside other tenants', 1 to 1000.
    #[arg(long)]
    pub(crate) weight: Option<u32>,
    /// Most attempts that it may have in flight in each pool, or `none`.
    #[arg(long, value_name = "COUNT")]
    pub(crate) most_in_flight: Option<Bound>,
    /// Most jobs that it may have queued in each pool, or `none`.
    #[arg(long, value_name = "COUNT")]
    pub(crate) most_queued: Option<Bound>,
}

#[expect(clippy::as_conversions, reason = "i64::from is no const fn")]
const MOST: i64 = MAX_QUOTA as i64;

/// A number, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bound(pub(crate) Option<u32>);

impl std::str::FromStr for Bound {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let number = text.parse().ok().filter(|number| *number <= MAX_QUOTA);
        let wrong = || format!("a number from 0 to {MAX_QUOTA}, or `none`");
        number.map(Some).map(Self).ok_or_else(wrong)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a key. Its text is shown this once.
    Create(KeyCreateArgs),
    /// All keys, expired and revoked ones too.
    List {
        /// Those of this tenant: its name or its id.
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        /// As JSON lines.
        #[arg(long)]
        json: bool,
    },
    /// Have keys open nothing from here on. Jobs that were submitted with them go on.
    Revoke {
        /// Their ids.
        #[arg(required = true, value_name = "ID")]
        keys: Vec<KeyId>,
    },
}

/// With no server configured it is made in the database itself, by whoever runs the server: that is how the first one
/// comes to be.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  mayfly key create --role admin\n  \
                        mayfly key create --role submitter --tenant acme --expires-after 2160h --out acme.key")]
pub(crate) struct KeyCreateArgs {
    /// What its holder may do: admin, operator, submitter, viewer or auditor.
    #[arg(long)]
    pub(crate) role: Role,

    /// Whose it is: a tenant's name or id.
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,

    /// What it is called: lower-case letters, digits and `-`; the role where this is left out.
    #[arg(long)]
    pub(crate) name: Option<String>,

    /// How long it opens anything; for ever where this is left out.
    #[arg(long, value_name = "TIME")]
    pub(crate) expires_after: Option<Span>,

    /// Write it into a new file that only you can read, for `client.key_file`, instead of to stdout.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// Print one JSON object, the key's text inside.
    #[arg(long, conflicts_with = "out")]
    pub(crate) json: bool,
}

/// A job names them (`mayfly run --named-secret VARIABLE=NAME`) and nothing shows them again. The server keeps them sealed.
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  mayfly secret set OPENAI_API_KEY --file key.txt\n  \
                        pass show db | mayfly secret set db.password\n  mayfly secret list"
)]
pub(crate) enum SecretCommand {
    /// Keep a value under a name, in place of what was kept there: a file's text or that of stdin, without a line's end after
    /// it.
    Set {
        /// What it is called: letters, digits, `_`, `-` and `.`.
        name: SecretName,
        /// The file that has the value; stdin where it is left out.
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Names, and when each was set.
    List {
        /// As JSON lines.
        #[arg(long)]
        json: bool,
    },
    /// Have no further run get them.
    Remove {
        /// Their names.
        #[arg(required = true, value_name = "NAME")]
        names: Vec<SecretName>,
    },
}

/// Jobs name them by their digests (`mayfly run --upload DIGEST=NAME`); `--file` does all of it for a file of more than 4 MiB.
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  mayfly upload put model.bin\n  mayfly run --upload sha256:…=model.bin --work 2GiB --memory 3GiB main.py\n  \
                        mayfly upload list"
)]
pub(crate) enum UploadCommand {
    /// Upload files, those that the server does not have, and say their digests.
    Put {
        /// The files.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// As JSON lines.
        #[arg(long)]
        json: bool,
    },
    /// What is kept, and until when.
    List {
        /// As JSON lines.
        #[arg(long)]
        json: bool,
    },
    /// Remove uploads that no job has which is not over.
    Remove {
        /// Their digests.
        #[arg(required = true, value_name = "DIGEST")]
        digests: Vec<Digest>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExecutorCommand {
    /// All executors, by name.
    List {
        /// As JSON lines.
        #[arg(long)]
        json: bool,
    },
    /// Have executors take nothing new; what they run goes on.
    Cordon {
        /// Their names or ids.
        #[arg(required = true, value_name = "EXECUTOR")]
        executors: Vec<String>,
    },
    /// Have cordoned executors take jobs again.
    Uncordon {
        /// Their names or ids.
        #[arg(required = true, value_name = "EXECUTOR")]
        executors: Vec<String>,
    },
    /// Have executors take nothing new, finish what they run, and end.
    Drain {
        /// Their names or ids.
        #[arg(required = true, value_name = "EXECUTOR")]
        executors: Vec<String>,
    },
}

/// Pools, executors, and the newest jobs that are not over, as far as the key may see them. On a terminal the picture is
/// drawn again and again, until Ctrl-C; else it is printed once, in plain text.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// How often it is drawn.
    #[arg(long, value_name = "TIME", default_value = "2s")]
    pub(crate) every: Span,

    /// Draw it this often, then end.
    #[arg(long, value_name = "COUNT")]
    pub(crate) count: Option<u32>,
}
