//! The fleet: images, executors, dead letters.

use mayfly_core::id::{AuditEventId, ExecutorId};
use mayfly_wire::{
    audit::AuditList,
    dead_letter::DeadLetterList,
    executor::ExecutorList,
    image::{Image, ImageList, PinImage},
};
use reqwest::Method;

use crate::{
    call::{Call, Client},
    error::ClientError,
    page::Pages,
};

impl Client {
    /// The image catalog.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn images(&self) -> Result<ImageList, ClientError> {
        self.json(Call::get("list images", &["v1", "images"])).await
    }

    /// Makes a name mean an image.
    ///
    /// # Errors
    /// The server refuses it, or does not answer.
    pub async fn pin_image(&self, name: &str, pin: &PinImage) -> Result<Image, ClientError> {
        let path = ["v1", "images", name];
        let call = Call::post("pin the image", &path)
            .method(Method::PUT)
            .repeatable();
        self.json(call.json(pin)?).await
    }

    /// Executors, by name, in pages of this many.
    #[must_use]
    pub fn executors(&self, page: u32) -> Pages<ExecutorList> {
        Pages::new(self, "list executors", &["v1", "executors"]).query("limit", Some(page))
    }

    /// Has an executor take nothing new.
    ///
    /// # Errors
    /// There is no such executor, or the server does not answer.
    pub async fn cordon(&self, executor: ExecutorId) -> Result<(), ClientError> {
        self.order("cordon the executor", executor, "cordon").await
    }

    /// Has a cordoned executor take jobs again.
    ///
    /// # Errors
    /// There is no such executor, or the server does not answer.
    pub async fn uncordon(&self, executor: ExecutorId) -> Result<(), ClientError> {
        self.order("uncordon the executor", executor, "uncordon").await
    }

    /// Has an executor take nothing new, finish what it runs, and end.
    ///
    /// # Errors
    /// There is no such executor, or the server does not answer.
    pub async fn drain(&self, executor: ExecutorId) -> Result<(), ClientError> {
        self.order("drain the executor", executor, "drain").await
    }

    async fn order(&self, doing: &'static str, executor: ExecutorId, order: &str) -> Result<(), ClientError> {
        let id = executor.to_string();
        let path = ["v1", "executors", &id, order];
        self.done(Call::post(doing, &path).repeatable()).await
    }

    /// The newest audit events of the fleet, oldest of them first; those older than one of them, where it is given.
    ///
    /// # Errors
    /// The key may not, or the server does not answer.
    pub async fn fleet_audit(
        &self,
        before: Option<AuditEventId>,
        limit: u32,
    ) -> Result<AuditList, ClientError> {
        let call = Call::get("list the fleet's audit events", &["v1", "fleet", "audit"]);
        self.json(call.query("before", before).query("limit", Some(limit)))
            .await
    }

    /// Messages that were set aside, oldest first, at most so many.
    ///
    /// # Errors
    /// The key may not, or the server does not answer.
    pub async fn dead_letters(&self, limit: u32) -> Result<DeadLetterList, ClientError> {
        let call = Call::get("list dead letters", &["v1", "dead-letters"]);
        self.json(call.query("limit", Some(limit))).await
    }

    /// Publishes one again to where it came from. It is not repeated once the server may have done it.
    ///
    /// # Errors
    /// There is no such letter, or the server does not answer.
    pub async fn replay_dead_letter(&self, letter: &str) -> Result<(), ClientError> {
        let path = ["v1", "dead-letters", letter, "replay"];
        self.done(Call::post("replay the dead letter", &path)).await
    }

    /// Forgets one, for good.
    ///
    /// # Errors
    /// There is no such letter, or the server does not answer.
    pub async fn discard_dead_letter(&self, letter: &str) -> Result<(), ClientError> {
        let path = ["v1", "dead-letters", letter];
        self.done(Call::post("discard the dead letter", &path).method(Method::DELETE))
            .await
    }
}
