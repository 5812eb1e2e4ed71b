//! The ends that are none of the model's choosing.

use std::time::{Duration, Instant};

use mayfly_agent::{bounds::Bounds, model::Cost, record::End};
use mayfly_testkit::model::{Asked, Say};
use serde_json::json;

use crate::ground::{Ground, bounds};

fn for_ever(_: &Asked) -> Say {
    Say::call("run_python", json!({"source": "again"}))
}

#[tokio::test]
async fn a_model_that_calls_for_ever_ends_with_its_steps_and_is_told_before() {
    let ground = Ground::new(for_ever).await;
    let run = ground.run(Bounds { steps: 3, ..bounds() }).await;
    assert_eq!(run.end, End::OutOfSteps { limit: 3 });
    assert_eq!(run.steps.len(), 3);
    assert_eq!(run.jobs().count(), 2, "calls of the last answer lead nowhere");
    let told: Vec<bool> = ground
        .server
        .asked()
        .iter()
        .map(|asked| {
            asked
                .results
                .iter()
                .any(|one| one.text.contains("your next answer is the last"))
        })
        .collect();
    assert_eq!(told, [false, false, true]);
}

#[tokio::test]
async fn tokens_are_bounded_and_an_answer_gets_no_more_than_are_left() {
    let ground = Ground::new(for_ever).await;
    let run = ground
        .run(Bounds {
            tokens: 1500,
            ..bounds()
        })
        .await;
    assert_eq!(run.end, End::OutOfTokens { limit: 1500 });
    assert!(
        run.usage.tokens() >= 1500 && run.steps.len() < 9,
        "{:?}",
        run.usage
    );
    let most: Vec<u64> = ground
        .server
        .asked()
        .iter()
        .map(|asked| asked.body["max_tokens"].as_u64().unwrap())
        .collect();
    assert!(
        most[0] == 1500 && most.is_sorted_by(|one, two| one > two),
        "{most:?}"
    );
}

#[tokio::test]
async fn a_server_that_counts_no_tokens_does_not_run_for_ever() {
    let ground = Ground::new(|_| {
        let call = json!({"type": "tool_use", "id": "t", "name": "run_python", "input": {"source": "x"}});
        let thoughts = json!({"type": "thinking", "thinking": "", "signature": "sig-of-thoughts"});
        let body = json!({"role": "assistant", "content": [thoughts, call], "stop_reason": "tool_use"});
        Say::Raw(200, body.to_string())
    })
    .await;
    let run = ground
        .run(Bounds {
            tokens: 2000,
            ..bounds()
        })
        .await;
    assert_eq!(run.end, End::OutOfTokens { limit: 2000 }, "{:?}", run.usage);
}

#[tokio::test]
async fn money_is_bounded_by_a_price_and_never_without_one() {
    let limit = Cost::dollars(0.02).unwrap();
    let mut ground = Ground::new(for_ever).await;
    ground.price = Some("10,50".parse().unwrap());
    let run = ground
        .run(Bounds {
            cost: Some(limit),
            ..bounds()
        })
        .await;
    assert_eq!(run.end, End::OutOfMoney { limit });
    assert!(run.usage.cost.unwrap() >= limit, "{:?}", run.usage);
    ground.price = None;
    let run = ground
        .run(Bounds {
            cost: Some(limit),
            ..bounds()
        })
        .await;
    assert_eq!(run.end, End::CostUnknown);
    assert_eq!(run.jobs().count(), 0);
}

#[tokio::test]
async fn when_the_time_is_over_what_runs_is_ended_and_on_record() {
    let ground = Ground::new(|_| Say::call("hang", json!({}))).await;
    let begun = Instant::now();
    let wall = Duration::from_millis(500);
    let run = ground.run(Bounds { wall, ..bounds() }).await;
    assert_eq!(run.end, End::OutOfTime { limit_ms: 500 });
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(run.steps[0].calls[0].result, "was stopped");
    assert_eq!(run.jobs().count(), 1);
}

#[tokio::test]
async fn a_model_that_never_answers_costs_no_more_than_the_time() {
    let ground = Ground::new(|_| Say::Stall).await;
    let wall = Duration::from_millis(300);
    let run = ground.run(Bounds { wall, ..bounds() }).await;
    assert_eq!(run.end, End::OutOfTime { limit_ms: 300 });
    assert!(run.elapsed < Duration::from_secs(10));
}

#[tokio::test]
async fn who_asks_for_the_end_gets_it_and_the_record_of_what_was_done() {
    let ground = Ground::new(|asked| match asked.turns {
        0 => Say::call("run_python", json!({"source": "1"})),
        _ => Say::call("hang", json!({})),
    })
    .await;
    let run = ground.run(bounds());
    let stop = async {
        // The second question is out: its call is next.
        while !ground.heard().contains(&"said  with 1 calls".to_owned()) || ground.heard().len() < 5 {
            tokio::task::yield_now().await;
        }
        ground.stop.cancel();
        std::future::pending::<()>().await;
    };
    let run = tokio::select! {
        run = run => run,
        () = stop => unreachable!("it waits for the end"),
    };
    assert_eq!(run.end, End::Stopped);
    assert_eq!(run.steps.len(), 2);
    assert_eq!(run.jobs().count(), 2);
}

#[tokio::test]
async fn refusals_bounds_of_an_answer_and_trouble_are_told_apart() {
    for (say, end, answer) in [
        (
            Say::Refusal("I will not".to_owned()),
            End::Declined {
                words: Some("I will not".to_owned()),
            },
            Some("I will not"),
        ),
        (
            Say::CutOff("and so".to_owned()),
            End::CutOff { limit: 4096 },
            Some("and so"),
        ),
    ] {
        let ground = Ground::new(move |_| say.clone()).await;
        let run = ground.run(bounds()).await;
        assert_eq!((run.end, run.answer.as_deref()), (end, answer));
    }
    let ground = Ground::new(|_| Say::Fail(404, "not_found_error", "model: x".to_owned(), vec![])).await;
    let run = ground.run(bounds()).await;
    let End::ModelFailed { error } = run.end else {
        panic!("{:?}", run.end)
    };
    assert!(
        error.contains("Anthropic has refused (404)") && error.contains("is there a model"),
        "{error}"
    );
}

#[tokio::test]
async fn a_call_that_was_cut_off_is_not_carried_out() {
    let mut is_first = true;
    let ground = Ground::new(move |asked| {
        if std::mem::replace(&mut is_first, false) {
            let call = json!({"type": "tool_use", "id": "t", "name": "run_python", "input": {"source": "import os; os.rem"}});
            let thoughts = json!({"type": "thinking", "thinking": "", "signature": "sig-of-thoughts"});
            let body = json!({"role": "assistant", "content": [thoughts, call], "stop_reason": "max_tokens",
                              "usage": {"input_tokens": 1, "output_tokens": 4096}});
            return Say::Raw(200, body.to_string());
        }
        Say::Text(asked.results[0].text.clone())
    })
    .await;
    let run = ground.run(bounds()).await;
    assert!(run.answer.as_ref().unwrap().contains("before it was whole"));
    assert_eq!(run.jobs().count(), 0);
}
