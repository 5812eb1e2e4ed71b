//! What travels between the server and its executors: JSON with a version `v` in each message.
//!
//! | message | from | to | kept by the broker |
//! | --- | --- | --- | --- |
//! | [`DispatchMessage`] | scheduler | one executor of the pool | until it is acked |
//! | [`EventBatch`] | executor | recorder | until it is processed |
//! | [`Tick`] | reconciler | recorder, through the queue of the batches | until it is processed |
//! | [`Reply`] | recorder | the session that sent the batch | no |
//! | [`Control`] | server | one executor | no |
//!
//! Batches and ticks share a queue, so they are read as one [`Inbound`].

mod batch;
mod codec;
mod control;
mod dispatch;
mod reply;
mod tick;

pub use batch::{
    AbandonReason, EventBatch, ExecutorFacts, Heartbeat, Held, MAX_BATCH_BYTES, MAX_BATCH_EVENTS,
    MAX_CONTRADICTION_BYTES, MAX_CONTRADICTIONS, MAX_IMAGES, Opened, Phase, SessionEvent,
};
pub(crate) use codec::encoded_bytes;
pub use codec::{DecodeError, Inbound, MAX_MESSAGE_BYTES, READS, VERSION, Wire};
pub use control::{Control, Order};
pub use dispatch::{
    ARTIFACTS_SINCE, BLOBS_SINCE, BlobPlaces, DispatchMessage, EGRESS_SINCE, FETCHED_SINCE, InputBlob,
    MAX_SECRETS_BYTES, MODES_SINCE, OutputPlace, SECRETS_APART_SINCE, SECRETS_SINCE,
};
pub use reply::{Answer, DenyReason, Reply, Stop, StopReason, Verdict};
pub use tick::{Judged, MAX_JUDGED, Tick};

#[cfg(test)]
mod tests;
