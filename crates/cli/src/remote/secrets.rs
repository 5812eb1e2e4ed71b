//! `mayfly secret` at a server.

use std::{path::Path, process::ExitCode};

use mayfly_wire::secret::Secret;

use super::{Remote, lists::json_lines};
use crate::{
    args::remote::SecretCommand, failure::Failure, report::time, run::text_of, show::table, terminal::print,
};

pub(crate) async fn secret(remote: &Remote, command: SecretCommand) -> Result<ExitCode, Failure> {
    let client = &remote.client;
    match command {
        SecretCommand::Set { name, file, json } => {
            let value = text_of(file.as_deref().unwrap_or(Path::new("-")))?;
            let kept = client.set_secret(&name, value).await?;
            print(&if json {
                json_lines(&[kept])?
            } else {
                format!("secret {} is set\n", kept.name)
            })?;
        }
        SecretCommand::List { json } => {
            let all = client.secrets().await?;
            print(&if json { json_lines(&all)? } else { listed(&all) })?;
        }
        SecretCommand::Remove { names } => {
            for name in names {
                client.remove_secret(&name).await?;
                print(&format!("secret {name} is removed: no further run gets it\n"))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn listed(all: &[Secret]) -> String {
    let mut table = table(["NAME", "SET", "VALUE"]);
    for secret in all {
        table.add_row([
            secret.name.to_string(),
            time(secret.set_at),
            secret.value_id.to_string(),
        ]);
    }
    format!("{table}\n")
}
