//! Files of a run: left by the address in its order alone, listed and downloaded by whoever may read its output.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mayfly_core::{
    artifact::{Artifact, ArtifactLimits, Artifacts, LeftOut, LeftOutWhy, PIECE},
    digest::Digest,
    egress::{Decision, EgressRecord, Reason, Verdict},
    id::TenantId,
    outcome::Redacted,
    run::RunReport,
    units::{ByteSize, Span},
};
use mayfly_dispatch::{
    message::{BlobPlaces, DispatchMessage, READS},
    token::TokenKey,
};
use mayfly_store::contract::bench::{Plan, success};
use mayfly_wire::{artifact::ArtifactList, job::Job};
use reqwest::{Response, StatusCode, header};
use serde_json::{Value, json};

use crate::ground::{Ground, Who, spec};

const MOST: u64 = 4 << 20;

/// A job that asks for files and has started: its order as it would be sent.
async fn started(ground: &Ground, tenant: TenantId) -> DispatchMessage {
    let mut plan = Plan {
        tenant,
        ..Plan::once()
    };
    plan.resolved.artifacts = vec!["*".to_owned()];
    plan.resolved.artifact_limits = Some(ArtifactLimits {
        files: 10,
        file: ByteSize::bytes(MOST),
        total: ByteSize::bytes(MOST),
        time: Span::seconds(60),
    });
    let job = ground.bench.submit(&plan).await;
    let whole = ground.start(job).await;
    let places = BlobPlaces {
        base: ground.url(""),
        // As the ground's server has it.
        key: TokenKey::from_bytes([7; 32]).blob_key(),
        input_above: 1 << 20,
        output_above: 64 << 20,
    };
    places.equip(whole, READS, ground.bench.now)
}

/// Leaves a piece at an address.
async fn put(ground: &Ground, url: &str, named: &[u8], content: Vec<u8>) -> Response {
    let digest = STANDARD.encode(Digest::of(named).as_bytes());
    let request = ground
        .client
        .put(url)
        .header("content-digest", format!("sha-256=:{digest}:"))
        .header(header::CONTENT_LENGTH, content.len());
    request.body(content).send().await.unwrap()
}

async fn leave(
    ground: &Ground,
    order: &DispatchMessage,
    file: u32,
    piece: u32,
    content: &[u8],
) -> StatusCode {
    let url = order.artifacts.as_ref().unwrap().of_piece(file, piece);
    put(ground, url.reveal(), content, content.to_vec())
        .await
        .status()
}

fn artifact(name: &[u8], number: u32, content: &[u8]) -> Artifact {
    Artifact {
        name: name.to_vec().into(),
        bytes: content.len() as u64,
        digest: Digest::of(content),
        redacted: Redacted::default(),
        is_text: false,
        number,
    }
}

fn report(files: Vec<Artifact>) -> RunReport {
    RunReport {
        artifacts: Some(Artifacts {
            files,
            left_out: vec![LeftOut {
                name: "link".into(),
                why: LeftOutWhy::Link,
                bytes: None,
            }],
            not_named: 1,
            incomplete: Some("the time for it was over".to_owned()),
        }),
        ..success()
    }
}

async fn get(ground: &Ground, path: &str, range: Option<&str>) -> Response {
    let mut request = ground.get(Who::Viewer, path);
    if let Some(range) = range {
        request = request.header(header::RANGE, range);
    }
    request.send().await.unwrap()
}

#[tokio::test]
async fn files_that_were_left_in_pieces_are_listed_and_come_back_whole_and_by_range() {
    let ground = Ground::new().await;
    let order = started(&ground, ground.tenant).await;
    let long: Vec<u8> = (0..=255).cycle().take(2 * PIECE + 10).collect();
    for (number, piece) in (0..).zip(long.chunks(PIECE)) {
        for _ in 0..2 {
            assert_eq!(
                leave(&ground, &order, 2, number, piece).await,
                StatusCode::NO_CONTENT
            );
        }
    }
    assert_eq!(
        leave(&ground, &order, 1, 0, b"dropped").await,
        StatusCode::NO_CONTENT
    );
    let path = format!("/v1/jobs/{}/artifacts", order.job);
    let before: ArtifactList = get(&ground, &path, None).await.json().await.unwrap();
    assert!(!before.collected && before.files.is_empty());
    assert_eq!(
        get(&ground, &format!("{path}/0"), None).await.status(),
        StatusCode::NOT_FOUND
    );
    let files = vec![artifact(b"out/a\"\r\nb.bin", 2, &long), artifact(b"\xff", 3, b"")];
    ground.finish(&order, report(files)).await;
    let list: ArtifactList = get(&ground, &path, None).await.json().await.unwrap();
    assert_eq!(
        list.files
            .iter()
            .map(|file| (file.index, file.bytes))
            .collect::<Vec<_>>(),
        [(0, long.len() as u64), (1, 0)]
    );
    assert_eq!(list.files[0].sha256, Digest::of(&long).to_hex());
    assert_eq!(json!(list.files[1].name), json!({"base64": "/w=="}));
    assert!(list.collected && list.not_named == 1 && list.incomplete.is_some());
    assert_eq!(list.left_out[0].why, LeftOutWhy::Link);
    let job: Job = get(&ground, &format!("/v1/jobs/{}", order.job), None)
        .await
        .json()
        .await
        .unwrap();
    assert_eq!(job.artifacts, Some(list));
    let answer = get(&ground, &format!("{path}/0"), None).await;
    let headers = answer.headers().clone();
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(headers[header::CONTENT_LENGTH], long.len().to_string().as_str());
    assert_eq!(headers[header::CONTENT_TYPE], "application/octet-stream");
    assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    assert_eq!(
        headers[header::CONTENT_SECURITY_POLICY],
        "default-src 'none'; sandbox"
    );
    let disposition = format!(
        "attachment; filename=\"{}.0\"; filename*=UTF-8''a%22%0D%0Ab.bin",
        order.job
    );
    assert_eq!(headers[header::CONTENT_DISPOSITION], disposition.as_str());
    let digest = STANDARD.encode(Digest::of(&long).as_bytes());
    assert_eq!(headers["repr-digest"], format!("sha-256=:{digest}:").as_str());
    assert!(answer.bytes().await.unwrap() == long);
    assert!(
        get(&ground, &format!("{path}/1"), None)
            .await
            .bytes()
            .await
            .unwrap()
            .is_empty()
    );
    for (range, from, to) in [
        ("bytes=0-0", 0, 1),
        ("bytes=1048570-1048580", 1_048_570, 1_048_581),
        ("bytes=1048576-", PIECE, long.len()),
        ("bytes=-11", long.len() - 11, long.len()),
    ] {
        let answer = get(&ground, &format!("{path}/0"), Some(range)).await;
        assert_eq!(answer.status(), StatusCode::PARTIAL_CONTENT);
        let named = format!("bytes {from}-{}/{}", to - 1, long.len());
        assert_eq!(answer.headers()[header::CONTENT_RANGE], named.as_str());
        assert!(answer.bytes().await.unwrap() == long[from..to], "{range}");
    }
    let beyond = get(&ground, &format!("{path}/0"), Some("bytes=2097162-")).await;
    assert_eq!(beyond.status(), StatusCode::RANGE_NOT_SATISFIABLE);
    for wrong in ["2", "4294967295", "4294967296", "-1", "x"] {
        let status = get(&ground, &format!("{path}/{wrong}"), None).await.status();
        assert!(
            status == StatusCode::NOT_FOUND || status == StatusCode::BAD_REQUEST,
            "{wrong}: {status}"
        );
    }
}

/// Whoever may not read what jobs wrote learns no name either.
#[tokio::test]
async fn names_of_files_are_for_those_who_may_read_output() {
    let ground = Ground::new().await;
    let order = started(&ground, ground.tenant).await;
    ground
        .finish(&order, report(vec![artifact(b"a name of the job", 0, b"")]))
        .await;
    let path = format!("/v1/jobs/{}", order.job);
    let text = |who| {
        let request = ground.get(who, &path);
        async move { request.send().await.unwrap().text().await.unwrap() }
    };
    assert!(text(Who::Viewer).await.contains("a name of the job"));
    let hidden = text(Who::Auditor).await;
    assert!(!hidden.contains("a name of the job"), "{hidden}");
}

/// And of the hosts that it asked for.
#[tokio::test]
async fn what_a_job_asked_of_hosts_outside_is_for_those_who_may_read_output() {
    let ground = Ground::new().await;
    let order = started(&ground, ground.tenant).await;
    let decision = Decision {
        at_ms: 1,
        method: "GET".to_owned(),
        name: "host-of-the-job.test".to_owned(),
        port: Some(80),
        address: None,
        class: None,
        verdict: Verdict::Refused,
        reason: Reason::NameNotAllowed,
        credential: None,
        sent_bytes: 0,
        received_bytes: 0,
        took_ms: 2,
    };
    let report = RunReport {
        egress: Some(EgressRecord {
            decisions: vec![decision],
            counts: [(Verdict::Refused, 1)].into(),
            ..EgressRecord::default()
        }),
        ..success()
    };
    ground.finish(&order, report).await;
    let path = format!("/v1/jobs/{}", order.job);
    let shown = async |who| -> Value { ground.get(who, &path).send().await.unwrap().json().await.unwrap() };
    let seen = shown(Who::Viewer).await;
    assert_eq!(seen["egress"]["counts"], json!({"refused": 1}));
    let first = &seen["egress"]["decisions"][0];
    assert_eq!(
        (&first["name"], &first["verdict"], &first["reason"]),
        (
            &json!("host-of-the-job.test"),
            &json!("refused"),
            &json!("name_not_allowed")
        )
    );
    let hidden = shown(Who::Auditor).await;
    assert!(hidden["egress"].is_null() && !hidden.to_string().contains("host-of-the-job"));
    let audit = ground
        .get(Who::Auditor, &format!("{path}/audit"))
        .send()
        .await
        .unwrap();
    let audit = audit.text().await.unwrap();
    assert!(
        audit.contains("refused") && !audit.contains("host-of-the-job"),
        "{audit}"
    );
}

#[tokio::test]
async fn a_job_that_asks_for_more_than_its_policy_lets_it_reach_is_refused() {
    let ground = Ground::new().await;
    let mut asking = spec();
    asking["egress"] = json!(["pypi.org", "*"]);
    let refused = ground
        .post(Who::Submitter, "/v1/jobs", &asking)
        .send()
        .await
        .unwrap();
    assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let problem: Value = refused.json().await.unwrap();
    let found: Vec<_> = problem["faults"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| (fault["path"].as_str().unwrap(), fault["code"].as_str().unwrap()))
        .collect();
    assert_eq!(found, [("egress[1]", "bad_rule"), ("egress[0]", "not_allowed")]);
    let message = problem["faults"][1]["message"].as_str().unwrap();
    assert!(
        message.contains("the policy lets jobs reach: nothing"),
        "{message}"
    );
}

#[tokio::test]
async fn an_address_takes_pieces_of_its_own_attempt_within_its_bound_and_refusals_read_the_same() {
    let ground = Ground::new().await;
    let order = started(&ground, ground.tenant).await;
    let other = started(&ground, ground.other_tenant).await;
    let good = order.artifacts.as_ref().unwrap();
    let bare = good.reveal();
    let at = |file, piece| good.of_piece(file, piece).reveal().to_owned();
    let mut seen = Vec::new();
    for url in [
        bare.to_owned(),
        format!("{bare}&file=0"),
        format!("{bare}&piece=0"),
        format!("{bare}&file=-1&piece=0"),
        format!("{bare}&file=4294967296&piece=0"),
        format!("{}&more=1", at(0, 0)),
        at(0, 0).replace("/artifact?", "/output?"),
        at(0, 0).replace(&format!("bytes={MOST}"), &format!("bytes={}", MOST + 1)),
        at(0, 0).replace(&order.attempt.to_string(), &other.attempt.to_string()),
        at(0, 0).replace(&order.tenant.to_string(), &other.tenant.to_string()),
    ] {
        seen.push(put(&ground, &url, b"a", b"a".to_vec()).await);
    }
    // Another digest, nothing, and more than a piece.
    seen.push(put(&ground, &at(0, 0), b"b", b"a".to_vec()).await);
    seen.push(put(&ground, &at(0, 0), b"", Vec::new()).await);
    seen.push(put(&ground, &at(0, 0), &vec![1; PIECE + 1], vec![1; PIECE + 1]).await);
    // A second content at one place; and more than the bound.
    for piece in 0..4 {
        assert_eq!(
            leave(&ground, &order, 0, piece, &vec![1; PIECE]).await,
            StatusCode::NO_CONTENT
        );
    }
    seen.push(put(&ground, &at(0, 3), b"a", b"a".to_vec()).await);
    seen.push(put(&ground, &at(1, 0), b"a", b"a".to_vec()).await);
    // An attempt that is over.
    ground.finish(&order, success()).await;
    seen.push(put(&ground, &at(0, 0), &vec![1; PIECE], vec![1; PIECE]).await);
    let mut problems = Vec::new();
    for answer in seen {
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
        let mut problem: Value = answer.json().await.unwrap();
        problem["request_id"] = Value::Null;
        problems.push(problem);
    }
    problems.dedup();
    assert_eq!(problems.len(), 1, "each refusal reads the same: {problems:?}");
}

#[tokio::test]
async fn where_executors_have_no_way_to_leave_files_a_job_that_asks_for_some_is_refused() {
    let ground = Ground::new().await;
    let mut asking = spec();
    asking["artifacts"] = json!(["out/*"]);
    let accepted = ground
        .post(Who::Submitter, "/v1/jobs", &asking)
        .send()
        .await
        .unwrap();
    assert_eq!(accepted.status(), StatusCode::ACCEPTED);
    asking["artifacts"] = json!(["/etc/*"]);
    let refused = ground
        .post(Who::Submitter, "/v1/jobs", &asking)
        .send()
        .await
        .unwrap();
    assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let problem: Value = refused.json().await.unwrap();
    assert_eq!(problem["faults"][0]["path"], "artifacts[0]");
    let nowhere = Ground::without_artifacts().await;
    asking["artifacts"] = json!(["out/*"]);
    let refused = nowhere
        .post(Who::Submitter, "/v1/jobs", &asking)
        .send()
        .await
        .unwrap();
    assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let problem: Value = refused.json().await.unwrap();
    assert_eq!(
        (&problem["faults"][0]["path"], &problem["faults"][0]["code"]),
        (&json!("artifacts"), &json!("not_supported"))
    );
    assert!(
        problem["faults"][0]["message"]
            .as_str()
            .unwrap()
            .contains("server.public_url")
    );
}
