//! Gemini `generateContent` of v1beta.

use serde_json::{Value, json};

use super::{Asked, Manners, Outcome, Say, Shape, Wrong, tokens};

/// What stands at the first call of a turn; the API wants it back where it stood.
const SIGNATURE: &str = "c2lnbmF0dXJl";

pub(super) fn asked(body: Value, model: String, manners: &Manners) -> Result<Asked, Wrong> {
    if manners.refuses_temperature && body["generationConfig"].get("temperature").is_some() {
        return Err(Wrong::request("temperature is not supported by this model"));
    }
    let contents = body["contents"].as_array().cloned().unwrap_or_default();
    let (mut words, mut results, mut turns) = (Vec::new(), Vec::new(), 0);
    let mut open: Vec<(Value, Value)> = Vec::new();
    for content in &contents {
        let parts = content["parts"].as_array().cloned().unwrap_or_default();
        if parts.is_empty() {
            return Err(Wrong::request(
                "GenerateContentRequest.contents.parts must not be empty",
            ));
        }
        let answered: Vec<(Value, Value)> = parts
            .iter()
            .filter_map(|part| part.get("functionResponse"))
            .map(|response| (response["name"].clone(), response["id"].clone()))
            .collect();
        if answered != open {
            return Err(Wrong::request(
                "Please ensure that the number of function response parts is equal to the number of function call parts \
                 of the function call turn.",
            ));
        }
        open.clear();
        results = parts
            .iter()
            .filter_map(|part| part.get("functionResponse"))
            .map(|response| {
                let (failed, went) = (&response["response"]["error"], &response["response"]["result"]);
                Outcome {
                    text: failed.as_str().or(went.as_str()).unwrap_or_default().to_owned(),
                    is_error: failed.is_string(),
                }
            })
            .collect();
        let texts = parts.iter().filter_map(|part| part["text"].as_str());
        if content["role"] == "user" {
            words.extend(texts.map(ToOwned::to_owned));
            continue;
        }
        turns += 1;
        let calls: Vec<&Value> = parts
            .iter()
            .filter(|part| part.get("functionCall").is_some())
            .collect();
        if calls
            .first()
            .is_some_and(|part| part["thoughtSignature"] != SIGNATURE)
        {
            return Err(Wrong::request(
                "Function call is missing a thought_signature in functionCall parts.",
            ));
        }
        open = calls
            .iter()
            .map(|part| {
                (
                    part["functionCall"]["name"].clone(),
                    part["functionCall"]["id"].clone(),
                )
            })
            .collect();
    }
    let functions = body["tools"][0]["functionDeclarations"]
        .as_array()
        .into_iter()
        .flatten();
    Ok(Asked {
        shape: Shape::Gemini,
        model,
        turns,
        system: body["systemInstruction"]["parts"][0]["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        tools: functions
            .filter(|tool| tool["parametersJsonSchema"]["type"] == "object")
            .filter_map(|tool| Some(tool["name"].as_str()?.to_owned()))
            .collect(),
        words,
        results,
        body,
    })
}

pub(super) fn answer(asked: &Asked, say: Say) -> Value {
    let text = |text: &str| json!({"text": text});
    let calls = |calls: Vec<(Option<&str>, &str, Value)>| {
        calls
            .into_iter()
            .enumerate()
            .map(|(index, (id, name, arguments))| {
                let mut part = json!({"functionCall": {"name": name, "args": arguments}});
                if let Some(id) = id {
                    part["functionCall"]["id"] = id.into();
                }
                if index == 0 {
                    part["thoughtSignature"] = SIGNATURE.into();
                }
                part
            })
            .collect::<Vec<_>>()
    };
    let (parts, stop) = match say {
        Say::Text(words) => (vec![json!({"text": "hm", "thought": true}), text(&words)], "STOP"),
        Say::Blocks(words) => (words.iter().map(|words| text(words)).collect(), "STOP"),
        Say::Calls(list) => (
            calls(
                list.into_iter()
                    .map(|(name, arguments)| (None, name, arguments))
                    .collect(),
            ),
            "STOP",
        ),
        Say::CallsById(list) => (
            calls(
                list.into_iter()
                    .map(|(id, name, arguments)| (Some(id), name, arguments))
                    .collect(),
            ),
            "STOP",
        ),
        Say::Malformed(name, arguments) => (calls(vec![(None, name, Value::String(arguments))]), "STOP"),
        Say::Refusal(_) => (Vec::new(), "SAFETY"),
        Say::Nothing => (Vec::new(), "STOP"),
        Say::CutOff(words) => (vec![text(&words)], "MAX_TOKENS"),
        Say::Fail(..) | Say::Raw(..) | Say::Stall => unreachable!("it is no answer"),
    };
    let parts = Value::Array(parts);
    let (read, written) = (tokens(&asked.body), tokens(&parts));
    // Where there are no parts the API leaves them out.
    let content = if parts[0].is_null() {
        json!({"role": "model"})
    } else {
        json!({"role": "model", "parts": parts})
    };
    json!({
        "candidates": [{"content": content, "finishReason": stop, "index": 0}],
        "usageMetadata": {"promptTokenCount": read, "candidatesTokenCount": written, "totalTokenCount": read + written},
        "modelVersion": asked.model, "responseId": "r1",
    })
}

pub(super) fn failure(wrong: &Wrong) -> Value {
    let status = match wrong.status {
        401 => "UNAUTHENTICATED",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        _ => "INVALID_ARGUMENT",
    };
    json!({"error": {"code": wrong.status, "message": wrong.words, "status": status}})
}
