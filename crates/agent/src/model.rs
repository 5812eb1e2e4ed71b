//! The seam to language models: one call, in types of ours. Providers' shapes stop in the modules below.
//!
//! ```text
//! name       which provider a model's name means, and nothing by accident
//! place      where that provider is, and the key for it: from the environment, a file, or a .env file
//! provider   the client: one request, its bounds, when it is sent again
//! ├── anthropic, openai, gemini   what a request looks like, and what an answer means; no I/O
//! ├── refusal                     what a provider says when it does not answer, and what to do about it
//! └── patience                    when and how long to wait before the next try
//! ```
//!
//! Decided: clients of our own on reqwest, and not the crate genai (0.7.2), which was tried. It makes an error of a whole
//! answer when one tool call's arguments are no JSON, where the model could be told and mend it; it drops OpenAI's
//! refusals; it reads answers without a bound; and through Cargo's unified features it would turn on
//! `serde_json/preserve_order` and `tokio/test-util` in every crate of ours. Three shapes are small; what a model said is
//! kept as it came, so that signatures and thoughts in it go back untouched.

mod anthropic;
mod gemini;
mod key;
mod name;
mod openai;
mod patience;
mod place;
mod provider;
mod refusal;

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::{
    key::{KeyError, ModelKey},
    name::{ModelName, NameError, Provider},
    place::{DotEnv, DotEnvError, Environment, Place, PlaceError},
    provider::{ProviderClient, ProviderConfig},
    refusal::{ModelError, Refusal},
};

/// The model that is asked where nobody has named one.
pub const DEFAULT_MODEL: &str = "claude-sonnet-5-5";

/// A language model.
#[async_trait]
pub trait ModelClient: Send + Sync {
    /// Its name, as it was given.
    fn name(&self) -> &str;

    /// What it says next.
    ///
    /// # Errors
    /// It can't be reached, does not answer in time, or refuses; what helps by waiting has been waited for.
    ///
    /// # Cancel safety
    /// The request is given up; the provider may count its tokens all the same.
    async fn next(&self, request: &Request<'_>) -> Result<Reply, ModelError>;
}

/// A request: all of the conversation, since models remember nothing.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// What the model is and how it has to work.
    pub system: &'a str,
    /// What was said, oldest first.
    pub messages: &'a [Message],
    /// What it may call.
    pub tools: &'a [ToolSpec],
    /// Most tokens of the answer, thoughts included.
    pub max_tokens: u32,
}

/// What was said.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// By the person who asks.
    User(String),
    /// By the model.
    Model(Turn),
    /// What came of the calls of the model's turn before it: all of them, in their order.
    Results(Vec<ToolResult>),
}

/// What a model said.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Turn {
    /// Its words, thoughts aside.
    pub text: String,
    /// The tools that it calls.
    pub calls: Vec<ToolCall>,
    /// The same as it came, in the provider's shape. It goes back as it is: there are signatures in it.
    pub(crate) raw: Value,
}

/// A tool, as a model is told of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolSpec {
    /// Lower case letters, digits and `_`; at most 64.
    pub name: String,
    /// What it does and when to use it, for the model.
    pub description: String,
    /// JSON schema of its arguments, an object; flat, without `$ref`.
    pub parameters: Value,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// By which its result names it; no other call of the turn has it.
    pub id: String,
    /// Which tool.
    pub name: String,
    /// With what.
    pub arguments: Arguments,
}

/// Arguments as a model wrote them.
#[derive(Debug, Clone, PartialEq)]
pub enum Arguments {
    /// An object.
    Object(serde_json::Map<String, Value>),
    /// What is none.
    Malformed {
        /// The text.
        text: String,
        /// What is wrong with it, for the model to mend.
        why: String,
    },
}

impl Arguments {
    /// Reads arguments that come as text. No text at all is how some models call a tool without arguments.
    pub(crate) fn parse(text: &str) -> Self {
        if text.trim().is_empty() {
            return Self::Object(serde_json::Map::new());
        }
        match serde_json::from_str(text) {
            Ok(value) => Self::of(value),
            Err(error) => Self::Malformed {
                text: text.to_owned(),
                why: format!("they are not valid JSON: {error}"),
            },
        }
    }

    /// Arguments that come as JSON; some servers put the object into a string once more.
    pub(crate) fn of(value: Value) -> Self {
        match value {
            Value::Object(object) => Self::Object(object),
            Value::Null => Self::Object(serde_json::Map::new()),
            Value::String(text) if text.trim_start().starts_with('{') => Self::parse(&text),
            other => Self::Malformed {
                text: other.to_string(),
                why: "they are not a JSON object".to_owned(),
            },
        }
    }

    /// The object, for the way back: servers that read the conversation choke on what is none.
    pub(crate) fn object(&self) -> Value {
        match self {
            Self::Object(object) => Value::Object(object.clone()),
            Self::Malformed { .. } => Value::Object(serde_json::Map::new()),
        }
    }
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    /// The call's id.
    pub id: String,
    /// The call's tool.
    pub name: String,
    /// For the model.
    pub text: String,
    /// Whether the call itself has failed.
    pub is_error: bool,
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// What was said.
    pub turn: Turn,
    /// Why it ended there.
    pub stop: Stop,
    /// What it took.
    pub usage: Usage,
}

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// All was said, or tools are called.
    Done,
    /// It reached the most tokens that it may have.
    Length,
    /// The conversation is as long as the model can take.
    ContextFull,
    /// The model, or a filter of the provider's, declined; in its words, where it gave any.
    Declined(Option<String>),
    /// The provider wants to be asked once more to go on.
    Paused,
    /// Something else, in the provider's word.
    Other(String),
}

/// What an answer, or many, took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens that were read.
    pub input_tokens: u64,
    /// Tokens that were written, thoughts included.
    pub output_tokens: u64,
    /// What the provider says it cost, where it says that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

impl Usage {
    /// Both kinds of tokens.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Both of them. A cost is known only where all its parts are.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cost: self.cost.zip(other.cost).map(|(one, two)| one.and(two)),
        }
    }
}

/// Money, in billionths of a US dollar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cost(pub u64);

impl Cost {
    /// Both of them.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// From dollars; nothing that is below zero or no number.
    #[must_use]
    pub fn dollars(dollars: f64) -> Option<Self> {
        let nano = dollars * 1e9;
        // The cast saturates, and the sign has been looked at.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is finite and not negative; fractions of a billionth are none of ours"
        )]
        (nano.is_finite() && nano >= 0.0).then(|| Self(nano.ceil() as u64))
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Four decimals, rounded up: what costs is not shown as nothing.
        let tenths_of_mills = self.0.div_ceil(100_000);
        write!(f, "${}.{:04}", tenths_of_mills / 10_000, tenths_of_mills % 10_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_an_object_however_they_come_or_it_is_said_why_not() {
        let one = Arguments::parse(r#"{"source": "print(1)"}"#);
        assert!(matches!(&one, Arguments::Object(object) if object["source"] == "print(1)"));
        assert_eq!(
            Arguments::of(Value::String(r#"{"source": "print(1)"}"#.into())),
            one
        );
        for nothing in [Arguments::parse(" "), Arguments::of(Value::Null)] {
            assert_eq!(nothing, Arguments::Object(serde_json::Map::new()));
        }
        for (text, said) in [
            ("{\"source\": \"prin", "not valid JSON"),
            ("[1]", "not a JSON object"),
            ("\"print(1)\"", "not a JSON object"),
            ("{'source': 1}", "not valid JSON"),
        ] {
            let Arguments::Malformed { why, .. } = Arguments::parse(text) else {
                panic!("{text}");
            };
            assert!(why.contains(said), "{text}: {why}");
        }
    }

    #[test]
    fn money_is_shown_in_dollars_and_what_costs_is_not_nothing() {
        assert_eq!(Cost::dollars(1.5).unwrap().to_string(), "$1.5000");
        assert_eq!(Cost(1).to_string(), "$0.0001");
        assert_eq!(Cost(0).to_string(), "$0.0000");
        assert_eq!(Cost::dollars(-1.0), None);
        assert_eq!(Cost::dollars(f64::NAN), None);
    }
}
