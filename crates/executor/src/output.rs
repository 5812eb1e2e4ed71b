//! What a run has written, where that is too long for its report: left on the server before anybody is told of the end, and
//! named by the report.

use std::time::Duration;

use bytes::Bytes;
use mayfly_core::{
    chain::Chain,
    id::AttemptId,
    outcome::KilledFor,
    run::{RunReport, UploadedOutput},
};
use mayfly_dispatch::message::OutputPlace;
use tokio::sync::watch;

use crate::blobs::{BlobError, Blobs, Patience};

/// How long it is tried before the report carries the output itself, through the broker, as short output always goes: a
/// result waits for no server of HTTP.
const LIMIT: Duration = Duration::from_secs(60);

/// Leaves the output of a run where its order says, where that is long, and has the report name it. Where that can't be done,
/// and where the attempt is given up, the report stays as it is.
pub(crate) async fn leave(
    blobs: &dyn Blobs,
    place: Option<&OutputPlace>,
    attempt: AttemptId,
    report: &mut RunReport,
    stop: &mut watch::Receiver<Option<KilledFor>>,
) {
    let bytes = report.output_bytes();
    let Some(place) = place.filter(|place| bytes > place.above && bytes <= place.most) else {
        return;
    };
    let (piece, uploaded) = report.take_output();
    let piece = Bytes::from(piece);
    let left = tokio::select! {
        left = persistently(blobs, place, &piece, &uploaded) => left.map_err(Some),
        () = given_up(stop) => Err(None),
    };
    match left {
        Ok(()) => report.uploaded = Some(uploaded),
        Err(error) => {
            if let Some(error) = error {
                tracing::warn!(
                    attempt.id = %attempt,
                    error = %Chain(&error),
                    "long output could not be left on the server, and goes through the broker"
                );
            }
            let given_back = report.give_back_output(&piece, &uploaded);
            debug_assert!(given_back, "it is the piece that was taken");
        }
    }
}

async fn persistently(
    blobs: &dyn Blobs,
    place: &OutputPlace,
    piece: &Bytes,
    uploaded: &UploadedOutput,
) -> Result<(), BlobError> {
    let mut patience = Patience::of(LIMIT);
    loop {
        match blobs.leave(&place.url, piece.clone(), uploaded.digest).await {
            Ok(()) => return Ok(()),
            Err(error) => {
                patience
                    .after(error, "leave what a run has written", &place.url)
                    .await?;
            }
        }
    }
}

/// Resolves when the attempt is given up. What a canceled run has written until then is wanted.
async fn given_up(stop: &mut watch::Receiver<Option<KilledFor>>) {
    let abandoned = |why: &Option<KilledFor>| *why == Some(KilledFor::Abandoned);
    if stop.wait_for(abandoned).await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests;
