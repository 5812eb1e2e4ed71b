//! The server against requests that are made from its own document, right and wrong ones, once for each kind of key:
//! nothing of it is an error of ours, and every answer is what the document says. `scripts/schemathesis` gets the program.

use std::process::Stdio;

use mayfly_core::id::BatchId;
use mayfly_store::records::NewBatch;
use tokio::process::Command;

use crate::ground::{Ground, LETTER, Who, skip};

/// Examples of each operation where no number is given.
const EXAMPLES: &str = "5";
/// What is looked at. Left out: that valid data is accepted, since a policy, an id that there is none of, and what stands
/// already refuse it with reason; and that what was made can be read, since some of it is another role's to read.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance,negative_data_rejection,missing_required_header,unsupported_method,\
                      ignored_auth";

async fn run(who: Who) {
    let Some(program) = std::env::var_os("MAYFLY_TEST_SCHEMATHESIS") else {
        return skip("schemathesis is not here: scripts/schemathesis gets it from PyPI");
    };
    let examples = std::env::var_os("MAYFLY_TEST_EXAMPLES").unwrap_or_else(|| EXAMPLES.into());
    let ground = Ground::new().await;
    let ended = ground.ended(ground.tenant).await;
    let folder = tempfile::tempdir().unwrap();
    // Ids that there are beside those that are made up: otherwise nothing but 404 would be seen of most routes.
    let batch = NewBatch {
        id: BatchId::new(),
        tenant: ground.tenant,
        input: "programs/".to_owned(),
    };
    let batch_id = batch.id;
    let begun = ground.bench.store.begin_batch(batch, ground.bench.date()).await;
    begun.unwrap();
    let mut known = String::new();
    for (name, value) in [
        ("job", ended.to_string()),
        ("batch", batch_id.to_string()),
        ("executor", ground.executor.to_string()),
        ("tenant", ground.tenant.to_string()),
        ("letter", LETTER.to_owned()),
        ("name", "python".to_owned()),
    ] {
        known += &format!(
            "[dictionaries.{name}]\nvalues = [\"{value}\"]\n\
             [parameters.\"path.{name}\"]\ndictionary = \"{name}\"\nprobability = 0.7\n"
        );
    }
    std::fs::write(folder.path().join("schemathesis.toml"), known).unwrap();
    let authorization = format!("Authorization: Bearer {}", ground.key(who).reveal());
    let output = Command::new(program)
        .current_dir(folder.path())
        .arg("run")
        .arg(ground.url("/v1/openapi.json"))
        .args([
            "--header",
            &authorization,
            "--checks",
            CHECKS,
            "--phases",
            "examples,coverage,fuzzing",
        ])
        .args([
            "--request-timeout",
            "30",
            "--workers",
            "1",
            "--seed",
            "1",
            "--no-color",
            "--max-examples",
        ])
        .arg(examples)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let text = text.replace(&ground.key(who).reveal(), "KEY");
    assert!(
        output.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // What it counted, for whoever asks for the output of a test that passes.
    let summary = text.lines().skip_while(|line| !line.contains(" SUMMARY "));
    eprintln!("{}", summary.collect::<Vec<_>>().join("\n"));
    // The server is there still, and so is what it had.
    let path = format!("/v1/jobs/{ended}");
    assert!(
        ground
            .get(Who::Viewer, &path)
            .send()
            .await
            .unwrap()
            .status()
            .is_success()
    );
}

#[tokio::test]
async fn as_an_admin() {
    run(Who::Admin).await;
}

#[tokio::test]
async fn as_an_operator() {
    run(Who::Operator).await;
}

#[tokio::test]
async fn as_a_submitter() {
    run(Who::Submitter).await;
}

#[tokio::test]
async fn as_a_viewer() {
    run(Who::Viewer).await;
}

#[tokio::test]
async fn as_an_auditor() {
    run(Who::Auditor).await;
}
