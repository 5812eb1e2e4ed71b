//! The client of a provider: one request, its bounds, and when it is sent again.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use reqwest::{
    Response, Url,
    header::{HeaderMap, HeaderName, HeaderValue},
    redirect,
};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    ModelClient, Reply, Request, anthropic, gemini,
    name::{ModelName, Provider},
    openai, patience,
    place::Place,
    refusal::{ModelError, Refusal},
};

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Most bytes of an answer; the longest that models give are a few hundred kilobytes.
const MAX_ANSWER: usize = 16 << 20;
/// Most bytes of an error.
const MAX_ERROR: usize = 64 << 10;

/// What a client is made of.
#[derive(Debug, Clone)]
pub struct ProviderConfig {
    /// Which model.
    pub model: ModelName,
    /// Where its provider is.
    pub place: Place,
    /// Longest time for one request and its answer.
    pub timeout: Duration,
    /// How long a request is sent again and again while the provider is away or has too much to do.
    pub patience: Duration,
}

/// A client of one model.
pub struct ProviderClient {
    http: reqwest::Client,
    config: ProviderConfig,
    /// What this model was found not to take.
    manners: Mutex<Manners>,
}

/// What a model takes of what a request may say. It is known by its name where that is known, and learned from its
/// refusals, since names are newer than any list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Manners {
    /// It can be told to be the same each time.
    pub(crate) takes_temperature: bool,
    /// The bound of the answer is `max_completion_tokens` (OpenAI's newer models), and not `max_tokens`.
    pub(crate) max_completion_tokens: bool,
    /// It calls tools only where it is told not to think (OpenAI's newer models on Chat Completions).
    pub(crate) must_not_reason: bool,
}

impl Manners {
    fn of(name: &ModelName, place: &Place) -> Self {
        let model = name.model();
        let takes_temperature = match name.provider() {
            // Those from Opus 4.7 and Sonnet 5 on refuse it.
            Provider::Anthropic => ["-3-", "-4-0", "-4-1", "-4-2", "-4-5", "-4-6"]
                .iter()
                .any(|generation| model.contains(generation)),
            Provider::OpenAi => {
                place.is_elsewhere || model.starts_with("gpt-4") || model.starts_with("gpt-3")
            }
            // Gemini 3 takes it; Google advises against it there, since it may make the model repeat itself for ever.
            Provider::Gemini => model.starts_with("gemini-1") || model.starts_with("gemini-2"),
            Provider::OpenRouter | Provider::Ollama => true,
        };
        Self {
            takes_temperature,
            max_completion_tokens: name.provider() == Provider::OpenAi && !place.is_elsewhere,
            must_not_reason: false,
        }
    }

    /// The same, without what a refusal is about; nothing where that is not the reason, or was left out already.
    fn without_cause_of(self, refusal: &Refusal) -> Option<Self> {
        if !matches!(refusal.status, 400 | 422) {
            return None;
        }
        let words = refusal.words.to_lowercase();
        let about = |field: &str| refusal.field.as_deref() == Some(field) || words.contains(field);
        if self.takes_temperature && about("temperature") {
            return Some(Self {
                takes_temperature: false,
                ..self
            });
        }
        if !self.max_completion_tokens && words.contains("max_completion_tokens") {
            return Some(Self {
                max_completion_tokens: true,
                ..self
            });
        }
        if self.max_completion_tokens && about("max_completion_tokens") {
            return Some(Self {
                max_completion_tokens: false,
                ..self
            });
        }
        (!self.must_not_reason && about("reasoning_effort")).then_some(Self {
            must_not_reason: true,
            ..self
        })
    }
}

/// Most changes of manners for one request: each of the three, once. A server that wants one field and refuses it too
/// would go on for ever.
const MOST_LESSONS: u32 = 3;

impl ProviderClient {
    /// A client. It connects when it is first used.
    ///
    /// # Errors
    /// A host on which no HTTPS is possible.
    pub fn new(config: ProviderConfig) -> Result<Self, ModelError> {
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("mayfly/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            // A key goes where it was meant to go, and nowhere else.
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never());
        if config.place.base.scheme() == "http" {
            // A proxy would get the key in clear; and no certificate is needed, on a host that may have none.
            builder = builder.no_proxy().tls_certs_only([]);
        }
        let http = builder
            .build()
            .map_err(|error| ModelError::Client(error.into()))?;
        let manners = Mutex::new(Manners::of(&config.model, &config.place));
        Ok(Self {
            http,
            config,
            manners,
        })
    }

    fn provider(&self) -> Provider {
        self.config.place.provider
    }

    fn manners(&self) -> Manners {
        *self.manners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn once(&self, request: &Request<'_>, manners: Manners) -> Result<Reply, ModelError> {
        let model = self.config.model.model();
        let (path, body) = match self.provider() {
            Provider::Anthropic => ("v1/messages".to_owned(), anthropic::body(request, model, manners)),
            Provider::Gemini => (
                format!("models/{model}:generateContent"),
                gemini::body(request, manners),
            ),
            Provider::OpenAi | Provider::OpenRouter | Provider::Ollama => (
                "chat/completions".to_owned(),
                openai::body(request, model, manners, self.provider()),
            ),
        };
        let answered = tokio::time::timeout(self.config.timeout, self.answer(&path, &body));
        let answer = answered.await.unwrap_or(Err(ModelError::TimedOut {
            provider: self.provider(),
            after: self.config.timeout,
        }))?;
        let read = match self.provider() {
            Provider::Anthropic => anthropic::reply(answer),
            Provider::Gemini => gemini::reply(answer),
            Provider::OpenAi | Provider::OpenRouter | Provider::Ollama => openai::reply(answer),
        };
        read.map_err(|why| self.unreadable(why))
    }

    /// What a provider answers to a body, where that is an answer.
    async fn answer(&self, path: &str, body: &Value) -> Result<Value, ModelError> {
        let url = self.url(path)?;
        let mut request = self.http.post(url).json(body);
        if let Some((name, value)) = self.credential() {
            request = request.header(name, value);
        }
        if self.provider() == Provider::Anthropic {
            request = request.header("anthropic-version", "2023-06-01");
        }
        let mut response = request.send().await.map_err(|error| self.unsent(error))?;
        let status = response.status().as_u16();
        if !response.status().is_success() {
            let headers = response.headers().clone();
            // What is wrong is worth hearing, even where not all of it can be.
            let text = self
                .text(&mut response, MAX_ERROR)
                .await
                .or_else(|error| match error {
                    ModelError::TooLarge { .. } => Ok(String::new()),
                    other => Err(other),
                })?;
            return Err(self.refused(status, &text, &headers));
        }
        let text = self.text(&mut response, MAX_ANSWER).await?;
        let answer: Value = serde_json::from_str(&text)
            .map_err(|error| self.unreadable(format!("it is no JSON ({error})")))?;
        // OpenRouter and others report trouble of the model's host in an answer of success.
        if answer.get("error").is_some_and(|error| !error.is_null()) {
            let code = answer["error"]["code"]
                .as_u64()
                .and_then(|code| u16::try_from(code).ok());
            return Err(self.refused(
                code.filter(|code| *code >= 400).unwrap_or(500),
                &text,
                &HeaderMap::new(),
            ));
        }
        Ok(answer)
    }

    fn url(&self, path: &str) -> Result<Url, ModelError> {
        let base = &self.config.place.base;
        base.join(path)
            .ok()
            // A name with a scheme in it would lead elsewhere, and the key with it.
            .filter(|url| url.as_str().starts_with(base.as_str()))
            .ok_or_else(|| self.unreadable("the model's name does not fit into an address".to_owned()))
    }

    fn credential(&self) -> Option<(HeaderName, HeaderValue)> {
        let key = self.config.place.key.as_ref()?;
        let (name, before) = match self.provider() {
            Provider::Anthropic => ("x-api-key", ""),
            Provider::Gemini => ("x-goog-api-key", ""),
            Provider::OpenAi | Provider::OpenRouter | Provider::Ollama => ("authorization", "Bearer "),
        };
        Some((HeaderName::from_static(name), key.header(before)?))
    }

    /// A body as text, without the key where it repeats that.
    async fn text(&self, response: &mut Response, limit: usize) -> Result<String, ModelError> {
        let too_large = || ModelError::TooLarge {
            provider: self.provider(),
            limit,
        };
        let cut = |error: reqwest::Error| ModelError::Cut {
            provider: self.provider(),
            source: error.without_url().into(),
        };
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(cut)? {
            if body.len() + chunk.len() > limit {
                return Err(too_large());
            }
            body.extend_from_slice(&chunk);
        }
        let text = String::from_utf8_lossy(&body).into_owned();
        Ok(match &self.config.place.key {
            Some(key) => key.taken_out_of(text),
            None => text,
        })
    }

    fn unsent(&self, error: reqwest::Error) -> ModelError {
        let (provider, connect) = (self.provider(), error.is_connect());
        let source = error.without_url().into();
        if connect {
            ModelError::Unreachable {
                provider,
                host: self.config.place.host(),
                source,
            }
        } else {
            ModelError::Cut { provider, source }
        }
    }

    fn refused(&self, status: u16, body: &str, headers: &HeaderMap) -> ModelError {
        let mut refusal = Refusal::read(self.provider(), self.config.model.model(), status, body);
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        // A date is as good as no time at all: it is a proxy's.
        let named = header("retry-after-ms")
            .and_then(|text| text.trim().parse::<f64>().ok())
            .map(|millis| millis / 1000.0)
            .or_else(|| header("retry-after")?.trim().parse::<f64>().ok())
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        refusal.retry_after = named.or(refusal.retry_after);
        refusal.should_retry = header("x-should-retry").and_then(|text| text.trim().parse().ok());
        ModelError::Refused(Box::new(refusal))
    }

    fn unreadable(&self, why: String) -> ModelError {
        ModelError::Unreadable {
            provider: self.provider(),
            why,
            is_elsewhere: self.config.place.is_elsewhere,
        }
    }
}

#[async_trait]
impl ModelClient for ProviderClient {
    fn name(&self) -> &str {
        self.config.model.as_str()
    }

    async fn next(&self, request: &Request<'_>) -> Result<Reply, ModelError> {
        let give_up_at = Instant::now() + self.config.patience;
        let (mut repetitions, mut lessons) = (0, 0);
        loop {
            let manners = self.manners();
            let error = match self.once(request, manners).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            if let ModelError::Refused(refusal) = &error
                && lessons < MOST_LESSONS
                && let Some(learned) = manners.without_cause_of(refusal)
            {
                *self.manners.lock().unwrap_or_else(PoisonError::into_inner) = learned;
                lessons += 1;
                continue;
            }
            let left = give_up_at.saturating_duration_since(Instant::now());
            let Some(wait) = patience::wait(&error, repetitions, left) else {
                return Err(error);
            };
            tracing::warn!(
                "{error}; trying again in {:.1} s, for up to {} s",
                wait.as_secs_f64(),
                left.as_secs()
            );
            tokio::time::sleep(wait).await;
            repetitions += 1;
        }
    }
}
