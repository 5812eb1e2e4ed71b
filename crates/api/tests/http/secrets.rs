//! Named secrets: kept sealed, shown never, and given to the attempts of jobs that name them.

use mayfly_core::{
    id::{JobId, SecretId},
    job::SecretValues,
};
use mayfly_dispatch::{
    message::{BlobPlaces, DispatchMessage, READS, SECRETS_APART_SINCE, Wire as _},
    token::TokenKey,
};
use mayfly_store::{contract::bench::success, secrets::NewSecret};
use mayfly_vault::Whose;
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::ground::{Ground, Who, spec, vault};

const VALUE: &str = "correct-horse/battery+staple";

async fn set(ground: &Ground, who: Who, name: &str, value: &str) -> Response {
    ground
        .by(who, Method::PUT, &format!("/v1/secrets/{name}"))
        .json(&json!({ "value": value }))
        .send()
        .await
        .unwrap()
}

async fn listed(ground: &Ground, who: Who) -> Value {
    let answer = ground.get(who, "/v1/secrets").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    answer.json().await.unwrap()
}

async fn submit(ground: &Ground, who: Who, changes: Value) -> (StatusCode, Value) {
    let mut job = spec();
    job.as_object_mut()
        .unwrap()
        .extend(changes.as_object().unwrap().clone());
    let answer = ground.post(who, "/v1/jobs", &job).send().await.unwrap();
    (answer.status(), answer.json().await.unwrap())
}

fn naming(name: &str) -> Value {
    json!({
        "secrets": {"TOKEN": {"named": name}, "OWN": "the job's own one"},
        "secret_files": {"conf/key": {"named": name}},
    })
}

async fn started(ground: &Ground, name: &str) -> DispatchMessage {
    started_with(ground, naming(name)).await
}

/// A job that has started: its order as it would be sent.
async fn started_with(ground: &Ground, changes: Value) -> DispatchMessage {
    let (status, answer) = submit(ground, Who::Submitter, changes).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    let job: JobId = answer["job"].as_str().unwrap().parse().unwrap();
    let whole = ground.start(job).await;
    let places = BlobPlaces {
        base: ground.url(""),
        // As the ground's server has it.
        key: TokenKey::from_bytes([7; 32]).blob_key(),
        input_above: 1 << 20,
        output_above: 64 << 20,
    };
    assert_eq!(places.least_version(&whole), SECRETS_APART_SINCE);
    places.equip(whole, READS, ground.bench.now)
}

async fn fetch(ground: &Ground, order: &DispatchMessage) -> Response {
    let url = order.secrets.as_ref().unwrap().reveal();
    ground.client.get(url).send().await.unwrap()
}

async fn values(ground: &Ground, order: &DispatchMessage) -> SecretValues {
    let answer = fetch(ground, order).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()["cache-control"], "no-store");
    SecretValues::decode(&answer.bytes().await.unwrap()).unwrap()
}

#[tokio::test]
async fn what_is_kept_is_told_without_its_value() {
    let ground = Ground::new().await;
    let first = set(&ground, Who::Admin, "API_KEY", VALUE).await;
    assert_eq!(first.status(), StatusCode::OK);
    let first: Value = first.json().await.unwrap();
    let second: Value = set(&ground, Who::Admin, "API_KEY", "another-horse")
        .await
        .json()
        .await
        .unwrap();
    assert_ne!(first["value_id"], second["value_id"]);
    assert_eq!(
        listed(&ground, Who::Admin).await,
        json!({"secrets": [{"name": "API_KEY", "value_id": second["value_id"], "set_at": ground.bench.date()}]})
    );
    let removed = ground.by(Who::Admin, Method::DELETE, "/v1/secrets/API_KEY");
    assert_eq!(removed.send().await.unwrap().status(), StatusCode::NO_CONTENT);
    assert_eq!(listed(&ground, Who::Admin).await, json!({"secrets": []}));
}

#[tokio::test]
async fn a_value_that_could_not_be_taken_out_of_output_is_refused_and_no_refusal_shows_one() {
    let ground = Ground::new().await;
    for (value, code) in [
        (" abc\n".to_owned(), "too_short"),
        ("correct\0horse".to_owned(), "contains_nul"),
        ("correct-horse".repeat(2000), "too_large"),
    ] {
        let refused = set(&ground, Who::Admin, "A", &value).await;
        assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY, "{code}");
        let problem: Value = refused.json().await.unwrap();
        assert_eq!(problem["faults"][0]["path"], "value");
        assert_eq!(problem["faults"][0]["code"], code);
        assert!(!problem.to_string().contains("horse"), "{problem}");
    }
    for body in [
        json!({"value": 12_345_678}),
        json!({"value": {"correct-horse": 1}}),
        json!("correct-horse"),
    ] {
        let request = ground.by(Who::Admin, Method::PUT, "/v1/secrets/A").json(&body);
        let refused = request.send().await.unwrap();
        assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY, "{body}");
        let problem = refused.text().await.unwrap();
        assert!(
            !problem.contains("horse") && !problem.contains("12345678"),
            "{problem}"
        );
    }
    assert_eq!(listed(&ground, Who::Admin).await, json!({"secrets": []}));
}

#[tokio::test]
async fn a_job_is_given_what_it_names_and_its_order_has_none_of_it() {
    let ground = Ground::new().await;
    let kept: Value = set(&ground, Who::Admin, "API_KEY", VALUE)
        .await
        .json()
        .await
        .unwrap();
    let order = started(&ground, "API_KEY").await;
    let message = String::from_utf8(order.encode()).unwrap();
    assert!(!message.contains("battery") && !message.contains("the job's own one"));
    let given = values(&ground, &order).await;
    let reveal = |places: &std::collections::BTreeMap<String, mayfly_core::job::SecretText>| {
        let all = places
            .iter()
            .map(|(place, value)| (place.clone(), value.reveal().to_owned()));
        all.collect::<Vec<_>>()
    };
    let pair = |place: &str, value: &str| (place.to_owned(), value.to_owned());
    assert_eq!(
        reveal(&given.env),
        [pair("OWN", "the job's own one"), pair("TOKEN", VALUE)]
    );
    assert_eq!(reveal(&given.files), [pair("conf/key", VALUE)]);
    // On record with the value's id, once for each time.
    let path = format!("/v1/jobs/{}/audit", order.job);
    let log: Value = ground
        .get(Who::Auditor, &path)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let facts: Vec<&Value> = log["events"].as_array().unwrap().iter().collect();
    let uses: Vec<_> = facts
        .iter()
        .filter(|event| event.to_string().contains("secrets_given"))
        .collect();
    assert_eq!(uses.len(), 1, "{log}");
    assert!(
        uses[0].to_string().contains(kept["value_id"].as_str().unwrap()),
        "{log}"
    );
    assert!(!log.to_string().contains("battery"), "{log}");
    // The job itself shows neither.
    let path = format!("/v1/jobs/{}", order.job);
    let shown = ground
        .get(Who::Admin, &path)
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(
        !shown.contains("battery") && !shown.contains("the job's own one"),
        "{shown}"
    );
    // Another value is given from then on; one that is gone is not.
    set(&ground, Who::Admin, "API_KEY", "another-horse").await;
    assert_eq!(
        values(&ground, &order).await.env["TOKEN"].reveal(),
        "another-horse"
    );
    let removed = ground.by(Who::Admin, Method::DELETE, "/v1/secrets/API_KEY");
    removed.send().await.unwrap();
    assert_eq!(fetch(&ground, &order).await.status(), StatusCode::GONE);
    set(&ground, Who::Admin, "API_KEY", VALUE).await;
    assert_eq!(fetch(&ground, &order).await.status(), StatusCode::OK);
    ground.finish(&order, success()).await;
    assert_eq!(
        fetch(&ground, &order).await.status(),
        StatusCode::NOT_FOUND,
        "it is over"
    );
}

/// Another tenant's secret.
async fn theirs(ground: &Ground) -> NewSecret {
    let (tenant, name, value) = (ground.other_tenant, "THEIRS".parse().unwrap(), SecretId::new());
    let whose = Whose {
        tenant,
        name: &name,
        value,
    };
    let sealed = vault().seal(whose, &VALUE.to_owned().into());
    let secret = NewSecret {
        tenant,
        name,
        value,
        sealed,
    };
    let store = &ground.bench.store;
    store
        .set_secret(secret.clone(), None, ground.bench.date())
        .await
        .unwrap();
    secret
}

/// Also where somebody who writes to the database, and has no key, moves a row.
#[tokio::test]
async fn another_tenants_secret_is_none() {
    let ground = Ground::new().await;
    let theirs = theirs(&ground).await;
    let (status, problem) = submit(&ground, Who::Submitter, naming("THEIRS")).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let (other_status, other) = submit(&ground, Who::Submitter, naming("NOBODYS")).await;
    assert_eq!(other_status, status);
    assert_eq!(
        problem["faults"].to_string().replace("THEIRS", "NOBODYS"),
        other["faults"].to_string(),
        "it looks like one that there is not"
    );
    let codes: Vec<_> = problem["faults"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| (fault["path"].as_str().unwrap(), fault["code"].as_str().unwrap()))
        .collect();
    assert_eq!(
        codes,
        [
            ("secrets[\"TOKEN\"]", "no_such_secret"),
            ("secret_files[\"conf/key\"]", "no_such_secret")
        ]
    );
    set(&ground, Who::Admin, "MOVED", VALUE).await;
    let order = started(&ground, "MOVED").await;
    let moved = NewSecret {
        tenant: ground.tenant,
        name: "MOVED".parse().unwrap(),
        ..theirs
    };
    let store = &ground.bench.store;
    store.set_secret(moved, None, ground.bench.date()).await.unwrap();
    assert_eq!(
        fetch(&ground, &order).await.status(),
        StatusCode::INTERNAL_SERVER_ERROR
    );
}

#[tokio::test]
async fn a_server_that_can_not_give_secrets_says_which_setting_it_lacks() {
    for (ground, setting) in [
        (Ground::without_vault().await, "server.secrets_key"),
        (Ground::without_artifacts().await, "server.public_url"),
    ] {
        let (status, problem) = submit(&ground, Who::Submitter, naming("A")).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(problem["faults"][0]["code"], "not_supported");
        let message = problem["faults"][0]["message"].as_str().unwrap();
        assert!(message.contains(setting), "{message}");
    }
    let ground = Ground::without_vault().await;
    let refused = set(&ground, Who::Admin, "A", VALUE).await;
    assert_eq!(refused.status(), StatusCode::NOT_IMPLEMENTED);
    let problem = refused.text().await.unwrap();
    assert!(problem.contains("server.secrets_key"), "{problem}");
}

/// Each of them may be so long, and all of them together not. It is a refusal, which an executor does not try again for minutes.
#[tokio::test]
async fn secrets_that_are_too_long_together_are_refused_once() {
    let ground = Ground::new().await;
    let long = format!("correct-horse{}", " ".repeat(16_000));
    set(&ground, Who::Admin, "LONG", &long).await;
    let places: serde_json::Map<_, _> = (0..100)
        .map(|number| (format!("f{number}"), json!({"named": "LONG"})))
        .collect();
    let order = started_with(&ground, json!({ "secret_files": places })).await;
    assert_eq!(fetch(&ground, &order).await.status(), StatusCode::CONFLICT);
}
