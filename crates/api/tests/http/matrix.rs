//! Who may do what, asked of every route of the document, by every kind of key, with every kind of id.
//!
//! The rows below are written by hand and say what is meant; the server's own table says what it does. A route without a
//! row fails, and so does a row without a route.

use std::collections::{BTreeMap, BTreeSet};

use mayfly_core::{
    digest::Digest,
    id::{BatchId, JobId, KeyId, SecretId, TenantId, UploadId},
    job::SecretName,
};
use mayfly_store::{
    records::NewBatch,
    secrets::NewSecret,
    uploads::{NewUpload, UploadBounds},
};
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::ground::{Ground, LETTER, Who, key, spec};

/// Whose the thing in the path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Id {
    Own,
    /// Another tenant's.
    Foreign,
    /// Nobody's.
    Missing,
    /// No id at all.
    Malformed,
}

/// A route, who may, and the status of the answer where everything is right. Letters: Admin of a tenant, admin of the
/// Fleet, Operator, Submitter, Viewer, aUditor; `.` where they may not.
const ROWS: &[(&str, &str, &str, u16)] = &[
    ("POST", "/v1/jobs", "A..S..", 202),
    ("GET", "/v1/jobs", "A..SVU", 200),
    ("POST", "/v1/jobs/bulk", "A..S..", 202),
    ("GET", "/v1/jobs/{job}", "A..SVU", 200),
    ("POST", "/v1/jobs/{job}/cancel", "A..S..", 200),
    ("GET", "/v1/jobs/{job}/output", "A..SV.", 200),
    ("GET", "/v1/jobs/{job}/output/{stream}", "A..SV.", 200),
    ("GET", "/v1/jobs/{job}/artifacts", "A..SV.", 200),
    ("GET", "/v1/jobs/{job}/artifacts/{index}", "A..SV.", 200),
    ("GET", "/v1/jobs/{job}/events", "A..SV.", 200),
    ("GET", "/v1/jobs/{job}/audit", "A..SVU", 200),
    ("GET", "/v1/audit", "A....U", 200),
    ("GET", "/v1/fleet/audit", "AFO...", 200),
    ("POST", "/v1/batches", "A..S..", 201),
    ("GET", "/v1/batches", "A..SVU", 200),
    ("GET", "/v1/batches/{batch}", "A..SVU", 200),
    ("POST", "/v1/batches/{batch}/jobs", "A..S..", 202),
    ("GET", "/v1/batches/{batch}/jobs", "A..SV.", 200),
    ("POST", "/v1/batches/{batch}/complete", "A..S..", 200),
    ("GET", "/v1/images", "AFOSVU", 200),
    ("PUT", "/v1/images/{name}", "AF....", 200),
    ("GET", "/v1/executors", "AFO...", 200),
    ("POST", "/v1/executors/{executor}/cordon", "AFO...", 204),
    ("POST", "/v1/executors/{executor}/uncordon", "AFO...", 204),
    ("POST", "/v1/executors/{executor}/drain", "AFO...", 204),
    ("GET", "/v1/dead-letters", "AFO...", 200),
    ("POST", "/v1/dead-letters/{letter}/replay", "AFO...", 204),
    ("DELETE", "/v1/dead-letters/{letter}", "AFO...", 204),
    ("POST", "/v1/tenants", "AF....", 201),
    ("GET", "/v1/tenants", "AF....", 200),
    ("GET", "/v1/tenants/{tenant}", "AF....", 200),
    ("PATCH", "/v1/tenants/{tenant}", "AF....", 200),
    ("POST", "/v1/keys", "AF....", 201),
    ("GET", "/v1/keys", "AF....", 200),
    ("DELETE", "/v1/keys/{key}", "AF....", 200),
    ("GET", "/v1/secrets", "A.....", 200),
    ("PUT", "/v1/secrets/{secret}", "A.....", 200),
    ("DELETE", "/v1/secrets/{secret}", "A.....", 204),
    ("GET", "/v1/uploads", "A..S..", 200),
    ("GET", "/v1/uploads/{digest}", "A..S..", 200),
    ("PUT", "/v1/uploads/{digest}", "A..S..", 200),
    ("DELETE", "/v1/uploads/{digest}", "A..S..", 204),
    ("GET", "/v1/whoami", "AFOSVU", 200),
];

/// Routes that need no key.
const OPEN: &[(&str, &str)] = &[
    ("GET", "/v1/health/live"),
    ("GET", "/v1/health/ready"),
    ("GET", "/v1/version"),
];

const CALLERS: [Who; 6] = [
    Who::Admin,
    Who::FleetAdmin,
    Who::Operator,
    Who::Submitter,
    Who::Viewer,
    Who::Auditor,
];

/// Every route of the document.
async fn routes(ground: &Ground) -> BTreeMap<(String, String), Value> {
    let document: Value = ground
        .open(Method::GET, "/v1/openapi.json")
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let paths = document["paths"].as_object().unwrap();
    paths
        .iter()
        .flat_map(|(path, item)| {
            let operations = item.as_object().unwrap().iter();
            operations
                .map(move |(method, operation)| ((method.to_uppercase(), path.clone()), operation.clone()))
        })
        .collect()
}

#[tokio::test]
async fn every_route_has_a_row_and_every_row_a_route() {
    let ground = Ground::new().await;
    let rows = ROWS.iter().map(|(method, path, ..)| (*method, *path));
    let expected: BTreeSet<_> = rows
        .chain(OPEN.iter().copied())
        .map(|(method, path)| (method.to_owned(), path.to_owned()))
        .collect();
    assert_eq!(expected.len(), ROWS.len() + OPEN.len());
    let routes = routes(&ground).await;
    assert_eq!(routes.keys().cloned().collect::<BTreeSet<_>>(), expected);
    for ((method, path), operation) in &routes {
        let open = OPEN.contains(&(method.as_str(), path.as_str()));
        assert_eq!(operation["security"] == json!([]), open, "{method} {path}");
        assert_eq!(
            operation[mayfly_api::ACTION].is_string(),
            !open,
            "{method} {path}"
        );
    }
}

/// What the own ids of a case are: fresh where a request uses them up.
struct Things {
    job: JobId,
    foreign_job: JobId,
}

/// The path of a case, and the ids that stand in it.
async fn path(ground: &Ground, things: &Things, pattern: &str, id: Id) -> String {
    let mut path = pattern.replace("{stream}", "stdout").replace("{index}", "0");
    let uuid = |own: String| match id {
        Id::Own | Id::Foreign => own,
        Id::Missing => JobId::new().to_string(),
        Id::Malformed => "no-id".to_owned(),
    };
    if path.contains("{job}") {
        let job = if id == Id::Foreign {
            things.foreign_job
        } else {
            things.job
        };
        path = path.replace("{job}", &uuid(job.to_string()));
    }
    if path.contains("{batch}") {
        let tenant = if id == Id::Foreign {
            ground.other_tenant
        } else {
            ground.tenant
        };
        let batch = NewBatch {
            id: BatchId::new(),
            tenant,
            input: String::new(),
        };
        let own = batch.id;
        ground
            .bench
            .store
            .begin_batch(batch, ground.bench.date())
            .await
            .unwrap();
        path = path.replace("{batch}", &uuid(own.to_string()));
    }
    if path.contains("{executor}") {
        path = path.replace("{executor}", &uuid(ground.executor.to_string()));
    }
    if path.contains("{tenant}") {
        path = path.replace("{tenant}", &uuid(ground.tenant.to_string()));
    }
    if path.contains("{key}") {
        let own = key(&ground.bench, None, mayfly_core::account::Role::Operator, None).await;
        path = path.replace("{key}", &uuid(own.id().to_string()));
    }
    if path.contains("{letter}") {
        let letter = match id {
            Id::Own | Id::Foreign => LETTER.to_owned(),
            Id::Missing => "f".repeat(64),
            Id::Malformed => "no-id".to_owned(),
        };
        path = path.replace("{letter}", &letter);
    }
    if path.contains("{digest}") {
        let tenant = if id == Id::Foreign {
            ground.other_tenant
        } else {
            ground.tenant
        };
        let digest = match id {
            Id::Own | Id::Foreign => upload(ground, tenant).await.to_string(),
            Id::Missing => Digest::of(b"missing").to_string(),
            Id::Malformed => "no-digest".to_owned(),
        };
        path = path.replace("{digest}", &digest);
    }
    if path.contains("{secret}") {
        let name: SecretName = format!("s-{}", SecretId::new()).parse().unwrap();
        let tenant = if id == Id::Foreign {
            ground.other_tenant
        } else {
            ground.tenant
        };
        let secret = NewSecret {
            tenant,
            name: name.clone(),
            value: SecretId::new(),
            sealed: b"sealed".to_vec(),
        };
        let date = ground.bench.date();
        ground.bench.store.set_secret(secret, None, date).await.unwrap();
        let name = match id {
            Id::Own | Id::Foreign => name.to_string(),
            Id::Missing => format!("s-{}", SecretId::new()),
            Id::Malformed => "-no-name".to_owned(),
        };
        path = path.replace("{secret}", &name);
    }
    if path.contains("{name}") {
        let name = if id == Id::Malformed { "NO-NAME" } else { "python" };
        path = path.replace("{name}", name);
    }
    if pattern == "/v1/jobs/{job}/output" {
        path += "?stream=stdout";
    }
    path
}

fn body(method: &str, pattern: &str) -> Option<Value> {
    let digest = format!("sha256:{}", "0".repeat(64));
    Some(match (method, pattern) {
        ("POST", "/v1/jobs") => spec(),
        ("POST", "/v1/jobs/bulk") => json!({"jobs": [spec()]}),
        ("POST", "/v1/batches") => json!({"input": "programs/"}),
        ("POST", "/v1/batches/{batch}/jobs") => json!({"items": [{"item": "one.py", "job": spec()}]}),
        ("POST", "/v1/batches/{batch}/complete") => json!({"items": 0}),
        ("PUT", "/v1/images/{name}") => {
            json!({"reference": "python:3", "digest": digest, "config_digest": digest, "platform": "linux/amd64"})
        }
        ("PUT", "/v1/secrets/{secret}") => json!({"value": "correct-horse"}),
        ("PATCH", "/v1/tenants/{tenant}") => json!({"most_in_flight": 100}),
        ("POST", "/v1/tenants") => json!({"name": format!("t-{}", JobId::new().as_uuid().simple())}),
        ("POST", "/v1/keys") => json!({"name": "made", "role": "operator"}),
        _ => return None,
    })
}

/// An empty file that nobody has uploaded before; by its digest, which is none of its content: nobody looks.
async fn upload(ground: &Ground, tenant: TenantId) -> Digest {
    let id = UploadId::new();
    let digest = Digest::of(id.as_uuid().as_bytes());
    let (store, now) = (&ground.bench.store, ground.bench.date());
    let bounds = UploadBounds {
        total: 1 << 20,
        count: 10_000,
    };
    let upload = NewUpload {
        tenant,
        id,
        digest,
        bytes: 0,
    };
    store.begin_upload(upload, bounds, now).await.unwrap();
    store.finish_upload(tenant, id, None, now).await.unwrap().unwrap();
    digest
}

async fn ask(ground: &Ground, who: Who, method: &str, pattern: &str, path: &str) -> Response {
    let mut request = ground.by(who, method.parse().unwrap(), path);
    if let Some(body) = body(method, pattern) {
        request = request.json(&body);
    } else if (method, pattern) == ("PUT", "/v1/uploads/{digest}") {
        request = request.body("");
    }
    request.send().await.unwrap()
}

/// Everything of an answer that whoever asks can see, without the id that was asked for and what differs by itself.
async fn seen(response: Response, path: &str) -> String {
    let status = response.status();
    let mut headers: Vec<_> = response
        .headers()
        .iter()
        .filter(|(name, _)| !["date", "x-request-id"].contains(&name.as_str()))
        .map(|(name, value)| format!("{name}: {value:?}"))
        .collect();
    headers.sort();
    let mut body: Value = response.json().await.unwrap();
    body["request_id"] = Value::Null;
    let mut body = body.to_string();
    for part in path.split(['/', '?']).filter(|part| part.len() >= 32) {
        body = body.replace(part, "ID");
    }
    format!("{status} {headers:?} {body}")
}

#[tokio::test]
async fn each_route_lets_those_do_what_it_does_who_may_and_nobody_else() {
    let ground = Ground::new().await;
    let things = Things {
        job: ground.ended(ground.tenant).await,
        foreign_job: ground.ended(ground.other_tenant).await,
    };
    let mut asked = 0;
    for (method, pattern, may, ok) in ROWS {
        for (place, who) in CALLERS.into_iter().enumerate() {
            let allowed = may.as_bytes()[place] != b'.';
            let mut not_found = Vec::new();
            let has_id = pattern.contains('{');
            let of_tenant = ["{job}", "{batch}", "{secret}", "{digest}"]
                .iter()
                .any(|id| pattern.contains(id));
            for id in [Id::Own, Id::Foreign, Id::Missing, Id::Malformed] {
                if (id != Id::Own && !has_id) || (id == Id::Foreign && !of_tenant) {
                    continue;
                }
                // A name of the catalog that is missing is made, and so is one's own secret of another's name.
                let is_made = *method == "PUT" && pattern.contains("{secret}") && id == Id::Foreign;
                let is_made =
                    is_made || (*method == "PUT" && pattern.contains("{digest}") && id == Id::Foreign);
                if (id == Id::Missing && *method == "PUT") || is_made {
                    continue;
                }
                let path = path(&ground, &things, pattern, id).await;
                let answer = ask(&ground, who, method, pattern, &path).await;
                asked += 1;
                let expected = match (allowed, id) {
                    (false, _) => 403,
                    (true, Id::Own) => *ok,
                    (true, Id::Foreign | Id::Missing) => 404,
                    (true, Id::Malformed) => 400,
                };
                let what = format!("{who:?} {method} {path} ({id:?})");
                assert_eq!(
                    answer.status().as_u16(),
                    expected,
                    "{what}: {}",
                    answer.text().await.unwrap()
                );
                if expected == 404 {
                    not_found.push(seen(answer, &path).await);
                }
            }
            not_found.dedup();
            assert!(
                not_found.len() <= 1,
                "another tenant's thing looks different: {not_found:?}"
            );
        }
    }
    assert!(asked > 400, "{asked}");
}

#[tokio::test]
async fn a_key_that_opens_nothing_opens_no_route() {
    let mut ground = Ground::new().await;
    let things = Things {
        job: ground.ended(ground.tenant).await,
        foreign_job: ground.ended(ground.other_tenant).await,
    };
    let soon = ground.bench.date() + chrono::TimeDelta::seconds(1);
    let admin = mayfly_core::account::Role::Admin;
    let expired = key(&ground.bench, Some(ground.tenant), admin, Some(soon)).await;
    let revoked = key(&ground.bench, Some(ground.tenant), admin, None).await;
    let store = std::sync::Arc::clone(&ground.bench.store);
    store
        .revoke_key(revoked.id(), None, ground.bench.date())
        .await
        .unwrap();
    ground.pass(std::time::Duration::from_secs(1));
    let good = ground.key(Who::Admin).reveal();
    let other_secret = format!("{}{}", &good[..good.len() - 64], "0".repeat(64));
    let bearer = |key: String| vec![format!("Bearer {key}")];
    let headers = [
        vec![],
        bearer(expired.reveal()),
        bearer(revoked.reveal()),
        bearer(mayfly_api::ApiKey::generate().reveal()),
        bearer(other_secret),
        bearer(String::new()),
        bearer(mayfly_api::prefix(KeyId::new())),
        bearer(good.to_uppercase()),
        vec![format!("Basic {good}")],
        vec![good.clone()],
        vec![format!("Bearer {good}"), format!("Bearer {good}")],
        vec![format!("Bearer {good}"), format!("Bearer {}", revoked.reveal())],
    ];
    for (method, pattern, ..) in ROWS {
        for shown in &headers {
            let path = path(&ground, &things, pattern, Id::Own).await;
            let mut request = ground.open(method.parse().unwrap(), &path);
            for header in shown {
                request = request.header("authorization", header);
            }
            if let Some(body) = body(method, pattern) {
                request = request.json(&body);
            }
            let answer = request.send().await.unwrap();
            assert_eq!(
                answer.status(),
                StatusCode::UNAUTHORIZED,
                "{method} {path} {shown:?}"
            );
            assert_eq!(answer.headers()["www-authenticate"], "Bearer realm=\"mayfly\"");
            let problem: Value = answer.json().await.unwrap();
            assert_eq!(problem["code"], "unauthenticated");
            assert!(!problem.to_string().contains(&good[40..]));
        }
    }
    for (method, path) in OPEN {
        let answer = ground.open(method.parse().unwrap(), path).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{method} {path}");
    }
}

/// What a list shows is the tenant's own.
#[tokio::test]
async fn no_list_has_anything_of_another_tenant() {
    let ground = Ground::new().await;
    let own = ground.ended(ground.tenant).await;
    let foreign = ground.ended(ground.other_tenant).await;
    for who in [Who::Admin, Who::Submitter, Who::Viewer, Who::Auditor] {
        for path in ["/v1/jobs", "/v1/audit", "/v1/batches"] {
            let answer = ground.get(who, path).send().await.unwrap();
            if answer.status() == StatusCode::FORBIDDEN {
                continue;
            }
            let text = answer.text().await.unwrap();
            assert!(!text.contains(&foreign.to_string()), "{who:?} {path}");
            assert!(
                path == "/v1/batches" || text.contains(&own.to_string()),
                "{who:?} {path}"
            );
        }
    }
    let audit = format!("/v1/audit?job={foreign}");
    let empty: Value = ground
        .get(Who::Admin, &audit)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(empty, json!({"events": []}));
}

#[tokio::test]
async fn the_log_of_the_fleet_says_nothing_of_any_job() {
    let ground = Ground::new().await;
    let (own, foreign) = (
        ground.ended(ground.tenant).await,
        ground.ended(ground.other_tenant).await,
    );
    let path = format!("/v1/executors/{}/cordon", ground.executor);
    let cordoned = ground
        .by(Who::Operator, Method::POST, &path)
        .send()
        .await
        .unwrap();
    assert_eq!(cordoned.status(), StatusCode::NO_CONTENT);
    let page = async |query: &str| -> Vec<Value> {
        let path = format!("/v1/fleet/audit?{query}");
        let answer = ground.get(Who::Operator, &path).send().await.unwrap();
        let answer: Value = answer.json().await.unwrap();
        answer["events"].as_array().unwrap().clone()
    };
    let all = page("limit=1000").await;
    let text = format!("{all:?}");
    assert!(
        !text.contains(&own.to_string()) && !text.contains(&foreign.to_string()),
        "{text}"
    );
    let newest = all.last().unwrap();
    assert_eq!(newest["kind"], "executor_cordoned");
    let body: Value = serde_json::from_str(newest["body"].as_str().unwrap()).unwrap();
    assert_eq!(body["fact"]["executor"], ground.executor.to_string());
    let before = page(&format!("limit=1&before={}", newest["id"].as_str().unwrap())).await;
    assert_eq!(before[..], all[all.len() - 2..all.len() - 1]);
}
