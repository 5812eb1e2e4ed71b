//! Jobs: submitted, waited for, shown, listed, canceled.

use std::time::{Duration, Instant};

use mayfly_core::{
    id::JobId,
    outcome::{Cause, EndState},
};
use mayfly_store::contract::bench::{report, success};
use mayfly_wire::{
    batch::{Batch, BatchJobList},
    job::{Cancel, CancelWord, Job, JobList, State, Submitted, SubmittedMany, WaitWord},
};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::ground::{Ground, Who, spec};

async fn shown(ground: &Ground, job: JobId) -> Job {
    let answer = ground
        .get(Who::Viewer, &format!("/v1/jobs/{job}"))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    answer.json().await.unwrap()
}

#[tokio::test]
async fn a_job_is_accepted_runs_and_is_shown_with_all_that_is_known_of_it() {
    let ground = Ground::new().await;
    let mut body = spec();
    body["labels"] = json!({"team": "a"});
    body["limits"] = json!({"memory": "64MiB", "cpu": 1});
    let answer = ground
        .post(Who::Submitter, "/v1/jobs", &body)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::ACCEPTED);
    let place = answer.headers()["location"].to_str().unwrap().to_owned();
    let submitted: Submitted = answer.json().await.unwrap();
    assert!(!submitted.existing);
    assert_eq!(place, format!("/v1/jobs/{}", submitted.job));
    let job = shown(&ground, submitted.job).await;
    assert_eq!((job.state, job.attempts, job.stdout), (State::Queued, 0, None));
    assert_eq!(job.labels["team"], "a");
    assert_eq!(job.limits.asked.unwrap().memory.unwrap().to_string(), "64MiB");
    let message = ground.start(submitted.job).await;
    assert_eq!(message.tenant, ground.tenant);
    assert_eq!(shown(&ground, submitted.job).await.state, State::Started);
    ground
        .finish(&message, report(EndState::Failed, Cause::Exited, b"out\n"))
        .await;
    let job = shown(&ground, submitted.job).await;
    assert_eq!((job.state, job.cause), (State::Failed, Some(Cause::Exited)));
    assert_eq!(job.stdout.unwrap().text.as_deref(), Some("out\n"));
    assert_eq!(job.history.len(), 1);
    assert_eq!(job.history[0].attempt, message.attempt);
    let path = format!("/v1/jobs/{}?output=false", submitted.job);
    let without: Job = ground
        .get(Who::Viewer, &path)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!((without.stdout, without.state), (None, State::Failed));
    let path = format!("/v1/jobs/{}/audit", submitted.job);
    let audit: Value = ground
        .get(Who::Auditor, &path)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let kinds: Vec<_> = audit["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "job_submitted",
            "attempt_dispatched",
            "run_started",
            "run_finished",
            "job_ended"
        ]
    );
}

/// The reason and the place, until it starts.
#[tokio::test]
async fn a_job_that_waits_says_why() {
    let mut ground = Ground::new().await;
    let first = ground.submitted(ground.tenant).await;
    ground.pass(Duration::from_millis(1));
    let second = ground.submitted(ground.tenant).await;
    let mut body = spec();
    body["not_before"] = json!("2026-11-29T01:00:00Z");
    let later = ground
        .post(Who::Submitter, "/v1/jobs", &body)
        .send()
        .await
        .unwrap();
    assert_eq!(later.status(), StatusCode::ACCEPTED);
    let later: Submitted = later.json().await.unwrap();
    for (job, ahead) in [(first, 0), (second, 1)] {
        let waiting = shown(&ground, job).await.waiting_for.unwrap();
        assert_eq!(waiting.reason, WaitWord::NoExecutor);
        assert_eq!((waiting.ahead, waiting.other_tenants), (Some(ahead), Some(0)));
        assert!(waiting.detail.starts_with("no executor"), "{}", waiting.detail);
    }
    let waiting = shown(&ground, later.job).await.waiting_for.unwrap();
    assert_eq!((waiting.reason, waiting.ahead), (WaitWord::NotBefore, None));
    assert_eq!(waiting.until.unwrap().to_rfc3339(), "2026-11-29T01:00:00+00:00");
    let message = ground.start(first).await;
    assert_eq!(shown(&ground, first).await.waiting_for, None);
    ground.finish(&message, success()).await;
    assert_eq!(shown(&ground, first).await.waiting_for, None);
}

/// Output, labels, and names that the job has given to its own things.
#[tokio::test]
async fn an_auditor_sees_how_a_job_stands_and_nothing_that_it_chose() {
    let ground = Ground::new().await;
    let message = ground.started(ground.tenant).await;
    let mut sent = report(EndState::Failed, Cause::CommandNotStarted, b"canary-5f1d");
    sent.outcome.evidence.refused = Some(mayfly_core::outcome::Refusal {
        stage: mayfly_core::outcome::RefusalStage::Exec,
        reason: "No such file".to_owned(),
        subject: Some("canary-5f1d".to_owned()),
    });
    ground.finish(&message, sent).await;
    let path = format!("/v1/jobs/{}", message.job);
    for (who, sees) in [(Who::Auditor, false), (Who::Viewer, true)] {
        let text = ground.get(who, &path).send().await.unwrap().text().await.unwrap();
        let job: Job = serde_json::from_str(&text).unwrap();
        assert_eq!(job.state, State::Failed);
        assert_eq!(text.contains("canary-5f1d"), sees, "{who:?}");
        assert_eq!(job.labels.is_empty(), !sees, "{who:?}");
    }
}

/// Long before the look that the waiters take by themselves every five seconds.
#[tokio::test]
async fn whoever_waits_is_woken_by_the_commit_of_the_end() {
    let ground = Ground::new().await;
    let begun = Instant::now();
    let submitting = ground.post(Who::Submitter, "/v1/jobs?wait=30s", &spec()).send();
    let running = async {
        let job = loop {
            let jobs: JobList = ground
                .get(Who::Viewer, "/v1/jobs")
                .send()
                .await
                .unwrap()
                .json()
                .await
                .unwrap();
            if let Some(job) = jobs.jobs.first() {
                break job.job;
            }
        };
        let message = ground.start(job).await;
        let path = format!("/v1/jobs/{job}?wait=30s");
        let looking = ground.get(Who::Viewer, &path).send();
        let ending = async {
            ground.finish(&message, success()).await;
        };
        let (looked, ()) = tokio::join!(looking, ending);
        looked.unwrap().json::<Job>().await.unwrap()
    };
    let (submitted, looked) = tokio::join!(submitting, running);
    let submitted = submitted.unwrap();
    assert_eq!(submitted.status(), StatusCode::OK);
    let job: Job = submitted.json().await.unwrap();
    assert_eq!(job.state, State::Succeeded);
    assert_eq!(job.stdout.unwrap().text.as_deref(), Some("42\n"));
    assert_eq!((looked.job, looked.state), (job.job, State::Succeeded));
    // Neither waited for the end of its 30 s.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_wait_ends_with_its_time_and_has_a_bound() {
    let ground = Ground::new().await;
    let answer = ground
        .post(Who::Submitter, "/v1/jobs?wait=50ms", &spec())
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::ACCEPTED);
    let submitted: Submitted = answer.json().await.unwrap();
    let path = format!("/v1/jobs/{}?wait=50ms", submitted.job);
    let job: Job = ground
        .get(Who::Viewer, &path)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(job.state, State::Queued);
    for wait in ["61s", "-1s", "30", "1h", ""] {
        for request in [
            ground.post(Who::Submitter, &format!("/v1/jobs?wait={wait}"), &spec()),
            ground.get(Who::Viewer, &format!("/v1/jobs/{}?wait={wait}", submitted.job)),
        ] {
            assert_eq!(
                request.send().await.unwrap().status(),
                StatusCode::BAD_REQUEST,
                "{wait}"
            );
        }
    }
}

#[tokio::test]
async fn a_submission_is_repeated_under_its_key() {
    let ground = Ground::new().await;
    let submit = async |who: Who, key: &str, body: &Value| {
        ground
            .post(who, "/v1/jobs", body)
            .header("idempotency-key", key)
            .send()
            .await
            .unwrap()
    };
    let first: Submitted = submit(Who::Submitter, "order-7", &spec())
        .await
        .json()
        .await
        .unwrap();
    assert!(!first.existing);
    let again: Submitted = submit(Who::Submitter, "order-7", &spec())
        .await
        .json()
        .await
        .unwrap();
    assert_eq!((again.job, again.existing), (first.job, true));
    let mut other = spec();
    other["args"] = json!(["--again"]);
    let conflict = submit(Who::Submitter, "order-7", &other).await;
    assert_eq!(conflict.status(), StatusCode::CONFLICT);
    let problem: Value = conflict.json().await.unwrap();
    assert_eq!(problem["code"], "idempotency_conflict");
    let stranger: Submitted = submit(Who::Stranger, "order-7", &other)
        .await
        .json()
        .await
        .unwrap();
    assert!(!stranger.existing);
    for key in ["", "a b", &"a".repeat(256)] {
        assert_eq!(
            submit(Who::Submitter, key, &spec()).await.status(),
            StatusCode::BAD_REQUEST,
            "{key}"
        );
    }
    let jobs: JobList = ground
        .get(Who::Viewer, "/v1/jobs")
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(jobs.jobs.len(), 1);
}

/// Also where one of them is at fault.
#[tokio::test]
async fn jobs_that_come_at_once_get_each_its_own_answer() {
    let ground = Ground::new().await;
    let first: Submitted = ground
        .post(Who::Submitter, "/v1/jobs", &spec())
        .header("idempotency-key", "taken")
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let mut other = spec();
    other["args"] = json!(["--other"]);
    let requests = (0..100).map(|number| {
        let who = if number % 10 == 0 {
            Who::Stranger
        } else {
            Who::Submitter
        };
        match number {
            50 => ground
                .post(who, "/v1/jobs", &spec())
                .header("idempotency-key", "same"),
            51 => ground
                .post(Who::Submitter, "/v1/jobs", &other)
                .header("idempotency-key", "taken"),
            60..=69 => ground
                .post(Who::Submitter, "/v1/jobs", &spec())
                .header("idempotency-key", "same"),
            _ => ground.post(who, "/v1/jobs", &spec()),
        }
        .send()
    });
    let mut answers = Vec::new();
    for answer in futures_util::future::join_all(requests).await {
        let answer = answer.unwrap();
        answers.push((answer.status(), answer.json::<Value>().await.unwrap()));
    }
    assert_eq!(answers[51].0, StatusCode::CONFLICT, "{:?}", answers[51]);
    assert!(
        answers[51].1["detail"]
            .as_str()
            .unwrap()
            .contains(&first.job.to_string())
    );
    answers.remove(51);
    assert!(
        answers.iter().all(|(status, _)| *status == StatusCode::ACCEPTED),
        "{answers:?}"
    );
    let jobs: std::collections::BTreeSet<_> =
        answers.iter().map(|(_, body)| body["job"].to_string()).collect();
    assert_eq!(
        jobs.len(),
        100 - 1 - 9,
        "ten submissions under one key are one job"
    );
    let strange: JobList = ground
        .get(Who::Stranger, "/v1/jobs?limit=1000")
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(strange.jobs.len(), 9);
}

#[tokio::test]
async fn a_list_goes_on_where_it_says() {
    let ground = Ground::new().await;
    let bulk = json!({"jobs": vec![spec(); 5]});
    let answer = ground
        .post(Who::Submitter, "/v1/jobs/bulk", &bulk)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::ACCEPTED);
    let submitted: SubmittedMany = answer.json().await.unwrap();
    let mut expected: Vec<_> = submitted.jobs.iter().map(|job| job.job).collect();
    expected.reverse();
    let (mut listed, mut path) = (Vec::new(), "/v1/jobs?limit=2".to_owned());
    loop {
        let page: JobList = ground
            .get(Who::Viewer, &path)
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        listed.extend(page.jobs.iter().map(|job| job.job));
        let Some(next) = page.next else { break };
        path = format!("/v1/jobs?limit=2&cursor={next}");
    }
    assert_eq!(listed, expected);
    for query in [
        "limit=0",
        "limit=1001",
        "limit=-1",
        "limit=a",
        "cursor=a",
        "cursor=",
        "limit=1&limit=2",
        "cursor=0192f0c1-2f7e-7cc3-98c4-dc0c0c07398f",
    ] {
        let answer = ground
            .get(Who::Viewer, &format!("/v1/jobs?{query}"))
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{query}");
    }
    for jobs in [0, 1001] {
        let bulk = json!({"jobs": vec![spec(); jobs]});
        let answer = ground
            .post(Who::Submitter, "/v1/jobs/bulk", &bulk)
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY, "{jobs}");
    }
}

#[tokio::test]
async fn a_list_is_of_the_jobs_that_are_asked_for() {
    let ground = Ground::new().await;
    let over = ground.ended(ground.tenant).await;
    let waiting = ground.submitted(ground.tenant).await;
    let list = async |who: Who, query: &str| {
        ground
            .get(who, &format!("/v1/jobs?{query}"))
            .send()
            .await
            .unwrap()
    };
    for (query, expected) in [
        ("state=queued", vec![waiting]),
        ("state=succeeded", vec![over]),
        ("state=failed", vec![]),
        ("label=team%3Da", vec![waiting, over]),
        ("label=team%3Db", vec![]),
        ("image=python", vec![waiting, over]),
        ("submitted_from=2026-11-29T00:00:00Z", vec![waiting, over]),
        ("submitted_before=2026-11-29T00:00:00Z", vec![]),
        ("batch=0192f0c1-2f7e-7cc3-98c4-dc0c0c07398f", vec![]),
    ] {
        let page: JobList = list(Who::Viewer, query).await.json().await.unwrap();
        let found: Vec<_> = page.jobs.iter().map(|job| job.job).collect();
        assert_eq!((found, page.next), (expected, None), "{query}");
    }
    for query in [
        "state=done",
        "label=team",
        "label=%3Da",
        "image=python:3",
        "submitted_from=now",
        "batch=1",
    ] {
        assert_eq!(
            list(Who::Viewer, query).await.status(),
            StatusCode::BAD_REQUEST,
            "{query}"
        );
    }
    assert_eq!(
        list(Who::Auditor, "label=team%3Da").await.status(),
        StatusCode::FORBIDDEN
    );
}

#[tokio::test]
async fn a_job_is_canceled_wherever_it_stands() {
    let ground = Ground::new().await;
    let cancel = async |job: JobId| -> Cancel {
        let path = format!("/v1/jobs/{job}/cancel");
        let answer = ground
            .by(Who::Submitter, Method::POST, &path)
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        answer.json().await.unwrap()
    };
    let waiting = ground.submitted(ground.tenant).await;
    assert_eq!(cancel(waiting).await.answer, CancelWord::Canceled);
    assert_eq!(shown(&ground, waiting).await.state, State::Canceled);
    assert_eq!(cancel(waiting).await.answer, CancelWord::Over);
    let message = ground.started(ground.tenant).await;
    assert_eq!(cancel(message.job).await.answer, CancelWord::Requested);
    assert_eq!(shown(&ground, message.job).await.state, State::CancelRequested);
    ground.finish(&message, success()).await;
    assert_eq!(shown(&ground, message.job).await.state, State::Canceled);
}

#[tokio::test]
async fn a_batch_takes_its_items_once_and_is_complete() {
    let ground = Ground::new().await;
    let answer = ground
        .post(Who::Submitter, "/v1/batches", &json!({"input": "programs/"}))
        .send()
        .await
        .unwrap();
    let batch: Batch = answer.json().await.unwrap();
    let path = format!("/v1/batches/{}", batch.batch);
    let items = json!({"items": [{"item": "one.py", "job": spec()}, {"item": "two.py", "job": spec()}]});
    let submit = async |items: &Value| {
        ground
            .post(Who::Submitter, &format!("{path}/jobs"), items)
            .send()
            .await
            .unwrap()
    };
    let first: SubmittedMany = submit(&items).await.json().await.unwrap();
    let again: SubmittedMany = submit(&items).await.json().await.unwrap();
    for (first, again) in first.jobs.iter().zip(&again.jobs) {
        assert_eq!(
            (first.job, first.existing, again.existing),
            (again.job, false, true)
        );
    }
    let wrong = json!({"items": [{"item": "", "job": spec()}]});
    assert_eq!(submit(&wrong).await.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let complete = async |items: u64| {
        ground
            .post(
                Who::Submitter,
                &format!("{path}/complete"),
                &json!({"items": items}),
            )
            .send()
            .await
            .unwrap()
    };
    assert_eq!(complete(3).await.status(), StatusCode::CONFLICT);
    assert_eq!(complete(2).await.status(), StatusCode::OK);
    let further = json!({"items": [{"item": "three.py", "job": spec()}]});
    assert_eq!(submit(&further).await.status(), StatusCode::CONFLICT);
    let page: BatchJobList = ground
        .get(Who::Viewer, &format!("{path}/jobs?limit=1"))
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!((page.jobs[0].item.as_str(), page.jobs[0].position), ("one.py", 1));
    let next = format!("{path}/jobs?cursor={}", page.next.unwrap());
    let page: BatchJobList = ground
        .get(Who::Viewer, &next)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!((page.jobs.len(), page.jobs[0].item.as_str()), (1, "two.py"));
    let batch: Batch = ground
        .get(Who::Viewer, &path)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!((batch.items, batch.waiting), (Some(2), 2));
}
