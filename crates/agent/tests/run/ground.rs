//! An agent at a scripted model, with tools that need no sandbox.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use mayfly_agent::{
    bounds::{Bounds, Price},
    model::{Environment, ModelName, Place, ProviderClient, ProviderConfig, ToolSpec},
    record::Run,
    run::{Agent, Event},
    tool::{Approval, Tool, ToolOutcome},
};
use mayfly_core::id::JobId;
use mayfly_testkit::model::{Asked, ModelServer, Say, Shape};
use serde_json::{Map, Value, json};
use tokio::sync::Barrier;
use tokio_util::sync::CancellationToken;

pub(crate) struct Ground {
    pub(crate) server: ModelServer,
    pub(crate) stop: CancellationToken,
    pub(crate) price: Option<Price>,
    pub(crate) approval: Option<Arc<dyn Approval>>,
    heard: Mutex<Vec<String>>,
}

/// Bounds that no test reaches by accident.
pub(crate) const fn bounds() -> Bounds {
    Bounds {
        steps: 10,
        tokens: 10_000_000,
        wall: Duration::from_secs(60),
        cost: None,
        answer_tokens: 4096,
        parallel_calls: 4,
    }
}

impl Ground {
    pub(crate) async fn new(script: impl FnMut(&Asked) -> Say + Send + 'static) -> Self {
        Self {
            server: ModelServer::start(script).await,
            stop: CancellationToken::new(),
            price: None,
            approval: None,
            heard: Mutex::default(),
        }
    }

    pub(crate) fn heard(&self) -> Vec<String> {
        self.heard.lock().expect("no listener panics").clone()
    }

    pub(crate) async fn run(&self, bounds: Bounds) -> Run {
        let model: ModelName = "claude-sonnet-5-5".parse().expect("a name that is known");
        let environment = Environment {
            process: HashMap::from([(
                "ANTHROPIC_BASE_URL".to_owned(),
                self.server.base(Shape::Anthropic),
            )]),
            file: None,
        };
        let client = ProviderClient::new(ProviderConfig {
            place: Place::of(model.provider(), &environment).expect("it needs no key"),
            model,
            timeout: Duration::from_secs(30),
            patience: Duration::from_secs(1),
        })
        .expect("a client");
        let agent = Agent {
            model: Arc::new(client),
            tools: vec![
                Arc::new(Echo::new()),
                Arc::new(Meet::new()),
                Arc::new(Hang::new()),
            ],
            bounds,
            price: self.price,
            approval: self.approval.clone(),
        };
        let listener = |event: Event<'_>| {
            self.heard.lock().expect("no listener panics").push(match event {
                Event::Asking { step } => format!("asking {step}"),
                Event::Said { text, calls } => format!("said {text} with {} calls", calls.len()),
                Event::Called(call) => format!("called {}", call.tool),
            });
        };
        agent.run("the task", &self.stop, &listener).await
    }
}

fn spec(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: String::new(),
        parameters: json!({"type": "object", "properties": {}}),
    }
}

/// Stands for what runs a job.
struct Echo(ToolSpec);

impl Echo {
    fn new() -> Self {
        Self(spec("run_python"))
    }
}

#[async_trait]
impl Tool for Echo {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn is_held(&self) -> bool {
        true
    }

    async fn call(&self, arguments: Map<String, Value>, _: &CancellationToken) -> ToolOutcome {
        ToolOutcome {
            text: format!("ran: {}", arguments["source"].as_str().expect("a text")),
            is_error: false,
            job: Some(JobId::new()),
        }
    }
}

/// Ends when three are there.
struct Meet(ToolSpec, Barrier);

impl Meet {
    fn new() -> Self {
        Self(spec("meet"), Barrier::new(3))
    }
}

#[async_trait]
impl Tool for Meet {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn is_held(&self) -> bool {
        false
    }

    async fn call(&self, arguments: Map<String, Value>, _: &CancellationToken) -> ToolOutcome {
        self.1.wait().await;
        ToolOutcome {
            text: arguments["name"].as_str().expect("a text").to_owned(),
            is_error: false,
            job: None,
        }
    }
}

/// Ends when it is asked to.
struct Hang(ToolSpec);

impl Hang {
    fn new() -> Self {
        Self(spec("hang"))
    }
}

#[async_trait]
impl Tool for Hang {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn is_held(&self) -> bool {
        false
    }

    async fn call(&self, _: Map<String, Value>, stop: &CancellationToken) -> ToolOutcome {
        stop.cancelled().await;
        ToolOutcome {
            text: "was stopped".to_owned(),
            is_error: true,
            job: Some(JobId::new()),
        }
    }
}
