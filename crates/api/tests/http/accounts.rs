//! Tenants, keys, images, executors, dead letters, health.

use std::time::Duration;

use mayfly_api::{ApiKey, seams::Order};
use mayfly_store::accounts::Standing;
use mayfly_wire::{
    account::{CreatedKey, Key, KeyList, KeyStanding, Tenant},
    executor::{ExecutorList, ExecutorState},
    health::{Check, Ready, Whoami},
    problem::{Code, Problem},
};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::ground::{Ground, LETTER, Who, spec};

#[tokio::test]
async fn a_tenant_gets_a_key_that_opens_its_own_things_until_it_is_revoked() {
    let ground = Ground::new().await;
    let answer = ground
        .post(
            Who::FleetAdmin,
            "/v1/tenants",
            &json!({"name": "team-c", "weight": 3}),
        )
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::CREATED);
    let tenant: Tenant = answer.json().await.unwrap();
    let again = ground
        .post(Who::FleetAdmin, "/v1/tenants", &json!({"name": "team-c"}))
        .send()
        .await
        .unwrap();
    assert_eq!(again.status(), StatusCode::CONFLICT);
    let body = json!({"name": "ci", "role": "submitter", "tenant": tenant.tenant, "expires_after": "30days"});
    let answer = ground
        .post(Who::FleetAdmin, "/v1/keys", &body)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::CREATED);
    let made: CreatedKey = answer.json().await.unwrap();
    assert!(made.secret.starts_with(&made.key.prefix));
    assert!(!format!("{made:?}").contains(&made.secret));
    let stored = ground
        .bench
        .store
        .find_key(made.key.key, ground.bench.date())
        .await
        .unwrap()
        .unwrap();
    let key: ApiKey = made.secret.parse().unwrap();
    assert_eq!(stored.secret, key.digest());
    let whoami = async || {
        ground
            .open(Method::GET, "/v1/whoami")
            .bearer_auth(&made.secret)
            .send()
            .await
            .unwrap()
    };
    let who: Whoami = whoami().await.json().await.unwrap();
    assert_eq!((who.key, who.tenant), (made.key.key, Some(tenant.tenant)));
    let used = ground
        .bench
        .store
        .find_key(made.key.key, ground.bench.date())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(used.last_used_at, Some(ground.bench.date()));
    let submitted = ground
        .open(Method::POST, "/v1/jobs")
        .bearer_auth(&made.secret)
        .json(&spec())
        .send()
        .await
        .unwrap();
    assert_eq!(submitted.status(), StatusCode::ACCEPTED);
    let path = format!("/v1/keys/{}", made.key.key);
    let revoked = ground
        .by(Who::FleetAdmin, Method::DELETE, &path)
        .send()
        .await
        .unwrap();
    let revoked: Key = revoked.json().await.unwrap();
    assert_eq!(revoked.standing, KeyStanding::Revoked);
    assert_eq!(whoami().await.status(), StatusCode::UNAUTHORIZED);
    let path = format!("/v1/keys?tenant={}", tenant.tenant);
    let keys: KeyList = ground
        .get(Who::Admin, &path)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(keys.keys, [revoked]);
    assert!(
        !ground
            .get(Who::Admin, "/v1/keys")
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap()
            .contains("sha256")
    );
}

/// What another server, or the command line, has revoked.
#[tokio::test]
async fn a_key_that_is_revoked_elsewhere_opens_nothing_a_second_later() {
    let ground = Ground::new().await;
    let whoami = async || {
        ground
            .get(Who::Viewer, "/v1/whoami")
            .send()
            .await
            .unwrap()
            .status()
    };
    assert_eq!(whoami().await, StatusCode::OK);
    let id = ground.key(Who::Viewer).id();
    ground
        .bench
        .store
        .revoke_key(id, None, ground.bench.date())
        .await
        .unwrap();
    let revoked_at = std::time::Instant::now();
    // When the last request was sent that it opened: how long the answer takes is the machine's own matter.
    let mut last_opened = Duration::ZERO;
    loop {
        let sent = revoked_at.elapsed();
        if whoami().await != StatusCode::OK {
            break;
        }
        last_opened = sent;
        assert!(last_opened < Duration::from_secs(10), "it opens what it opened");
    }
    assert!(last_opened <= Duration::from_secs(1), "{last_opened:?}");
    let record = ground
        .bench
        .store
        .find_key(id, ground.bench.date())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(record.standing, Standing::Revoked);
}

#[tokio::test]
async fn a_key_or_tenant_that_must_not_be_is_not_made() {
    let ground = Ground::new().await;
    let tenant = ground.tenant;
    let nobody = mayfly_core::id::TenantId::new();
    for (path, body, field) in [
        ("/v1/keys", json!({"name": "A", "role": "operator"}), "name"),
        ("/v1/keys", json!({"name": "a", "role": "root"}), "role"),
        ("/v1/keys", json!({"name": "a", "role": "viewer"}), "tenant"),
        (
            "/v1/keys",
            json!({"name": "a", "role": "operator", "tenant": tenant}),
            "tenant",
        ),
        (
            "/v1/keys",
            json!({"name": "a", "role": "viewer", "tenant": nobody}),
            "tenant",
        ),
        (
            "/v1/keys",
            json!({"name": "a", "role": "operator", "expires_after": "0s"}),
            "expires_after",
        ),
        (
            "/v1/keys",
            json!({"name": "a", "role": "operator", "expires_after": "100years"}),
            "expires_after",
        ),
        ("/v1/tenants", json!({"name": "A"}), "name"),
        ("/v1/tenants", json!({"name": "a", "weight": 0}), "weight"),
        ("/v1/tenants", json!({"name": "a", "weight": 1001}), "weight"),
        (
            "/v1/tenants",
            json!({"name": "a", "most_queued": 1_000_000_001}),
            "most_queued",
        ),
        (
            "/v1/tenants",
            json!({"name": "a", "most_in_flight": 1_000_000_001}),
            "most_in_flight",
        ),
        ("/v1/tenants", json!({"name": "a", "id": nobody}), "id"),
    ] {
        let answer = ground.post(Who::FleetAdmin, path, &body).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY, "{body}");
        let problem: Value = answer.json().await.unwrap();
        assert_eq!(problem["faults"][0]["path"], field, "{body}: {problem}");
    }
}

#[tokio::test]
async fn an_image_is_pinned_and_jobs_may_name_it_at_once() {
    let ground = Ground::new().await;
    let digest = format!("sha256:{}", "1".repeat(64));
    let pin =
        json!({"reference": "node:24", "digest": digest, "config_digest": digest, "platform": "linux/amd64"});
    let job = json!({"image": "node", "command": ["node", "-v"]});
    let submit = async || {
        ground
            .post(Who::Submitter, "/v1/jobs", &job)
            .send()
            .await
            .unwrap()
            .status()
    };
    assert_eq!(submit().await, StatusCode::UNPROCESSABLE_ENTITY);
    let put = async |name: &str, pin: &Value| {
        ground
            .by(Who::Admin, Method::PUT, &format!("/v1/images/{name}"))
            .json(pin)
            .send()
            .await
            .unwrap()
    };
    assert_eq!(put("node", &pin).await.status(), StatusCode::OK);
    assert_eq!(submit().await, StatusCode::ACCEPTED);
    let by_digest = json!({"image": format!("registry.example/node@{digest}"), "command": ["true"]});
    let answer = ground
        .post(Who::Submitter, "/v1/jobs", &by_digest)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::ACCEPTED);
    let images: Value = ground
        .get(Who::Viewer, "/v1/images")
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(images["images"][0]["name"], "node");
    for (field, value) in [
        ("reference", ""),
        ("reference", "a\nb"),
        ("platform", ""),
        ("digest", "latest"),
    ] {
        let mut wrong = pin.clone();
        wrong[field] = value.into();
        assert_eq!(
            put("node", &wrong).await.status(),
            StatusCode::UNPROCESSABLE_ENTITY,
            "{field}"
        );
    }
}

#[tokio::test]
async fn orders_reach_the_executor_and_letters_the_desk() {
    let ground = Ground::new().await;
    let id = ground.executor;
    let state = async || {
        let list: ExecutorList = ground
            .get(Who::Operator, "/v1/executors")
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        (
            list.executors.len(),
            list.executors[0].cordoned,
            list.executors[0].state,
        )
    };
    assert_eq!(state().await, (1, false, ExecutorState::NeverSeen));
    let order = async |order: &str| {
        let path = format!("/v1/executors/{id}/{order}");
        ground
            .by(Who::Operator, Method::POST, &path)
            .send()
            .await
            .unwrap()
            .status()
    };
    for word in ["cordon", "uncordon", "drain"] {
        assert_eq!(order(word).await, StatusCode::NO_CONTENT);
        assert_eq!(state().await.1, word == "cordon", "{word}");
    }
    let expected = [Order::Cordon, Order::Uncordon, Order::Drain].map(|order| (id, order));
    assert_eq!(*ground.doubles.orders.lock().unwrap(), expected);
    let letters: Value = ground
        .get(Who::Operator, "/v1/dead-letters")
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(letters["dead_letters"][0]["id"], LETTER);
    assert!(!letters.to_string().contains("token"));
    let path = format!("/v1/dead-letters/{LETTER}");
    let replay = ground
        .by(Who::Operator, Method::POST, &format!("{path}/replay"))
        .send()
        .await
        .unwrap();
    let discard = ground
        .by(Who::Operator, Method::DELETE, &path)
        .send()
        .await
        .unwrap();
    assert_eq!(
        (replay.status(), discard.status()),
        (StatusCode::NO_CONTENT, StatusCode::NO_CONTENT)
    );
    let letter = LETTER.to_owned();
    assert_eq!(
        *ground.doubles.settled.lock().unwrap(),
        [("replay", letter.clone()), ("discard", letter)]
    );
}

#[tokio::test]
async fn readiness_says_what_is_missing_and_whether_that_matters() {
    let ground = Ground::new().await;
    let ready = async || {
        let answer = ground.open(Method::GET, "/v1/health/ready").send().await.unwrap();
        (answer.status(), answer.json::<Ready>().await.unwrap())
    };
    let check = |name: &str, ok, required| Check {
        name: name.to_owned(),
        ok,
        required,
        reason: (!ok).then(|| "it does not answer".to_owned()),
    };
    for (database, broker, status) in [
        (true, true, StatusCode::OK),
        (true, false, StatusCode::OK),
        (false, true, StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let checks = vec![check("database", database, true), check("broker", broker, false)];
        ground.doubles.checks.lock().unwrap().clone_from(&checks);
        let (answered, ready) = ready().await;
        assert_eq!((answered, ready.ready), (status, status == StatusCode::OK));
        assert_eq!(ready.checks, checks);
    }
}

/// A bound is set, counts from then on, and is removed; what is left out stays.
#[tokio::test]
async fn a_tenant_over_its_quota_is_told_so() {
    let ground = Ground::new().await;
    let path = format!("/v1/tenants/{}", ground.tenant);
    let change = async |body: Value| {
        let changed = ground.by(Who::FleetAdmin, Method::PATCH, &path).json(&body);
        let changed = changed.send().await.unwrap();
        assert_eq!(changed.status(), StatusCode::OK);
        changed.json::<Tenant>().await.unwrap()
    };
    let bounds = |tenant: Tenant| (tenant.weight, tenant.most_in_flight, tenant.most_queued);
    assert_eq!(
        bounds(change(json!({"most_queued": 2})).await),
        (1, None, Some(2))
    );
    assert_eq!(
        bounds(change(json!({"weight": 7, "most_in_flight": 0})).await),
        (7, Some(0), Some(2))
    );
    let too_much = ground.by(Who::FleetAdmin, Method::PATCH, &path);
    let too_much = too_much.json(&json!({"most_in_flight": 1_000_000_001})).send();
    assert_eq!(too_much.await.unwrap().status(), StatusCode::UNPROCESSABLE_ENTITY);
    let submit = async || {
        ground
            .post(Who::Submitter, "/v1/jobs", &spec())
            .send()
            .await
            .unwrap()
    };
    for _ in 0..2 {
        assert_eq!(submit().await.status(), StatusCode::ACCEPTED);
    }
    let refused = submit().await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.headers().contains_key("retry-after"));
    let problem: Problem = refused.json().await.unwrap();
    assert_eq!(problem.code, Code::OverQuota);
    let detail = problem.detail.unwrap();
    assert!(detail.contains("may have 2 jobs queued"), "{detail}");
    let bulk = json!({"jobs": [spec(), spec()]});
    let refused = ground
        .post(Who::Submitter, "/v1/jobs/bulk", &bulk)
        .send()
        .await
        .unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        bounds(change(json!({"most_queued": null, "most_in_flight": null})).await),
        (7, None, None)
    );
    assert_eq!(submit().await.status(), StatusCode::ACCEPTED);
}
