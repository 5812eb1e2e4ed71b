//! A language model that says what a test's script decides, over the wire shapes of three providers: Anthropic Messages,
//! OpenAI Chat Completions, Gemini. It answers on loopback alone.
//!
//! It is as strict as the providers' references say they are: a missing or wrong key, a call without a result, a signature
//! that was lost on the way back, and a field that a model does not take are refused in the provider's own shape. So a
//! client that is sloppy in a way that the real API would not take fails here too. The script sees the tools' results and
//! can let its answer depend on them.

mod anthropic;
mod gemini;
mod openai;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;

/// Whose shape a request has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions.
    OpenAi,
    /// Gemini `generateContent`.
    Gemini,
}

/// What a model was asked, whatever the shape.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The shape.
    pub shape: Shape,
    /// The model's name.
    pub model: String,
    /// How many turns of the model the conversation has so far.
    pub turns: usize,
    /// The system prompt.
    pub system: String,
    /// The tools' names.
    pub tools: Vec<String>,
    /// The person's words, first to last.
    pub words: Vec<String>,
    /// The results of the last turn's calls; none where it had none.
    pub results: Vec<Outcome>,
    /// The body.
    pub body: Value,
}

/// What came of a call, as the model is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// For the model.
    pub text: String,
    /// Whether it was marked as failed. Chat Completions has no place for that.
    pub is_error: bool,
}

/// What the model says.
#[derive(Debug, Clone)]
pub enum Say {
    /// Words, and the end.
    Text(String),
    /// The same in several blocks, where the shape has those.
    Blocks(Vec<String>),
    /// Calls of tools, with these arguments.
    Calls(Vec<(&'static str, Value)>),
    /// The same, by these ids, where the shape has ids of the model's.
    CallsById(Vec<(&'static str, &'static str, Value)>),
    /// A call whose arguments are this text, whatever it is.
    Malformed(&'static str, String),
    /// A refusal in these words.
    Refusal(String),
    /// Nothing at all, and the end.
    Nothing,
    /// The beginning of something that reached the bound of tokens.
    CutOff(String),
    /// An error in the provider's shape: status, code, words, headers.
    Fail(u16, &'static str, String, Vec<(&'static str, String)>),
    /// These bytes, as they are.
    Raw(u16, String),
    /// No answer, ever.
    Stall,
}

impl Say {
    /// One call.
    #[must_use]
    pub fn call(tool: &'static str, arguments: Value) -> Self {
        Self::Calls(vec![(tool, arguments)])
    }
}

/// What a model of the server takes.
#[derive(Debug, Clone)]
pub struct Manners {
    /// The key that is asked for; none: any request is answered, key or not.
    pub key: Option<String>,
    /// Refuses `temperature`.
    pub refuses_temperature: bool,
    /// Wants `max_completion_tokens` and refuses `max_tokens` (Chat Completions).
    pub wants_max_completion_tokens: bool,
    /// Calls tools only where `reasoning_effort` is `none` (Chat Completions).
    pub refuses_to_reason_with_tools: bool,
}

/// A refusal in the provider's shape.
pub(crate) struct Wrong {
    status: u16,
    code: &'static str,
    words: String,
    field: Option<&'static str>,
}

impl Wrong {
    pub(crate) fn request(words: impl Into<String>) -> Self {
        Self {
            status: 400,
            code: "invalid_request_error",
            words: words.into(),
            field: None,
        }
    }

    pub(crate) fn field(field: &'static str, words: impl Into<String>) -> Self {
        Self {
            field: Some(field),
            ..Self::request(words)
        }
    }
}

type Script = Box<dyn FnMut(&Asked) -> Say + Send>;

struct Model {
    manners: Manners,
    script: Mutex<Script>,
    asked: Mutex<Vec<Asked>>,
}

/// The server; it ends with this value.
pub struct ModelServer {
    address: SocketAddr,
    model: Arc<Model>,
    _task: AbortOnDropHandle<()>,
}

impl ModelServer {
    /// One whose models take what they usually do and ask for no key.
    pub async fn start(script: impl FnMut(&Asked) -> Say + Send + 'static) -> Self {
        let manners = Manners {
            key: None,
            refuses_temperature: false,
            wants_max_completion_tokens: false,
            refuses_to_reason_with_tools: false,
        };
        Self::with(manners, script).await
    }

    /// One with manners of its own.
    ///
    /// # Panics
    /// There is no port on loopback.
    pub async fn with(manners: Manners, script: impl FnMut(&Asked) -> Say + Send + 'static) -> Self {
        let model = Arc::new(Model {
            manners,
            script: Mutex::new(Box::new(script)),
            asked: Mutex::default(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port on loopback");
        let address = listener.local_addr().expect("a listener has an address");
        let app = Router::new().fallback(answer).with_state(Arc::clone(&model));
        let app = app.layer(axum::extract::DefaultBodyLimit::max(64 << 20));
        let serve = async move {
            axum::serve(listener, app)
                .await
                .expect("it serves until it is dropped");
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "it ends with its value, and a test looks at its answers"
        )]
        let task = AbortOnDropHandle::new(tokio::spawn(serve));
        Self {
            address,
            model,
            _task: task,
        }
    }

    /// The address for a client of a shape, as its provider's variable has it.
    #[must_use]
    pub fn base(&self, shape: Shape) -> String {
        let path = match shape {
            Shape::Anthropic => "",
            Shape::OpenAi => "/v1",
            Shape::Gemini => "/v1beta",
        };
        format!("http://{}{path}", self.address)
    }

    /// All that was asked and was in order, oldest first.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        locked(&self.model.asked).clone()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn answer(State(model): State<Arc<Model>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let path = uri.path();
    let (shape, name) = match path {
        "/v1/messages" => (Shape::Anthropic, None),
        "/v1/chat/completions" => (Shape::OpenAi, None),
        _ => {
            let named = path
                .strip_prefix("/v1beta/models/")
                .and_then(|rest| rest.strip_suffix(":generateContent"));
            match named {
                Some(name) => (Shape::Gemini, Some(name.to_owned())),
                None => return (StatusCode::NOT_FOUND, "no such path").into_response(),
            }
        }
    };
    let said = hear(&model, shape, name, &headers, &body);
    let (status, body, more) = match said {
        Err(wrong) => (wrong.status, failure(shape, &wrong).to_string(), Vec::new()),
        Ok((_, Say::Stall)) => return std::future::pending().await,
        Ok((_, Say::Raw(status, text))) => (status, text, Vec::new()),
        Ok((_, Say::Fail(status, code, words, headers))) => {
            let wrong = Wrong {
                status,
                code,
                words,
                field: None,
            };
            (status, failure(shape, &wrong).to_string(), headers)
        }
        Ok((asked, say)) => {
            let answer = match shape {
                Shape::Anthropic => anthropic::answer(&asked, say),
                Shape::OpenAi => openai::answer(&asked, say),
                Shape::Gemini => gemini::answer(&asked, say),
            };
            (200, answer.to_string(), Vec::new())
        }
    };
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(status).expect("a script names a status");
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in more {
        let value = HeaderValue::try_from(value).expect("a script names a header's value");
        headers.insert(HeaderName::from_static(name), value);
    }
    response
}

/// What was asked, and what the script says to it.
fn hear(
    model: &Model,
    shape: Shape,
    name: Option<String>,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<(Asked, Say), Wrong> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let (place, given) = match shape {
        Shape::Anthropic => ("x-api-key", header("x-api-key")),
        Shape::OpenAi => (
            "authorization",
            header("authorization").and_then(|value| value.strip_prefix("Bearer ")),
        ),
        Shape::Gemini => ("x-goog-api-key", header("x-goog-api-key")),
    };
    if let Some(key) = &model.manners.key
        && given != Some(key)
    {
        return Err(Wrong {
            status: 401,
            code: "authentication_error",
            // As some servers do, it repeats what it was given.
            words: format!("invalid {place}: {}", given.unwrap_or("none")),
            field: None,
        });
    }
    if shape == Shape::Anthropic && header("anthropic-version") != Some("2023-06-01") {
        return Err(Wrong::request("anthropic-version: header is required"));
    }
    let body: Value =
        serde_json::from_slice(body).map_err(|error| Wrong::request(format!("no JSON: {error}")))?;
    let asked = match shape {
        Shape::Anthropic => anthropic::asked(body, &model.manners)?,
        Shape::OpenAi => openai::asked(body, &model.manners)?,
        Shape::Gemini => gemini::asked(body, name.unwrap_or_default(), &model.manners)?,
    };
    locked(&model.asked).push(asked.clone());
    let say = locked(&model.script)(&asked);
    Ok((asked, say))
}

fn failure(shape: Shape, wrong: &Wrong) -> Value {
    match shape {
        Shape::Anthropic => anthropic::failure(wrong),
        Shape::OpenAi => openai::failure(wrong),
        Shape::Gemini => gemini::failure(wrong),
    }
}

/// A count of tokens that is the same each time: four characters each.
fn tokens(value: &Value) -> u64 {
    (value.to_string().chars().count() / 4 + 1) as u64
}
