//! What a job reaches outside, through the embedded roles on a real engine: what its policy names, and on record. Every address that
//! may be dialled stands for a listener of the test on loopback.

#[path = "egress/credentials.rs"]
mod credentials;
mod support;

use std::{collections::BTreeMap, io, net::IpAddr, sync::Arc, time::Duration};

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
use mayfly_executor::{Outside, TenantCredentials};
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
use mayfly_testkit::{
    certificate::Certificate,
    internet::{Internet, answer},
};
use serde_json::{Value, json};
use support::Mayfly;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::TlsAcceptor;

/// An address on the Internet that stands for one of the test's, and another.
const PUBLIC: &str = "93.184.216.34";
const OURS: &str = "93.184.216.99";

/// With capital letters, which no name of a host has.
const SECRET: &str = "Correct-Horse-Battery";

/// Asks for each of its arguments, and says what came of it.
const PROGRAM: &str = "import os, socket, sys, urllib.error, urllib.request\n\
try: socket.socket()\n\
except OSError: print('no socket')\n\
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
    image: &'static str,
    mayfly: Mayfly,
}

impl Ground {
    async fn set_up() -> Option<Self> {
        let internet = Internet::default()
            .name("files.example.test", PUBLIC)
            .name("ours.example.test", OURS)
            .name("inside.example.test", "10.0.0.7")
            .server(PUBLIC, 80, |stream| answer(stream, b"hello"))
            .await
            .server(OURS, 80, |stream| answer(stream, b"ours"))
            .await;
        Self::on(Mayfly::with_python()?, "python", internet).await
    }

    /// Roles that reach this Internet, and whose jobs have this image.
    async fn on(mayfly: Mayfly, image: &'static str, internet: Internet) -> Option<Self> {
        Self::with(mayfly, image, internet, None).await
    }

    /// And add these credentials to their requests.
    async fn with(
        mayfly: Mayfly,
        image: &'static str,
        internet: Internet,
        credentials: Option<TenantCredentials>,
    ) -> Option<Self> {
        let store = SqliteStore::open(&mayfly.database()).await;
        let store = Arc::new(store.expect("the database opens"));
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
                credentials,
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
            image,
            mayfly,
        })
    }

    /// A job that asks for this, by a policy that lets jobs reach what is below `example.test`.
    async fn job(&self, egress: Value, urls: &[&str]) -> Result<ResolvedJob, Faults> {
        let spec = json!({
            "image": self.image,
            "source": {"text": Blob::from(PROGRAM)},
            "args": urls,
            "secrets": {"TOKEN": SECRET},
            "egress": egress,
            "limits": {"wall": "60s"},
        });
        self.resolved(spec).await
    }

    async fn resolved(&self, spec: Value) -> Result<ResolvedJob, Faults> {
        let spec: JobSpec = serde_json::from_value(spec).expect("a job that can be read");
        let mut policy = Policy::default();
        policy.egress.allow = vec!["*.example.test".to_owned()];
        let pin = self.store.find_image(self.image).await;
        let pin = pin
            .expect("the database answers")
            .expect("the image is pinned")
            .pin;
        spec.resolve(&policy, pin, &baseline_digest())
    }

    /// What a job has written, and its report.
    async fn run(&self, egress: Value, urls: &[&str]) -> (String, RunReport) {
        let resolved = self.job(egress, urls).await.expect("a job without faults");
        self.ended(resolved).await
    }

    async fn ended(&self, resolved: ResolvedJob) -> (String, RunReport) {
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
    assert!(
        !text.contains("example.test") && !text.to_lowercase().contains("horse"),
        "{text}"
    );
    ground.embedded.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_asked_for_nothing_has_no_way_out_and_none_asks_for_more_than_its_policy_has() {
    let Some(ground) = Ground::set_up().await else {
        return;
    };
    let (said, report) = ground.run(json!([]), &["http://files.example.test/a"]).await;
    assert_eq!(said, "no socket\nno way out\n");
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

/// Makes a wheel with a compiled module of one that the image has, so that its interpreter can load it.
const MAKES_A_WHEEL: &str = "import importlib.util, pathlib, sys, zipfile\n\
source = pathlib.Path(importlib.util.find_spec('kiwisolver').origin).parent\n\
tag = f'cp{sys.version_info.major}{sys.version_info.minor}'\n\
name = f'kiwisolver-99.0-{tag}-{tag}-linux_x86_64.whl'\n\
info = 'kiwisolver-99.0.dist-info'\n\
files = {f'kiwisolver/{path.name}': path.read_bytes() for path in source.iterdir() if path.is_file()}\n\
files[f'{info}/METADATA'] = b'Metadata-Version: 2.1\\nName: kiwisolver\\nVersion: 99.0\\n'\n\
files[f'{info}/WHEEL'] = f'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: false\\nTag: {tag}-{tag}-linux_x86_64\\n'.encode()\n\
files[f'{info}/RECORD'] = ''.join(f'{path},,\\n' for path in [*files, f'{info}/RECORD']).encode()\n\
with zipfile.ZipFile(name, 'w', zipfile.ZIP_DEFLATED) as wheel:\n    \
for path, content in files.items(): wheel.writestr(path, content)\n\
assert any(path.endswith('.so') for path in files), list(files)\n\
print(name)\n";

/// Installs it from the index, and uses what is compiled.
const INSTALLS: &str = "import subprocess, sys\n\
pip = [sys.executable, '-m', 'pip', 'install', '--no-cache-dir', '--disable-pip-version-check', '--no-deps', '--target', '/work/lib',\n    \
'--index-url', 'https://pypi.example.test/simple/', '--cert', '/work/ca.pem', 'kiwisolver==99.0']\n\
done = subprocess.run(pip, capture_output=True, text=True)\n\
if done.returncode: sys.exit(done.stdout + done.stderr)\n\
sys.path.insert(0, '/work/lib')\n\
import kiwisolver\n\
from kiwisolver import _cext\n\
x = kiwisolver.Variable('x')\n\
solver = kiwisolver.Solver()\n\
solver.addConstraint(x == 42)\n\
solver.updateVariables()\n\
print(_cext.__file__, x.value())\n";

/// Answers one request of an index that has one wheel.
async fn index(stream: TcpStream, tls: TlsAcceptor, wheel: Arc<(String, Vec<u8>)>) -> io::Result<()> {
    let mut stream = tls.accept(stream).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let (name, bytes) = &*wheel;
    let (kind, body) = if head.starts_with(b"GET /simple/kiwisolver/ ") {
        let page = format!("<!DOCTYPE html><html><body><a href=\"/files/{name}\">{name}</a></body></html>");
        ("text/html", page.into_bytes())
    } else {
        ("application/octet-stream", bytes.clone())
    };
    let length = body.len();
    let said = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(said.as_bytes()).await?;
    stream.write_all(&body).await?;
    stream.shutdown().await
}

#[tokio::test(flavor = "multi_thread")]
async fn pip_installs_a_compiled_package_from_an_index_that_the_policy_names() {
    let Some(mayfly) = Mayfly::with_built("python-data") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder for the test");
    let Some(certificate) = Certificate::of("DNS:pypi.example.test") else {
        return support::skip("openssl is not here, which makes the certificate");
    };
    let tls = certificate.acceptor();
    // The wheel is made in a sandbox, of what its own image has.
    let program = mayfly.file("wheel.py", MAKES_A_WHEEL.as_bytes());
    let out = folder.path().join("out");
    let made = mayfly
        .command([
            "run",
            "--quiet",
            "--image",
            "python-data",
            "--artifact",
            "*.whl",
            "--out",
        ])
        .arg(&out)
        .arg(&program)
        .output()
        .expect("mayfly starts");
    let (name, said) = (
        String::from_utf8_lossy(&made.stdout),
        String::from_utf8_lossy(&made.stderr),
    );
    assert!(made.status.success(), "{name}{said}");
    let name = name.trim().to_owned();
    let bytes = std::fs::read(out.join(&name)).expect("it has come out");
    let wheel = Arc::new((name.clone(), bytes));
    let internet = Internet::default().name("pypi.example.test", PUBLIC);
    let internet = internet
        .server(PUBLIC, 443, move |stream| {
            index(stream, tls.clone(), Arc::clone(&wheel))
        })
        .await;
    let Some(ground) = Ground::on(mayfly, "python-data", internet).await else {
        return;
    };
    let spec = json!({
        "image": "python-data",
        "source": {"text": Blob::from(INSTALLS)},
        "files": [{"path": "ca.pem", "content": Blob::from(certificate.chain)}],
        "egress": ["pypi.example.test:443"],
        "limits": {"wall": "120s", "memory": "512MiB", "work": "128MiB"},
    });
    let resolved = ground.resolved(spec).await.expect("a job without faults");
    let (said, report) = ground.ended(resolved).await;
    assert!(
        said.starts_with("/work/lib/kiwisolver/_cext") && said.ends_with(" 42.0\n"),
        "{said}"
    );
    let record = report.egress.expect("it had egress");
    // The page of the index, and the wheel; pip keeps a connection until it ends, and the run ends with it.
    let through = record.decisions.iter().filter(|one| {
        let asked = (one.method.as_str(), one.name.as_str(), one.port);
        asked == ("CONNECT", "pypi.example.test", Some(443))
            && matches!(one.reason, Reason::Allowed | Reason::RunOver)
    });
    assert_eq!((through.count(), record.decisions.len()), (2, 2), "{record:?}");
    assert!(record.received_bytes > 10_000, "{record:?}");
    assert!(
        ground
            .internet
            .dialled()
            .iter()
            .all(|address| *address == format!("{PUBLIC}:443"))
    );
    ground.embedded.stop().await;
    drop(ground.mayfly);
}
