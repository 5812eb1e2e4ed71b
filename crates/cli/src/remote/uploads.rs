//! `mayfly upload` at a server.

use std::process::ExitCode;

use mayfly_core::units::ByteSize;
use mayfly_wire::{MAX_PAGE, upload::Upload};

use super::{Remote, lists::json_lines};
use crate::{
    args::remote::UploadCommand,
    failure::Failure,
    report::time,
    show::table,
    terminal::print,
    uploads::{self, LargeFile},
};

pub(crate) async fn upload(remote: &Remote, command: UploadCommand) -> Result<ExitCode, Failure> {
    let client = &remote.client;
    match command {
        UploadCommand::Put { files, json } => {
            for path in files {
                let file = LargeFile::of(&path)?;
                let kept = uploads::send(client, &file).await?;
                print(&if json {
                    json_lines(&[kept])?
                } else {
                    format!(
                        "{}  {}\n",
                        kept.digest,
                        crate::terminal::shown(&path.display().to_string())
                    )
                })?;
            }
        }
        UploadCommand::List { json } => {
            let mut all = client.uploads(MAX_PAGE);
            let mut list = Vec::new();
            while let Some(upload) = all.next().await? {
                list.push(upload);
            }
            print(&if json { json_lines(&list)? } else { listed(&list) })?;
        }
        UploadCommand::Remove { digests } => {
            for digest in digests {
                client.remove_upload(&digest).await?;
                print(&format!("upload {digest} is removed\n"))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn listed(all: &[Upload]) -> String {
    let mut table = table(["DIGEST", "SIZE", "USED", "KEPT UNTIL"]);
    for upload in all {
        table.add_row([
            upload.digest.to_string(),
            ByteSize::bytes(upload.bytes).to_string(),
            time(upload.used_at),
            time(upload.kept_until),
        ]);
    }
    format!("{table}\n")
}
