//! `mayfly ask`.

use std::path::PathBuf;

use clap::Args;
use mayfly_agent::{bounds::Price, model::Cost};
use mayfly_core::{image::ImageName, units::Span};

/// The answer goes to stdout, the steps to stderr while they are taken. The exit code is 0 with an answer and 1 without one;
/// before the first step: 64 wrong flag, model or key, 66 no such file, 68 no such image, 69 no engine or server. Programs of
/// the model run at the server that is configured, or on this host; the model's key stays in this process.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  mayfly ask \"What is the 30th Fibonacci number? Use code.\"\n  \
                        mayfly ask --file data.csv \"Which column has the most empty cells?\"\n  \
                        mayfly ask --image python-data --file data.csv --out results \"Clean it, and plot the sums\"\n  \
                        mayfly ask --model ollama/qwen3 --steps 5 \"How many primes are below a million?\""
)]
pub(crate) struct AskArgs {
    /// The task; `-` for standard input. Left out: the 30th Fibonacci number, by code.
    pub(crate) task: Option<String>,

    /// Which model: claude-…, gpt-…, o1… to o9…, anthropic/…, openai/…, gemini/…, openrouter/…, ollama/…. Left out: what the
    /// variable MODEL says, in the environment or in the .env file, else the usual one of docs/agent.md.
    #[arg(long, short, value_name = "NAME")]
    pub(crate) model: Option<String>,

    /// Put a file beside each program of the model: `PATH`, or `PATH=NAME` for another name. May be given again.
    #[arg(long = "file", value_name = "PATH[=NAME]")]
    pub(crate) files: Vec<String>,

    /// The image of the programs: a name of `mayfly image list`, or `repository@sha256:…`.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<ImageName>,

    /// Let programs of the model reach a host: `pypi.org`, `*.example.com:8443`. The policy says what may be asked for
    /// (`policy.egress.allow`). May be given again.
    #[arg(long, value_name = "RULE")]
    pub(crate) allow_host: Vec<String>,

    /// Let the model run shell scripts too.
    #[arg(long)]
    pub(crate) shell: bool,

    /// Give the model no tool at all.
    #[arg(long, conflicts_with = "shell")]
    pub(crate) no_tools: bool,

    /// Ask before each program of the model runs, and run it where the answer on standard input is `y` or `yes`.
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) approve: bool,

    /// Most answers of the model.
    #[arg(long, value_name = "COUNT", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) steps: u32,

    /// Most tokens, read and written, over all steps.
    #[arg(long, value_name = "COUNT", default_value_t = 300_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) tokens: u64,

    /// Longest time from the task to the answer.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time)]
    pub(crate) time: Span,

    /// Most money, in US dollars. It needs --price, but for providers that say themselves what an answer costs (OpenRouter).
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    pub(crate) cost: Option<Cost>,

    /// What the model costs: US dollars for a million tokens, read and written.
    #[arg(long, value_name = "READ,WRITTEN")]
    pub(crate) price: Option<Price>,

    /// Most tokens of one answer, thoughts included.
    #[arg(long, value_name = "COUNT", default_value_t = 16_000, value_parser = clap::value_parser!(u32).range(64..))]
    pub(crate) answer_tokens: u32,

    /// Longest time for one answer of the model.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = time)]
    pub(crate) answer_time: Span,

    /// A file with variables, instead of `.env` in the working directory.
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Option<PathBuf>,

    /// Write the files that programs of the model were asked to keep, and their figures, into this folder. Of two programs
    /// that keep a file of one name the later one's is there; what was there before is never replaced.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Write the transcript, JSON with the id of each job, into this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) transcript: Option<PathBuf>,

    /// Print the transcript to stdout instead of the answer alone.
    #[arg(long)]
    pub(crate) json: bool,

    /// Show no steps.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

fn dollars(text: &str) -> Result<Cost, String> {
    let cost = text.parse().ok().and_then(Cost::dollars);
    cost.filter(|cost| cost.0 > 0)
        .ok_or_else(|| "expected a number of US dollars, such as 0.50".to_owned())
}

fn time(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error| format!("{error}"))?;
    if (1_000..=86_400_000).contains(&span.as_millis()) {
        Ok(span)
    } else {
        Err("it is not between 1s and 24h".to_owned())
    }
}
