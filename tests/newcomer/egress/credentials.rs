//! A job that uses a credential which it never has.

use std::{
    io,
    sync::{Arc, Mutex},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mayfly_core::{egress::Reason, id::TenantId, job::Blob};
use mayfly_egress::{Credential, CredentialRule, Credentials, Trust};
use mayfly_executor::{TenantCredentials, Tenants};
use mayfly_testkit::{
    certificate::Certificate,
    internet::{Internet, answer},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::TlsAcceptor;

use crate::{
    Ground, PUBLIC,
    support::{self, Mayfly},
};

/// The key of a service, which the executor has and no job.
const CANARY: &str = "canary-0123456789-Mayfly";

/// The address of a service of which another tenant's jobs use the key.
const THEIRS: &str = "93.184.216.35";

/// Asks for each of its arguments with a key of its own, and says what it gets; then whether the executor's key is anywhere
/// that it can read.
const USES_A_KEY: &str = "import os, sys, urllib.error, urllib.request\n\
for url in sys.argv[2:]:\n    \
    headers = {'Authorization': ' '.join(['Bearer', 'of-my-own']), 'Cookie': 'of=my-own', 'Accept-Encoding': 'gzip'}\n    \
    try:\n        \
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as answer:\n            \
            print(answer.status, answer.headers['Set-Cookie'], answer.read().decode())\n    \
    except urllib.error.HTTPError as error: print(error.code)\n    \
    except Exception as error: print(type(error).__name__)\n\
key = sys.argv[1][::-1]\n\
seen = [path for path in ('/proc/self/environ', '/proc/1/environ', '/proc/1/cmdline') if os.access(path, os.R_OK)]\n\
print('key' if any(key.encode() in open(path, 'rb').read() for path in seen) else 'no key')\n";

/// Answers one request to a service that wants the key: `/v1/echo` gives back what it was sent, `/v1/far` sends elsewhere.
async fn service(stream: TcpStream, tls: TlsAcceptor, heard: Arc<Mutex<Vec<String>>>) -> io::Result<()> {
    let mut stream = tls.accept(stream).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let knows = head.contains(&format!("\r\nAuthorization: Bearer {CANARY}\r\n"));
    let (status, more, body) = match head.split(' ').nth(1) {
        Some("/v1/echo") => ("200 OK", "", format!("you said {head}")),
        Some("/v1/far") => (
            "302 Found",
            "Location: https://api.example.test/v1/x\r\n",
            String::new(),
        ),
        _ if knows => ("200 OK", "Set-Cookie: session=1\r\n", "welcome".to_owned()),
        _ => ("401 Unauthorized", "", String::new()),
    };
    heard.lock().expect("nobody panicked with it").push(head);
    let length = body.len();
    let said =
        format!("HTTP/1.1 {status}\r\n{more}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(said.as_bytes()).await?;
    stream.shutdown().await
}

/// What is logged, at every level.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panicked with it").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_uses_a_credential_that_it_never_has() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let Some(certificate) = Certificate::of("DNS:api.example.test") else {
        return support::skip("openssl is not here, which makes the certificate");
    };
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).expect("no other test of this process sets one");
    let (heard, tls) = (Arc::<Mutex<Vec<String>>>::default(), certificate.acceptor());
    let hears = Arc::clone(&heard);
    let internet = Internet::default()
        .name("api.example.test", PUBLIC)
        .name("theirs.example.test", THEIRS)
        .server(PUBLIC, 443, move |stream| {
            service(stream, tls.clone(), Arc::clone(&hears))
        })
        .await
        .server(THEIRS, 80, |stream| answer(stream, b"plain"))
        .await;
    let credential = |name, host| {
        let rule = CredentialRule::new(host, 443, &["GET"], &["/v1/*"]).expect("a rule");
        Credential::new(name, rule, "Authorization", "Bearer ", CANARY).expect("a credential")
    };
    let all = vec![
        credential("service", "api.example.test"),
        credential("theirs", "theirs.example.test"),
    ];
    let credentials = Credentials::new(all, Trust::Only(certificate.chain)).expect("they can be looked for");
    let of = |name: &str, tenant| (name.to_owned(), Tenants::These(vec![tenant]));
    let held = TenantCredentials {
        credentials,
        tenants: [of("service", TenantId::LOCAL), of("theirs", TenantId::new())].into(),
    };
    let Some(ground) = Ground::with(mayfly, "python", internet, Some(held)).await else {
        return;
    };
    let backwards: String = CANARY.chars().rev().collect();
    let spec = json!({
        "image": "python",
        "source": {"text": Blob::from(USES_A_KEY)},
        "args": [
            backwards,
            "http://api.example.test/v1/x",
            "http://api.example.test/v1/echo",
            "http://api.example.test/v1/far",
            "http://api.example.test/v2",
            "http://api.example.test/v1/%2e%2e/v2",
            "https://api.example.test/v1/x",
            "http://theirs.example.test/v1/x",
        ],
        "egress": ["api.example.test:443", "theirs.example.test:80"],
        "limits": {"wall": "60s"},
    });
    let resolved = ground.resolved(spec).await.expect("a job without faults");
    let (said, report) = ground.ended(resolved).await;
    let record = report.egress.as_ref().expect("it had egress");
    let told: Vec<_> = record
        .decisions
        .iter()
        .map(|one| (one.method.as_str(), one.credential.as_deref(), one.reason))
        .collect();
    use Reason::{Allowed, AmbiguousPath, ConnectRefused, CredentialEchoed, NoCredential};
    assert_eq!(
        told,
        [
            ("GET", Some("service"), Allowed),
            ("GET", Some("service"), CredentialEchoed),
            ("GET", Some("service"), Allowed),
            // The redirect, which is the job's to follow.
            ("CONNECT", None, ConnectRefused),
            ("GET", None, NoCredential),
            ("GET", None, AmbiguousPath),
            ("CONNECT", None, ConnectRefused),
            // Another tenant's: a host like any other.
            ("GET", None, Allowed),
        ],
        "{said}"
    );
    let lines_said: Vec<_> = said.lines().collect();
    assert_eq!(lines_said[0], "200 None welcome", "{said}");
    assert_eq!(
        (lines_said[3], lines_said[4], lines_said[7]),
        ("403", "400", "no key"),
        "{said}"
    );
    assert_eq!(lines_said[6], "200 None plain", "{said}");
    let mut dialled = vec![format!("{PUBLIC}:443"); 3];
    dialled.push(format!("{THEIRS}:80"));
    assert_eq!(ground.internet.dialled(), dialled);
    for head in heard.lock().expect("nobody panicked with it").iter() {
        assert!(!head.contains("my-own") && !head.contains("gzip"), "{head}");
    }
    // Nowhere but at the service.
    let log = serde_json::to_string(&ground.log().await).expect("JSON");
    let report = serde_json::to_string(&report).expect("JSON");
    ground.embedded.stop().await;
    let lines = String::from_utf8_lossy(&lines.0.lock().expect("nobody panicked with it")).into_owned();
    let mut stored = std::fs::read(ground.mayfly.database()).expect("the database is a file");
    // What is not in the file yet stands beside it, where it is.
    stored.extend(std::fs::read(ground.mayfly.database().with_extension("db-wal")).unwrap_or_default());
    assert!(lines.contains("TRACE"), "all levels are written");
    for (what, text) in [
        ("output", said),
        ("report", report),
        ("audit log", log),
        ("log lines", lines),
        ("database", String::from_utf8_lossy(&stored).into_owned()),
    ] {
        assert!(!text.contains(CANARY), "the key is in the {what}");
        assert!(!text.contains(&STANDARD.encode(CANARY)), "{what}");
    }
}
