//! One request: its bounds, and when it is sent again.

use std::time::Duration;

use mayfly_wire::{
    IDEMPOTENCY_KEY,
    problem::{MEDIA_TYPE, Problem},
};
use reqwest::{
    Body, Certificate, Method, RequestBuilder, Response,
    header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER},
    redirect,
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;

use crate::{
    address::ServerUrl,
    body::{self, BodyError},
    error::{ClientError, Refusal},
    in_process::Handler,
    key::ApiKey,
    patience::{self, Repeat},
};

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Most bytes of a problem.
const MAX_PROBLEM: usize = 256 << 10;
/// Longest time to come back after that a server is believed.
const LONGEST_RETRY_AFTER: u64 = 24 * 3600;

/// What a client is made of.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Where the server is.
    pub server: ServerUrl,
    /// Who the requests are by.
    pub key: Option<ApiKey>,
    /// Certificates in PEM: these are trusted, and no others. None: those that the host trusts.
    pub ca: Option<Vec<u8>>,
    /// Longest time for one request and its answer, beside the time that it asks the server to wait.
    pub timeout: Duration,
    /// How long a request is sent again and again while the server is away or has too much to do.
    pub patience: Duration,
    /// Most bytes of one answer.
    pub max_answer: usize,
}

/// A client of one server. Copies share its connections.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    /// What answers in this process, where no connection is made.
    here: Option<Handler>,
    config: ClientConfig,
}

/// A request.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    /// What it does, after "could not".
    pub(crate) doing: &'static str,
    pub(crate) method: Method,
    pub(crate) path: &'a [&'a str],
    pub(crate) query: Vec<(&'static str, String)>,
    /// JSON.
    pub(crate) body: Option<Vec<u8>>,
    /// The media type of the answer, problems aside.
    pub(crate) accept: &'static str,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) repeat: Repeat,
    /// How long the server is asked to wait before it answers.
    pub(crate) waits: Duration,
}

impl<'a> Call<'a> {
    /// A request that reads.
    pub(crate) fn get(doing: &'static str, path: &'a [&'a str]) -> Self {
        Self {
            doing,
            method: Method::GET,
            path,
            query: Vec::new(),
            body: None,
            accept: "application/json",
            headers: Vec::new(),
            repeat: Repeat::Safe,
            waits: Duration::ZERO,
        }
    }

    /// A request that changes something, and must not do so twice.
    pub(crate) fn post(doing: &'static str, path: &'a [&'a str]) -> Self {
        Self {
            method: Method::POST,
            repeat: Repeat::OnlyUndone,
            ..Self::get(doing, path)
        }
    }

    /// The same with another method.
    pub(crate) fn method(self, method: Method) -> Self {
        Self { method, ..self }
    }

    /// The same, which may be done twice.
    pub(crate) fn repeatable(self) -> Self {
        Self {
            repeat: Repeat::Safe,
            ..self
        }
    }

    pub(crate) fn query(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.query.extend(value.map(|value| (name, value.to_string())));
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// With a key by which the server knows the request again, so that it may be repeated.
    pub(crate) fn idempotency_key(self, key: &str) -> Self {
        self.header(IDEMPOTENCY_KEY, key).repeatable()
    }

    pub(crate) fn json(mut self, body: &impl Serialize) -> Result<Self, ClientError> {
        let bytes = serde_json::to_vec(body).map_err(|source| ClientError::Request {
            doing: self.doing,
            source: source.into(),
        })?;
        self.body = Some(bytes);
        Ok(self)
    }
}

/// Tries at the same request.
struct Tries {
    repeat: Repeat,
    give_up_at: Instant,
    repetitions: u32,
}

impl Tries {
    /// Waits after one that failed, until it is time for the next.
    ///
    /// # Errors
    /// Its failure, where a further try is not safe, would not help, or would come too late.
    async fn after(&mut self, error: ClientError) -> Result<(), ClientError> {
        let left = self.give_up_at.saturating_duration_since(Instant::now());
        let Some(wait) = patience::wait(&error, self.repeat, self.repetitions, left) else {
            return Err(error);
        };
        if self.repetitions == 0 {
            tracing::warn!("{error}; trying again for up to {} s", left.as_secs());
        }
        tokio::time::sleep(wait).await;
        self.repetitions += 1;
        Ok(())
    }
}

impl Client {
    /// A client. It connects when it is first used.
    ///
    /// # Errors
    /// Certificates that can't be read, and a host on which no HTTPS is possible.
    pub fn new(config: ClientConfig) -> Result<Self, ClientError> {
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("mayfly/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            // A key goes where it was meant to go, and nowhere else.
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never());
        if config.server.is_plain() {
            // A proxy would get the key in clear; and no certificate is needed, on a host that may have none.
            builder = builder.no_proxy().tls_certs_only([]);
        } else if let Some(pem) = &config.ca {
            let certificates = Certificate::from_pem_bundle(pem).map_err(ClientError::Certificate)?;
            builder = builder.tls_certs_only(certificates);
        }
        let http = builder.build().map_err(ClientError::Build)?;
        Ok(Self {
            http,
            here: None,
            config,
        })
    }

    /// The same client, whose requests are answered in this process.
    pub(crate) fn answered_by(self, handler: Handler) -> Self {
        Self {
            here: Some(handler),
            ..self
        }
    }

    /// The same client, whose requests are by somebody else.
    #[must_use]
    pub fn with_key(&self, key: ApiKey) -> Self {
        self.with_config(ClientConfig {
            key: Some(key),
            ..self.config.clone()
        })
    }

    fn with_config(&self, config: ClientConfig) -> Self {
        Self {
            http: self.http.clone(),
            here: self.here.clone(),
            config,
        }
    }

    /// Where the server is.
    #[must_use]
    pub const fn server(&self) -> &ServerUrl {
        &self.config.server
    }

    /// The same client, whose requests are repeated for so long.
    #[must_use]
    pub fn with_patience(&self, patience: Duration) -> Self {
        self.with_config(ClientConfig {
            patience,
            ..self.config.clone()
        })
    }

    /// How long its requests are repeated.
    #[must_use]
    pub const fn patience(&self) -> Duration {
        self.config.patience
    }

    /// The answer to a request, as JSON.
    pub(crate) async fn json<T: DeserializeOwned>(&self, call: Call<'_>) -> Result<T, ClientError> {
        let (_, body) = self.answer(&call).await?;
        parse(call.doing, &body)
    }

    /// That a request was answered well, whatever else the answer says.
    pub(crate) async fn done(&self, call: Call<'_>) -> Result<(), ClientError> {
        self.answer(&call).await.map(drop)
    }

    /// Status and body of an answer of success to a request, which is sent again while that is safe and there is patience
    /// for it.
    pub(crate) async fn answer(&self, call: &Call<'_>) -> Result<(u16, Vec<u8>), ClientError> {
        let mut tries = self.tries(call);
        loop {
            match self.once(call).await {
                Ok(answer) => return Ok(answer),
                Err(error) => tries.after(error).await?,
            }
        }
    }

    fn tries(&self, call: &Call<'_>) -> Tries {
        Tries {
            repeat: call.repeat,
            give_up_at: Instant::now() + self.config.patience,
            repetitions: 0,
        }
    }

    async fn once(&self, call: &Call<'_>) -> Result<(u16, Vec<u8>), ClientError> {
        let answered = async {
            let mut response = self.open(call).await?;
            let body = self.body(call, &mut response).await?;
            Ok((response.status().as_u16(), body))
        };
        self.within(call, answered).await
    }

    /// An answer of success to a request, its body still to be read; asked for again while there is patience for it.
    pub(crate) async fn opened(&self, call: &Call<'_>) -> Result<Response, ClientError> {
        let mut tries = self.tries(call);
        loop {
            match self.within(call, self.open(call)).await {
                Ok(response) => return Ok(response),
                Err(error) => tries.after(error).await?,
            }
        }
    }

    /// Longest time for one request and its answer, or for the next part of a long one.
    pub(crate) const fn timeout(&self) -> Duration {
        self.config.timeout
    }

    /// The body of an answer of any status, asked for once.
    pub(crate) async fn answer_whatever_its_status(&self, call: &Call<'_>) -> Result<Vec<u8>, ClientError> {
        let answered = async {
            let mut response = self.send(call).await?;
            self.body(call, &mut response).await
        };
        self.within(call, answered).await
    }

    async fn body(&self, call: &Call<'_>, response: &mut Response) -> Result<Vec<u8>, ClientError> {
        let limit = self.config.max_answer;
        body::read(response, limit)
            .await
            .map_err(|error| broken(call.doing, error, limit))
    }

    /// What a request comes to in the time that it has.
    async fn within<T>(
        &self,
        call: &Call<'_>,
        answered: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let limit = self.config.timeout + call.waits;
        let out_of_time = Err(ClientError::TimedOut {
            doing: call.doing,
            after: limit,
        });
        tokio::time::timeout(limit, answered).await.unwrap_or(out_of_time)
    }

    /// Sends a request once. The answer is one of success, its body still to be read.
    pub(crate) async fn open(&self, call: &Call<'_>) -> Result<Response, ClientError> {
        let mut response = self.send(call).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.refused(call.doing, &mut response).await)
    }

    /// The body of an answer of success to a request that sends so many bytes, once: they are not there a second time.
    pub(crate) async fn sent_once(
        &self,
        call: &Call<'_>,
        bytes: u64,
        content: Body,
    ) -> Result<Vec<u8>, ClientError> {
        let answered = async {
            let request = self.request(call).header(CONTENT_LENGTH, bytes).body(content);
            let mut response = self.execute(call, request).await?;
            if !response.status().is_success() {
                return Err(self.refused(call.doing, &mut response).await);
            }
            self.body(call, &mut response).await
        };
        self.within(call, answered).await
    }

    async fn send(&self, call: &Call<'_>) -> Result<Response, ClientError> {
        let mut request = self.request(call);
        if let Some(body) = &call.body {
            request = request
                .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
                .body(body.clone());
        }
        self.execute(call, request).await
    }

    /// A request without its body.
    fn request(&self, call: &Call<'_>) -> RequestBuilder {
        let url = self.config.server.route(call.path, &call.query);
        let mut request = self
            .http
            .request(call.method.clone(), url)
            .header(ACCEPT, HeaderValue::from_static(call.accept));
        if let Some(key) = &self.config.key {
            request = request.header(AUTHORIZATION, key.header());
        }
        for (name, value) in &call.headers {
            request = request.header(*name, value);
        }
        request
    }

    async fn execute(&self, call: &Call<'_>, request: RequestBuilder) -> Result<Response, ClientError> {
        let request = request.build().map_err(|error| self.unsent(call.doing, error))?;
        match &self.here {
            None => self.http.execute(request).await,
            Some(handler) => handler.answer(request).await,
        }
        .map_err(|error| self.unsent(call.doing, error))
    }

    fn unsent(&self, doing: &'static str, error: reqwest::Error) -> ClientError {
        let server = self.config.server.to_string();
        let (builder, connect) = (error.is_builder(), error.is_connect());
        let source = error.without_url().into();
        if builder {
            ClientError::Request { doing, source }
        } else if connect {
            ClientError::Unreachable {
                doing,
                server,
                source,
            }
        } else {
            ClientError::Cut { doing, source }
        }
    }

    /// What an answer says that is not one of success.
    async fn refused(&self, doing: &'static str, response: &mut Response) -> ClientError {
        let status = response.status().as_u16();
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        // Proxies may name a date; it is as good as no time at all.
        let retry_after = header(RETRY_AFTER)
            .and_then(|text| text.trim().parse::<u64>().ok())
            .map(|seconds| Duration::from_secs(seconds.min(LONGEST_RETRY_AFTER)));
        let is_problem = header(CONTENT_TYPE).is_some_and(|kind| kind.starts_with(MEDIA_TYPE));
        let problem = if is_problem {
            match body::read(response, MAX_PROBLEM).await {
                Ok(body) => serde_json::from_slice::<Problem>(&body).ok(),
                Err(error) => return broken(doing, error, MAX_PROBLEM),
            }
        } else {
            None
        };
        if problem.is_none() && !matches!(status, 408 | 429 | 500..) {
            return ClientError::NotTheApi {
                doing,
                server: self.config.server.to_string(),
                status,
            };
        }
        ClientError::Refused(Box::new(Refusal {
            doing,
            status,
            problem,
            retry_after,
        }))
    }
}

/// Reads an answer's JSON.
pub(crate) fn parse<T: DeserializeOwned>(doing: &'static str, body: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(body).map_err(|source| ClientError::Unreadable {
        doing,
        source: source.into(),
    })
}

pub(crate) fn broken(doing: &'static str, error: BodyError, limit: usize) -> ClientError {
    match error {
        BodyError::TooLarge => ClientError::TooLarge { doing, limit },
        BodyError::Cut(error) => ClientError::Cut {
            doing,
            source: error.without_url().into(),
        },
    }
}
