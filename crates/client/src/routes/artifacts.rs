//! Files that were kept of a job.

use bytes::Bytes;
use mayfly_core::id::JobId;
use mayfly_wire::artifact::ArtifactList;
use reqwest::Response;

use crate::{
    body::{self, BodyError},
    call::{Call, Client},
    error::ClientError,
};

const DOWNLOAD: &str = "download the job's file";

/// A file on its way.
#[derive(Debug)]
pub struct Download {
    client: Client,
    response: Response,
}

impl Client {
    /// Which files were kept of a job. None are before its end.
    ///
    /// # Errors
    /// There is no such job, or the server does not answer.
    pub async fn artifacts(&self, job: JobId) -> Result<ArtifactList, ClientError> {
        let id = job.to_string();
        let path = ["v1", "jobs", &id, "artifacts"];
        self.json(Call::get("list the job's files", &path)).await
    }

    /// The file at this place of the list, from an offset on, which is less than its length.
    ///
    /// # Errors
    /// There is no such job or file, or the server does not answer.
    pub async fn artifact(&self, job: JobId, index: u32, offset: u64) -> Result<Download, ClientError> {
        let (id, index) = (job.to_string(), index.to_string());
        let path = ["v1", "jobs", &id, "artifacts", &index];
        let mut call = Call::get(DOWNLOAD, &path);
        call.accept = "application/octet-stream";
        if offset > 0 {
            call = call.header("range", format!("bytes={offset}-"));
        }
        let response = self.opened(&call).await?;
        Ok(Download {
            client: self.clone(),
            response,
        })
    }
}

impl Download {
    /// The next bytes; none at the end.
    ///
    /// # Errors
    /// The connection is lost, or silent for longer than a request may take. What has come until then is right, and
    /// [`Client::artifact`] goes on behind it.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        let limit = self.client.timeout();
        match tokio::time::timeout(limit, body::next(&mut self.response)).await {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(BodyError::Cut(source))) => Err(ClientError::Cut {
                doing: DOWNLOAD,
                source: source.without_url().into(),
            }),
            Ok(Err(BodyError::TooLarge)) => Ok(None),
            Err(_) => Err(ClientError::TimedOut {
                doing: DOWNLOAD,
                after: limit,
            }),
        }
    }
}
