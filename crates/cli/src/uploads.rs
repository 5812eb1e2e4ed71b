//! Files of ours that are too long for a job's own text: uploaded before it, by their digests.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use mayfly_core::{
    artifact::PIECE,
    digest::Digest,
    id::{TenantId, UploadId},
    job::{JobSpec, UploadedFile},
};
use mayfly_store::uploads::{Begun, NewUpload, UploadBounds};
#[cfg(feature = "fleet")]
use mayfly_wire::upload::Upload;
use sha2::{Digest as _, Sha256};

use crate::{context::Session, exit, failure::Failure};

/// A file that is longer than this is uploaded.
pub(crate) const LARGE: u64 = 4 << 20;

/// A file of ours that a job has, as it was when it was looked through.
#[derive(Debug, Clone)]
pub(crate) struct LargeFile {
    pub(crate) path: PathBuf,
    pub(crate) digest: Digest,
    pub(crate) bytes: u64,
}

/// A job, and the files that are to be uploaded before it.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) spec: JobSpec,
    pub(crate) large: Vec<LargeFile>,
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> Failure + '_ {
    |error| {
        let error = anyhow::Error::new(error).context(format!("{} can't be read", path.display()));
        Failure::new(exit::NO_INPUT, error)
    }
}

impl LargeFile {
    /// A file, looked through. It is read once more when it is uploaded, and must be the same then.
    pub(crate) fn of(path: &Path) -> Result<Self, Failure> {
        let mut file = File::open(path).map_err(unreadable(path))?;
        let (mut hasher, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; PIECE]);
        loop {
            let count = file.read(&mut buffer).map_err(unreadable(path))?;
            if count == 0 {
                break;
            }
            hasher.update(&buffer[..count]);
            bytes += count as u64;
        }
        Ok(Self {
            path: path.to_owned(),
            digest: Digest::from_bytes(hasher.finalize().into()),
            bytes,
        })
    }

    /// A file, where it is one that is uploaded.
    pub(crate) fn if_large(path: &Path) -> Result<Option<Self>, Failure> {
        let is_large = std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > LARGE);
        is_large.then(|| Self::of(path)).transpose()
    }

    fn changed(&self) -> Failure {
        Failure::usage(format!("{} has changed while it was read", self.path.display()))
    }
}

/// `DIGEST=PATH`: an upload that is there, and what it is called in `/work`.
pub(crate) fn uploaded(text: &str) -> Result<UploadedFile, Failure> {
    let expected = || Failure::usage(format!("--upload {text:?}: expected sha256:DIGEST=PATH"));
    let (digest, path) = text.split_once('=').ok_or_else(expected)?;
    Ok(UploadedFile {
        path: path.to_owned(),
        digest: digest.parse().map_err(|_| expected())?,
        executable: false,
        mode: None,
        bytes: None,
    })
}

/// Uploads a file to a server, unless it is there.
#[cfg(feature = "fleet")]
pub(crate) async fn send(client: &mayfly_client::Client, large: &LargeFile) -> Result<Upload, Failure> {
    let file = tokio::fs::File::open(&large.path)
        .await
        .map_err(unreadable(&large.path))?;
    // One that has changed meanwhile has another digest or another length, and is refused.
    Ok(client.upload(&large.digest, large.bytes, file).await?)
}

/// Keeps files in the database of this host, those that it does not have; the digests of those that it had not.
pub(crate) async fn keep(session: &Session, files: &[LargeFile]) -> Result<Vec<Digest>, Failure> {
    let rules = &session.settings.uploads;
    let bounds = UploadBounds {
        total: rules.total.as_bytes(),
        count: rules.count,
    };
    let mut kept = Vec::new();
    for large in files {
        if large.bytes > rules.file.as_bytes() {
            return Err(Failure::usage(format!(
                "{} has {} bytes, and a file has at most {} (setting `uploads.file`)",
                large.path.display(),
                large.bytes,
                rules.file
            )));
        }
        let upload = NewUpload {
            tenant: TenantId::LOCAL,
            id: UploadId::new(),
            digest: large.digest,
            bytes: large.bytes,
        };
        let begun = session.store.begin_upload(upload, bounds, session.clock.now());
        match begun.await? {
            Begun::Existing(_) => continue,
            Begun::NoRoom(why) => return Err(Failure::usage(format!("{}: {why}", large.path.display()))),
            Begun::Begun => {}
        }
        if let Err(failure) = keep_pieces(session, large, upload.id).await {
            session.store.give_up_upload(upload.tenant, upload.id).await?;
            return Err(failure);
        }
        kept.push(large.digest);
    }
    Ok(kept)
}

async fn keep_pieces(session: &Session, large: &LargeFile, id: UploadId) -> Result<(), Failure> {
    let (store, tenant) = (&session.store, TenantId::LOCAL);
    let file = File::open(&large.path).map_err(unreadable(&large.path))?;
    let (mut hasher, mut left, mut piece) = (Sha256::new(), large.bytes, 0);
    let mut content = Vec::with_capacity(PIECE);
    while left > 0 {
        content.clear();
        let part = left.min(PIECE as u64);
        let read = (&file).take(part).read_to_end(&mut content);
        if read.map_err(unreadable(&large.path))? as u64 != part {
            return Err(large.changed());
        }
        hasher.update(&content);
        if !store.keep_upload_piece(tenant, id, piece, &content).await? {
            return Err(large.changed());
        }
        (left, piece) = (left - part, piece + 1);
    }
    if Digest::from_bytes(hasher.finalize().into()) != large.digest {
        return Err(large.changed());
    }
    let whole = store.finish_upload(tenant, id, None, session.clock.now()).await?;
    whole.map(drop).ok_or_else(|| large.changed())
}

/// How long the uploads are that this host's database has.
pub(crate) async fn known(session: &Session) -> Result<BTreeMap<Digest, u64>, Failure> {
    let (mut all, mut after) = (BTreeMap::new(), None);
    loop {
        let limit = mayfly_store::seam::MAX_PAGE;
        let page = session.store.list_uploads(TenantId::LOCAL, after, limit).await?;
        all.extend(page.iter().map(|upload| (upload.digest, upload.bytes)));
        match page.last() {
            Some(last) => after = Some(last.id),
            None => return Ok(all),
        }
    }
}

/// Removes uploads that this process has made, where no other job has them meanwhile.
pub(crate) async fn remove(session: &Session, digests: &[Digest]) {
    for digest in digests {
        let removed = session
            .store
            .remove_upload(TenantId::LOCAL, digest, None, session.clock.now());
        if let Err(error) = removed.await {
            tracing::warn!(error = %mayfly_core::chain::Chain(&error), "a file that was uploaded for the job is left to be swept");
        }
    }
}
