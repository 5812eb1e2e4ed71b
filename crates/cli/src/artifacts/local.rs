//! Files of a job of this host's own database.

use std::sync::Arc;

use async_trait::async_trait;
use mayfly_core::{
    artifact::{Artifact, Artifacts, PIECE_BYTES},
    id::{JobId, TenantId},
};
use mayfly_store::{blobs::PieceAt, records::JobDetails, seam::Store};

use super::Files;
use crate::{exit, failure::Failure};

pub(crate) struct Local {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) job: JobId,
}

impl Local {
    async fn details(&self) -> Result<JobDetails, Failure> {
        let found = self.store.find_job(TenantId::LOCAL, self.job).await?;
        found.ok_or_else(|| Failure::new(exit::NOT_FOUND, anyhow::anyhow!("there is no job {}", self.job)))
    }
}

#[async_trait(?Send)]
impl Files for Local {
    async fn list(&self) -> Result<Option<Artifacts>, Failure> {
        let details = self.details().await?;
        Ok(details.report().and_then(|report| report.artifacts.clone()))
    }

    async fn read(&self, _: usize, file: &Artifact, offset: u64) -> Result<Option<Vec<u8>>, Failure> {
        let details = self.details().await?;
        let Some(attempt) = details.attempts.last() else {
            return Ok(None);
        };
        // It is read from the beginning to the end, piece by piece.
        let at = PieceAt {
            file: file.number,
            piece: u32::try_from(offset / PIECE_BYTES).unwrap_or(u32::MAX),
        };
        Ok(self.store.find_piece(TenantId::LOCAL, attempt.id, at).await?)
    }
}
