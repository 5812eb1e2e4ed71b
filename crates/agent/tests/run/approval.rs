//! Runs whose programs somebody has to say yes to.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use mayfly_agent::{
    bounds::Bounds,
    model::{Arguments, ToolCall},
    record::End,
    tool::{Approval, Verdict},
};
use mayfly_testkit::model::Say;
use serde_json::json;

use crate::ground::{Ground, bounds};

/// Says no to what has `rm` in it, and keeps what it was asked.
#[derive(Default)]
struct Watcher {
    asked: Mutex<Vec<String>>,
    busy: AtomicBool,
}

#[async_trait]
impl Approval for Watcher {
    async fn asked(&self, call: &ToolCall) -> Verdict {
        assert!(
            !self.busy.swap(true, Ordering::SeqCst),
            "it is asked for two at a time"
        );
        let Arguments::Object(arguments) = &call.arguments else {
            panic!("{call:?}")
        };
        let source = arguments["source"].as_str().expect("a text").to_owned();
        let verdict = if source.contains("rm") {
            Verdict::Refused
        } else {
            Verdict::Approved
        };
        self.asked.lock().expect("no test panics here").push(source);
        tokio::task::yield_now().await;
        self.busy.store(false, Ordering::SeqCst);
        verdict
    }
}

/// Never answers.
struct Away;

#[async_trait]
impl Approval for Away {
    async fn asked(&self, _: &ToolCall) -> Verdict {
        std::future::pending().await
    }
}

#[tokio::test]
async fn what_is_refused_does_not_run_and_the_model_and_the_record_say_so() {
    let watcher = Arc::new(Watcher::default());
    let mut ground = Ground::new(|asked| match asked.results.as_slice() {
        [] => Say::Calls(vec![
            ("run_python", json!({"source": "1"})),
            ("run_python", json!({"source": "rm"})),
            ("run_python", json!({"source": "2"})),
            ("nothing", json!({})),
        ]),
        [one, two, three, _] => Say::Text(format!("{} / {} / {}", one.text, two.text, three.text)),
        more => panic!("{more:?}"),
    })
    .await;
    ground.approval = Some(Arc::<Watcher>::clone(&watcher));
    let run = ground.run(bounds()).await;
    let answer = run.answer.clone().unwrap();
    assert!(
        answer.starts_with("ran: 1 / This call was not carried out: whoever watches"),
        "{answer}"
    );
    assert!(answer.ends_with("/ ran: 2"), "{answer}");
    let verdicts: Vec<_> = run.steps[0].calls.iter().map(|call| call.verdict).collect();
    let (yes, no) = (Some(Verdict::Approved), Some(Verdict::Refused));
    assert_eq!(verdicts, [yes, no, yes, None]);
    assert_eq!(run.jobs().count(), 2);
    let document = serde_json::to_value(&run).unwrap();
    assert_eq!(document["steps"][0]["calls"][1]["verdict"], "refused");
    assert_eq!(*watcher.asked.lock().unwrap(), ["1", "rm", "2"]);
}

#[tokio::test]
async fn who_never_answers_holds_a_run_no_longer_than_its_time() {
    let mut ground = Ground::new(|_| Say::call("run_python", json!({"source": "1"}))).await;
    ground.approval = Some(Arc::new(Away));
    let wall = std::time::Duration::from_millis(300);
    let run = ground.run(Bounds { wall, ..bounds() }).await;
    assert_eq!(run.end, End::OutOfTime { limit_ms: 300 });
    assert_eq!(run.steps[0].calls[0].verdict, Some(Verdict::Refused));
    assert_eq!(run.jobs().count(), 0);
}
