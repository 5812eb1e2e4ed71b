//! Whatever is no success is a problem document, with a stable code and nothing of our insides.

use std::io::Write as _;

use reqwest::{Method, Response, StatusCode, header};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::ground::{Ground, Who, spec};

/// The problem that an answer is.
async fn problem(answer: Response) -> Value {
    assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/problem+json");
    assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
    assert_eq!(answer.headers()[header::CACHE_CONTROL], "no-store");
    let (status, id) = (answer.status(), answer.headers()["x-request-id"].clone());
    let problem: Value = answer.json().await.unwrap();
    assert_eq!(problem["status"], status.as_u16());
    assert_eq!(problem["request_id"], id.to_str().unwrap());
    assert_eq!(
        problem["type"],
        format!("urn:mayfly:problem:{}", problem["code"].as_str().unwrap())
    );
    problem
}

async fn code(answer: Response) -> String {
    problem(answer).await["code"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_no_route_has_is_a_problem_too() {
    let ground = Ground::new().await;
    for path in [
        "/",
        "/v2/jobs",
        "/v1",
        "/v1/jobs/",
        "/v1//jobs",
        "/V1/jobs",
        "/v1/jobs/a/b/c/d",
        "/v1/%2e%2e/jobs",
        "/metrics",
        "/debug/pprof",
    ] {
        let answer = ground.get(Who::Admin, path).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
        assert_eq!(code(answer).await, "no_such_route", "{path}");
    }
    for (method, path, allow) in [
        (Method::PUT, "/v1/jobs", "GET,HEAD,POST"),
        (Method::DELETE, "/v1/health/live", "GET,HEAD"),
        (Method::PATCH, "/v1/images/python", "PUT"),
    ] {
        let answer = ground.by(Who::Admin, method, path).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
        let mut allowed: Vec<_> = answer.headers()[header::ALLOW]
            .to_str()
            .unwrap()
            .split(',')
            .map(str::to_owned)
            .collect();
        allowed.sort();
        assert_eq!(allowed.join(","), allow);
        assert_eq!(code(answer).await, "method_not_allowed");
    }
    let answer = ground
        .by(Who::Viewer, Method::POST, "/v1/jobs")
        .header("x-http-method-override", "GET")
        .json(&spec())
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_body_that_is_none_of_ours_is_refused_with_the_reason() {
    let ground = Ground::new().await;
    let send = async |content_type: Option<&str>, body: Vec<u8>| {
        let mut request = ground.by(Who::Submitter, Method::POST, "/v1/jobs").body(body);
        if let Some(content_type) = content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        request.send().await.unwrap()
    };
    let json = Some("application/json");
    for other in [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
        Some("multipart/form-data"),
    ] {
        let answer = send(other, spec().to_string().into_bytes()).await;
        assert_eq!(answer.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE, "{other:?}");
        assert_eq!(code(answer).await, "unsupported_media_type");
    }
    for broken in [
        &b""[..],
        b"{",
        b"\xff",
        br#"{"image": "python",}"#,
        br#"{"image": "python"}{}"#,
    ] {
        let answer = send(json, broken.to_vec()).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
        assert_eq!(code(answer).await, "malformed_json");
    }
    let deep = format!("{{\"image\": {}", "[".repeat(100_000));
    for other in [
        &b"nul"[..],
        b"null",
        b"[]",
        br#"["python"]"#,
        b"7",
        deep.as_bytes(),
    ] {
        let answer = send(json, other.to_vec()).await;
        assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(code(answer).await, "invalid_body");
    }
    let large = vec![b' '; (24 << 20) + 1];
    let answer = send(json, large).await;
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(code(answer).await, "body_too_large");
    for charset in ["application/json; charset=utf-8", "Application/JSON"] {
        let answer = send(Some(charset), spec().to_string().into_bytes()).await;
        assert_eq!(answer.status(), StatusCode::ACCEPTED, "{charset}");
    }
}

/// Also a field that only we may write.
#[tokio::test]
async fn a_field_that_is_unknown_or_wrong_is_named_by_its_path() {
    let ground = Ground::new().await;
    let with = |key: &str, value: Value| {
        let mut body = spec();
        body[key] = value;
        body
    };
    for (body, path) in [
        (with("tenant_id", json!("x")), "tenant_id"),
        (with("state", json!("succeeded")), "state"),
        (with("exit_code", json!(0)), "exit_code"),
        (
            with("limits", json!({"memory": "256MiB", "mem": 1})),
            "limits.mem",
        ),
        (with("limits", json!({"memory": 256})), "limits.memory"),
        (
            with("files", json!([{"path": "a", "content": "", "mode": 7}])),
            "files[0].mode",
        ),
        (with("image", json!("python:3")), "image"),
        (with("priority", json!(100_000)), "priority"),
    ] {
        let answer = ground
            .post(Who::Submitter, "/v1/jobs", &body)
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY, "{path}");
        let problem = problem(answer).await;
        assert_eq!(problem["code"], "invalid_body", "{path}");
        assert_eq!(problem["faults"][0]["path"], path, "{problem}");
    }
    let answer = ground
        .get(Who::Submitter, "/v1/jobs?limti=1")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    assert_eq!(code(answer).await, "invalid_parameter");
}

#[tokio::test]
async fn every_fault_of_a_job_is_listed_at_once() {
    let ground = Ground::new().await;
    let body = json!({
        "image": "of-nobody",
        "source": {"text": "print(1)"},
        "command": ["true"],
        "limits": {"memory": "1TiB", "wall": "1ms"},
        "runtime": "none-such",
        "not_before": "2126-01-01T00:00:00Z",
    });
    let answer = ground
        .post(Who::Submitter, "/v1/jobs", &body)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let problem = problem(answer).await;
    assert_eq!(problem["code"], "invalid_job");
    let faults = problem["faults"].as_array().unwrap();
    let paths: Vec<_> = faults
        .iter()
        .map(|fault| fault["path"].as_str().unwrap())
        .collect();
    for expected in ["limits.memory", "limits.wall", "runtime", "not_before", "image"] {
        assert!(paths.contains(&expected), "{expected} of {paths:?}");
    }
    assert_eq!(paths.last(), Some(&"image"));
    let body = json!({"image": "of-nobody", "command": ["true"]});
    let answer = ground
        .post(Who::Submitter, "/v1/jobs", &body)
        .send()
        .await
        .unwrap();
    assert_eq!(code(answer).await, "image_not_pinned");
    let digest = format!("python@sha256:{}", "0".repeat(64));
    let body = json!({"image": digest, "command": ["true"]});
    let answer = ground
        .post(Who::Submitter, "/v1/jobs", &body)
        .send()
        .await
        .unwrap();
    assert_eq!(code(answer).await, "image_not_pinned");
    // Of many, each fault says of which job it is, and none is accepted.
    let bulk = json!({"jobs": [spec(), {"image": "python", "command": []}, {"image": "of-nobody", "command": ["true"]}]});
    let answer = ground
        .post(Who::Submitter, "/v1/jobs/bulk", &bulk)
        .send()
        .await
        .unwrap();
    let problem = self::problem(answer).await;
    let faults = problem["faults"].as_array().unwrap();
    assert!(
        faults
            .iter()
            .any(|fault| fault["path"].as_str().unwrap().starts_with("jobs[1].")),
        "{faults:?}"
    );
    assert!(
        faults.iter().any(|fault| fault["path"] == "jobs[2].image"),
        "{faults:?}"
    );
    let jobs: Value = ground
        .get(Who::Viewer, "/v1/jobs")
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(jobs["jobs"], json!([]));
}

#[tokio::test]
async fn a_panic_is_answered_without_its_words_and_the_server_goes_on() {
    let ground = Ground::new().await;
    *ground.doubles.broken.lock().unwrap() = true;
    let path = format!("/v1/executors/{}/drain", ground.executor);
    let answer = ground
        .by(Who::Operator, Method::POST, &path)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let problem = problem(answer).await;
    assert_eq!(problem["code"], "internal");
    assert!(!problem.to_string().contains("inside-1b5c"), "{problem}");
    let answer = ground.get(Who::Operator, "/v1/executors").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
}

/// The request line, the headers, and what comes too slowly or not at all.
#[tokio::test]
async fn what_is_hardly_http_harms_nobody() {
    let ground = Ground::new().await;
    let mut header = Vec::new();
    write!(
        header,
        "GET /v1/version HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
        "a".repeat(1 << 20)
    )
    .unwrap();
    let mut many = b"GET /v1/version HTTP/1.1\r\nHost: a\r\n".to_vec();
    for number in 0..200 {
        write!(many, "X-{number}: a\r\n").unwrap();
    }
    many.extend(b"\r\n");
    for bytes in [
        &b"\x16\x03\x01\x02\x00"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        &header,
        &many,
    ] {
        let mut stream = tokio::net::TcpStream::connect(ground.address).await.unwrap();
        // The server may have refused before all of it was sent.
        if stream.write_all(bytes).await.is_ok() {
            stream.shutdown().await.unwrap();
        }
        let mut answer = Vec::new();
        if stream.read_to_end(&mut answer).await.is_ok() {
            let text = String::from_utf8_lossy(&answer);
            assert!(!text.starts_with("HTTP/1.1 200"), "{text}");
        }
    }
    let answer = ground.open(Method::GET, "/v1/version").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
}
