//! Batches.

use mayfly_core::id::BatchId;
use mayfly_wire::{
    batch::{Batch, BatchJobList, BatchList, CompleteBatch, NewBatch, SubmitItems},
    job::SubmittedMany,
};

use crate::{
    call::{Call, Client},
    error::ClientError,
    page::Pages,
};

impl Client {
    /// Begins a batch. It is not repeated once the server may have done it.
    ///
    /// # Errors
    /// The server refuses it, or does not answer.
    pub async fn begin_batch(&self, batch: &NewBatch) -> Result<Batch, ClientError> {
        let call = Call::post("begin a batch", &["v1", "batches"]);
        self.json(call.json(batch)?).await
    }

    /// Batches, newest first, in pages of this many.
    #[must_use]
    pub fn batches(&self, page: u32) -> Pages<BatchList> {
        Pages::new(self, "list batches", &["v1", "batches"]).query("limit", Some(page))
    }

    /// A batch as it stands.
    ///
    /// # Errors
    /// There is no such batch, or the server does not answer.
    pub async fn batch(&self, batch: BatchId) -> Result<Batch, ClientError> {
        let id = batch.to_string();
        self.json(Call::get("show the batch", &["v1", "batches", &id]))
            .await
    }

    /// Submits jobs of a batch: all are accepted, or none. Items that it has already stay as they are.
    ///
    /// # Errors
    /// The server refuses one of them, or does not answer.
    pub async fn submit_items(
        &self,
        batch: BatchId,
        items: &SubmitItems,
    ) -> Result<SubmittedMany, ClientError> {
        let id = batch.to_string();
        let path = ["v1", "batches", &id, "jobs"];
        let call = Call::post("submit jobs of the batch", &path).repeatable();
        self.json(call.json(items)?).await
    }

    /// Says that a batch has all of its jobs.
    ///
    /// # Errors
    /// It has another number of them, or the server does not answer.
    pub async fn complete_batch(&self, batch: BatchId, items: u64) -> Result<Batch, ClientError> {
        let id = batch.to_string();
        let path = ["v1", "batches", &id, "complete"];
        let call = Call::post("complete the batch", &path).repeatable();
        self.json(call.json(&CompleteBatch { items })?).await
    }

    /// Jobs of a batch by their places, in pages of this many.
    #[must_use]
    pub fn batch_jobs(&self, batch: BatchId, page: u32) -> Pages<BatchJobList> {
        let id = batch.to_string();
        let path = ["v1", "batches", &id, "jobs"];
        Pages::new(self, "list jobs of the batch", &path).query("limit", Some(page))
    }
}
