//! The dead letters of a fleet: kept in the store, published again through the broker. Every server does it alike.

use std::sync::Arc;

use async_trait::async_trait;
use mayfly_api::seams::{DeadLetterDesk, SourceError};
use mayfly_core::{digest::Digest, id::KeyId};
use mayfly_queue::seam::Origin;
use mayfly_server::Server;
use mayfly_store::{
    letters::{LetterCause, LetterOrigin, LetterRecord, Replay},
    seam::Store,
};
use mayfly_wire::dead_letter::{DeadLetter, DeadLetterOrigin, WhyDead};

/// The desk of a server.
pub(crate) struct Letters {
    pub(crate) store: Arc<dyn Store>,
    /// By whose queue, time and secret is published.
    pub(crate) server: Arc<Server>,
}

fn trouble(error: impl std::error::Error + Send + Sync + 'static) -> SourceError {
    SourceError::Unavailable(Box::new(error))
}

#[async_trait]
impl DeadLetterDesk for Letters {
    async fn list(&self, limit: u32) -> Result<(Vec<DeadLetter>, bool), SourceError> {
        let mut letters = self
            .store
            .list_letters(limit.saturating_add(1))
            .await
            .map_err(trouble)?;
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = letters.len() > most;
        letters.truncate(most);
        Ok((letters.into_iter().map(shown).collect(), more))
    }

    async fn replay(&self, id: Digest, by: KeyId) -> Result<(), SourceError> {
        let context = self.server.context();
        let replayed = self
            .store
            .replay_letter(id, Some(by), &context)
            .await
            .map_err(trouble)?;
        match replayed {
            Replay::Attempt { pool, message } => {
                let published = self.server.publish_attempt(&pool, *message).await;
                published.map_err(trouble)
            }
            Replay::Bytes {
                origin,
                pool,
                bytes,
                sender,
            } => {
                let origin = match origin {
                    LetterOrigin::Jobs => Origin::Jobs { pool },
                    LetterOrigin::Events => Origin::Events { pool },
                };
                let published = self.server.queue().republish(&origin, &sender, &bytes).await;
                published.map_err(trouble)?;
                self.store.forget_letter(id).await.map_err(trouble)
            }
            Replay::NotWaiting => Err(SourceError::Over),
            Replay::NoSuchLetter => Err(SourceError::NoSuchThing),
        }
    }

    async fn discard(&self, id: Digest, by: KeyId) -> Result<(), SourceError> {
        let now = self.server.context().now.into();
        match self.store.discard_letter(id, Some(by), now).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(SourceError::NoSuchThing),
            Err(error) => Err(trouble(error)),
        }
    }
}

fn shown(letter: LetterRecord) -> DeadLetter {
    DeadLetter {
        id: letter.id.to_hex(),
        at: letter.at,
        origin: match letter.origin {
            LetterOrigin::Jobs => DeadLetterOrigin::Jobs,
            LetterOrigin::Events => DeadLetterOrigin::Events,
        },
        pool: letter.pool,
        why: match letter.cause {
            LetterCause::Rejected => WhyDead::Rejected,
            LetterCause::DeliveryLimit => WhyDead::DeliveryLimit,
            LetterCause::SetAside => WhyDead::SetAside,
        },
        reason: letter.reason,
        bytes: letter.bytes,
        attempt: letter.about.map(|about| about.attempt),
        job: letter.about.map(|about| about.job),
        tenant: letter.about.map(|about| about.tenant),
    }
}
