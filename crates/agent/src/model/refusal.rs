//! What a provider says when it does not answer, and what whoever asks can do about it.

use std::{fmt, time::Duration};

use serde_json::Value;

use super::name::Provider;

/// Most characters of a provider's own words.
const LONGEST_WORDS: usize = 400;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// Nobody answers there.
    #[error("{provider} can't be reached at {host}{}", advice_unreachable(*provider))]
    Unreachable {
        /// Whose.
        provider: Provider,
        /// Where.
        host: String,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It took too long.
    #[error("{provider} has not answered in {} s", after.as_secs())]
    TimedOut {
        /// Whose.
        provider: Provider,
        /// The limit.
        after: Duration,
    },
    /// The connection ended before the answer did.
    #[error("the connection to {provider} was lost before its answer was whole")]
    Cut {
        /// Whose.
        provider: Provider,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It said no.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The answer is larger than any should be.
    #[error("{provider}'s answer is larger than {limit} bytes")]
    TooLarge {
        /// Whose.
        provider: Provider,
        /// The bound, in bytes.
        limit: usize,
    },
    /// The answer is none.
    #[error("{provider}'s answer can't be read: {why}{}", if *is_elsewhere { "; is its address that of such an API?" } else { "" })]
    Unreadable {
        /// Whose.
        provider: Provider,
        /// What is wrong with it.
        why: String,
        /// The address is not the provider's own.
        is_elsewhere: bool,
    },
    /// There is no way to ask.
    #[error("this host can't make a client for HTTPS")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
}

const fn advice_unreachable(provider: Provider) -> &'static str {
    match provider {
        Provider::Ollama => ": is it running (`ollama serve`)? OLLAMA_BASE_URL says where it is",
        Provider::Anthropic | Provider::OpenAi | Provider::Gemini | Provider::OpenRouter => "",
    }
}

/// A provider's no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Whose.
    pub provider: Provider,
    /// The model that was asked, as the provider knows it.
    pub model: String,
    /// The HTTP status; of an error in an answer of success, what it says itself.
    pub status: u16,
    /// Its words, cut where they are long.
    pub words: String,
    /// Its codes: `rate_limit_error`, `insufficient_quota`, `RESOURCE_EXHAUSTED`.
    pub codes: Vec<String>,
    /// The field of the request that it is about.
    pub field: Option<String>,
    /// When it wants to be asked again.
    pub retry_after: Option<Duration>,
    /// Whether it says itself that asking again helps.
    pub should_retry: Option<bool>,
    /// Where its key is looked for.
    pub key_variable: &'static str,
}

impl Refusal {
    /// Reads one from a body, which may be of any kind.
    pub(crate) fn read(provider: Provider, model: &str, status: u16, body: &str) -> Self {
        let value: Value = serde_json::from_str(body).unwrap_or(Value::Null);
        // Gemini's compatible servers put the object into a list; vLLM and others have no `error` around it.
        let value = value.get(0).cloned().unwrap_or(value);
        let error = value.get("error").unwrap_or(&value);
        let words = ["message", "detail", "error"]
            .iter()
            .find_map(|name| error.get(name)?.as_str())
            .or_else(|| error.as_str())
            .unwrap_or(if value.is_null() { body } else { "" });
        let text = |name: &str| {
            let value = error.get(name)?;
            value.as_str().map(ToOwned::to_owned)
        };
        let quotas = details(error).filter_map(|detail| detail.get("violations")?.as_array());
        let codes = ["type", "code", "status"]
            .into_iter()
            .filter_map(text)
            .chain(
                quotas
                    .flatten()
                    .filter_map(|violation| Some(violation.get("quotaId")?.as_str()?.to_owned())),
            )
            .collect();
        let retry_after = details(error)
            .find_map(|detail| detail.get("retryDelay")?.as_str())
            .and_then(|text| text.strip_suffix('s')?.parse::<f64>().ok())
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Self {
            provider,
            model: model.to_owned(),
            status,
            words: shortened(words),
            codes,
            field: text("param"),
            retry_after,
            should_retry: None,
            key_variable: provider.key_variable(),
        }
    }

    /// Whether the account is out of money or of a quota that no waiting of a minute brings back.
    pub(crate) fn is_used_up(&self) -> bool {
        let words = self.words.to_lowercase();
        self.status == 402
            || self.codes.iter().any(|code| {
                matches!(
                    code.as_str(),
                    "insufficient_quota"
                        | "credit_balance_exhausted"
                        | "billing_error"
                        | "billing_hard_limit_reached"
                        | "enforced_spend_limit_reached"
                ) || code.contains("PerDay")
            })
            || words.contains("credit balance is too low")
    }

    /// Whether the conversation is too long for the model.
    #[must_use]
    pub fn is_too_long(&self) -> bool {
        let words = self.words.to_lowercase();
        self.status == 413
            || self.codes.iter().any(|code| code == "context_length_exceeded")
            || (self.status == 400
                && (words.contains("prompt is too long")
                    || words.contains("maximum context length")
                    || words.contains("exceeds the maximum number of tokens")))
    }

    fn advice(&self) -> String {
        let Self { provider, model, .. } = self;
        if self.is_used_up() {
            return format!(
                "the account at {provider} is out of credit or quota: look at its billing, or name another model"
            );
        }
        if self.is_too_long() {
            return format!(
                "the conversation is longer than {model} can take: ask for less output, or name another model"
            );
        }
        match self.status {
            401 => format!("check {}", self.key_variable),
            403 => format!("the key in {} may not use {model}", self.key_variable),
            404 if *provider == Provider::Ollama => {
                format!("`ollama pull {model}` gets a model that is not there")
            }
            404 => format!("is there a model {model} for this key?"),
            429 => "later it may work; a limit of the account says how often it may ask".to_owned(),
            500.. => {
                format!("it has trouble of its own: later it may work, or with another model than {model}")
            }
            _ => "the request did not suit it".to_owned(),
        }
    }
}

fn details(error: &Value) -> impl Iterator<Item = &Value> {
    error
        .get("details")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn shortened(words: &str) -> String {
    let words = words.trim();
    match words.char_indices().nth(LONGEST_WORDS) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words.to_owned(),
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has refused ({})", self.provider, self.status)?;
        if !self.words.is_empty() {
            write!(f, ", in its words {:?}", self.words)?;
        }
        write!(f, ": {}", self.advice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(provider: Provider, status: u16, body: &str) -> Refusal {
        Refusal::read(provider, "model-1", status, body)
    }

    #[test]
    fn each_providers_words_are_found_and_say_what_to_do() {
        for (provider, status, body, said) in [
            (
                Provider::Anthropic,
                401,
                r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
                &["invalid x-api-key", "check ANTHROPIC_API_KEY"][..],
            ),
            (
                Provider::Anthropic,
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}"#,
                &["out of credit"],
            ),
            (
                Provider::OpenAi,
                404,
                r#"{"error":{"message":"The model `model-1` does not exist","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#,
                &["does not exist", "is there a model model-1"],
            ),
            (
                Provider::OpenAi,
                429,
                r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#,
                &["out of credit"],
            ),
            (
                Provider::OpenAi,
                400,
                r#"{"error":{"message":"This model's maximum context length is 8192 tokens","code":"context_length_exceeded"}}"#,
                &["longer than model-1 can take"],
            ),
            (
                Provider::Gemini,
                400,
                r#"[{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}]"#,
                &["API key not valid"],
            ),
            (
                Provider::Ollama,
                404,
                r#"{"error":{"message":"model \"model-1\" not found, try pulling it first"}}"#,
                &["ollama pull model-1"],
            ),
            (
                Provider::Ollama,
                400,
                r#"{"error":"does not support tools"}"#,
                &["does not support tools"],
            ),
            (
                Provider::OpenAi,
                400,
                r#"{"object":"error","message":"no tools here"}"#,
                &["no tools here"],
            ),
            (
                Provider::OpenAi,
                502,
                "<html>Bad Gateway</html>",
                &["Bad Gateway", "trouble of its own"],
            ),
            (
                Provider::OpenRouter,
                402,
                r#"{"error":{"code":402,"message":"no credits"}}"#,
                &["out of credit"],
            ),
        ] {
            let text = read(provider, status, body).to_string();
            for part in said {
                assert!(text.contains(part), "{body}: {text}");
            }
        }
        let long = read(Provider::OpenAi, 500, &"x".repeat(10_000)).to_string();
        assert!(long.len() < 700, "{long}");
    }

    #[test]
    fn geminis_details_say_when_to_come_back_and_which_quota_it_was() {
        let body = |quota: &str| {
            format!(
                r#"{{"error":{{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":[
                {{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{{"quotaId":"{quota}"}}]}},
                {{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"22.5s"}}]}}}}"#
            )
        };
        let minute = read(
            Provider::Gemini,
            429,
            &body("GenerateRequestsPerMinutePerProject"),
        );
        assert_eq!(minute.retry_after, Some(Duration::from_millis(22_500)));
        assert!(!minute.is_used_up());
        assert!(read(Provider::Gemini, 429, &body("GenerateRequestsPerDayPerProject")).is_used_up());
    }
}
