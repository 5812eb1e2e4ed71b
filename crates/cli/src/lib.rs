//! The binary `mayfly`: its commands, and the composition of the roles.
//!
//! Start with [`embedded`], where the roles of a fleet are wired into one process, then `run`, which puts one job through
//! them. Everything that fails before there is a job has an exit code of its own (`exit`) and leaves no row.

pub mod embedded;

mod args;
mod artifacts;
#[cfg(feature = "fleet")]
mod ask;
#[cfg(feature = "fleet")]
mod backend;
mod batch;
mod bench;
mod catalog;
mod context;
mod credentials;
mod doctor;
mod exit;
mod failure;
#[cfg(feature = "fleet")]
mod fleet;
mod live;
mod manual;
#[cfg(feature = "fleet")]
mod mcp;
mod own;
mod place;
mod pool;
mod processes;
mod progress;
#[cfg(feature = "fleet")]
mod remote;
mod report;
mod run;
mod show;
mod terminal;
mod uids;
mod uploads;

pub use crate::failure::Failure;

use std::{borrow::Cow, process::ExitCode};

use clap::{Parser as _, error::ErrorKind};

#[cfg(feature = "fleet")]
use crate::args::fleet::ExecutorCommand;
use crate::{
    args::{Cli, Command},
    bench::BenchCommand,
    context::Session,
    place::Place,
};

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are what was asked for; all else is a wrong command line.
            let asked_for = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            // What was written there may be somebody else's words.
            let printed = match terminal::harmless(&error.render().to_string()) {
                Cow::Borrowed(_) => error.print(),
                Cow::Owned(text) => {
                    terminal::say(text.trim_end());
                    Ok(())
                }
            };
            return match printed {
                Ok(()) if asked_for => ExitCode::SUCCESS,
                _ => ExitCode::from(exit::USAGE),
            };
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::new(exit::INTERNAL, error).say(),
    };
    let ended = runtime.block_on(command(cli));
    // A read of standard input that nobody waits for any more must not hold the process.
    runtime.shutdown_background();
    ended.unwrap_or_else(|failure| failure.say())
}

async fn command(cli: Cli) -> Result<ExitCode, Failure> {
    let session = || Session::begin(&cli.common);
    match cli.command {
        // At the server that the settings name, or on this host.
        Command::Run(args) => match Place::of(&cli.common)? {
            #[cfg(feature = "fleet")]
            Place::Server(remote) => remote::run(&remote, *args).await,
            Place::Here(settings) => run::run(&Session::with(*settings).await?, *args).await,
        },
        Command::Job(command) => match Place::of(&cli.common)? {
            #[cfg(feature = "fleet")]
            Place::Server(remote) => remote::job(&remote, command).await,
            Place::Here(settings) => show::job(&Session::with(*settings).await?, command).await,
        },
        Command::Audit(command) => match Place::of(&cli.common)? {
            #[cfg(feature = "fleet")]
            Place::Server(remote) => remote::audit(&remote, command).await,
            Place::Here(settings) => show::audit(&Session::with(*settings).await?, command).await,
        },
        Command::Image(command) => match Place::of(&cli.common)? {
            #[cfg(feature = "fleet")]
            Place::Server(remote) => remote::image(&remote, command).await,
            Place::Here(settings) => show::image(&Session::with(*settings).await?, command).await,
        },
        #[cfg(feature = "fleet")]
        Command::Ask(args) => ask::ask(&cli.common, *args).await,
        #[cfg(feature = "fleet")]
        Command::Submit(args) => remote::submit(&Place::server(&cli.common)?, *args).await,
        #[cfg(feature = "fleet")]
        Command::Logs(args) => remote::logs(&Place::server(&cli.common)?, args).await,
        #[cfg(feature = "fleet")]
        Command::Cancel(args) => remote::cancel(&Place::server(&cli.common)?, args).await,
        #[cfg(feature = "fleet")]
        Command::DeadLetter(command) => remote::dead_letter(&Place::server(&cli.common)?, command).await,
        #[cfg(feature = "fleet")]
        Command::Tenant(command) => match Place::of(&cli.common)? {
            Place::Server(remote) => remote::tenant(&remote, command).await,
            Place::Here(settings) => fleet::accounts::tenant(&settings, command).await,
        },
        #[cfg(feature = "fleet")]
        Command::Key(command) => match Place::of(&cli.common)? {
            Place::Server(remote) => remote::key(&remote, command).await,
            Place::Here(settings) => fleet::accounts::key(&settings, command).await,
        },
        #[cfg(feature = "fleet")]
        Command::Secret(command) => remote::secret(&Place::server(&cli.common)?, command).await,
        #[cfg(feature = "fleet")]
        Command::Upload(command) => remote::upload(&Place::server(&cli.common)?, command).await,
        #[cfg(feature = "fleet")]
        Command::Top(args) => remote::top(&Place::server(&cli.common)?, args).await,
        #[cfg(feature = "fleet")]
        Command::Mcp(args) => mcp::mcp(&cli.common, args).await,
        Command::Batch(command) => batch::batch(&session().await?, command).await,
        #[cfg(feature = "fleet")]
        Command::Dev(args) => fleet::dev::dev(&cli.common, args).await,
        #[cfg(feature = "fleet")]
        Command::Server(_) => fleet::server::server(&cli.common).await,
        #[cfg(feature = "fleet")]
        Command::Migrate(_) => fleet::database::bring_up_to_date(&cli.common).await,
        #[cfg(feature = "fleet")]
        Command::Executor(args) => match args.command {
            None => fleet::executor::executor(&cli.common).await,
            Some(ExecutorCommand::Enroll(args)) => fleet::enroll::enroll(&cli.common, args).await,
            Some(ExecutorCommand::AtServer(command)) => {
                remote::executor(&Place::server(&cli.common)?, command).await
            }
        },
        Command::Bench(BenchCommand::Latency(args)) => bench::latency(&session().await?, args).await,
        Command::Bench(BenchCommand::Throughput(args)) => bench::throughput(&session().await?, args).await,
        // It says what is wrong with settings and database, and goes on.
        Command::Doctor(args) => doctor::doctor(&cli.common, args).await,
        // These need neither settings nor a database.
        #[cfg(feature = "fleet")]
        Command::Bench(BenchCommand::ControlPlane(args)) => bench::control_plane(&cli.common, args).await,
        #[cfg(feature = "fleet")]
        Command::Bench(BenchCommand::NullExecutor(args)) => bench::null_executor(&cli.common, args).await,
        Command::Bench(BenchCommand::Render { file, short }) => bench::render(&file, short),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { dir } => manual::man(dir.as_deref()),
    }
}
