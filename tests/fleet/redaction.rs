//! A job's secret on its way through a fleet: into its row, its orders and its sandbox, and from there nowhere.

use mayfly_core::{id::JobId, outcome::EndState};
use serde_json::{Value, json};

use crate::{
    letters::Unable,
    support::{Api, Fleet, Plan, SOON, Services, python},
};

pub(crate) const SECRET: &str = "correct-horse/battery+staple";

/// Writes its secret in the forms that programs write, a byte at a time, and something that looks like a token; then many
/// long lines that end in the secret.
const PROGRAM: &str = "import base64, json, os, sys, urllib.parse\n\
s = os.environ['TOKEN']\n\
forms = [s, base64.b64encode(b'x' + s.encode()).decode(), urllib.parse.quote(s, safe=''), json.dumps({'token': s}),\n\
    s.encode().hex(), 'AKIA' + 'IOSFODNN7EXAMPLE']\n\
for byte in ('\\n'.join(forms) + '\\n').encode(): os.write(1, bytes([byte]))\n\
line = b'.' * 1000 + s.encode() + b'\\n'\n\
for n in range(int(sys.argv[1])): os.write(1, line)\n\
print(s, file=sys.stderr)\n";

/// Parts of what the program writes, as it must be seen nowhere.
const PARTS: [&str; 5] = [
    "horse",
    "battery",
    "Y3QtaG9yc2UvYmF0dGVyeS",
    "636f72726563742d686f727365",
    concat!("AKIA", "IOSFODNN7EXAMPLE"),
];

pub(crate) const TRACE: (&str, &str) = ("MAYFLY_LOG__FILTER", "trace");

pub(crate) fn is_clean(what: &str, text: &str) {
    for part in PARTS {
        let at = text
            .find(part)
            .map(|at| &text[at.saturating_sub(200)..text.len().min(at + 200)]);
        assert_eq!(at, None, "{part} in {what}");
    }
}

/// The same, of what has output.
fn is_redacted(what: &str, text: &str) {
    is_clean(what, text);
    assert!(
        text.contains("[redacted:secret]"),
        "nothing of it in {what}: {text}"
    );
}

async fn submit(api: &Api, lines: usize, changes: Value) -> JobId {
    let mut job = json!({
        "image": "python",
        "source": { "text": PROGRAM },
        "args": [lines.to_string()],
        "secrets": { "TOKEN": SECRET },
        "limits": { "stdout": "1MiB" },
    });
    if let (Value::Object(fields), Value::Object(changes)) = (&mut job, changes) {
        fields.extend(changes);
    }
    let (status, answer) = api.post("/v1/jobs", &job).await;
    assert_eq!(status, 202, "{answer}");
    let id = answer["job"].as_str().expect("it has an id");
    id.parse().expect("it is an id")
}

/// Tables with rows in which the secret is, in clear or in bytes, and how many.
pub(crate) fn rows_with_it(fleet: &Fleet) -> Vec<String> {
    let tables = fleet
        .services
        .ask("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename");
    assert!(tables.len() > 10, "{tables:?}");
    let parts = PARTS.iter().flat_map(|part| {
        let in_bytes: String = part.bytes().map(|byte| format!("{byte:02x}")).collect();
        [
            format!("t::text LIKE '%{part}%'"),
            format!("t::text LIKE '%{in_bytes}%'"),
        ]
    });
    let parts = parts.collect::<Vec<_>>().join(" OR ");
    let rows = |table: &String| {
        let count = fleet
            .services
            .count(&format!("SELECT count(*) FROM {table} t WHERE {parts}"));
        (count > 0).then(|| format!("{table} {count}"))
    };
    tables.iter().filter_map(rows).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_stands_in_its_jobs_row_and_in_nothing_that_comes_of_it() {
    let Some(pin) = python() else { return };
    let Some(services) = Services::start() else {
        return;
    };
    let plan = Plan {
        of_servers: &[TRACE],
        ..Plan::default()
    };
    let mut fleet = Fleet::on(services, pin, plan).await;
    let api = fleet.api().await;
    let mut unable = Unable::join(&fleet).await;
    let kept = submit(&api, 0, json!({})).await;
    unable.reject().await;
    drop(unable);
    let letters = fleet.services.count("SELECT count(*) FROM dead_letters");
    fleet.add_executor(1, &[TRACE]);
    // What a listener hears from before the start to the end.
    let events = api.get(&format!("/v1/jobs/{kept}/events")).await.text().await;
    is_redacted("the events", &events.expect("the stream is text"));
    let long = submit(&api, 400, json!({})).await;
    let erased = submit(&api, 0, json!({ "retain_source": false })).await;
    for job in [kept, long, erased] {
        assert_eq!(fleet.end_of(job, 2 * SOON).await, EndState::Succeeded);
        let details = fleet.details(job).await;
        let report = details.report().expect("it has run");
        let lines = if job == long { 400 } else { 0 };
        let redacted = report.stdout.redacted.as_ref().expect("it was looked at");
        assert_eq!(redacted.counts["secret"], 5 + lines);
        assert_eq!(redacted.counts["aws_access_key_id"], 1);
        let id = job.to_string();
        for path in [
            "",
            "/output/stdout",
            "/output/stderr",
            "/events",
            "/output?stream=stdout",
        ] {
            let answer = api.get(&format!("/v1/jobs/{id}{path}")).await;
            assert_eq!(answer.status(), 200, "{path}");
            is_redacted(path, &answer.text().await.expect("it is text"));
        }
        for command in [&["job", "show", &id, "--json"][..], &["logs", &id]] {
            is_redacted(command[0], &fleet.command(&api, command));
        }
        let shown = fleet.command(&api, &["job", "show", &id]);
        is_clean("job show", &shown);
        assert!(
            shown.contains(&format!("{} of secret in stdout", 5 + lines)),
            "{shown}"
        );
        let audit = fleet.command(&api, &["audit", "list", "--job", &id, "--json"]);
        is_clean("the audit log", &audit);
        assert!(audit.contains("stdout_redacted"), "{audit}");
    }
    // The job's own rows have it until they are erased, and no other row.
    assert_eq!(rows_with_it(&fleet), ["job_contents 2"], "of {letters} letters");
    for role in fleet.servers.iter().chain(&fleet.executors) {
        let log = role.log();
        assert!(log.contains(" TRACE "), "{}", role.log_file().display());
        is_clean(&role.log_file().display().to_string(), &log);
    }
    fleet.every_job_has_one_result();
}
