//! Clients of the server, and requests.

use std::{collections::HashMap, sync::LazyLock, time::Duration};

use mayfly_agent::model::{Environment, Message, Place, ProviderClient, ProviderConfig, Request, ToolSpec};
use mayfly_testkit::model::{Manners, ModelServer, Shape};
use serde_json::json;

/// A key that must turn up nowhere.
pub(crate) const KEY: &str = "sk-canary-4f1d0b7a92";

/// A model of each shape.
pub(crate) const SHAPES: [(Shape, &str); 3] = [
    (Shape::Anthropic, "claude-sonnet-5-5"),
    (Shape::OpenAi, "openai/gpt-x"),
    (Shape::Gemini, "gemini/gemini-3-flash"),
];

/// Takes everything, from anybody.
pub(crate) const NO_MANNERS: Manners = Manners {
    key: None,
    refuses_temperature: false,
    wants_max_completion_tokens: false,
    refuses_to_reason_with_tools: false,
};

/// Takes everything from who has the key.
pub(crate) fn strict() -> Manners {
    Manners {
        key: Some(KEY.to_owned()),
        ..NO_MANNERS
    }
}

/// The environment by which a client finds the server.
pub(crate) fn environment(server: &ModelServer, shape: Shape, key: &str) -> Environment {
    let provider = match shape {
        Shape::Anthropic => "ANTHROPIC",
        Shape::OpenAi => "OPENAI",
        Shape::Gemini => "GEMINI",
    };
    Environment {
        process: HashMap::from([
            (format!("{provider}_BASE_URL"), server.base(shape)),
            (format!("{provider}_API_KEY"), key.to_owned()),
        ]),
        file: None,
    }
}

pub(crate) fn client(server: &ModelServer, shape: Shape, name: &str) -> ProviderClient {
    client_with(server, shape, name, KEY, Duration::from_secs(20))
}

pub(crate) fn client_with(
    server: &ModelServer,
    shape: Shape,
    name: &str,
    key: &str,
    timeout: Duration,
) -> ProviderClient {
    let model: mayfly_agent::model::ModelName = name.parse().expect("a name that is known");
    let place = Place::of(model.provider(), &environment(server, shape, key)).expect("a place");
    ProviderClient::new(ProviderConfig {
        model,
        place,
        timeout,
        patience: Duration::from_secs(5),
    })
    .expect("a client")
}

static TOOLS: LazyLock<Vec<ToolSpec>> = LazyLock::new(|| {
    vec![ToolSpec {
        name: "run_python".to_owned(),
        description: "runs".to_owned(),
        parameters: json!({"type": "object", "properties": {"source": {"type": "string"}}, "required": ["source"]}),
    }]
});

pub(crate) fn request(messages: &[Message]) -> Request<'_> {
    Request {
        system: "be brief",
        messages,
        tools: &TOOLS,
        max_tokens: 1000,
    }
}
