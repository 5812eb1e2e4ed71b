//! Files and archives of jobs: what becomes of them, and what is refused.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mayfly_api::ApiLimits;
use mayfly_core::units::ByteSize;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::ground::{Ground, Who, generous};

const PROJECT: &[u8] = include_bytes!("../../../../fuzz/seeds/archive/gnu-gz.tar.gz");
const ZIPPED: &[u8] = include_bytes!("../../../../fuzz/seeds/archive/deflated.zip");
const NAMES: &[u8] = include_bytes!("../../../../fuzz/seeds/archive/refused-names.tar.gz");
const BOMB: &[u8] = include_bytes!("../../../../fuzz/seeds/archive/refused-bomb.zip");

fn archive(bytes: &[u8]) -> Value {
    json!({"content": {"base64": STANDARD.encode(bytes)}})
}

fn job(archives: &[Value]) -> Value {
    json!({"image": "python", "command": ["python3", "main.py"], "archives": archives})
}

async fn refused(ground: &Ground, body: &Value) -> Value {
    let answer = ground
        .post(Who::Submitter, "/v1/jobs", body)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY);
    answer.json().await.unwrap()
}

fn paths(problem: &Value) -> Vec<(&str, &str)> {
    let faults = problem["faults"].as_array().unwrap();
    let text = |fault: &'_ Value, field: &str| fault[field].as_str().unwrap().to_owned();
    assert!(faults.iter().all(|fault| !text(fault, "message").is_empty()));
    faults
        .iter()
        .map(|fault| (fault["path"].as_str().unwrap(), fault["code"].as_str().unwrap()))
        .collect()
}

#[tokio::test]
async fn archives_become_files_before_a_job_is_on_record() {
    let ground = Ground::new().await;
    let mut body = job(&[archive(PROJECT), archive(ZIPPED)]);
    body["archives"][1]["into"] = json!("lib/zipped");
    body["archives"][1]["format"] = json!("zip");
    body["files"] = json!([
        {"path": "data", "content": "x", "mode": "0640"}, {"path": "run", "content": "x", "executable": true},
    ]);
    let answer = ground
        .post(Who::Submitter, "/v1/jobs", &body)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::ACCEPTED);
    let submitted: Value = answer.json().await.unwrap();
    let order = ground
        .start(submitted["job"].as_str().unwrap().parse().unwrap())
        .await;
    let long = format!("{}/{}/{}", "a".repeat(80), "b".repeat(60), "c".repeat(60));
    let files: Vec<_> = order
        .resolved
        .files
        .iter()
        .map(|file| {
            (
                file.path.clone(),
                file.file_mode().to_string(),
                file.content.as_bytes().len(),
            )
        })
        .collect();
    let expected = [
        ("data", "0640", 1),
        ("run", "0755", 1),
        ("main.py", "0644", 15),
        ("pkg/__init__.py", "0600", 0),
        ("pkg/mod.py", "0664", 750),
        ("bin/tool", "0755", 1024),
        (&long, "0644", 4),
        ("lib/zipped/main.py", "0644", 15),
        ("lib/zipped/pkg/__init__.py", "0600", 0),
        ("lib/zipped/pkg/mod.py", "0664", 750),
        ("lib/zipped/bin/tool", "0755", 1024),
    ];
    assert_eq!(
        files,
        expected.map(|(path, mode, bytes)| (path.to_owned(), mode.to_owned(), bytes))
    );
}

#[tokio::test]
async fn all_that_is_wrong_with_archives_is_listed_at_once() {
    let ground = Ground::new().await;
    let mut body = job(&[
        archive(NAMES),
        archive(BOMB),
        archive(b"no archive"),
        archive(PROJECT),
    ]);
    body["archives"][3]["into"] = json!("../up");
    body["files"] = json!([{"path": "/abs", "content": ""}, {"path": "a", "content": "", "executable": true, "mode": "0644"}]);
    body["image"] = json!("of-nobody");
    let problem = refused(&ground, &body).await;
    assert_eq!(problem["code"], "invalid_job");
    let expected = [
        ("files[0].path", "bad_path"),
        ("files[1].mode", "ambiguous"),
        ("archives[0][\"../../etc/cron.d/job\"]", "bad_path"),
        ("archives[0][\"/etc/passwd\"]", "bad_path"),
        ("archives[0][\"ok.py\"]", "duplicate"),
        ("archives[0][\"ok.py/below\"]", "below_a_file"),
        ("archives[0][\"link\"]", "link"),
        ("archives[0][\"hard\"]", "link"),
        ("archives[0][\"pipe\"]", "special"),
        ("archives[0][\"disk\"]", "special"),
        ("archives[0][\"tool\"]", "special"),
        ("archives[0][\"bell\\u{7}\"]", "bad_path"),
        ("archives[1][\"zeros\"]", "ratio"),
        ("archives[1][\"..\\\\x\"]", "bad_path"),
        ("archives[1][\"C:/x\"]", "bad_path"),
        ("archives[1]", "ratio"),
        ("archives[2].content", "unknown_format"),
        ("archives[3].into", "bad_path"),
        ("image", "not_pinned"),
    ];
    assert_eq!(paths(&problem), expected);
    let jobs: Value = ground
        .get(Who::Submitter, "/v1/jobs")
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(jobs["jobs"], json!([]));
}

#[tokio::test]
async fn files_archives_and_the_source_are_not_in_each_others_way() {
    let ground = Ground::new().await;
    let mut body = job(&[archive(PROJECT)]);
    body.as_object_mut().unwrap().remove("command");
    body["source"] = json!({"text": "print(1)"});
    body["files"] = json!([{"path": "pkg", "content": ""}]);
    assert_eq!(
        paths(&refused(&ground, &body).await),
        [
            ("archives[0][\"main.py\"]", "duplicate"),
            ("archives[0][\"pkg/__init__.py\"]", "below_a_file"),
            ("archives[0][\"pkg/mod.py\"]", "below_a_file"),
        ]
    );
    let twice = job(&[archive(PROJECT), archive(ZIPPED)]);
    let problem = refused(&ground, &twice).await;
    assert_eq!(paths(&problem)[0], ("archives[1][\"main.py\"]", "duplicate"));
    assert_eq!(
        paths(&refused(&ground, &job(&vec![archive(ZIPPED); 17])).await),
        [("archives", "too_many")]
    );
    // What the archive is said to be, it must be.
    let mut wrong = job(&[archive(ZIPPED)]);
    wrong["archives"][0]["format"] = json!("tar.gz");
    assert_eq!(
        paths(&refused(&ground, &wrong).await),
        [("archives[0]", "broken")]
    );
}

/// A policy counts what archives hold like files that are sent as they are.
#[tokio::test]
async fn what_archives_hold_counts_as_files_and_content() {
    let ground = Ground::new().await;
    let half = "x".repeat(8 << 20);
    let mut body = job(&[archive(PROJECT)]);
    body["files"] = json!([{"path": "a", "content": half}, {"path": "b", "content": half}]);
    assert_eq!(
        paths(&refused(&ground, &body).await),
        [("archives[0]", "too_large")]
    );
    let files: Vec<_> = (0..996)
        .map(|n| json!({"path": n.to_string(), "content": ""}))
        .collect();
    body["files"] = json!(files);
    assert_eq!(
        paths(&refused(&ground, &body).await),
        [("archives[0]", "too_many")]
    );
}

#[tokio::test]
async fn a_long_list_of_faults_says_how_many_it_leaves_out() {
    let ground = Ground::new().await;
    let files: Vec<_> = (0..150)
        .map(|n| json!({"path": format!("/{n}"), "content": ""}))
        .collect();
    let body = json!({"image": "python", "command": ["true"], "files": files});
    let problem = refused(&ground, &body).await;
    assert_eq!(problem["faults"].as_array().unwrap().len(), 100);
    assert_eq!(problem["detail"], "50 more faults are not listed");
}

/// What one request may expand, over all of its jobs; and that room is given back.
#[tokio::test]
async fn the_archives_of_one_request_have_a_bound_together() {
    let limits = ApiLimits {
        expanded: ByteSize::mib(3),
        bodies: ByteSize::mib(4),
        body: ByteSize::mib(2),
        ..generous()
    };
    let ground = Ground::with(limits).await;
    let many = async |archive: &Value, count: usize| {
        let jobs = vec![job(std::slice::from_ref(archive)); count];
        ground
            .post(Who::Submitter, "/v1/jobs/bulk", &json!({"jobs": jobs}))
            .send()
            .await
            .unwrap()
    };
    // Small ones use up what they have, and not what they might have had.
    for _ in 0..3 {
        let answer = many(&archive(ZIPPED), 100).await;
        assert_eq!(answer.status(), StatusCode::ACCEPTED);
    }
    // What was refused counts as large as it might have been: 1 MiB each, and nothing of what it might hold is looked at.
    let answer = many(&archive(NAMES), 5).await;
    assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let problem: Value = answer.json().await.unwrap();
    let left_out: Vec<_> = paths(&problem)
        .into_iter()
        .filter(|(path, _)| path.ends_with(".archives"))
        .collect();
    assert_eq!(
        left_out,
        [
            ("jobs[3].archives", "too_large"),
            ("jobs[4].archives", "too_large")
        ]
    );
}
