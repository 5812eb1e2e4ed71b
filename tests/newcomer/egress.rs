//! What a job reaches outside, through the embedded roles on a real engine: what its policy names, and on record. Every address that
//! may be dialled stands for a listener of the test on loopback.

mod support;

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use mayfly_cli::embedded::{Embedded, EmbeddedParts, OneListener, Submission};
use mayfly_core::{
    egress::{EgressRecord, Reason, Verdict},
    fault::Faults,
    id::{ExecutorId, TenantId},
    job::{Blob, JobSpec, ResolvedJob},
    outcome::EndState,
    policy::Policy,
    run::RunReport,
};
use mayfly_dispatch::message::ExecutorFacts;
use mayfly_executor::Outside;
use mayfly_sandbox::{
    DockerSandbox, baseline_digest,
    seam::{NoLiveOutput, SandboxConfig, UidRange},
};
use mayfly_store::{
    records::AuditFilter,
    seam::{JobStore as _, MAX_PAGE},
};
use mayfly_store_sqlite::SqliteStore;
use mayfly_telemetry::SystemClock;
use mayfly_testkit::internet::{Internet, answer};
use serde_json::{Value, json};
use support::Mayfly;

/// An address on the Internet that stands for one of the test's, and another.
const PUBLIC: &str = "93.184.216.34";
const OURS: &str = "93.184.216.99";

const SECRET: &str = "correct-horse-battery";

/// Asks for each of its arguments, and says what came of it.
const PROGRAM: &str = "import os, sys, urllib.error, urllib.request\n\
for url in sys.argv[1:]:\n    \
    url = url.replace('TOKEN', os.environ.get('TOKEN', ''))\n    \
    try:\n        \
        with urllib.request.urlopen(url, timeout=20) as answer: print(answer.status, answer.read().decode())\n    \
    except urllib.error.HTTPError as error: print(error.code)\n    \
    except OSError as error: print('no way out')\n";

struct Ground {
    embedded: Embedded,
    store: Arc<SqliteStore>,
    internet: Arc<Internet>,
    _mayfly: Mayfly,
}

impl Ground {
    async fn set_up() -> Option<Self> {
        let mayfly = Mayfly::with_python()?;
        let store = SqliteStore::open(&mayfly.database()).await;
        let store = Arc::new(store.expect("the database opens"));
        let internet = Internet::default()
            .name("files.example.test", PUBLIC)
            .name("ours.example.test", OURS)
            .name("inside.example.test", "10.0.0.7")
            .server(PUBLIC, 80, |stream| answer(stream, b"hello"))
            .await
            .server(OURS, 80, |stream| answer(stream, b"ours"))
            .await;
        let internet = Arc::new(internet);
        let config = SandboxConfig {
            engine: std::env::var_os("DOCKER_HOST").and_then(|address| address.into_string().ok()),
            deployment: "egress".to_owned(),
            uids: UidRange {
                first: 58_000,
                count: 20,
            },
            guest: None,
            kill_grace: Duration::from_secs(2),
            host_check: None,
        };
        let sandbox = DockerSandbox::connect(config, Arc::new(SystemClock)).await;
        let embedded = Embedded::start(EmbeddedParts {
            executor: ExecutorId::new(),
            processes: mayfly.database().with_file_name("processes"),
            containers_at: "egress".to_owned(),
            store: store.clone(),
            sandbox: sandbox.expect("the engine answers"),
            clock: Arc::new(SystemClock),
            outside: Outside {
                resolver: Arc::new(internet.shown()),
                dialler: Arc::new(internet.shown()),
                own: vec![OURS.parse::<IpAddr>().expect("an address").into()],
            },
            #[cfg(feature = "fleet")]
            vault: None,
            listeners: Arc::new(OneListener(Arc::new(NoLiveOutput))),
            facts: ExecutorFacts::default(),
            slots: 1,
        })
        .await
        .expect("the roles start");
        Some(Self {
            embedded,
            store,
            internet,
            _mayfly: mayfly,
        })
    }

    /// A job that asks for this, by a policy that lets jobs reach what is below `example.test`.
    async fn job(&self, egress: Value, urls: &[&str]) -> Result<ResolvedJob, Faults> {
        let spec: JobSpec = serde_json::from_value(json!({
            "image": "python",
            "source": {"text": Blob::from(PROGRAM)},
            "args": urls,
            "secrets": {"TOKEN": SECRET},
            "egress": egress,
            "limits": {"wall": "60s"},
        }))
        .expect("a job that can be read");
        let mut policy = Policy::default();
        policy.egress.allow = vec!["*.example.test".to_owned()];
        let pin = self.store.find_image("python").await;
        let pin = pin
            .expect("the database answers")
            .expect("the image is pinned")
            .pin;
        spec.resolve(&policy, pin, &baseline_digest())
    }

    /// What a job has written, and its report.
    async fn run(&self, egress: Value, urls: &[&str]) -> (String, RunReport) {
        let resolved = self.job(egress, urls).await.expect("a job without faults");
        let submission = Submission {
            resolved,
            labels: BTreeMap::new(),
            priority: 0,
            times: mayfly_core::job::Times::default(),
            retain_source: true,
        };
        let id = self
            .embedded
            .submit(submission)
            .await
            .expect("the job is accepted");
        let ended = tokio::time::timeout(Duration::from_secs(120), self.embedded.wait(id)).await;
        let details = ended.expect("it ends in time").expect("the database answers");
        let report = details.report().expect("it has run").clone();
        let said = String::from_utf8_lossy(&report.stdout.head).into_owned();
        assert_eq!(
            report.outcome.state,
            EndState::Succeeded,
            "{said} {:?}",
            report.stderr
        );
        (said, report)
    }

    async fn log(&self) -> Vec<Value> {
        let events = self
            .store
            .list_audit(TenantId::LOCAL, AuditFilter::default(), MAX_PAGE);
        let events = events.await.expect("the database answers");
        let body =
            |event: &mayfly_store::records::AuditRow| serde_json::from_slice(&event.body).expect("JSON");
        events.iter().map(body).collect()
    }
}

fn decisions(record: &EgressRecord) -> Vec<(&str, Option<u16>, Verdict, Reason)> {
    let told = record.decisions.iter();
    told.map(|one| (one.name.as_str(), one.port, one.verdict, one.reason))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_reaches_what_it_asked_for_and_each_decision_is_on_record() {
    let Some(ground) = Ground::set_up().await else {
        return;
    };
    let urls = [
        "http://files.example.test/a",
        "http://other.test/",
        "http://files.example.test:8080/",
        "http://ours.example.test/",
        "http://inside.example.test/",
        "http://169.254.169.254/latest/meta-data/",
        "http://TOKEN.test/",
    ];
    let (said, report) = ground.run(json!(["*.Example.test."]), &urls).await;
    assert_eq!(said, "200 hello\n403\n403\n403\n403\n403\n403\n");
    let record = report.egress.expect("it had egress");
    use Reason::{AddressNotAllowed, AddressRefused, Allowed, NameNotAllowed, OwnAddress, PortNotAllowed};
    assert_eq!(
        decisions(&record),
        [
            ("files.example.test", Some(80), Verdict::Allowed, Allowed),
            ("other.test", Some(80), Verdict::Refused, NameNotAllowed),
            ("files.example.test", Some(8080), Verdict::Refused, PortNotAllowed),
            ("ours.example.test", Some(80), Verdict::Refused, OwnAddress),
            ("inside.example.test", Some(80), Verdict::Refused, AddressRefused),
            ("169.254.169.254", Some(80), Verdict::Refused, AddressNotAllowed),
            (
                "[redacted:secret].test",
                Some(80),
                Verdict::Refused,
                NameNotAllowed
            ),
        ]
    );
    assert_eq!(
        record.counts,
        [(Verdict::Allowed, 1), (Verdict::Refused, 6)].into()
    );
    assert!(record.received_bytes > 0 && record.sent_bytes > 0);
    assert_eq!(ground.internet.dialled(), [format!("{PUBLIC}:80")]);
    let log = ground.log().await;
    let finished: Vec<_> = log
        .iter()
        .filter(|event| event["fact"]["kind"] == "run_finished")
        .collect();
    let summary = &finished[0]["fact"]["egress"];
    assert_eq!(summary["counts"], json!({"allowed": 1, "refused": 6}));
    assert!(summary["decisions"].is_string(), "{summary}");
    let text = serde_json::to_string(&log).expect("JSON");
    assert!(!text.contains("example.test") && !text.contains(SECRET), "{text}");
    ground.embedded.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_asked_for_nothing_has_no_way_out_and_none_asks_for_more_than_its_policy_has() {
    let Some(ground) = Ground::set_up().await else {
        return;
    };
    let (said, report) = ground.run(json!([]), &["http://files.example.test/a"]).await;
    assert_eq!(said, "no way out\n");
    assert_eq!(report.egress, None);
    assert_eq!(ground.internet.dialled(), Vec::<String>::new());
    for (egress, code) in [
        (json!(["example.test"]), "not_allowed"),
        (json!(["files.example.test:8080"]), "not_allowed"),
        (json!(["tcp://files.example.test:80"]), "not_allowed"),
        (json!(["10.0.0.0/8"]), "not_allowed"),
        (json!(["*"]), "bad_rule"),
        (json!(["127.0.0.0/8"]), "bad_rule"),
    ] {
        let faults = ground.job(egress.clone(), &[]).await.expect_err("it is refused");
        let found: Vec<_> = faults
            .iter()
            .map(|fault| (fault.path.as_str(), fault.code))
            .collect();
        assert_eq!(found, [("egress[0]", code)], "{egress}");
    }
    ground.embedded.stop().await;
}
