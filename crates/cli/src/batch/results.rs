//! The results of a batch: one line of JSON for each job that has ended, whole or not there at all.
//!
//! The lines are made from the database, so that a file can be cut short at any byte and is made whole again: what is
//! behind its last whole line goes, what its lines name is not written again, and the rest is.

mod recover;
mod writer;

use std::{
    collections::HashSet,
    fs::{File, OpenOptions},
    io::{self, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use mayfly_core::id::{BatchId, JobId};
use mayfly_store::records::JobDetails;
use serde::Serialize;
use serde_json::Value;

use self::{recover::recover, writer::Writer};
use crate::{exit, failure::Failure, report, terminal::harmless};

/// Where results go.
pub(crate) struct Results {
    batch: BatchId,
    /// Jobs whose line is written.
    written: HashSet<JobId>,
    writer: Writer,
}

/// One line: which item of which batch, then the job as `mayfly run --json` prints it.
#[derive(Serialize)]
struct Line<'a> {
    batch: BatchId,
    item: &'a str,
    #[serde(flatten)]
    job: Value,
}

impl Results {
    /// Opens the place that results go to: a file, or stdout.
    pub(crate) fn open(out: Option<&Path>, batch: BatchId) -> Result<Self, Failure> {
        let Some(path) = out else {
            return Ok(Self {
                batch,
                written: HashSet::new(),
                writer: Writer::to_stdout(),
            });
        };
        let (file, written) = open_file(path, batch)
            .map_err(|failure| failure.about(format!("results can't go to {}", path.display())))?;
        Ok(Self {
            batch,
            written,
            writer: Writer::to_file(file),
        })
    }

    /// Whether a job's line is there.
    pub(crate) fn has(&self, job: JobId) -> bool {
        self.written.contains(&job)
    }

    /// Writes a job's line, if it is not there yet.
    pub(crate) async fn write(&mut self, item: &str, details: JobDetails) -> Result<(), Unwritable> {
        if !self.written.insert(details.job.id) {
            return Ok(());
        }
        let line = line(self.batch, item, report::to_json(&details, None));
        // Its outputs may be large, and a writer slow.
        drop(details);
        self.writer.write(line).await
    }

    /// Resolves when nothing more can be written.
    pub(crate) async fn broken(&self) {
        self.writer.broken().await;
    }

    /// Waits until all of it is written, and on the disk where that is a file.
    ///
    /// # Errors
    /// The first write that failed.
    pub(crate) async fn finish(self) -> io::Result<()> {
        self.writer.finish().await
    }
}

/// Results can't be written any more; the reason comes from [`Results::finish`].
#[derive(Debug)]
pub(crate) struct Unwritable;

fn line(batch: BatchId, item: &str, mut job: Value) -> Vec<u8> {
    // It stands first, where a line that is cut can still be told by it.
    if let Some(fields) = job.as_object_mut() {
        fields.remove("batch");
    }
    let mut line =
        serde_json::to_string(&Line { batch, item, job }).expect("text and numbers have a form in JSON");
    line.push('\n');
    // It holds what a job printed, and whoever looks into the file does it on a terminal.
    harmless(&line).into_owned().into_bytes()
}

/// A file, behind the last whole line of this batch that it has.
fn open_file(path: &Path, batch: BatchId) -> Result<(File, HashSet<JobId>), Failure> {
    let unwritable = |error: io::Error| Failure::new(exit::NO_OUTPUT, error);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        // A pipe or a device may be there for writing alone.
        .or_else(|error| match std::fs::metadata(path) {
            Ok(there) if !there.is_file() => OpenOptions::new().write(true).open(path),
            _ => Err(error),
        })
        .map_err(unwritable)?;
    if !file.metadata().map_err(unwritable)?.is_file() {
        return Ok((file, HashSet::new()));
    }
    file.try_lock().map_err(|error| match error {
        std::fs::TryLockError::WouldBlock => Failure::new(
            exit::IN_USE,
            anyhow::anyhow!("another process writes its results into it"),
        ),
        std::fs::TryLockError::Error(error) => unwritable(error),
    })?;
    let found = recover(&mut file, batch)?;
    file.set_len(found.whole_bytes).map_err(unwritable)?;
    file.seek(SeekFrom::Start(found.whole_bytes))
        .map_err(unwritable)?;
    sync_folder(path).map_err(unwritable)?;
    Ok((file, found.jobs))
}

/// Brings the name of a file that may be new to the disk.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    File::open(folder)?.sync_all()
}
