//! The Messages API of Anthropic, version 2023-06-01.

use serde_json::{Value, json};

use super::{Arguments, Message, Reply, Request, Stop, ToolCall, Turn, Usage, provider::Manners};

pub(crate) fn body(request: &Request<'_>, model: &str, manners: Manners) -> Value {
    let messages: Vec<Value> = request
        .messages
        .iter()
        .map(|message| match message {
            Message::User(text) => json!({"role": "user", "content": text}),
            Message::Model(turn) => json!({"role": "assistant", "content": turn.raw}),
            Message::Results(results) => {
                let blocks: Vec<Value> = results
                    .iter()
                    .map(|result| {
                        let mut block =
                            json!({"type": "tool_result", "tool_use_id": result.id, "content": result.text});
                        if result.is_error {
                            block["is_error"] = true.into();
                        }
                        block
                    })
                    .collect();
                json!({"role": "user", "content": blocks})
            }
        })
        .collect();
    let mut body = json!({
        "model": model,
        "max_tokens": request.max_tokens,
        "system": request.system,
        "messages": messages,
    });
    if !request.tools.is_empty() {
        body["tools"] = request
            .tools
            .iter()
            .map(|tool| {
                json!({"name": tool.name, "description": tool.description, "input_schema": tool.parameters})
            })
            .collect();
    }
    if manners.takes_temperature {
        body["temperature"] = 0.into();
    }
    body
}

pub(crate) fn reply(answer: Value) -> Result<Reply, String> {
    let content = match &answer["content"] {
        Value::Array(blocks) => blocks.clone(),
        // Servers that speak this shape leave the blocks out where there is only text.
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        _ => return Err("it has no `content`".to_owned()),
    };
    let mut turn = Turn::default();
    let mut raw = Vec::new();
    for mut block in content {
        match block["type"].as_str() {
            Some("text") => {
                let text = block["text"].as_str().unwrap_or_default();
                turn.text.push_str(text);
                // The API refuses empty ones on their way back.
                if text.is_empty() {
                    continue;
                }
            }
            Some("tool_use") => {
                let arguments = Arguments::of(block["input"].clone());
                block["input"] = arguments.object();
                turn.calls.push(ToolCall {
                    id: block["id"].as_str().unwrap_or_default().to_owned(),
                    name: block["name"].as_str().unwrap_or_default().to_owned(),
                    arguments,
                });
            }
            // Thoughts, and what is yet to come: it goes back as it is.
            _ => {}
        }
        raw.push(block);
    }
    turn.raw = Value::Array(raw);
    let stop = match answer["stop_reason"].as_str() {
        Some("end_turn" | "tool_use" | "stop_sequence") | None => Stop::Done,
        Some("max_tokens") => Stop::Length,
        Some("model_context_window_exceeded") => Stop::ContextFull,
        Some("refusal") => Stop::Declined(None),
        Some("pause_turn") => Stop::Paused,
        Some(other) => Stop::Other(other.to_owned()),
    };
    let tokens = |name: &str| answer["usage"][name].as_u64().unwrap_or(0);
    let usage = Usage {
        input_tokens: tokens("input_tokens")
            + tokens("cache_creation_input_tokens")
            + tokens("cache_read_input_tokens"),
        output_tokens: tokens("output_tokens"),
        cost: None,
    };
    Ok(Reply { turn, stop, usage })
}
