//! Files that a job has left: listed, and written into a folder here. The job chose their names, so that they are treated as
//! an attacker's: nothing is followed, nothing is replaced unless somebody says so, and nothing lands outside of the folder.

use std::{
    collections::BTreeMap,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use async_trait::async_trait;
use mayfly_core::{
    artifact::{Artifact, Artifacts},
    digest::Digest,
    id::JobId,
    units::ByteSize,
};
use sha2::{Digest as _, Sha256};

use crate::{
    args::ArtifactCommand,
    exit,
    failure::Failure,
    show::table,
    terminal::{print, say, shown},
};

mod folder;
mod local;

pub(crate) use local::Local;

use folder::{Folder, NewFile};

/// Where the files of one job are.
#[async_trait(?Send)]
pub(crate) trait Files {
    /// What came of them; none where nothing was collected.
    async fn list(&self) -> Result<Option<Artifacts>, Failure>;

    /// The next bytes of the file at this place of the list, from an offset on; none at its end.
    async fn read(&self, index: usize, file: &Artifact, offset: u64) -> Result<Option<Vec<u8>>, Failure>;
}

/// `mayfly job artifacts`.
pub(crate) async fn artifacts(files: &dyn Files, command: ArtifactCommand) -> Result<ExitCode, Failure> {
    let (job, list) = (command.job(), files.list().await?);
    let artifacts = list.unwrap_or_default();
    match command {
        ArtifactCommand::List { json, .. } => {
            let text = if json { lines(&artifacts) } else { text(&artifacts) };
            print(&text)?;
            Ok(ExitCode::SUCCESS)
        }
        ArtifactCommand::Get {
            names, out, force, ..
        } => {
            let wanted = choose(job, &artifacts, &names)?;
            save(files, &artifacts, &wanted, &out, force).await
        }
    }
}

/// One JSON object for each file, those that are not kept after those that are.
fn lines(artifacts: &Artifacts) -> String {
    let files = (0..).zip(&artifacts.files).map(|(index, file): (usize, _)| {
        serde_json::json!({
            "index": index, "name": crate::report::bytes_json(file.name.as_bytes()), "bytes": file.bytes,
            "sha256": file.digest.to_hex(), "is_text": file.is_text,
        })
    });
    let left_out = artifacts.left_out.iter().map(|file| {
        serde_json::json!({
            "name": crate::report::bytes_json(file.name.as_bytes()), "bytes": file.bytes, "left_out": file.why,
        })
    });
    files.chain(left_out).map(|line| format!("{line}\n")).collect()
}

fn text(artifacts: &Artifacts) -> String {
    let mut table = table(["FILE", "NAME", "BYTES", "SHA256"]);
    for (index, file) in artifacts.files.iter().enumerate() {
        table.add_row([
            index.to_string(),
            name(file.name.as_bytes()),
            file.bytes.to_string(),
            file.digest.to_hex(),
        ]);
    }
    let mut text = format!("{table}\n");
    for line in notes(artifacts) {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// What is to be said beside the files themselves.
pub(crate) fn notes(artifacts: &Artifacts) -> Vec<String> {
    let left_out = artifacts.left_out.iter();
    let mut notes: Vec<String> = left_out
        .map(|file| format!("not kept: {}: {}", name(file.name.as_bytes()), file.why.words()))
        .collect();
    if artifacts.not_named > 0 {
        notes.push(format!("not kept: {} more", artifacts.not_named));
    }
    if let Some(why) = &artifacts.incomplete {
        notes.push(format!(
            "there may be more of which nothing is known: {}",
            shown(why)
        ));
    }
    notes
}

/// A name as it may be shown.
pub(crate) fn name(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => shown(text),
        Err(_) => bytes.escape_ascii().to_string(),
    }
}

/// The places in the list of what is asked for: by name or by number; all where nothing is.
fn choose(job: JobId, artifacts: &Artifacts, names: &[String]) -> Result<Vec<usize>, Failure> {
    if names.is_empty() {
        return Ok((0..artifacts.files.len()).collect());
    }
    let place = |asked: &String| {
        let mut files = artifacts.files.iter();
        let by_name = files.position(|file| file.name.as_bytes() == asked.as_bytes());
        let by_number = || asked.parse().ok().filter(|index| *index < artifacts.files.len());
        by_name.or_else(by_number).ok_or_else(|| {
            let error = anyhow::anyhow!(
                "job {job} has kept no file {:?}; `mayfly job artifacts list {job}` shows what it has",
                shown(asked)
            );
            Failure::new(exit::NOT_FOUND, error)
        })
    };
    names.iter().map(place).collect()
}

/// Writes all files of a job into a folder, and says so.
pub(crate) async fn save_all(files: &dyn Files, out: &Path) -> Result<ExitCode, Failure> {
    let Some(artifacts) = files.list().await? else {
        say("mayfly: no files were collected: the job ended in a way after which they are not");
        return Ok(ExitCode::SUCCESS);
    };
    for note in notes(&artifacts) {
        say(&format!("mayfly: {note}"));
    }
    let all: Vec<usize> = (0..artifacts.files.len()).collect();
    save(files, &artifacts, &all, out, false).await
}

/// Each file that can be written is; whoever could not be is named.
async fn save(
    files: &dyn Files,
    artifacts: &Artifacts,
    wanted: &[usize],
    out: &Path,
    force: bool,
) -> Result<ExitCode, Failure> {
    let mut saving = Saving::into(out)?;
    for index in wanted {
        if let Some(file) = artifacts.files.get(*index) {
            saving.one(files, *index, file, force).await?;
        }
    }
    Ok(saving.told())
}

/// Files of jobs on their way into a folder.
pub(crate) struct Saving {
    folder: Folder,
    out: PathBuf,
    /// The names of those that are there by now, and how many bytes they have.
    written: BTreeMap<Vec<u8>, u64>,
    failed: usize,
}

impl Saving {
    /// Opens the folder, which is made where there is none.
    pub(crate) fn into(out: &Path) -> Result<Self, Failure> {
        let folder = Folder::open(out).map_err(|error| {
            let error =
                anyhow::Error::new(error).context(format!("the folder {} can't be used", out.display()));
            Failure::new(exit::NO_OUTPUT, error)
        })?;
        Ok(Self {
            folder,
            out: out.to_owned(),
            written: BTreeMap::new(),
            failed: 0,
        })
    }

    /// All files of a further job. One of a name that an earlier job has written takes its place, and no other file is
    /// replaced.
    #[cfg(feature = "fleet")]
    pub(crate) async fn job(&mut self, files: &dyn Files) -> Result<(), Failure> {
        let artifacts = files.list().await?.unwrap_or_default();
        for note in notes(&artifacts) {
            say(&format!("mayfly: {note}"));
        }
        for (index, file) in artifacts.files.iter().enumerate() {
            let is_ours = self.written.contains_key(file.name.as_bytes());
            self.one(files, index, file, is_ours).await?;
        }
        Ok(())
    }

    async fn one(
        &mut self,
        files: &dyn Files,
        index: usize,
        file: &Artifact,
        replace: bool,
    ) -> Result<(), Failure> {
        let shown = || name(file.name.as_bytes());
        let mut new = match self.folder.create(file.name.as_bytes(), replace) {
            Ok(new) => new,
            Err(error) => {
                say(&format!("mayfly: {} is not written: {error}", shown()));
                self.failed += 1;
                return Ok(());
            }
        };
        copy(files, index, file, &mut new)
            .await
            .map_err(|failure| failure.about(format!("{} is not whole, and not kept", shown())))?;
        new.keep();
        self.written.insert(file.name.as_bytes().to_vec(), file.bytes);
        Ok(())
    }

    /// Says how many were written, and whether all that came were.
    pub(crate) fn told(self) -> ExitCode {
        let size = ByteSize::bytes(self.written.values().sum());
        let count = self.written.len();
        say(&format!(
            "mayfly: {count} of {} files ({size}) written into {}",
            count + self.failed,
            shown(&self.out.display().to_string())
        ));
        if self.failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(exit::NO_OUTPUT)
        }
    }

    /// Whether anything came.
    #[cfg(feature = "fleet")]
    pub(crate) fn is_empty(&self) -> bool {
        self.written.is_empty() && self.failed == 0
    }
}

async fn copy(files: &dyn Files, index: usize, file: &Artifact, to: &mut NewFile) -> Result<(), Failure> {
    let mut hash = Sha256::new();
    let mut offset = 0;
    while offset < file.bytes {
        let Some(part) = files.read(index, file, offset).await? else {
            break;
        };
        hash.update(&part);
        to.write_all(&part).map_err(|error| {
            Failure::new(
                exit::NO_OUTPUT,
                anyhow::Error::new(error).context("it can't be written"),
            )
        })?;
        offset += part.len() as u64;
    }
    if offset != file.bytes || Digest::from_bytes(hash.finalize().into()) != file.digest {
        let error = anyhow::anyhow!("what came is not what the job's record says");
        return Err(Failure::new(exit::PROTOCOL, error));
    }
    Ok(())
}
