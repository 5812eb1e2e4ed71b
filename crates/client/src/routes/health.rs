//! What a server says of itself.

use mayfly_wire::health::{Live, Ready, Version};

use crate::{
    call::{Call, Client, parse},
    error::ClientError,
};

const READY: &str = "ask whether the server is ready";

impl Client {
    /// That the process answers.
    ///
    /// # Errors
    /// It does not.
    pub async fn live(&self) -> Result<Live, ClientError> {
        self.json(Call::get(
            "ask whether the server lives",
            &["v1", "health", "live"],
        ))
        .await
    }

    /// Whether the server can do its work, and if not, why. Asked once: that it is not ready is an answer.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn ready(&self) -> Result<Ready, ClientError> {
        let call = Call::get(READY, &["v1", "health", "ready"]);
        parse(READY, &self.answer_whatever_its_status(&call).await?)
    }

    /// Which program the server is.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn version(&self) -> Result<Version, ClientError> {
        self.json(Call::get("ask for the server's version", &["v1", "version"]))
            .await
    }
}
