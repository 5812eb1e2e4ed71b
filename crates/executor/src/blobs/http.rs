//! Blobs by HTTP. What may be done stands in the address, so that no header says who asks; an address is in no error.

use std::{sync::OnceLock, time::Duration};

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use mayfly_core::digest::Digest;
use mayfly_dispatch::{
    blob::BlobUrl,
    message::{DispatchMessage, MAX_SECRETS_BYTES},
};
use reqwest::{Client, ClientBuilder, Response, redirect};

use super::{BlobError, Blobs};

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Longest time for one try.
const ONE_TRY: Duration = Duration::from_secs(60);

/// Blobs on servers that are reached by HTTP or HTTPS, with the certificates that the host trusts.
pub struct HttpBlobs {
    plain: Client,
    /// Made when the first address asks for it: a host without certificates is no trouble before.
    tls: OnceLock<Client>,
}

fn builder() -> ClientBuilder {
    Client::builder()
        .user_agent(concat!("mayfly/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT)
        // An order names one place, and nobody else says where content comes from.
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
}

fn trouble(error: reqwest::Error) -> BlobError {
    BlobError::Trouble(error.without_url().into())
}

impl HttpBlobs {
    /// A client. It connects when it is first used.
    ///
    /// # Errors
    /// A host on which no HTTP is possible.
    pub fn new() -> Result<Self, BlobError> {
        // A proxy would see in clear what is for nobody else; and no certificate is needed.
        let plain = builder().no_proxy().tls_certs_only([]).build();
        Ok(Self {
            plain: plain.map_err(trouble)?,
            tls: OnceLock::new(),
        })
    }

    fn client(&self, url: &BlobUrl) -> Result<&Client, BlobError> {
        if url.is_plain() {
            return Ok(&self.plain);
        }
        if let Some(client) = self.tls.get() {
            return Ok(client);
        }
        let client = builder().build().map_err(trouble)?;
        Ok(self.tls.get_or_init(|| client))
    }

    async fn try_fetch_at_most(&self, url: &BlobUrl, most: u64) -> Result<Vec<u8>, BlobError> {
        let response = self.client(url)?.get(url.reveal()).send().await;
        let mut response = well(response.map_err(trouble)?)?;
        let mut content = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(trouble)? {
            if (content.len() + piece.len()) as u64 > most {
                return Err(BlobError::TooLong(most));
            }
            content.extend_from_slice(&piece);
        }
        Ok(content)
    }

    async fn try_fetch(&self, url: &BlobUrl, bytes: u64) -> Result<Vec<u8>, BlobError> {
        let response = self.client(url)?.get(url.reveal()).send().await;
        let mut response = well(response.map_err(trouble)?)?;
        let wrong = || BlobError::Length(bytes);
        if response.content_length().is_some_and(|length| length != bytes) {
            return Err(wrong());
        }
        let length = usize::try_from(bytes).map_err(|_| wrong())?;
        let mut content = Vec::with_capacity(length);
        while let Some(piece) = response.chunk().await.map_err(trouble)? {
            if piece.len() > length - content.len() {
                return Err(wrong());
            }
            content.extend_from_slice(&piece);
        }
        if content.len() != length {
            return Err(wrong());
        }
        Ok(content)
    }
}

/// `Content-Digest` (RFC 9530).
fn named(digest: Digest) -> String {
    format!("sha-256=:{}:", STANDARD.encode(digest.as_bytes()))
}

/// An answer of success.
fn well(response: Response) -> Result<Response, BlobError> {
    let status = response.status();
    match status.as_u16() {
        200 | 201 | 204 => Ok(response),
        410 => Err(BlobError::Gone),
        status @ (408 | 429 | 500..) => Err(BlobError::Busy(status)),
        status => Err(BlobError::Refused(status)),
    }
}

#[async_trait]
impl Blobs for HttpBlobs {
    async fn fetch(&self, url: &BlobUrl, bytes: u64) -> Result<Vec<u8>, BlobError> {
        tokio::time::timeout(ONE_TRY, self.try_fetch(url, bytes))
            .await
            .unwrap_or(Err(BlobError::TooSlow(ONE_TRY)))
    }

    async fn fetch_secrets(&self, order: &DispatchMessage) -> Result<Vec<u8>, BlobError> {
        let url = order.secrets.as_ref().ok_or(BlobError::NoWay)?;
        tokio::time::timeout(ONE_TRY, self.try_fetch_at_most(url, MAX_SECRETS_BYTES))
            .await
            .unwrap_or(Err(BlobError::TooSlow(ONE_TRY)))
    }

    async fn leave(&self, url: &BlobUrl, content: Bytes, digest: Digest) -> Result<(), BlobError> {
        let request = self
            .client(url)?
            .put(url.reveal())
            .header("content-digest", named(digest))
            .body(content);
        match tokio::time::timeout(ONE_TRY, request.send()).await {
            Ok(answer) => well(answer.map_err(trouble)?).map(drop),
            Err(_) => Err(BlobError::TooSlow(ONE_TRY)),
        }
    }
}
