//! The clients of the providers, at a server that speaks their shapes and is as strict as their references.

mod support;
mod trouble;

use mayfly_agent::model::{Arguments, Message, ModelClient as _, Stop, ToolResult};
use mayfly_testkit::model::{Manners, ModelServer, Say, Shape};
use serde_json::json;

use support::{KEY, NO_MANNERS, SHAPES, client, request, strict};

#[tokio::test]
async fn a_call_its_result_and_the_answer_travel_in_each_shape() {
    for (shape, name) in SHAPES {
        let server = ModelServer::with(strict(), |asked| match asked.results.as_slice() {
            [] => Say::call("run_python", json!({"source": "print(1)"})),
            [one] => Say::Text(format!("it printed {}", one.text)),
            more => panic!("{more:?}"),
        })
        .await;
        let client = client(&server, shape, name);
        let mut said = vec![Message::User("what does it print?".to_owned())];
        let first = client.next(&request(&said)).await.unwrap();
        assert_eq!(first.stop, Stop::Done, "{name}");
        let [call] = first.turn.calls.as_slice() else {
            panic!("{first:?}")
        };
        assert_eq!(call.name, "run_python");
        assert!(matches!(&call.arguments, Arguments::Object(one) if one["source"] == "print(1)"));
        assert!(
            first.usage.input_tokens > 10 && first.usage.output_tokens > 1,
            "{first:?}"
        );
        let result = ToolResult {
            id: call.id.clone(),
            name: call.name.clone(),
            text: "1".to_owned(),
            is_error: false,
        };
        said.push(Message::Model(first.turn));
        said.push(Message::Results(vec![result]));
        let last = client.next(&request(&said)).await.unwrap();
        assert_eq!(last.turn.text, "it printed 1", "{name}");
        let asked = server.asked();
        assert_eq!(asked[0].system, "be brief");
        assert_eq!(asked[0].tools, ["run_python"]);
        assert_eq!(asked[0].words, ["what does it print?"]);
        let model = name.split_once('/').map_or(name, |(_, model)| model);
        assert_eq!(asked[0].model, model);
    }
}

#[tokio::test]
async fn parallel_calls_each_get_their_own_result_whatever_their_ids_are() {
    for (shape, name) in SHAPES {
        let server = ModelServer::with(strict(), |asked| match asked.results.as_slice() {
            [] if asked.shape == Shape::OpenAi => Say::CallsById(vec![
                ("same", "run_python", json!({"source": "1"})),
                ("same", "run_python", json!({"source": "2"})),
                ("", "run_python", json!({"source": "3"})),
            ]),
            [] => Say::Calls(
                ["1", "2", "3"]
                    .map(|source| ("run_python", json!({"source": source})))
                    .to_vec(),
            ),
            results => Say::Text(
                results
                    .iter()
                    .map(|one| format!("{} {};", one.text, one.is_error))
                    .collect(),
            ),
        })
        .await;
        let client = client(&server, shape, name);
        let mut said = vec![Message::User("three".to_owned())];
        let first = client.next(&request(&said)).await.unwrap();
        let results: Vec<ToolResult> = first
            .turn
            .calls
            .iter()
            .enumerate()
            .map(|(index, call)| ToolResult {
                id: call.id.clone(),
                name: call.name.clone(),
                text: format!("r{index}"),
                is_error: index == 1,
            })
            .collect();
        let ids: std::collections::HashSet<_> = results.iter().map(|one| &one.id).collect();
        assert_eq!(ids.len(), 3, "{name}: {results:?}");
        said.push(Message::Model(first.turn));
        said.push(Message::Results(results));
        let last = client.next(&request(&said)).await.unwrap();
        let marked = shape != Shape::OpenAi;
        assert_eq!(
            last.turn.text,
            format!("r0 false;r1 {marked};r2 false;"),
            "{name}"
        );
    }
}

#[tokio::test]
async fn gemini_gets_the_ids_back_that_it_gave() {
    let server = ModelServer::start(|asked| match asked.results.len() {
        0 => Say::CallsById(vec![
            ("x1", "run_python", json!({})),
            ("x2", "run_python", json!({})),
        ]),
        _ => Say::Text("done".to_owned()),
    })
    .await;
    let client = client(&server, Shape::Gemini, "gemini/gemini-3-flash");
    let mut said = vec![Message::User("q".to_owned())];
    let first = client.next(&request(&said)).await.unwrap();
    let results = first.turn.calls.iter().map(|call| ToolResult {
        id: call.id.clone(),
        name: call.name.clone(),
        text: String::new(),
        is_error: false,
    });
    let results = Message::Results(results.collect());
    said.extend([Message::Model(first.turn), results]);
    assert_eq!(client.next(&request(&said)).await.unwrap().turn.text, "done");
}

#[tokio::test]
async fn text_in_blocks_is_text_and_refusals_and_bounds_are_told_apart() {
    for (shape, name) in SHAPES {
        let mut script = [
            Say::Blocks(vec!["one ".to_owned(), "two".to_owned()]),
            Say::Refusal("I will not".to_owned()),
            Say::CutOff("and so".to_owned()),
            Say::Nothing,
        ]
        .into_iter();
        let server = ModelServer::with(strict(), move |_| script.next().unwrap()).await;
        let client = client(&server, shape, name);
        let said = [Message::User("q".to_owned())];
        let next = async || client.next(&request(&said)).await.unwrap();
        let blocks = next().await;
        assert_eq!(
            (blocks.turn.text.as_str(), blocks.stop),
            ("one two", Stop::Done),
            "{name}"
        );
        let refusal = next().await;
        assert!(matches!(refusal.stop, Stop::Declined(_)), "{name}: {refusal:?}");
        let bounded = next().await;
        assert_eq!(
            (bounded.turn.text.as_str(), bounded.stop),
            ("and so", Stop::Length),
            "{name}"
        );
        let nothing = next().await;
        assert!(
            nothing.turn.text.is_empty() && nothing.turn.calls.is_empty(),
            "{name}: {nothing:?}"
        );
    }
}

#[tokio::test]
async fn arguments_that_are_none_come_through_and_go_back_as_what_can_be_read() {
    for (shape, name) in SHAPES {
        let server = ModelServer::with(strict(), |asked| match asked.results.as_slice() {
            [] => Say::Malformed("run_python", "{\"source\": \"print(".to_owned()),
            _ => Say::Text("mended".to_owned()),
        })
        .await;
        let client = client(&server, shape, name);
        let mut said = vec![Message::User("q".to_owned())];
        let first = client.next(&request(&said)).await.unwrap();
        let call = first.turn.calls[0].clone();
        let Arguments::Malformed { text, why } = &call.arguments else {
            panic!("{name}: {call:?}")
        };
        assert!(text.contains("print(") && why.contains("not"), "{name}: {why}");
        let result = ToolResult {
            id: call.id,
            name: call.name,
            text: "no".to_owned(),
            is_error: true,
        };
        said.extend([Message::Model(first.turn), Message::Results(vec![result])]);
        assert_eq!(
            client.next(&request(&said)).await.unwrap().turn.text,
            "mended",
            "{name}"
        );
    }
}

#[tokio::test]
async fn the_same_question_gets_temperature_0_where_the_model_takes_one() {
    let sent = async |shape, name: &str| {
        let server = ModelServer::with(strict(), |_| Say::Text("x".to_owned())).await;
        let said = [Message::User("q".to_owned())];
        client(&server, shape, name).next(&request(&said)).await.unwrap();
        let body = server.asked().remove(0).body;
        body.get("temperature")
            .or_else(|| body["generationConfig"].get("temperature"))
            .cloned()
    };
    for (shape, name) in [
        (Shape::Anthropic, "claude-sonnet-4-5"),
        (Shape::Anthropic, "claude-haiku-4-5-20251001"),
        (Shape::OpenAi, "openai/any"),
        (Shape::Gemini, "gemini/gemini-2.5-flash"),
    ] {
        assert_eq!(sent(shape, name).await, Some(json!(0)), "{name}");
    }
    for (shape, name) in [
        (Shape::Anthropic, "claude-sonnet-5-5"),
        (Shape::Anthropic, "claude-opus-4-8"),
        (Shape::Gemini, "gemini/gemini-3-flash"),
    ] {
        assert_eq!(sent(shape, name).await, None, "{name}");
    }
}

#[tokio::test]
async fn what_a_model_does_not_take_is_learned_once() {
    let manners = Manners {
        key: Some(KEY.to_owned()),
        refuses_temperature: true,
        wants_max_completion_tokens: true,
        refuses_to_reason_with_tools: true,
    };
    let server = ModelServer::with(manners, |_| Say::Text("well".to_owned())).await;
    let client = client(&server, Shape::OpenAi, "openai/gpt-new");
    let said = [Message::User("q".to_owned())];
    for _ in 0..2 {
        assert_eq!(client.next(&request(&said)).await.unwrap().turn.text, "well");
    }
    let asked = server.asked();
    assert_eq!(asked.len(), 2, "what was refused is no question that was heard");
    for one in asked {
        assert_eq!(one.body.get("temperature"), None);
        assert_eq!(one.body["max_completion_tokens"], 1000);
        assert_eq!(one.body["reasoning_effort"], "none");
    }
    let anthropic = Manners {
        refuses_temperature: true,
        ..NO_MANNERS
    };
    let server = ModelServer::with(anthropic, |_| Say::Text("well".to_owned())).await;
    let client = support::client(&server, Shape::Anthropic, "claude-new-4-5");
    assert_eq!(client.next(&request(&said)).await.unwrap().turn.text, "well");
}
