//! The roles of a fleet.

use clap::{Args, Subcommand};
use mayfly_core::id::ExecutorId;

/// Who it is, what it may take and what its host must be are settings: docs/settings.md, `executor`. It ends with 0 when
/// what ran has ended after SIGTERM or SIGINT, with 1 when that was killed at the end of `executor.grace` or by a second
/// signal, with 75 where another process of this host is the same executor, and with 78 where the host is not fit.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ExecutorArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ExecutorCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExecutorCommand {
    /// Make an executor's id and its user of the broker, and print what its host needs.
    Enroll(EnrollArgs),
    #[command(flatten)]
    AtServer(super::remote::ExecutorCommand),
}

/// What it prints is a file of variables for the executor's host, with the executor's password in it. Needs the setting
/// `broker.url`, as the server has it. With `broker.management_url` the user is made; else the commands that make it stand
/// in the file as comments. With `database.api_url` and `database.engine_url` the server knows the executor by its name.
///
/// With `--id` it has an id and a user of the broker already, and all that is done is to have the server know it by its
/// name; asking for the same again changes nothing.
#[derive(Debug, Args)]
pub(crate) struct EnrollArgs {
    /// What it is called, for people.
    #[arg(value_parser = name)]
    pub(crate) name: String,

    /// The pool whose jobs it takes, instead of `executor.pool`.
    #[arg(long)]
    pub(crate) pool: Option<String>,

    /// Where executors reach the broker, where that is not as in `broker.url`.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) broker: Option<String>,

    /// The id of an executor whose user of the broker is made by something else.
    #[arg(long, conflicts_with = "broker")]
    pub(crate) id: Option<ExecutorId>,
}

fn name(text: &str) -> Result<String, String> {
    if mayfly_store::accounts::is_name(text) {
        Ok(text.to_owned())
    } else {
        Err("up to 63 lower-case letters, digits and `-`, a letter or digit at both ends".to_owned())
    }
}

/// Where it listens, its pools, database and broker are settings: docs/settings.md, `server`. It waits for a database that
/// is not there yet, and accepts jobs while the broker is away.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {}

/// Needs the settings `database.owner_url`, and `database.api_url` and `database.engine_url`, whose passwords the roles
/// `mayfly_api` and `mayfly_engine` get. Calling it again changes nothing.
#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {}

/// On `server.listen`, an address of this host alone, with `executor.slots` jobs at a time and the database of
/// `store.path`. The first start prints a key, which is stored hashed.
#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// Make and print another key.
    #[arg(long)]
    pub(crate) new_key: bool,
}
