//! OpenAI Chat Completions.

use serde_json::{Value, json};

use super::{Asked, Manners, Outcome, Say, Shape, Wrong, tokens};

pub(super) fn asked(body: Value, manners: &Manners) -> Result<Asked, Wrong> {
    let model = body["model"]
        .as_str()
        .ok_or_else(|| Wrong::field("model", "you must provide a model parameter"))?
        .to_owned();
    refused_fields(&body, manners)?;
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    let (mut words, mut system, mut results, mut turns) = (Vec::new(), String::new(), Vec::new(), 0);
    let mut open: Vec<Value> = Vec::new();
    for message in &messages {
        let text = content(&message["content"]);
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            let place = open.iter().position(|id| *id == message["tool_call_id"]);
            let place = place.ok_or_else(|| {
                Wrong::request(
                    "messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
                )
            })?;
            open.remove(place);
            results.push(Outcome {
                text,
                is_error: false,
            });
            continue;
        }
        if !open.is_empty() {
            return Err(Wrong::request(format!(
                "an assistant message with 'tool_calls' must be followed by tool messages responding to each: {open:?}"
            )));
        }
        results.clear();
        match role {
            "system" => system = text,
            "user" => words.push(text),
            "assistant" => {
                turns += 1;
                let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
                for call in calls {
                    let arguments = call["function"]["arguments"].as_str();
                    // Templates of servers that speak this shape read them.
                    if arguments.is_none_or(|text| serde_json::from_str::<Value>(text).is_err()) {
                        return Err(Wrong::request("tool_calls: arguments must be JSON in a string"));
                    }
                    if open.contains(&call["id"]) {
                        return Err(Wrong::request("tool_calls: duplicate id"));
                    }
                    open.push(call["id"].clone());
                }
            }
            other => return Err(Wrong::request(format!("messages: unknown role {other:?}"))),
        }
    }
    if !open.is_empty() {
        return Err(Wrong::request("tool_calls without tool messages at the end"));
    }
    let tools = body["tools"].as_array().into_iter().flatten();
    Ok(Asked {
        shape: Shape::OpenAi,
        model,
        turns,
        system,
        tools: tools
            .filter(|tool| tool["type"] == "function" && tool["function"]["parameters"]["type"] == "object")
            .filter_map(|tool| Some(tool["function"]["name"].as_str()?.to_owned()))
            .collect(),
        words,
        results,
        body,
    })
}

fn refused_fields(body: &Value, manners: &Manners) -> Result<(), Wrong> {
    if manners.refuses_temperature && body.get("temperature").is_some() {
        return Err(Wrong::field(
            "temperature",
            "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported.",
        ));
    }
    if manners.wants_max_completion_tokens && body.get("max_tokens").is_some() {
        return Err(Wrong::field(
            "max_tokens",
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        ));
    }
    if manners.refuses_to_reason_with_tools
        && body.get("tools").is_some()
        && body["reasoning_effort"] != "none"
    {
        return Err(Wrong::field(
            "reasoning_effort",
            "Function tools with reasoning_effort are not supported for this model in /v1/chat/completions. To use function \
             tools, use /v1/responses or set reasoning_effort to 'none'.",
        ));
    }
    Ok(())
}

fn content(content: &Value) -> String {
    match content {
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
        other => other.as_str().unwrap_or_default().to_owned(),
    }
}

pub(super) fn answer(asked: &Asked, say: Say) -> Value {
    let words =
        |words: Value| json!({"role": "assistant", "content": words, "refusal": null, "annotations": []});
    let called = |calls: Vec<(String, &str, String)>| {
        let calls: Vec<Value> = calls
            .into_iter()
            .map(|(id, name, arguments)| {
                json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
            })
            .collect();
        json!({"role": "assistant", "content": null, "refusal": null, "tool_calls": calls})
    };
    let id = |index: usize| format!("call_{}_{index}", asked.turns);
    let (message, stop) = match say {
        Say::Text(text) => (words(text.into()), "stop"),
        Say::Blocks(texts) => {
            let blocks = texts.iter().map(|text| json!({"type": "text", "text": text}));
            (words(blocks.collect()), "stop")
        }
        Say::Calls(calls) => {
            let calls = calls.into_iter().enumerate();
            let calls = calls.map(|(index, (name, arguments))| (id(index), name, arguments.to_string()));
            (called(calls.collect()), "tool_calls")
        }
        Say::CallsById(calls) => {
            let calls = calls.into_iter();
            let calls = calls.map(|(id, name, arguments)| (id.to_owned(), name, arguments.to_string()));
            (called(calls.collect()), "tool_calls")
        }
        Say::Malformed(name, arguments) => (called(vec![(id(0), name, arguments)]), "tool_calls"),
        Say::Refusal(text) => (
            json!({"role": "assistant", "content": null, "refusal": text}),
            "stop",
        ),
        Say::Nothing => (words("".into()), "stop"),
        Say::CutOff(text) => (words(text.into()), "length"),
        Say::Fail(..) | Say::Raw(..) | Say::Stall => unreachable!("it is no answer"),
    };
    let (read, written) = (tokens(&asked.body), tokens(&message));
    json!({
        "id": format!("chatcmpl-{}", asked.turns), "object": "chat.completion", "created": 1, "model": asked.model,
        "choices": [{"index": 0, "message": message, "finish_reason": stop, "logprobs": null}],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    })
}

pub(super) fn failure(wrong: &Wrong) -> Value {
    json!({"error": {"message": wrong.words, "type": wrong.code, "param": wrong.field, "code": wrong.code}})
}
