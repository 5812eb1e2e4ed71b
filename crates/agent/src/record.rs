//! What came of a run: its transcript.

use std::{fmt, time::Duration};

use mayfly_core::id::JobId;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::{
    model::{Cost, Usage},
    tool::Verdict,
};

/// One run of an agent, from its task to its end. It holds no key, and nothing that a provider wants unread.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// The model's name, as it was given.
    pub model: String,
    /// What was asked.
    pub task: String,
    /// The system prompt.
    pub system: String,
    /// What was done, first to last.
    pub steps: Vec<Step>,
    /// How it ended.
    pub end: End,
    /// The answer, or what there is of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// What all steps took. Where a provider counts nothing, it is an estimate.
    pub usage: Usage,
    /// From the task to the end.
    #[serde(rename = "elapsed_ms", serialize_with = "millis")]
    pub elapsed: Duration,
}

/// An answer of the model, and what came of its calls.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// Counted from 1.
    pub number: u32,
    /// The model's words.
    pub text: String,
    /// Its calls, in its order.
    pub calls: Vec<Call>,
    /// What the answer took.
    pub usage: Usage,
    /// How long the model took.
    #[serde(rename = "elapsed_ms", serialize_with = "millis")]
    pub elapsed: Duration,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Call {
    /// Which one.
    pub tool: String,
    /// With what; a string where it was no JSON.
    pub arguments: Value,
    /// What was said to it, where somebody was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The job that did it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Whether the call was wrong, or what it did has failed.
    pub is_error: bool,
    /// What the model was told.
    pub result: String,
    /// How long it took.
    #[serde(rename = "elapsed_ms", serialize_with = "millis")]
    pub elapsed: Duration,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum End {
    /// With an answer.
    Answered,
    /// The model declined.
    Declined {
        /// In its words, or its provider's.
        #[serde(skip_serializing_if = "Option::is_none")]
        words: Option<String>,
    },
    /// The model said nothing, and nothing again when it was asked to.
    Empty {
        /// The provider's word for why, where it has one.
        #[serde(skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// The answer reached the most tokens that one may have.
    CutOff {
        /// The bound.
        limit: u32,
    },
    /// The conversation is as long as the model can take.
    ContextFull,
    /// The steps are used up.
    OutOfSteps {
        /// The bound.
        limit: u32,
    },
    /// The tokens are used up.
    OutOfTokens {
        /// The bound.
        limit: u64,
    },
    /// The time is over.
    OutOfTime {
        /// The bound, in milliseconds.
        limit_ms: u64,
    },
    /// The money is spent.
    OutOfMoney {
        /// The bound.
        limit: Cost,
    },
    /// There is a bound for money, and neither a price nor a word of the provider's on what it costs.
    CostUnknown,
    /// The model could not be asked.
    ModelFailed {
        /// What happened, and what to do about it.
        error: String,
    },
    /// Somebody asked for the end.
    Stopped,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered => f.write_str("answered"),
            Self::Declined { words: Some(words) } => write!(f, "the model declined: {words}"),
            Self::Declined { words: None } => f.write_str("the model declined, and gave no reason: put the task in other words, or ask another model"),
            Self::Empty { why } => {
                f.write_str("the model's answer is empty, also when it was asked again")?;
                if let Some(why) = why {
                    write!(f, " (its provider's word for it is {why})")?;
                }
                f.write_str(": put the task in other words, or ask another model")
            }
            Self::CutOff { limit } => write!(f, "the answer is not whole: it reached the {limit} tokens that one answer may have"),
            Self::ContextFull => f.write_str("the conversation is as long as the model can take: give it a smaller task, or ask another model"),
            Self::OutOfSteps { limit } => write!(f, "no answer within {limit} steps: allow more, or give the model a smaller task"),
            Self::OutOfTokens { limit } => write!(f, "no answer within {limit} tokens: allow more, or give the model a smaller task"),
            Self::OutOfTime { limit_ms } => write!(f, "no answer within {} s: allow more, or give the model a smaller task", limit_ms / 1000),
            Self::OutOfMoney { limit } => write!(f, "no answer for {limit}: allow more, or give the model a smaller task"),
            Self::CostUnknown => f.write_str("the provider does not say what an answer costs, so that the bound can't be kept: say what the model costs"),
            Self::ModelFailed { error } => f.write_str(error),
            Self::Stopped => f.write_str("stopped before the end"),
        }
    }
}

impl Run {
    /// The jobs of this run, first to last.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> {
        let calls = self.steps.iter().flat_map(|step| &step.calls);
        calls.filter_map(|call| call.job)
    }
}

fn millis<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}
