//! Each thing that may not be is found in a history that was made up to have it.

use std::collections::BTreeMap;

use serde_json::json;

use super::{Counts, Fault, History, Read, Recorder, Row, Start, Struck, Submission, line, program, said};

const SESSION: &str = "session-1";

fn start(token: &str, number: &str, begun_ms: i64) -> Start {
    Start {
        token: token.to_owned(),
        number: number.to_owned(),
        container: format!("container of {number}"),
        executor: "executor-1".to_owned(),
        session: SESSION.to_owned(),
        begun_ms,
        last_ms: begun_ms + 500,
        over: true,
        gone_ms: Some(begun_ms + 600),
    }
}

fn row(kind: &str, job: &str) -> Row {
    row_of(kind, job, "1")
}

fn row_of(kind: &str, job: &str, attempt: &str) -> Row {
    Row::parse(&format!("{kind}|{job}|{attempt}|{SESSION}"))
}

fn read(job: &str, state: &str, number: Option<&str>, at_ms: i64) -> Read {
    Read {
        job: job.to_owned(),
        state: state.to_owned(),
        number: number.map(ToOwned::to_owned),
        at_ms,
    }
}

/// Two jobs; the first was cut once by a kill and ran again.
fn good() -> History {
    let cut = Start {
        over: false,
        last_ms: 1_200,
        gone_ms: Some(1_350),
        ..start("one", "aaaa", 1_000)
    };
    History {
        submissions: ["one", "two"]
            .map(|token| Submission {
                token: token.to_owned(),
                job: format!("job-{token}"),
            })
            .to_vec(),
        reads: vec![
            read("job-one", "succeeded", Some("bbbb"), 4_000),
            read("job-two", "succeeded", Some("cccc"), 4_100),
            read("job-one", "succeeded", Some("bbbb"), 9_000),
        ],
        audit: vec![
            row("run_started", "job-one"),
            row("run_started", "job-one"),
            row("run_started", "job-two"),
            row("run_finished", "job-one"),
            row("run_finished", "job-two"),
            row("job_ended", "job-one"),
            row("job_ended", "job-two"),
            row("result_superseded", "job-two"),
        ],
        starts: vec![cut, start("one", "bbbb", 2_000), start("two", "cccc", 2_500)],
        faults: vec![Fault {
            what: "kill".to_owned(),
            executor: Some("executor-1".to_owned()),
            at_ms: 1_300,
        }],
        containers_left: 0,
    }
}

/// One kill, and what it came to.
fn kills(hits: usize, cuts: usize) -> BTreeMap<String, Struck> {
    BTreeMap::from([(
        "kill".to_owned(),
        Struck {
            faults: 1,
            hits,
            cuts,
        },
    )])
}

/// The five counts: lost, double, resurrected, phantom, orphan.
fn five(history: &History) -> [usize; 5] {
    let counts = history.check();
    let found = [
        counts.lost,
        counts.double,
        counts.resurrected,
        counts.phantom,
        counts.orphan,
    ];
    assert_eq!(
        counts.verdict().is_err(),
        found != [0; 5],
        "{:?}",
        counts.findings
    );
    assert_eq!(counts.findings.is_empty(), found == [0; 5]);
    found
}

#[test]
fn a_good_history_is_counted_and_has_nothing_against_it() {
    let counts = good().check();
    counts.verdict().expect("nothing speaks against it");
    let expected = Counts {
        jobs: 2,
        results: 2,
        done: 2,
        starts: 3,
        superseded: 1,
        faults: kills(1, 1),
        ..Counts::default()
    };
    assert_eq!(counts, expected);
}

#[test]
fn an_accepted_job_without_a_result_is_lost() {
    let mut history = good();
    history.reads.retain(|read| read.job != "job-two");
    assert_eq!(five(&history), [1, 0, 0, 0, 0]);
}

#[test]
fn a_result_that_changes_and_a_second_one_on_record_are_double() {
    let mut history = good();
    history.reads[2].number = Some("aaaa".to_owned());
    assert_eq!(five(&history), [0, 1, 0, 0, 0]);
    for kind in ["run_finished", "job_ended"] {
        let mut history = good();
        history.audit.push(row(kind, "job-two"));
        assert_eq!(five(&history), [0, 1, 0, 0, 0], "{kind}");
    }
    // The first attempt's run ended by trouble of ours, and the second one's is the job's end.
    let mut history = good();
    history.audit.push(row_of("run_finished", "job-two", "2"));
    assert_eq!(five(&history), [0, 0, 0, 0, 0]);
}

#[test]
fn a_start_beyond_those_that_were_granted_is_double() {
    let mut history = good();
    history.starts.push(start("two", "dddd", 2_600));
    assert_eq!(five(&history), [0, 1, 0, 0, 0]);
    // By another session than the one that it was granted to.
    let mut history = good();
    history.starts[2].session = "session-2".to_owned();
    assert_eq!(five(&history), [0, 1, 0, 0, 0]);
}

#[test]
fn a_program_that_runs_after_its_result_is_resurrected() {
    let mut history = good();
    history.starts[0].last_ms = 4_001;
    assert_eq!(five(&history), [0, 0, 1, 0, 0]);
    let mut history = good();
    history.audit.push(row("run_started", "job-two"));
    history.starts.push(start("two", "dddd", 5_000));
    assert_eq!(five(&history), [0, 0, 1, 0, 0]);
}

#[test]
fn a_result_or_a_start_that_nobody_submitted_is_a_phantom() {
    let mut history = good();
    history
        .reads
        .push(read("job-three", "succeeded", Some("eeee"), 5_000));
    assert_eq!(five(&history), [0, 0, 0, 1, 0]);
    let mut history = good();
    history.starts.push(start("three", "eeee", 5_000));
    assert_eq!(five(&history), [0, 0, 0, 1, 0]);
}

#[test]
fn a_result_without_its_start_is_a_phantom() {
    // None was heard, another job's was, and none is named although a program is said to have run.
    for number in [Some("ffff"), Some("aaaa"), None] {
        let mut history = good();
        history.reads[1].number = number.map(ToOwned::to_owned);
        assert_eq!(five(&history), [0, 0, 0, 1, 0], "{number:?}");
    }
}

#[test]
fn a_container_that_is_left_is_an_orphan() {
    let mut history = good();
    history.containers_left = 2;
    assert_eq!(five(&history), [0, 0, 0, 0, 2]);
}

#[test]
fn a_job_that_never_ran_needs_no_start_and_is_not_done() {
    let mut history = good();
    for job in ["job-three", "job-four", "job-five"] {
        history.submissions.push(Submission {
            token: job.replace("job-", ""),
            job: job.to_owned(),
        });
        history.reads.push(read(job, "canceled", None, 3_000));
    }
    let counts = history.check();
    assert_eq!((counts.results, counts.done, counts.phantom), (5, 2, 0));
    assert!(counts.verdict().unwrap_err().contains("2 of 5 jobs"));
}

#[test]
fn a_run_without_a_fault_that_hit_a_running_job_shows_nothing() {
    // Too early, too late, and of an executor that ran nothing.
    for (at_ms, executor) in [(900, "executor-1"), (1_400, "executor-1"), (1_300, "executor-2")] {
        let mut history = good();
        history.faults[0].at_ms = at_ms;
        history.faults[0].executor = Some(executor.to_owned());
        assert_eq!(history.check().faults, kills(0, 0), "at {at_ms} to {executor}");
        assert!(history.check().verdict().unwrap_err().contains("no fault"));
    }
    // It hits what runs, and cuts only what never says that it is over.
    let mut history = good();
    history.faults[0].at_ms = 2_100;
    assert_eq!(history.check().faults, kills(1, 0));
}

#[test]
fn what_a_program_says_is_read_out_of_whatever_stands_around_it() {
    let text = b"\x00\x07history:begun:job-7:00ff:12:13;\n\xffhistory:runs:job-7:00ff:12:14;\nhistory:over:job-7:00f";
    let lines = said(text);
    assert_eq!(lines.len(), 2);
    assert_eq!((&*lines[0].what, &*lines[0].token), ("begun", "job-7"));
    assert_eq!(
        (&*lines[1].number, lines[1].begun_ms, lines[1].now_ms),
        ("00ff", 12, 14)
    );
    assert_eq!(line("over:job-7:00ff:12"), None);
    let document =
        json!({ "job": "j", "state": "succeeded", "stdout": { "text": String::from_utf8_lossy(text) } });
    assert_eq!(
        Read::of(&document, 5),
        Some(read("j", "succeeded", Some("00ff"), 5))
    );
    assert_eq!(Read::of(&json!({ "job": "j", "state": "started" }), 5), None);
}

#[test]
fn a_program_says_what_is_read_of_it() {
    let python = std::process::Command::new("python3")
        .args(["-c", &program("job-7", 20)])
        .output();
    let Ok(output) = python else {
        crate::support::skip("python3 is not here");
        return;
    };
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines = said(&output.stdout);
    let what: Vec<&str> = lines.iter().map(|line| &*line.what).collect();
    assert_eq!(what, ["begun", "runs", "runs", "runs", "runs", "over"]);
    assert!(
        lines
            .iter()
            .all(|line| line.token == "job-7" && line.number == lines[0].number)
    );
    assert!(lines[0].now_ms < lines[5].now_ms);
}

/// A container that mayfly knows nothing of, with what a program says and a session's labels.
#[tokio::test]
async fn a_start_that_no_session_was_granted_is_heard_through_the_engine() {
    let Some(pin) = crate::support::python() else {
        return;
    };
    let deployment = format!("history-{}", mayfly_core::id::JobId::new());
    let recorder = Recorder::begin(&deployment);
    recorder.accepted("job-1", "job");
    let labels = [
        format!("mayfly.deployment={deployment}"),
        "mayfly.sandbox=made-up".to_owned(),
        format!("mayfly.session={SESSION}"),
        "mayfly.executor=executor-1".to_owned(),
    ];
    let mut docker = std::process::Command::new("docker");
    docker.args(["run", "--rm", "--network", "none", "--entrypoint", "python3"]);
    for label in &labels {
        docker.args(["--label", label]);
    }
    let image = pin.config_digest.to_string();
    let ran = docker.args([&*image, "-c", &program("job-1", 1_000)]).output();
    let ran = ran.expect("docker starts");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let start = crate::support::wait_for(crate::support::SOON, "the end of the program", async || {
        let starts = recorder.history(&[], 0).starts;
        starts
            .into_iter()
            .find(|start| start.over && start.gone_ms.is_some())
    })
    .await;
    assert_eq!((&*start.session, &*start.executor), (SESSION, "executor-1"));
    let granted = format!("run_started|job|1|{SESSION}");
    assert_eq!(recorder.history(&[], 0).check().double, 1);
    assert_eq!(recorder.history(&[granted], 0).check().double, 0);
}
