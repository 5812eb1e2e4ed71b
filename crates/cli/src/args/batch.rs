//! The command line of `mayfly batch`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use mayfly_core::id::BatchId;
use mayfly_settings::SANDBOXES;

use super::JobFlags;

#[derive(Debug, Subcommand)]
pub(crate) enum BatchCommand {
    /// Run every program of a folder, or every job of a JSONL file.
    Run(Box<BatchRunArgs>),
    /// Go on with a batch that was stopped, or write what is missing of its results.
    Resume(BatchResumeArgs),
    /// The newest batches.
    List {
        /// At most this many, up to 1000.
        #[arg(long, default_value_t = 20, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// As JSON lines.
        #[arg(long)]
        json: bool,
    },
    /// Where a batch stands, and each of its items.
    Show {
        /// Its id.
        id: BatchId,
        /// Only items that have ended otherwise than `succeeded`.
        #[arg(long)]
        failed: bool,
        /// As JSON lines: the batch, then one item a line.
        #[arg(long)]
        json: bool,
    },
    /// Cancel what has not ended of a batch. What runs in another process is ended there.
    Cancel {
        /// Its id.
        id: BatchId,
    },
}

/// One line of JSON for each item, as each ends: the same object as `mayfly run --json` prints, with `batch` and `item`.
/// The exit code is 0 if every item succeeded, 1 if one did not, 130 if it was stopped before its end, and as for
/// `mayfly run` where something failed before there was a job; 73 if results can't be written.
///
/// Ctrl-C once: nothing new starts, what runs is finished. Twice: what runs is given up. Three times: exit at once.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  mayfly batch run programs/ --out results.jsonl\n  \
                        mayfly batch run jobs.jsonl --slots 8 --timeout 10s > results.jsonl\n  \
                        make-jobs | mayfly batch run - --out results.jsonl"
)]
pub(crate) struct BatchRunArgs {
    /// A folder (every .py and .sh file below it), a file of one JSON object a line, or `-` for such lines from
    /// standard input.
    #[arg(value_name = "DIR|FILE.jsonl|-")]
    pub(crate) input: PathBuf,

    /// The id of the batch. One that was stopped while its items were still being accepted goes on with the rest of
    /// them; without this a new one is made.
    #[arg(long, value_name = "ID")]
    pub(crate) batch: Option<BatchId>,

    #[command(flatten)]
    pub(crate) pace: Pace,

    #[command(flatten)]
    pub(crate) job: JobFlags,
}

#[derive(Debug, Args)]
pub(crate) struct BatchResumeArgs {
    /// The id of the batch.
    pub(crate) id: BatchId,

    #[command(flatten)]
    pub(crate) pace: Pace,
}

/// How a batch is run, and what is said of it.
#[derive(Debug, Args)]
pub(crate) struct Pace {
    /// Jobs that run at a time; the number of CPUs, at most 8, where it is not given.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(SANDBOXES)))]
    pub(crate) slots: Option<u32>,

    /// Sandboxes that are kept ready for jobs to come, beside the slots; the setting `pool.size` where it is not given.
    /// With a pool limits are rounded up to classes.
    #[arg(long, value_name = "COUNT")]
    pub(crate) pool: Option<u32>,

    /// Write the results into this file instead of stdout. A file that has results of this batch already gets those
    /// that are missing.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// The last line, which sums up, as one JSON object: on stdout with --out, else on stderr.
    #[arg(long)]
    pub(crate) json: bool,

    /// Nothing on stderr but errors.
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// No progress bar and no lines in its place.
    #[arg(long)]
    pub(crate) no_progress: bool,
}
