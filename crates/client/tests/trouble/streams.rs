//! A job's stream over connections that do not last.

use std::fmt::Write as _;

use mayfly_client::{Client, ClientError, JobEvent};
use mayfly_core::id::JobId;
use mayfly_wire::problem::Code;

use crate::{
    client,
    server::{Answer, Scripted, json, problem},
};

const JOB: &str = "0192f0c1-2f7e-7cc3-98c4-dc0c0c07398f";
const ATTEMPT: &str = "0192f0c1-2f7e-7cc3-98c4-dc0c0c073990";
const HEAD: &str = "HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

fn output(offset: u64, text: &str, id: &str) -> String {
    format!(
        "id: {id}\nevent: output\ndata: {{\"attempt\":\"{ATTEMPT}\",\"stream\":\"stdout\",\"offset\":{offset},\
         \"content\":{{\"text\":\"{text}\"}}}}\n\n"
    )
}

fn state(state: &str, id: &str) -> String {
    format!("id: {id}\nevent: state\ndata: {{\"job\":\"{JOB}\",\"state\":\"{state}\",\"attempts\":1}}\n\n")
}

fn end(id: &str) -> String {
    format!(
        "id: {id}\nevent: end\ndata: {{\"job\":\"{JOB}\",\"state\":\"succeeded\",\"cause\":\"exited\",\"exit_code\":0,\
         \"signal\":null}}\n\n"
    )
}

fn stream(parts: &[String]) -> Answer {
    Answer::Bytes(format!("{HEAD}{}", parts.concat()).into_bytes())
}

/// All that happens, in short.
async fn follow(client: &Client) -> Result<String, ClientError> {
    let mut events = client.events(JOB.parse::<JobId>().unwrap());
    let mut all = String::new();
    while let Some(event) = events.next().await? {
        match event {
            JobEvent::State(state) => write!(all, "{:?} ", state.state),
            JobEvent::Output { offset, bytes, .. } => {
                write!(all, "{offset}:{} ", String::from_utf8(bytes).unwrap())
            }
            JobEvent::Gap(gap) => write!(all, "gap {}-{} ", gap.from, gap.to),
            JobEvent::End(end) => write!(all, "end {:?}", end.state),
        }
        .unwrap();
    }
    assert!(events.next().await?.is_none(), "the end stays the end");
    Ok(all)
}

#[tokio::test]
async fn a_lost_connection_goes_on_behind_the_newest_event_and_repeats_nothing() {
    let server = Scripted::start(vec![
        // Cut in the middle of an event.
        stream(&[
            ": hello\n\n".to_owned(),
            state("started", "a"),
            output(0, "one", "b"),
            output(3, "two", "c")[..30].to_owned(),
        ]),
        problem("unavailable", 503, ""),
        // A server that begins anew all the same.
        stream(&[state("started", "a2"), output(0, "onetwo", "c2")]),
        stream(&[
            "event: of_tomorrow\ndata: x\n\n".to_owned(),
            output(9, "x", "d"),
            end("e"),
        ]),
    ]);
    let all = follow(&client(&server)).await.unwrap();
    assert_eq!(all, "Started 0:one Started 3:two gap 6-9 9:x end Succeeded");
    let heard = server.rest();
    let last: Vec<_> = heard
        .iter()
        .map(|request| request.header("last-event-id"))
        .collect();
    assert_eq!(last, [None, Some("b"), Some("b"), Some("c2")]);
    for request in &heard {
        assert_eq!(request.line, format!("GET /v1/jobs/{JOB}/events HTTP/1.1"));
        assert_eq!(request.header("accept"), Some("text/event-stream"));
    }
}

#[tokio::test]
async fn a_job_that_is_not_there_is_not_asked_for_again() {
    let server = Scripted::start(vec![problem("not_found", 404, "")]);
    let error = follow(&client(&server)).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::NotFound));
    assert_eq!(server.rest().len(), 1);
}

#[tokio::test]
async fn what_is_no_stream_of_ours_is_said_to_be_none() {
    for data in ["no json", "{}", "\u{1}"] {
        let server = Scripted::start(vec![stream(&[format!("event: state\ndata: {data}\n\n")])]);
        let error = follow(&client(&server)).await.unwrap_err();
        assert!(matches!(error, ClientError::Unreadable { .. }), "{error:?}");
    }
    let server = Scripted::start(vec![json(200, "", &"x".repeat(9 << 20))]);
    let error = follow(&client(&server)).await.unwrap_err();
    assert!(matches!(error, ClientError::Unreadable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_server_that_went_away_is_waited_for_until_the_patience_ends() {
    let server = Scripted::start(vec![stream(&[state("started", "a")])]);
    let impatient = client(&server).with_patience(std::time::Duration::from_millis(500));
    let error = follow(&impatient).await.unwrap_err();
    assert!(
        matches!(error, ClientError::Unreachable { .. } | ClientError::Cut { .. }),
        "{error:?}"
    );
}
