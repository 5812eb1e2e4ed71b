//! What is kept of a job's output.

use mayfly_core::id::JobId;
use mayfly_wire::job::{OutputPart, StreamName};

use crate::{
    call::{Call, Client},
    error::ClientError,
};

impl Client {
    /// A part of what is kept of a stream, from an offset in that on, of at most so many bytes (1 to 1 MiB).
    ///
    /// # Errors
    /// There is no such job or no such part, or the server does not answer.
    pub async fn output(
        &self,
        job: JobId,
        stream: StreamName,
        offset: u64,
        limit: u64,
    ) -> Result<OutputPart, ClientError> {
        let id = job.to_string();
        let path = ["v1", "jobs", &id, "output"];
        let call = Call::get("read the job's output", &path)
            .query("stream", Some(stream.as_str()))
            .query("offset", Some(offset))
            .query("limit", Some(limit));
        self.json(call).await
    }
}
