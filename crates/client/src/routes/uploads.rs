//! Files that are uploaded for jobs.

use std::time::Duration;

use mayfly_core::digest::Digest;
use mayfly_wire::{
    problem::Code,
    upload::{Upload, UploadList},
};
use reqwest::{Body, Method};

use crate::{
    call::{Call, Client, parse},
    error::ClientError,
    page::Pages,
};

/// Longest time for one upload: what a server takes for it.
const LONGEST: Duration = Duration::from_secs(3600);

impl Client {
    /// The uploads of the tenant, in the order in which they were begun and in pages of this many.
    #[must_use]
    pub fn uploads(&self, page: u32) -> Pages<UploadList> {
        Pages::new(self, "list the uploads", &["v1", "uploads"]).query("limit", Some(page))
    }

    /// The upload of this digest, where there is one.
    ///
    /// # Errors
    /// The key may not, or the server does not answer.
    pub async fn find_upload(&self, digest: &Digest) -> Result<Option<Upload>, ClientError> {
        let digest = digest.to_string();
        let path = ["v1", "uploads", digest.as_str()];
        match self.json(Call::get("look for the upload", &path)).await {
            Ok(upload) => Ok(Some(upload)),
            Err(error) if error.code() == Some(Code::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Uploads a file of this digest and length, unless it is there. The file is sent once: where that fails, whoever asked
    /// begins anew.
    ///
    /// # Errors
    /// The server refuses it, has no room for it, finds that it is another, or does not answer.
    pub async fn upload(
        &self,
        digest: &Digest,
        bytes: u64,
        content: impl Into<Body>,
    ) -> Result<Upload, ClientError> {
        // Where it is there nothing of it needs to be sent.
        if let Some(upload) = self.find_upload(digest).await? {
            return Ok(upload);
        }
        let digest = digest.to_string();
        let path = ["v1", "uploads", digest.as_str()];
        let mut call = Call::post("upload the file", &path).method(Method::PUT);
        call.waits = LONGEST;
        let answer = self.sent_once(&call, bytes, content.into()).await?;
        parse(call.doing, &answer)
    }

    /// Removes an upload.
    ///
    /// # Errors
    /// There is none of this digest, a job that is not over has it, or the server does not answer.
    pub async fn remove_upload(&self, digest: &Digest) -> Result<(), ClientError> {
        let digest = digest.to_string();
        let path = ["v1", "uploads", digest.as_str()];
        self.done(Call::post("remove the upload", &path).method(Method::DELETE))
            .await
    }
}
