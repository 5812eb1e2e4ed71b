//! An API in this process, reached without a connection: the same requests, the same guards, the same answers.

use std::{convert::Infallible, fmt, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use reqwest::{Request, Response};
use tower::{Service, ServiceExt as _};

use crate::{
    address::ServerUrl,
    call::{Client, ClientConfig},
    error::{ClientError, Source},
    key::ApiKey,
};

/// What messages name as the server.
const NAME: &str = "http://in-process";
/// Longest time for one request, beside the time that it asks to wait.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long a request is repeated that the API does not take at once.
const PATIENCE: Duration = Duration::from_secs(30);

type Answered = Pin<Box<dyn Future<Output = Result<Response, reqwest::Error>> + Send>>;

/// What answers requests.
#[derive(Clone)]
pub(crate) struct Handler(Arc<dyn Fn(Request) -> Answered + Send + Sync>);

impl Handler {
    pub(crate) fn answer(&self, request: Request) -> Answered {
        (self.0)(request)
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

impl Client {
    /// A client whose requests are answered by a service of this process, such as the router of the API, with answers of at
    /// most so many bytes.
    ///
    /// # Errors
    /// A host on which no HTTP client can be made.
    pub fn in_process<S, B>(service: S, key: Option<ApiKey>, max_answer: usize) -> Result<Self, ClientError>
    where
        S: Service<http::Request<reqwest::Body>, Response = http::Response<B>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Source>,
    {
        let client = Self::new(ClientConfig {
            server: ServerUrl::parse(NAME, true)?,
            key,
            ca: None,
            timeout: TIMEOUT,
            patience: PATIENCE,
            max_answer,
        })?;
        Ok(client.answered_by(Handler(Arc::new(move |request| {
            let service = service.clone();
            Box::pin(async move {
                let request = http::Request::try_from(request)?;
                let Ok(response) = service.oneshot(request).await;
                let wrapped = response.map(|body| reqwest::Body::wrap_stream(body.into_data_stream()));
                Ok(wrapped.into())
            })
        }))))
    }
}
