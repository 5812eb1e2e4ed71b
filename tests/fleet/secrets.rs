//! A named secret on its way through a fleet: sealed in the database, on its way to the executor beside its order, in the sandbox,
//! and nowhere else.

use mayfly_core::{account::Role, id::JobId, outcome::EndState};
use mayfly_dispatch::message::Wire as _;
use serde_json::{Value, json};

use crate::{
    blobs,
    letters::Unable,
    redaction::{SECRET, TRACE, is_clean, rows_with_it},
    support::{Api, SOON},
};

/// Says what it was given, which is taken out, and what its file is like.
const PROGRAM: &str = "import os\n\
path = '/work/conf/key'\n\
text = open(path).read()\n\
print(text == os.environ['TOKEN'], len(text), oct(os.stat(path).st_mode & 0o777), os.stat(path).st_uid == os.getuid())\n\
print(text)\n";

async fn submit(api: &Api) -> (u16, Value) {
    let job = json!({
        "image": "python",
        "source": { "text": PROGRAM },
        "secrets": { "TOKEN": { "named": "API_KEY" } },
        "secret_files": { "conf/key": { "named": "API_KEY" } },
    });
    api.post("/v1/jobs", &job).await
}

async fn accepted(api: &Api) -> JobId {
    let (status, answer) = submit(api).await;
    assert_eq!(status, 202, "{answer}");
    let id = answer["job"].as_str().expect("it has an id");
    id.parse().expect("it is an id")
}

async fn said(api: &Api, job: JobId) -> String {
    let answer = api.get(&format!("/v1/jobs/{job}/output/stdout")).await;
    answer.text().await.expect("it is text")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_secret_is_in_the_sandbox_and_in_no_row_message_log_or_answer() {
    let key = (
        "MAYFLY_SERVER__SECRETS_KEY",
        "a key of the test's own, not a short one",
    );
    let Some(mut fleet) = blobs::fleet(0, &[], &[TRACE, key]).await else {
        return;
    };
    let api = fleet.api().await;
    let admin = fleet.api_of(0, Role::Admin).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("value");
    std::fs::write(&file, format!("{SECRET}\n")).expect("it is written");
    let file = file.to_str().expect("a path of text").to_owned();
    let (status, problem) = submit(&api).await;
    assert_eq!(status, 422, "{problem}");
    assert_eq!(problem["faults"][0]["code"], "no_such_secret");
    fleet.command(&admin, &["secret", "set", "API_KEY", "--file", &file]);
    let listed = fleet.command(&admin, &["secret", "list"]);
    assert!(listed.contains("API_KEY"), "{listed}");
    is_clean("the list", &listed);
    let own = json!({
        "image": "python",
        "source": { "text": "import os\nprint(os.environ['TOKEN'])\n" },
        "secrets": { "TOKEN": SECRET },
        "retain_source": false,
    });
    let mut unable = Unable::join(&fleet).await;
    let (status, answer) = api.post("/v1/jobs", &own).await;
    assert_eq!(status, 202, "{answer}");
    let own: JobId = answer["job"]
        .as_str()
        .expect("it has an id")
        .parse()
        .expect("it is an id");
    let job = accepted(&api).await;
    let orders = [unable.refuse().await, unable.refuse().await];
    drop(unable);
    assert_eq!(orders.each_ref().map(|order| order.job), [own, job]);
    for order in orders {
        let message = String::from_utf8(order.encode()).expect("it is JSON");
        is_clean("the order", &message);
        assert!(order.secrets.is_some(), "{message}");
    }
    fleet.add_executor(1, &[TRACE]);
    assert_eq!(fleet.end_of(job, 2 * SOON).await, EndState::Succeeded);
    let expected = format!("True {} 0o400 True\n[redacted:secret]\n", SECRET.len());
    assert_eq!(said(&api, job).await, expected);
    assert_eq!(fleet.end_of(own, 2 * SOON).await, EndState::Succeeded);
    assert_eq!(said(&api, own).await, "[redacted:secret]\n");
    assert_eq!(rows_with_it(&fleet), Vec::<String>::new());
    let audit = fleet.command(&api, &["audit", "list", "--job", &job.to_string(), "--json"]);
    is_clean("the audit log", &audit);
    assert!(audit.contains("secrets_given"), "{audit}");
    // The next run has the next value.
    std::fs::write(&file, "another-horse-of-ours").expect("it is written");
    fleet.command(&admin, &["secret", "set", "API_KEY", "--file", &file]);
    let job = accepted(&api).await;
    assert_eq!(fleet.end_of(job, 2 * SOON).await, EndState::Succeeded);
    assert_eq!(said(&api, job).await, "True 21 0o400 True\n[redacted:secret]\n");
    fleet.command(&admin, &["secret", "remove", "API_KEY"]);
    let (status, problem) = submit(&api).await;
    assert_eq!(status, 422, "{problem}");
    for role in fleet.servers.iter().chain(&fleet.executors) {
        let log = role.log();
        assert!(log.contains(" TRACE "), "{}", role.log_file().display());
        is_clean(&role.log_file().display().to_string(), &log);
    }
    fleet.every_job_has_one_result();
}
