//! The Gemini API of Google, `generateContent` of v1beta.

use serde_json::{Value, json};

use super::{Arguments, Message, Reply, Request, Stop, ToolCall, ToolResult, Turn, Usage, provider::Manners};

pub(crate) fn body(request: &Request<'_>, manners: Manners) -> Value {
    let mut contents: Vec<Value> = Vec::new();
    let mut calls: &Value = &Value::Null;
    for message in request.messages {
        contents.push(match message {
            Message::User(text) => json!({"role": "user", "parts": [{"text": text}]}),
            Message::Model(turn) => {
                calls = &turn.raw["parts"];
                turn.raw.clone()
            }
            Message::Results(results) => json!({"role": "user", "parts": responses(results, calls)}),
        });
    }
    let mut body = json!({
        "systemInstruction": {"parts": [{"text": request.system}]},
        "contents": contents,
        "generationConfig": {"maxOutputTokens": request.max_tokens},
    });
    if !request.tools.is_empty() {
        let functions: Vec<Value> = request
            .tools
            .iter()
            .map(|tool| {
                json!({"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters})
            })
            .collect();
        body["tools"] = json!([{"functionDeclarations": functions}]);
    }
    if manners.takes_temperature {
        body["generationConfig"]["temperature"] = 0.into();
    }
    body
}

/// One response for each call, in the order of the calls, all in one turn: the API counts them. A call that had an id
/// gets it back.
fn responses(results: &[ToolResult], parts: &Value) -> Vec<Value> {
    let calls = parts
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|part| part.get("functionCall"));
    results
        .iter()
        .zip(calls)
        .map(|(result, call)| {
            let outcome = if result.is_error { "error" } else { "result" };
            let mut response = json!({"name": result.name, "response": {outcome: result.text}});
            if let Some(id) = call.get("id") {
                response["id"] = id.clone();
            }
            json!({"functionResponse": response})
        })
        .collect()
}

pub(crate) fn reply(answer: Value) -> Result<Reply, String> {
    let count = |name: &str| answer["usageMetadata"][name].as_u64().unwrap_or(0);
    let usage = Usage {
        input_tokens: count("promptTokenCount") + count("toolUsePromptTokenCount"),
        output_tokens: count("candidatesTokenCount") + count("thoughtsTokenCount"),
        cost: None,
    };
    let Some(candidate) = answer["candidates"].get(0) else {
        // The question itself was not let through.
        let reason = answer["promptFeedback"]["blockReason"]
            .as_str()
            .ok_or("it has no `candidates`")?;
        return Ok(Reply {
            turn: Turn::default(),
            stop: Stop::Declined(Some(format!("the prompt was blocked: {reason}"))),
            usage,
        });
    };
    let mut turn = Turn::default();
    let mut parts = candidate["content"]["parts"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    for part in &mut parts {
        if part["thought"].as_bool() != Some(true) {
            turn.text.push_str(part["text"].as_str().unwrap_or_default());
        }
        let Some(call) = part.get_mut("functionCall") else {
            continue;
        };
        let arguments = Arguments::of(call.get("args").cloned().unwrap_or(Value::Null));
        if let Arguments::Malformed { .. } = arguments {
            call["args"] = arguments.object();
        }
        turn.calls.push(ToolCall {
            // Older models give none.
            id: call["id"]
                .as_str()
                .map_or_else(|| format!("call_{}", turn.calls.len()), ToOwned::to_owned),
            name: call["name"].as_str().unwrap_or_default().to_owned(),
            arguments,
        });
    }
    turn.raw = json!({"role": "model", "parts": parts});
    let stop = match candidate["finishReason"].as_str() {
        Some("STOP") | None => Stop::Done,
        Some("MAX_TOKENS") => Stop::Length,
        Some(
            reason @ ("SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "LANGUAGE"),
        ) => Stop::Declined(Some(format!("a filter has stopped it: {reason}"))),
        Some(other) => Stop::Other(other.to_owned()),
    };
    Ok(Reply { turn, stop, usage })
}
