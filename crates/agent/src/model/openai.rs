//! The Chat Completions API of OpenAI, and of the many servers that speak it.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{
    Arguments, Cost, Message, Reply, Request, Stop, ToolCall, Turn, Usage, name::Provider, provider::Manners,
};

/// What of a message goes back beside its words and calls: thoughts, which some models want to see again.
const THOUGHTS: [&str; 2] = ["reasoning_details", "reasoning_content"];

pub(crate) fn body(request: &Request<'_>, model: &str, manners: Manners, provider: Provider) -> Value {
    let mut messages = vec![json!({"role": "system", "content": request.system})];
    for message in request.messages {
        match message {
            Message::User(text) => messages.push(json!({"role": "user", "content": text})),
            Message::Model(turn) => messages.push(turn.raw.clone()),
            Message::Results(results) => messages.extend(
                results
                    .iter()
                    .map(|result| json!({"role": "tool", "tool_call_id": result.id, "content": result.text})),
            ),
        }
    }
    let mut body = json!({"model": model, "messages": messages});
    let bound = if manners.max_completion_tokens {
        "max_completion_tokens"
    } else {
        "max_tokens"
    };
    body[bound] = request.max_tokens.into();
    if !request.tools.is_empty() {
        body["tools"] = request
            .tools
            .iter()
            .map(|tool| {
                json!({"type": "function", "function": {
                    "name": tool.name, "description": tool.description, "parameters": tool.parameters,
                }})
            })
            .collect();
    }
    if manners.takes_temperature {
        body["temperature"] = 0.into();
    }
    if manners.must_not_reason {
        body["reasoning_effort"] = "none".into();
    }
    if provider == Provider::OpenRouter {
        body["usage"] = json!({"include": true});
    }
    body
}

pub(crate) fn reply(answer: Value) -> Result<Reply, String> {
    let choice = answer["choices"].get(0).ok_or("it has no `choices`")?;
    let message = choice
        .get("message")
        .filter(|message| message.is_object())
        .ok_or("its choice has no `message`")?;
    let (text, refused_in_blocks) = words(&message["content"]);
    let refusal = message["refusal"]
        .as_str()
        .map(ToOwned::to_owned)
        .or(refused_in_blocks)
        .filter(|text| !text.is_empty());
    let mut taken = HashSet::new();
    let calls: Vec<ToolCall> = message["tool_calls"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
        .map(|(index, call)| {
            let id = call["id"].as_str().unwrap_or_default().to_owned();
            // Some servers give none, or all the same.
            let id = if !id.is_empty() && taken.insert(id.clone()) {
                id
            } else {
                format!("call_{index}")
            };
            let arguments = match &call["function"]["arguments"] {
                Value::String(text) => Arguments::parse(text),
                other => Arguments::of(other.clone()),
            };
            ToolCall {
                id,
                name: call["function"]["name"].as_str().unwrap_or_default().to_owned(),
                arguments,
            }
        })
        .collect();
    let raw = for_the_way_back(message, &text, &calls);
    let stop = match choice["finish_reason"].as_str() {
        _ if refusal.is_some() => Stop::Declined(refusal),
        Some("stop" | "tool_calls" | "function_call") | None => Stop::Done,
        Some("length") => Stop::Length,
        Some("content_filter") => Stop::Declined(None),
        Some(other) => Stop::Other(other.to_owned()),
    };
    let tokens = |name: &str| answer["usage"][name].as_u64().unwrap_or(0);
    let usage = Usage {
        input_tokens: tokens("prompt_tokens"),
        output_tokens: tokens("completion_tokens"),
        // OpenRouter's own.
        cost: answer["usage"]["cost"].as_f64().and_then(Cost::dollars),
    };
    Ok(Reply {
        turn: Turn { text, calls, raw },
        stop,
        usage,
    })
}

/// The words of a message, and its refusal where that is a block: content is text, or a list of blocks.
fn words(content: &Value) -> (String, Option<String>) {
    let Value::Array(blocks) = content else {
        return (content.as_str().unwrap_or_default().to_owned(), None);
    };
    let text = blocks
        .iter()
        .filter(|block| matches!(block["type"].as_str(), Some("text" | "output_text") | None))
        .filter_map(|block| block["text"].as_str().or_else(|| block.as_str()))
        .collect();
    let refusal = blocks.iter().find_map(|block| block["refusal"].as_str());
    (text, refusal.map(ToOwned::to_owned))
}

/// The message as a request has it: with each call's own id, and arguments that can be read.
fn for_the_way_back(message: &Value, text: &str, calls: &[ToolCall]) -> Value {
    let content = if text.is_empty() && !calls.is_empty() {
        Value::Null
    } else {
        text.into()
    };
    let mut raw = json!({"role": "assistant", "content": content});
    for name in THOUGHTS {
        if let Some(thoughts) = message.get(name).filter(|value| !value.is_null()) {
            raw[name] = thoughts.clone();
        }
    }
    if !calls.is_empty() {
        raw["tool_calls"] = calls
            .iter()
            .map(|call| {
                json!({"id": call.id, "type": "function", "function": {
                    "name": call.name, "arguments": call.arguments.object().to_string(),
                }})
            })
            .collect();
    }
    raw
}
