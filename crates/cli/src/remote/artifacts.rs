//! Files of a job of a server.

use async_trait::async_trait;
use mayfly_client::{Client, Download};
use mayfly_core::{
    artifact::{Artifact, Artifacts},
    id::JobId,
};
use tokio::sync::Mutex;

use crate::{artifacts::Files, exit, failure::Failure};

pub(crate) struct AtServer {
    client: Client,
    job: JobId,
    /// What is being downloaded: which file, and where its next byte stands in it.
    under_way: Mutex<Option<(usize, u64, Download)>>,
}

impl AtServer {
    pub(crate) fn new(client: Client, job: JobId) -> Self {
        Self {
            client,
            job,
            under_way: Mutex::new(None),
        }
    }
}

#[async_trait(?Send)]
impl Files for AtServer {
    async fn list(&self) -> Result<Option<Artifacts>, Failure> {
        let list = self.client.artifacts(self.job).await?;
        if !list.collected {
            return Ok(None);
        }
        let artifacts = list
            .try_into()
            .map_err(|error| Failure::new(exit::PROTOCOL, error))?;
        Ok(Some(artifacts))
    }

    async fn read(&self, index: usize, _: &Artifact, offset: u64) -> Result<Option<Vec<u8>>, Failure> {
        let mut under_way = self.under_way.lock().await;
        // A connection that is lost is taken up again where it was, as often as it brings anything.
        let mut may_fail = offset > 0;
        loop {
            let mut download = match under_way.take() {
                Some((file, at, download)) if (file, at) == (index, offset) => download,
                _ => {
                    may_fail = false;
                    let place = u32::try_from(index).unwrap_or(u32::MAX);
                    self.client.artifact(self.job, place, offset).await?
                }
            };
            match download.next().await {
                Ok(Some(bytes)) => {
                    *under_way = Some((index, offset + bytes.len() as u64, download));
                    return Ok(Some(bytes.to_vec()));
                }
                Ok(None) => return Ok(None),
                Err(_) if may_fail => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
