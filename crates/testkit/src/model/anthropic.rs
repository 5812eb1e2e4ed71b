//! Anthropic Messages, by its reference of version 2023-06-01.

use serde_json::{Value, json};

use super::{Asked, Manners, Outcome, Say, Shape, Wrong, tokens};

/// The signature of the thoughts before a call; the API wants them back unchanged.
const SIGNATURE: &str = "sig-of-thoughts";

pub(super) fn asked(body: Value, manners: &Manners) -> Result<Asked, Wrong> {
    let model = body["model"]
        .as_str()
        .ok_or_else(|| Wrong::request("model: Field required"))?
        .to_owned();
    if body["max_tokens"].as_u64().unwrap_or(0) == 0 {
        return Err(Wrong::request("max_tokens: Field required"));
    }
    if manners.refuses_temperature && body.get("temperature").is_some() {
        return Err(Wrong::request("`temperature` is deprecated for this model."));
    }
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    if messages.first().is_none_or(|first| first["role"] != "user") {
        return Err(Wrong::request(
            "messages: first message must use the \"user\" role",
        ));
    }
    let (mut words, mut results, mut open, mut turns) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for (index, message) in messages.iter().enumerate() {
        let blocks = match &message["content"] {
            Value::String(text) => vec![json!({"type": "text", "text": text})],
            Value::Array(blocks) if !blocks.is_empty() => blocks.clone(),
            _ => {
                return Err(Wrong::request(format!(
                    "messages.{index}: all messages must have non-empty content"
                )));
            }
        };
        if blocks
            .iter()
            .any(|block| block["type"] == "text" && block["text"] == "")
        {
            return Err(Wrong::request("text content blocks must be non-empty"));
        }
        results = results_of(&blocks);
        let answered: Vec<Value> = blocks
            .iter()
            .filter(|block| block["type"] == "tool_result")
            .map(|block| block["tool_use_id"].clone())
            .collect();
        if answered != open {
            return Err(Wrong::request(format!(
                "messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: {open:?}"
            )));
        }
        open.clear();
        if message["role"] == "user" {
            words.extend(text_of(&blocks));
            continue;
        }
        turns += 1;
        open = blocks
            .iter()
            .filter(|block| block["type"] == "tool_use")
            .map(|block| block["id"].clone())
            .collect();
        let thoughts = blocks.first().filter(|block| block["type"] == "thinking");
        if !open.is_empty() && thoughts.is_none_or(|block| block["signature"] != SIGNATURE) {
            return Err(Wrong::request("`thinking` blocks cannot be modified or left out"));
        }
    }
    Ok(Asked {
        shape: Shape::Anthropic,
        model,
        turns,
        system: body["system"].as_str().unwrap_or_default().to_owned(),
        tools: names(&body["tools"]),
        words,
        results,
        body,
    })
}

fn names(tools: &Value) -> Vec<String> {
    let tools = tools.as_array().into_iter().flatten();
    tools
        .filter(|tool| tool["input_schema"]["type"] == "object")
        .filter_map(|tool| Some(tool["name"].as_str()?.to_owned()))
        .collect()
}

fn text_of(blocks: &[Value]) -> Vec<String> {
    let texts = blocks.iter().filter(|block| block["type"] == "text");
    texts
        .filter_map(|block| Some(block["text"].as_str()?.to_owned()))
        .collect()
}

fn results_of(blocks: &[Value]) -> Vec<Outcome> {
    let results = blocks.iter().filter(|block| block["type"] == "tool_result");
    results
        .map(|block| Outcome {
            text: block["content"].as_str().unwrap_or_default().to_owned(),
            is_error: block["is_error"] == true,
        })
        .collect()
}

pub(super) fn answer(asked: &Asked, say: Say) -> Value {
    let text = |text: &str| json!({"type": "text", "text": text});
    let thoughts = || json!({"type": "thinking", "thinking": "", "signature": SIGNATURE});
    let call = |(index, (id, name, input)): (usize, (Option<&str>, &str, Value))| {
        let id = id.map_or_else(|| format!("toolu_{}_{index}", asked.turns), ToOwned::to_owned);
        json!({"type": "tool_use", "id": id, "name": name, "input": input})
    };
    let calls = |calls: Vec<(Option<&'static str>, &'static str, Value)>| {
        let calls = calls.into_iter().enumerate().map(call);
        [thoughts()].into_iter().chain(calls).collect::<Vec<_>>()
    };
    let (content, stop) = match say {
        Say::Text(words) => (vec![text(&words)], "end_turn"),
        Say::Blocks(words) => (words.iter().map(|words| text(words)).collect(), "end_turn"),
        Say::Calls(list) => (
            calls(
                list.into_iter()
                    .map(|(name, input)| (None, name, input))
                    .collect(),
            ),
            "tool_use",
        ),
        Say::CallsById(list) => (
            calls(
                list.into_iter()
                    .map(|(id, name, input)| (Some(id), name, input))
                    .collect(),
            ),
            "tool_use",
        ),
        // Its arguments are JSON by the shape; what they can be wrong in is the kind.
        Say::Malformed(name, input) => (calls(vec![(None, name, Value::String(input))]), "tool_use"),
        Say::Refusal(words) => (vec![text(&words)], "refusal"),
        Say::Nothing => (Vec::new(), "end_turn"),
        Say::CutOff(words) => (vec![text(&words)], "max_tokens"),
        Say::Fail(..) | Say::Raw(..) | Say::Stall => unreachable!("it is no answer"),
    };
    let content = Value::Array(content);
    json!({
        "id": format!("msg_{}", asked.turns), "type": "message", "role": "assistant", "model": asked.model,
        "stop_reason": stop, "stop_sequence": null,
        "usage": {"input_tokens": tokens(&asked.body), "output_tokens": tokens(&content)},
        "content": content,
    })
}

pub(super) fn failure(wrong: &Wrong) -> Value {
    json!({"type": "error", "error": {"type": wrong.code, "message": wrong.words}, "request_id": "req_1"})
}
