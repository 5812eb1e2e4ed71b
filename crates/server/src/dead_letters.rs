//! What the broker or a role has set aside: kept in the store, for a person to look at. A dispatch message has its attempt
//! published again at once besides, or end its job, as `mayfly-dispatch` says.
//!
//! Each letter is in one reader's hands, whichever server or pool that is of; so any of them does what is to be done.

use std::{sync::Arc, time::Duration};

use mayfly_core::{chain::Chain, digest::Digest};
use mayfly_dispatch::message::{DispatchMessage, Wire as _};
use mayfly_queue::seam::{DeadLetter, DeadLetters, Origin, WhyDead};
use mayfly_store::{
    error::StoreError,
    letters::{AboutAttempt, LetterCause, LetterContent, LetterOrigin, NewLetter},
};
use tokio_util::sync::CancellationToken;

use crate::{Pause, Server};

/// How often it is looked whether there is room for further letters.
const ROOM_AGAIN: Duration = Duration::from_secs(5);

pub(crate) async fn run(server: Arc<Server>, stop: CancellationToken) {
    let mut pause = Pause::default();
    while !stop.is_cancelled() {
        match server.queue.dead_letters().await {
            Ok(mut letters) => {
                let reason = tokio::select! {
                    reason = read(&server, &mut *letters, &mut pause, &stop) => reason,
                    () = stop.cancelled() => return,
                };
                tracing::warn!(reason, "the dead letters can't be read any more");
            }
            Err(error) => tracing::warn!(error = %Chain(&error), "the dead letters can't be read"),
        }
        pause.wait(&stop).await;
    }
}

/// Reads until that is not possible any more, and says why.
async fn read(
    server: &Server,
    letters: &mut dyn DeadLetters,
    pause: &mut Pause,
    stop: &CancellationToken,
) -> String {
    loop {
        let letter = match letters.next().await {
            Ok(letter) => letter,
            Err(error) => return Chain(&error).to_string(),
        };
        let tag = letter.tag;
        let (letter, publication) = kept(letter);
        while let Err(error) = settle(server, &letter, publication, stop).await {
            tracing::error!(letter = %letter.id, error = %Chain(&error), "a dead letter could not be kept");
            pause.wait(stop).await;
            if stop.is_cancelled() {
                return "the server stops".to_owned();
            }
        }
        if stop.is_cancelled() {
            // It may not be kept.
            return "the server stops".to_owned();
        }
        pause.reset();
        if let Err(error) = letters.discard(tag).await {
            return Chain(&error).to_string();
        }
    }
}

/// A letter as it is kept, and the publication of an attempt that it was. The jobs' queues are written to by servers alone,
/// so that what a dispatch message says of itself is so.
fn kept(letter: DeadLetter) -> (NewLetter, Option<u32>) {
    let DeadLetter {
        origin,
        why,
        sender,
        bytes,
        ..
    } = letter;
    let (origin, pool) = match origin {
        Origin::Jobs { pool } => (LetterOrigin::Jobs, pool),
        Origin::Events { pool } => (LetterOrigin::Events, pool),
    };
    let (cause, reason) = match why {
        WhyDead::Rejected => (LetterCause::Rejected, None),
        WhyDead::DeliveryLimit => (LetterCause::DeliveryLimit, None),
        WhyDead::SetAside { reason } => (LetterCause::SetAside, Some(reason)),
    };
    let (id, length) = (Digest::of(&bytes), bytes.len() as u64);
    let message = match origin {
        LetterOrigin::Jobs => DispatchMessage::decode(&bytes).ok(),
        LetterOrigin::Events => None,
    };
    let publication = message.as_ref().map(|message| message.publication);
    let content = match message {
        Some(message) => LetterContent::Attempt(AboutAttempt {
            tenant: message.tenant,
            job: message.job,
            attempt: message.attempt,
        }),
        None => LetterContent::Bytes { bytes, sender },
    };
    let letter = NewLetter {
        id,
        origin,
        pool,
        cause,
        reason,
        bytes: length,
        content,
    };
    (letter, publication)
}

/// Keeps a letter and has its attempt published again. All of it may be done twice.
async fn settle(
    server: &Server,
    letter: &NewLetter,
    publication: Option<u32>,
    stop: &CancellationToken,
) -> Result<(), StoreError> {
    while !server
        .store
        .keep_letter(letter, server.context().now.into())
        .await?
    {
        tracing::error!(
            letter = %letter.id,
            "no further dead letter can be kept: look at those that there are, and replay or discard them \
             (`mayfly dead-letter list`)"
        );
        tokio::select! {
            () = tokio::time::sleep(ROOM_AGAIN) => {}
            () = stop.cancelled() => return Ok(()),
        }
    }
    let (LetterContent::Attempt(about), Some(publication)) = (&letter.content, publication) else {
        tracing::error!(letter = %letter.id, origin = letter.origin.as_str(), pool = letter.pool,
            cause = letter.cause.as_str(), "a message was put aside, for a person to look at");
        return Ok(());
    };
    let attempt = about.attempt;
    tracing::warn!(attempt.id = %attempt, publication, cause = letter.cause.as_str(), "a dispatch message was put aside");
    let context = server.context();
    let next = server.store.dead_lettered(attempt, publication, &context).await?;
    // One that is not confirmed is published again in its time.
    if let Some(message) = next
        && let Err(error) = server.publish_attempt(&letter.pool, message).await
    {
        tracing::warn!(attempt.id = %attempt, error = %Chain(&error), "an attempt could not be published; it will be published again");
    }
    Ok(())
}
