//! Requests: what is sent again, what is not, and what is never sent.

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use mayfly_client::{ApiKey, Client, ClientConfig, ClientError, ServerUrl};
use mayfly_core::{chain::Chain, job::JobSpec};
use mayfly_wire::{account::NewTenant, problem::Code};

use crate::{
    KEY, client,
    server::{Answer, Scripted, json, problem, with_type},
};

const VERSION: &str = r#"{"name":"mayfly","version":"9","api":"v1","of_tomorrow":1}"#;
const SUBMITTED: &str = r#"{"job":"0192f0c1-2f7e-7cc3-98c4-dc0c0c07398f","existing":false}"#;

fn spec() -> JobSpec {
    serde_json::from_value(serde_json::json!({"image": "python", "command": ["true"]})).unwrap()
}

fn tenant() -> NewTenant {
    NewTenant {
        name: "acme".to_owned(),
        weight: None,
        most_in_flight: None,
        most_queued: None,
    }
}

#[tokio::test]
async fn a_request_carries_the_key_and_fields_of_tomorrow_are_passed_over() {
    let server = Scripted::start(vec![json(200, "", VERSION)]);
    let version = client(&server).version().await.unwrap();
    assert_eq!((version.name.as_str(), version.version.as_str()), ("mayfly", "9"));
    let heard = server.heard();
    assert_eq!(heard.line, "GET /v1/version HTTP/1.1");
    assert_eq!(
        heard.header("authorization"),
        Some(format!("Bearer {KEY}").as_str())
    );
}

#[tokio::test]
async fn a_submission_that_was_cut_is_sent_again_under_the_same_key() {
    let whole = with_type(202, "application/json", "", SUBMITTED);
    let server = Scripted::start(vec![
        Answer::Bytes(Vec::new()),
        Answer::Bytes(whole[..whole.len() - 5].to_vec()),
        problem("unavailable", 503, ""),
        Answer::Bytes(b"HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_vec()),
        Answer::Bytes(whole),
    ]);
    let submitted = client(&server).submit(&spec(), "key-1").await.unwrap();
    assert!(!submitted.existing);
    let heard = server.rest();
    assert_eq!(heard.len(), 5);
    for request in &heard {
        assert_eq!(request.header("idempotency-key"), Some("key-1"));
        assert_eq!(request.body, heard[0].body);
    }
}

#[tokio::test]
async fn what_may_have_been_done_and_has_no_key_is_not_sent_again() {
    for answer in [
        Answer::Bytes(Vec::new()),
        problem("unavailable", 503, "retry-after: 0\r\n"),
        Answer::Bytes(b"HTTP/1.1 504 X\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_vec()),
    ] {
        let server = Scripted::start(vec![answer]);
        let error = client(&server).create_tenant(&tenant()).await.unwrap_err();
        assert!(
            matches!(error, ClientError::Cut { .. } | ClientError::Refused(_)),
            "{error:?}"
        );
        assert_eq!(server.rest().len(), 1);
    }
}

#[tokio::test]
async fn a_request_that_was_turned_away_at_the_door_comes_back_when_it_was_told_to() {
    let tenant_made = r#"{"tenant":"0192f0c1-2f7e-7cc3-98c4-dc0c0c07398f","name":"acme","weight":1,
        "created_at":"2026-11-29T00:00:00Z"}"#;
    let server = Scripted::start(vec![
        problem("rate_limited", 429, "retry-after: 1\r\n"),
        problem("overloaded", 503, "retry-after: 1\r\n"),
        json(201, "", tenant_made),
    ]);
    let begun = Instant::now();
    let made = client(&server).create_tenant(&tenant()).await.unwrap();
    assert_eq!(made.name, "acme");
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(server.rest().len(), 3);
}

#[tokio::test]
async fn a_time_that_is_too_far_away_is_said_and_not_waited_for() {
    let server = Scripted::start(vec![problem("over_quota", 429, "retry-after: 3600\r\n")]);
    let begun = Instant::now();
    let error = client(&server).submit(&spec(), "key-1").await.unwrap_err();
    assert_eq!(error.code(), Some(Code::OverQuota));
    assert!(error.to_string().contains("try again in 3600 s"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_asked_until_the_patience_ends() {
    // A port that was free a moment ago, and that nobody listens on.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = ClientConfig {
        server: ServerUrl::parse(&format!("http://{address}"), false).unwrap(),
        key: Some(ApiKey::new(KEY).unwrap()),
        ca: None,
        timeout: Duration::from_secs(10),
        patience: Duration::from_secs(1),
        max_answer: 1 << 20,
    };
    let begun = Instant::now();
    let error = Client::new(config)
        .unwrap()
        .create_tenant(&tenant())
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains("client.server"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    let all = format!("{} {error:?}", Chain(&error));
    assert!(!all.contains("hunter2"), "{all}");
}

// The connections are given up by tasks of their own, which must run while the end of the server is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_answer_is_not_waited_for_without_end() {
    let server = Scripted::start(vec![
        Answer::Silence(Vec::new()),
        Answer::Silence(b"HTTP/1.1 200 X\r\ncontent-length: 100\r\n\r\n{".to_vec()),
    ]);
    let quick = Client::new(ClientConfig {
        server: ServerUrl::parse(&server.url(), false).unwrap(),
        key: None,
        ca: None,
        timeout: Duration::from_millis(300),
        patience: Duration::from_millis(400),
        max_answer: 1 << 20,
    });
    let quick = quick.unwrap();
    let error = quick.create_tenant(&tenant()).await.unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error:?}");
    let error = quick.create_tenant(&tenant()).await.unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error:?}");
    assert_eq!(server.rest().len(), 2);
}

#[tokio::test]
async fn an_answer_has_a_bound_whether_or_not_it_says_its_length() {
    let much = format!("\"{}\"", "x".repeat(2 << 20));
    let mut endless =
        b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n".to_vec();
    endless.extend_from_slice(much.as_bytes());
    let declared = with_type(200, "application/json", "", &much);
    let mut problem =
        b"HTTP/1.1 422 X\r\ncontent-type: application/problem+json\r\nconnection: close\r\n\r\n".to_vec();
    problem.extend_from_slice(much.as_bytes());
    for answer in [declared, endless, problem] {
        let server = Scripted::start(vec![Answer::Bytes(answer)]);
        let error = client(&server).version().await.unwrap_err();
        assert!(matches!(error, ClientError::TooLarge { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn what_is_not_the_api_is_said_to_be_none_and_gets_the_key_nowhere() {
    let elsewhere = Scripted::start(vec![json(200, "", VERSION)]);
    let location = format!("location: {}/v1/version\r\n", elsewhere.url());
    for answer in [
        json(404, "", "<html>"),
        json(302, &location, ""),
        json(307, &location, ""),
    ] {
        let server = Scripted::start(vec![answer]);
        let error = client(&server).version().await.unwrap_err();
        assert!(matches!(error, ClientError::NotTheApi { .. }), "{error:?}");
        assert_eq!(server.rest().len(), 1);
    }
    let server = Scripted::start(vec![json(200, "", "<html>")]);
    let error = client(&server).version().await.unwrap_err();
    assert!(matches!(error, ClientError::Unreadable { .. }), "{error:?}");
    // The one whom the redirects named has heard nothing but this.
    client(&elsewhere).version().await.unwrap();
    assert_eq!(elsewhere.rest().len(), 1);
}

#[tokio::test]
async fn a_refusal_is_what_the_server_says() {
    let server = Scripted::start(vec![problem("forbidden", 403, "")]);
    let error = client(&server).executors(100).next().await.unwrap_err();
    assert_eq!(error.code(), Some(Code::Forbidden));
    assert_eq!(server.rest().len(), 1);
    let server = Scripted::start(vec![problem("of_tomorrow", 418, "")]);
    let error = client(&server).executors(100).next().await.unwrap_err();
    assert_eq!(
        (error.code(), error.refusal().unwrap().status),
        (Some(Code::Unknown), 418)
    );
}

#[tokio::test]
async fn a_server_that_is_not_ready_says_so_as_an_answer() {
    let body = r#"{"ready":false,"checks":[{"name":"database","ok":false,"required":true,"reason":"away"}]}"#;
    let server = Scripted::start(vec![json(503, "", body)]);
    let ready = client(&server).ready().await.unwrap();
    assert_eq!(
        (ready.ready, ready.checks[0].reason.as_deref()),
        (false, Some("away"))
    );
}

#[tokio::test]
async fn a_list_is_walked_page_by_page_and_never_in_circles() {
    let line = |id: u32| {
        format!(
            r#"{{"tenant":"0192f0c1-2f7e-7cc3-98c4-{id:012}","name":"t{id}","weight":1,"created_at":"2026-11-29T00:00:00Z"}}"#
        )
    };
    let page = |ids: &[u32], next: &str| {
        let lines: Vec<_> = ids.iter().map(|id| line(*id)).collect();
        json(
            200,
            "",
            &format!(r#"{{"tenants":[{}],"next":{next}}}"#, lines.join(",")),
        )
    };
    let server = Scripted::start(vec![
        page(&[1, 2], "\"a b\""),
        problem("unavailable", 503, ""),
        page(&[], "\"c\""),
        page(&[3], "null"),
    ]);
    let all = client(&server).tenants(2).take(usize::MAX).await.unwrap();
    let names: Vec<_> = all.iter().map(|tenant| tenant.name.as_str()).collect();
    assert_eq!(names, ["t1", "t2", "t3"]);
    let lines: Vec<_> = server.rest().into_iter().map(|heard| heard.line).collect();
    assert_eq!(lines[0], "GET /v1/tenants?limit=2 HTTP/1.1");
    assert_eq!(lines[2], "GET /v1/tenants?cursor=a+b&limit=2 HTTP/1.1");
    let server = Scripted::start(vec![page(&[1], "\"a\""), page(&[2], "\"a\"")]);
    let circle = client(&server).tenants(1).take(usize::MAX).await;
    assert!(matches!(circle, Err(ClientError::Unreadable { .. })));
}
