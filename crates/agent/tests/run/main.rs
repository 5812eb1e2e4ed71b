//! The loop: how it goes on, and that it always ends, and ends well. Its model is the client of a real provider's shape, at
//! a server that says what each test's script decides; what jobs do is tested with real sandboxes elsewhere.

mod approval;
mod ends;
mod ground;

use mayfly_agent::record::End;
use mayfly_testkit::model::Say;
use serde_json::json;

use ground::{Ground, bounds};

#[tokio::test]
async fn a_model_calls_reads_and_answers() {
    let ground = Ground::new(|asked| match asked.results.as_slice() {
        [] => Say::call("run_python", json!({"source": "6 * 7"})),
        [one] => Say::Text(format!("It is {}.", one.text)),
        more => panic!("{more:?}"),
    })
    .await;
    let run = ground.run(bounds()).await;
    assert_eq!(run.end, End::Answered);
    assert_eq!(run.answer.as_deref(), Some("It is ran: 6 * 7."));
    assert_eq!(run.steps.len(), 2);
    let call = &run.steps[0].calls[0];
    assert_eq!(
        (call.tool.as_str(), call.result.as_str()),
        ("run_python", "ran: 6 * 7")
    );
    assert_eq!(run.jobs().collect::<Vec<_>>(), [call.job.unwrap()]);
    assert_eq!(
        ground.heard(),
        [
            "asking 1",
            "said  with 1 calls",
            "called run_python",
            "asking 2",
            "said It is ran: 6 * 7. with 0 calls"
        ]
    );
    assert!(run.usage.tokens() > 100, "{:?}", run.usage);
    let asked = ground.server.asked();
    assert!(asked[0].system.contains("untrusted"), "{}", asked[0].system);
    assert_eq!(asked[0].words, ["the task"]);
}

#[tokio::test]
async fn calls_of_one_answer_run_beside_each_other_and_come_back_in_their_order() {
    let ground = Ground::new(|asked| match asked.results.as_slice() {
        // Each waits until three are there.
        [] => Say::Calls(
            ["a", "b", "c"]
                .map(|name| ("meet", json!({"name": name})))
                .to_vec(),
        ),
        results => Say::Text(results.iter().map(|one| one.text.as_str()).collect()),
    })
    .await;
    let run = ground.run(bounds()).await;
    assert_eq!(run.answer.as_deref(), Some("abc"));
}

#[tokio::test]
async fn calls_that_are_wrong_are_told_why_and_can_be_mended() {
    let ground = Ground::new(|asked| match asked.turns {
        0 => Say::Malformed("run_python", "{\"source\": \"print(\"1\")\"}".to_owned()),
        1 => {
            let said = &asked.results[0].text;
            assert!(
                said.contains("not valid JSON") && said.contains("Call it again"),
                "{said}"
            );
            Say::call("run_shell", json!({"script": "ls"}))
        }
        2 => {
            let said = &asked.results[0].text;
            assert!(
                said.contains("no tool `run_shell`") && said.contains("run_python"),
                "{said}"
            );
            Say::call("run_python", json!({"source": "x".repeat(1 << 20)}))
        }
        3 => {
            let said = &asked.results[0].text;
            assert!(
                said.contains("1048589 bytes") && said.contains("262144"),
                "{said}"
            );
            Say::call("run_python", json!({"source": "1"}))
        }
        _ => Say::Text(asked.results[0].text.clone()),
    })
    .await;
    let run = ground.run(bounds()).await;
    assert_eq!(run.answer.as_deref(), Some("ran: 1"), "{:?}", run.end);
    let errors: Vec<bool> = run
        .steps
        .iter()
        .flat_map(|step| &step.calls)
        .map(|call| call.is_error)
        .collect();
    assert_eq!(errors, [true, true, true, false]);
    assert_eq!(run.jobs().count(), 1);
}

#[tokio::test]
async fn more_calls_than_one_answer_may_hold_are_left_to_the_next() {
    let ground = Ground::new(|asked| match asked.results.len() {
        0 => Say::Calls(
            (0..18)
                .map(|n| ("run_python", json!({"source": n.to_string()})))
                .collect(),
        ),
        18 => Say::Text(format!("{} {}", asked.results[15].text, asked.results[16].text)),
        more => panic!("{more}"),
    })
    .await;
    let run = ground.run(bounds()).await;
    let answer = run.answer.unwrap();
    assert!(
        answer.starts_with("ran: 15 This call was not carried out"),
        "{answer}"
    );
    assert_eq!(
        run.steps[0]
            .calls
            .iter()
            .filter(|call| call.job.is_some())
            .count(),
        16
    );
}

#[tokio::test]
async fn an_empty_answer_is_asked_for_once_more() {
    let ground = Ground::new(|asked| match asked.words.len() {
        1 if asked.turns == 0 => Say::call("run_python", json!({"source": "1"})),
        1 => Say::Nothing,
        _ => Say::Text("here it is".to_owned()),
    })
    .await;
    let run = ground.run(bounds()).await;
    assert_eq!(run.answer.as_deref(), Some("here it is"), "{:?}", run.end);
    let ground = Ground::new(|_| Say::Nothing).await;
    let run = ground.run(bounds()).await;
    assert_eq!(run.end, End::Empty { why: None });
    assert_eq!((run.steps.len(), run.answer), (2, None));
    assert!(run.end.to_string().contains("is empty"), "{}", run.end);
}

#[tokio::test]
async fn the_record_is_a_document_without_what_a_provider_signs() {
    let ground = Ground::new(|asked| match asked.results.len() {
        0 => Say::call("run_python", json!({"source": "1"})),
        _ => Say::Text("1".to_owned()),
    })
    .await;
    let run = ground.run(bounds()).await;
    let document = serde_json::to_value(&run).unwrap();
    assert_eq!(document["end"], json!({"reason": "answered"}));
    assert_eq!(
        document["steps"][0]["calls"][0]["arguments"],
        json!({"source": "1"})
    );
    assert!(document["steps"][0]["calls"][0]["job"].is_string());
    assert!(document["elapsed_ms"].is_u64());
    assert!(!document.to_string().contains("sig-of-thoughts"));
}
