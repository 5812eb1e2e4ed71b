//! Whether a job's end and words are those that the table has for it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::table::{End, Program, Runtime, Text};

/// Where the end is another one than any that is expected, or the evidence does not belong to it.
pub(crate) fn outcome(program: &Program, runtime: Runtime, report: &Value) -> Vec<String> {
    let ends = program.ends(runtime).iter();
    let faults = ends.map(|end| faults_of(report, *end));
    faults.min_by_key(Vec::len).unwrap_or_default()
}

/// Where it wrote something else than is expected.
pub(crate) fn words(program: &Program, runtime: Runtime, report: &Value) -> Vec<String> {
    let streams = [("stdout", program.out(runtime)), ("stderr", program.err())];
    let wrong = streams.into_iter().filter(|(name, text)| {
        let stream = &report[name];
        match text {
            Text::Is(expected) => &bytes(stream) != expected,
            Text::Starts(expected) => !bytes(stream).starts_with(expected),
            Text::Counts(expected) => stream["bytes"].as_u64() != Some(*expected),
        }
    });
    wrong
        .map(|(name, expected)| {
            let found = bytes(&report[name]);
            let found = String::from_utf8_lossy(&found[..found.len().min(2000)]).into_owned();
            let expected = match expected {
                Text::Is(bytes) | Text::Starts(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                Text::Counts(count) => format!("{count} bytes"),
            };
            format!("{name} is:\n{found}\nand not:\n{expected}")
        })
        .collect()
}

/// What is kept of a stream.
pub(crate) fn bytes(stream: &Value) -> Vec<u8> {
    let text = |value: &Value| match (value["text"].as_str(), value["base64"].as_str()) {
        (Some(text), _) => text.as_bytes().to_vec(),
        (None, Some(base64)) => STANDARD.decode(base64).expect("base64"),
        (None, None) => Vec::new(),
    };
    if stream.get("head").is_some() {
        return [text(&stream["head"]), text(&stream["tail"])].concat();
    }
    text(stream)
}

fn faults_of(report: &Value, end: End) -> Vec<String> {
    let evidence = &report["evidence"];
    let (none, exit_7, signal_9) = (Value::Null, json!({"code": 7}), json!({"signal": 9}));
    let (state, cause, exit_code, reported, killed_for) = match end {
        End::Exited => ("failed", "exited", json!(7), exit_7, none),
        End::ChildOutOfMemory => ("failed", "child_out_of_memory", json!(7), exit_7, none),
        End::Signal(number) => ("failed", "signaled", Value::Null, json!({"signal": number}), none),
        End::TimedOut => (
            "timed_out",
            "wall_clock",
            Value::Null,
            signal_9,
            json!("executor_deadline"),
        ),
        End::OutOfMemory => ("out_of_memory", "memory_limit", Value::Null, signal_9, none),
        End::OutOfMemoryWhole => ("out_of_memory", "memory_limit", Value::Null, Value::Null, none),
        End::GuestLost => ("failed", "guest_lost", Value::Null, Value::Null, none),
    };
    // By the engine's word, where the guest gave no account, or left it open whether a kill was one for memory.
    let engine_exit_code = match end {
        End::OutOfMemoryWhole => json!(137),
        End::GuestLost => json!(2),
        End::Signal(_) | End::TimedOut | End::OutOfMemory if evidence["oom_kills"].is_null() => json!(0),
        End::Exited | End::ChildOutOfMemory | End::Signal(_) | End::TimedOut | End::OutOfMemory => {
            Value::Null
        }
    };
    let mut faults = Vec::new();
    let mut expect = |field: &str, asked: &Value, found: &Value| {
        if asked != found {
            faults.push(format!("{field}: {asked} expected, {found} found"));
        }
    };
    expect("state", &json!(state), &report["state"]);
    expect("cause", &json!(cause), &report["cause"]);
    expect("exit_code", &exit_code, &report["exit_code"]);
    expect("attempts", &json!(1), &report["attempts"]);
    expect("evidence.started", &json!(true), &evidence["started"]);
    expect("evidence.end", &reported, &evidence["end"]);
    expect("evidence.killed_for", &killed_for, &evidence["killed_for"]);
    expect(
        "evidence.engine_exit_code",
        &engine_exit_code,
        &evidence["engine_exit_code"],
    );
    for absent in ["contradictions", "trouble", "refused", "mismatches"] {
        expect(&format!("evidence.{absent}"), &Value::Null, &evidence[absent]);
    }
    faults
}

#[test]
fn an_end_that_is_not_the_true_one_is_seen() {
    let program = super::table::all()
        .into_iter()
        .find(|program| program.id == "H-105d")
        .expect("a program that kills itself");
    let report = |signal: i32| {
        json!({
            "state": "failed", "cause": "signaled", "exit_code": null, "attempts": 1,
            "evidence": {"started": true, "end": {"signal": signal}, "oom_kills": 0},
            "stdout": {"text": "here\n"}, "stderr": {"text": ""},
        })
    };
    let of = |report: &Value| {
        (
            outcome(&program, Runtime::Runc, report),
            words(&program, Runtime::Runc, report),
        )
    };
    assert_eq!(of(&report(9)), (Vec::new(), Vec::new()));
    assert_eq!(of(&report(15)).0.len(), 1);
    let mut lies = report(9);
    lies["state"] = "succeeded".into();
    lies["evidence"]["contradictions"] = json!(["the engine says otherwise"]);
    lies["stdout"]["text"] = "elsewhere\n".into();
    let (outcome, words) = of(&lies);
    assert_eq!((outcome.len(), words.len()), (2, 1), "{outcome:?} {words:?}");
}
