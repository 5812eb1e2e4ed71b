//! `mayfly batch`: many programs through one process, which may be stopped and gone on with.
//!
//! [`run`](run::run) checks all of an input, accepts it, and sees it through; [`resume`](run::resume) sees through what
//! is accepted already. Both end in one loop, [`work`], which writes each result as its job ends. What is said of a batch
//! always comes from the database, so that it makes no difference which process ran what.

mod input;
mod lock;
mod progress;
mod results;
mod run;
mod show;
mod summary;
mod work;

use std::process::ExitCode;

use crate::{args::BatchCommand, context::Session, failure::Failure};

pub(crate) async fn batch(session: &Session, command: BatchCommand) -> Result<ExitCode, Failure> {
    match command {
        BatchCommand::Run(args) => run::run(session, *args).await,
        BatchCommand::Resume(args) => run::resume(session, args).await,
        BatchCommand::List { limit, json } => show::list(session, limit, json).await,
        BatchCommand::Show { id, failed, json } => show::one(session, id, failed, json).await,
        BatchCommand::Cancel { id } => show::cancel(session, id).await,
    }
}
