//! What a job reaches outside of its sandbox, on the real engine.
//!
//! Names and addresses are the tests' own: every address that may be dialled stands for a listener of a test on loopback,
//! and nothing else is ever dialled or looked up, whatever a guard lets through.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use mayfly_core::{job::ResolvedJob, outcome::KilledFor, run::RunReport, units::Span};
use mayfly_egress::{Caps, EgressRecord, Policy, Proxy, Reason, Verdict};
use mayfly_sandbox::seam::{
    LiveOutput, Loopback, NoLiveOutput, OutputStream, Run, Sandbox as _, SandboxRequest,
};
use mayfly_testkit::internet::{Internet, answer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
};

use crate::support::{Bench, blob, limits, matcher, settled, text};

/// An address on the Internet that stands for one of a test's.
const PUBLIC: &str = "93.184.216.34";

fn proxy(internet: &Arc<Internet>, rules: &[&str], caps: Caps) -> Arc<Proxy> {
    let policy = Policy::parse(rules.iter().copied(), Vec::new()).unwrap();
    let (resolver, dialler) = (Arc::new(internet.shown()), Arc::new(internet.shown()));
    Arc::new(Proxy::new(policy, caps, resolver, dialler))
}

/// Says this without end, to a request or without one.
async fn endless(mut stream: TcpStream) -> io::Result<()> {
    let mut head = [0; 1024];
    let _: usize = stream.read(&mut head).await?;
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    loop {
        stream.write_all(&[b'x'; 64 * 1024]).await?;
    }
}

/// Stops the run once it has said anything.
struct StopWhenHeard(watch::Sender<Option<KilledFor>>);

#[async_trait]
impl LiveOutput for StopWhenHeard {
    fn output(&self, _: OutputStream, _: &[u8]) {
        self.0.send_replace(Some(KilledFor::Cancel));
    }

    async fn ready(&self) {}
}

/// What a sandbox with egress is asked for.
fn request(bench: &Bench, job: &ResolvedJob) -> SandboxRequest {
    SandboxRequest {
        loopback: Loopback::Open,
        ..bench.request(job)
    }
}

async fn run(bench: &Bench, job: ResolvedJob, proxy: &Arc<Proxy>) -> (RunReport, EgressRecord) {
    run_until(bench, job, proxy, watch::channel(None).1, Arc::new(NoLiveOutput)).await
}

async fn run_until(
    bench: &Bench,
    job: ResolvedJob,
    proxy: &Arc<Proxy>,
    stop: watch::Receiver<Option<KilledFor>>,
    live: Arc<dyn LiveOutput>,
) -> (RunReport, EgressRecord) {
    let sandbox = bench.sandboxes.prepare(request(bench, &job)).await.unwrap();
    let run = Run {
        matcher: matcher(&job),
        job: Arc::new(job),
        stop,
        live,
        collect: None,
        fetched: None,
        egress: Some(Arc::clone(proxy)),
    };
    let report = settled(sandbox.run(run).await).await;
    bench.assert_nothing_is_left().await;
    (report, proxy.record())
}

/// The output of a job that has ended well.
fn printed(report: &RunReport) -> String {
    let (out, err) = (text(&report.stdout), text(&report.stderr));
    assert_eq!(
        report.outcome.exit_code,
        Some(0),
        "{:?}\n{out}\n{err}",
        report.outcome
    );
    out
}

#[tokio::test]
async fn a_program_that_knows_of_proxies_reaches_what_is_named_and_nothing_else() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let internet = Internet::default()
        .name("public.test", PUBLIC)
        .name("inside.test", "10.0.0.7")
        .name("cloud.test", "169.254.169.254")
        .server(PUBLIC, 80, |stream| answer(stream, b"hello from outside"))
        .await
        .server("169.254.169.254", 80, |stream| answer(stream, b"credentials"))
        .await
        .server("10.0.0.7", 80, |stream| answer(stream, b"intranet"))
        .await;
    let internet = Arc::new(internet);
    let proxy = proxy(
        &internet,
        &["public.test", "inside.test", "cloud.test"],
        Caps::usual(),
    );
    let program = r#"
import socket, urllib.error, urllib.request

def ask(url):
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.reason}"
    except OSError as error:
        return type(error).__name__

for url in [
    "http://public.test/", "http://PUBLIC.test.:80/", "http://public.test:8080/",
    "http://evil.test/", "http://inside.test/", "http://cloud.test/",
    "http://169.254.169.254/", "http://2852039166/", "http://0xa9fea9fe/", "http://[::ffff:169.254.169.254]/",
    "http://[::1]:3128/",
]:
    print(url, ask(url))

def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(5)
        try:
            s.connect(address)
            return "connected"
        except OSError as error:
            return type(error).__name__

# There is no way but the proxy, and no interface but loopback.
print("direct", connect(socket.AF_INET, ("192.0.2.1", 80)), connect(socket.AF_INET6, ("2001:db8::1", 80)))
print([name for _, name in socket.if_nameindex()])
"#;
    let (report, record) = run(&bench, bench.python(program), &proxy).await;
    let out = printed(&report);
    let refused = "403 the policy does not name this";
    let expected = [
        "http://public.test/ hello from outside".to_owned(),
        "http://PUBLIC.test.:80/ hello from outside".to_owned(),
        format!("http://public.test:8080/ {refused} port of the host"),
        format!("http://evil.test/ {refused} host"),
        "http://inside.test/ 403 the host has an address that may not be reached".to_owned(),
        "http://cloud.test/ 403 the host has an address that may not be reached".to_owned(),
        format!("http://169.254.169.254/ {refused} address"),
        "http://2852039166/ 400 the host is no name of a host".to_owned(),
        "http://0xa9fea9fe/ 400 the host is no name of a host".to_owned(),
        format!("http://[::ffff:169.254.169.254]/ {refused} address"),
    ];
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines[..expected.len()], expected, "{out}");
    assert!(!out.contains("connected"), "{out}");
    assert!(out.ends_with("['lo']\n"), "{out}");
    assert_eq!(
        internet.dialled(),
        [format!("{PUBLIC}:80"), format!("{PUBLIC}:80")]
    );
    let reasons: Vec<_> = record.decisions.iter().map(|decision| decision.reason).collect();
    let expected = [
        Reason::Allowed,
        Reason::Allowed,
        Reason::PortNotAllowed,
        Reason::NameNotAllowed,
        Reason::AddressRefused,
        Reason::AddressRefused,
        Reason::AddressNotAllowed,
        Reason::BadName,
        Reason::BadName,
        Reason::AddressNotAllowed,
    ];
    assert_eq!(reasons[..expected.len()], expected);
    let first = &record.decisions[0];
    assert_eq!(
        (first.name.as_str(), first.port, first.method.as_str()),
        ("public.test", Some(80), "GET")
    );
    assert_eq!(first.address, Some(PUBLIC.parse().unwrap()));
    assert!(first.received_bytes > 18 && first.sent_bytes > 18, "{first:?}");
}

#[tokio::test]
async fn tls_goes_to_the_name_that_was_asked_for_or_nowhere() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let internet =
        Internet::default()
            .name("public.test", PUBLIC)
            .server(PUBLIC, 443, |mut stream| async move {
                let mut said = [0; 4096];
                let got = stream.read(&mut said).await?;
                stream.write_all(format!("heard {}", said[0]).as_bytes()).await?;
                stream.write_all(&said[..got]).await?;
                stream.shutdown().await
            });
    let internet = Arc::new(internet.await);
    let proxy = proxy(&internet, &["public.test"], Caps::usual());
    let program = r#"
import os, socket, ssl, urllib.parse
proxy = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])

def hello(name):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    out = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()

def say(data, pieces=1):
    with socket.create_connection((proxy.hostname, proxy.port)) as s:
        s.settimeout(20)
        s.sendall(b"CONNECT public.test:443 HTTP/1.1\r\nHost: public.test:443\r\n\r\n")
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += s.recv(1)
        for i in range(0, len(data), max(1, len(data) // pieces)):
            s.sendall(data[i:i + max(1, len(data) // pieces)])
        answer = b""
        try:
            while part := s.recv(65536):
                answer += part
        except ConnectionResetError:
            answer += b" reset"
        return head.split(b"\r\n")[0].decode(), answer

right = hello("public.test")
status, answer = say(right, 50)
print(status, answer[:8].decode(), answer[8:] == right)
for other in [hello("evil.test"), hello(None), b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", b"SSH-2.0-x\r\n"]:
    status, answer = say(other)
    print(status, answer.hex())
"#;
    let (report, record) = run(&bench, bench.python(program), &proxy).await;
    let out = printed(&report);
    let alert = "15030300020270";
    let ok = "HTTP/1.1 200 Connection established";
    let expected = format!("{ok} heard 22 True\n{ok} {alert}\n{ok} {alert}\n{ok} \n{ok} \n");
    assert_eq!(out, expected);
    let found: Vec<_> = record
        .decisions
        .iter()
        .map(|one| (one.reason, one.sent_bytes > 0))
        .collect();
    let expected = [
        (Reason::Allowed, true),
        (Reason::ServerNameMismatch, false),
        (Reason::NoServerName, false),
        (Reason::NotTls, false),
        (Reason::NotTls, false),
    ];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_redirect_and_an_endless_answer_end_where_they_have_to() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let internet = Internet::default()
        .name("public.test", PUBLIC)
        .server(PUBLIC, 80, |mut stream| async move {
            let mut head = [0; 4096];
            let _: usize = stream.read(&mut head).await?;
            let location = "http://169.254.169.254/latest/";
            let found = format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(found.as_bytes()).await
        })
        .await
        .server(PUBLIC, 8080, endless)
        .await;
    let internet = Arc::new(internet);
    let caps = Caps {
        bytes: 8 << 20,
        ..Caps::usual()
    };
    let proxy = proxy(&internet, &["public.test", "public.test:8080"], caps);
    let program = r#"
import urllib.error, urllib.request
try:
    urllib.request.urlopen("http://public.test/", timeout=20)
except urllib.error.HTTPError as error:
    print(error.code)
total = 0
with urllib.request.urlopen("http://public.test:8080/", timeout=20) as answer:
    while part := answer.read1(65536):
        total += len(part)
print(7 << 20 < total < 9 << 20)
"#;
    let (report, record) = run(&bench, bench.python(program), &proxy).await;
    assert_eq!(printed(&report), "403\nTrue\n");
    let reasons: Vec<_> = record.decisions.iter().map(|one| one.reason).collect();
    assert_eq!(
        reasons,
        [Reason::Allowed, Reason::AddressNotAllowed, Reason::BytesUsedUp]
    );
    assert_eq!(record.decisions[2].verdict, Verdict::Cut);
    assert!(record.sent_bytes + record.received_bytes >= 8 << 20);
}

#[tokio::test]
async fn a_thousand_connections_are_served_a_hundred_at_a_time() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let internet = Internet::default()
        .name("public.test", PUBLIC)
        .server(PUBLIC, 80, |stream| answer(stream, &[b'y'; 5000]))
        .await;
    let internet = Arc::new(internet);
    let proxy = proxy(&internet, &["public.test"], Caps::usual());
    let program = r#"
import socket
whole = 0
for _ in range(10):
    open_ones = []
    for _ in range(100):
        s = socket.create_connection(("127.0.0.1", 3128))
        s.settimeout(60)
        s.sendall(b"GET http://public.test/ HTTP/1.1\r\nHost: public.test\r\nConnection: close\r\n\r\n")
        open_ones.append(s)
    for s in open_ones:
        got = b""
        while part := s.recv(65536):
            got += part
        whole += got.startswith(b"HTTP/1.1 200 ") and got.endswith(b"y" * 5000)
        s.close()
print(whole)
"#;
    let (report, record) = run(&bench, bench.python(program), &proxy).await;
    assert_eq!(printed(&report), "1000\n");
    assert_eq!(record.counts, [(Verdict::Allowed, 1000)].into());
    assert_eq!(record.decisions.len(), 1000);
    assert_eq!(internet.dialled().len(), 1000);
}

/// Asks again and again, and says so.
const RESTLESS: &str = r#"
import urllib.request
while True:
    urllib.request.urlopen("http://public.test/", timeout=20).read()
    print("asked", flush=True)
"#;

#[tokio::test]
async fn with_the_end_of_a_run_nothing_more_is_dialled() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let internet = Internet::default()
        .name("public.test", PUBLIC)
        .server(PUBLIC, 80, |stream| answer(stream, b"x"))
        .await;
    let internet = Arc::new(internet);
    let proxy = proxy(&internet, &["public.test"], Caps::usual());
    let (stop, stopped) = watch::channel(None);
    let live = Arc::new(StopWhenHeard(stop));
    let (report, record) = run_until(&bench, bench.python(RESTLESS), &proxy, stopped, live).await;
    assert!(text(&report.stdout).contains("asked"));
    let dialled = internet.dialled().len();
    assert_eq!(record.decisions.len(), dialled);
    // Whoever still holds the proxy can have nothing more through it.
    let (mut job, theirs) = tokio::io::duplex(1024);
    let request = b"GET http://public.test/ HTTP/1.1\r\nHost: public.test\r\n\r\n";
    job.write_all(request).await.unwrap();
    proxy.serve(theirs).await;
    assert_eq!(internet.dialled().len(), dialled);
}

#[tokio::test]
async fn a_run_that_nobody_awaits_any_more_dials_nothing() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let internet = Internet::default()
        .name("public.test", PUBLIC)
        .server(PUBLIC, 80, |stream| answer(stream, b"x"))
        .await;
    let internet = Arc::new(internet);
    let proxy = proxy(&internet, &["public.test"], Caps::usual());
    let job = bench.python(RESTLESS);
    let sandbox = bench.sandboxes.prepare(request(&bench, &job)).await.unwrap();
    let (said, mut heard) = watch::channel(None);
    let run = Run {
        matcher: matcher(&job),
        job: Arc::new(job),
        stop: watch::channel(None).1,
        live: Arc::new(StopWhenHeard(said)),
        collect: None,
        fetched: None,
        egress: Some(Arc::clone(&proxy)),
    };
    // As an executor's task does that panics.
    tokio::select! {
        _ = sandbox.run(run) => panic!("it goes on for ever"),
        asked = heard.wait_for(Option::is_some) => drop(asked.unwrap()),
    }
    let dialled = internet.dialled().len();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !bench.running().await.is_empty() {
        assert!(
            Instant::now() < deadline,
            "the guest lives on without its executor"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(internet.dialled().len(), dialled);
}

#[tokio::test]
async fn without_egress_there_is_no_proxy_and_without_an_open_loopback_no_egress() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let program = r#"
import os, socket
print([name for name in os.environ if "PROXY" in name.upper()])
try:
    socket.create_connection(("127.0.0.1", 3128), timeout=5)
    print("connected")
except OSError as error:
    print(type(error).__name__)
"#;
    let closed = bench.run(bench.python(program)).await;
    let why = if crate::support::on_gvisor() {
        "ConnectionRefusedError"
    } else {
        "PermissionError"
    };
    assert_eq!(printed(&closed), format!("[]\n{why}\n"));

    if crate::support::on_gvisor() {
        return;
    }
    let proxy = proxy(&Arc::new(Internet::default()), &["public.test"], Caps::usual());
    let job = bench.python(program);
    let sandbox = bench.sandboxes.prepare(bench.request(&job)).await.unwrap();
    let run = Run {
        matcher: matcher(&job),
        job: Arc::new(job),
        stop: watch::channel(None).1,
        live: Arc::new(NoLiveOutput),
        collect: None,
        fetched: None,
        egress: Some(proxy),
    };
    let report = settled(sandbox.run(run).await).await;
    assert!(report.outcome.evidence.refused.is_some(), "{:?}", report.outcome);
}

#[tokio::test]
async fn connections_that_stall_hold_a_bounded_share_of_the_executors_memory() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let internet = Internet::default()
        .name("public.test", PUBLIC)
        .server(PUBLIC, 80, endless)
        .await;
    let internet = Arc::new(internet);
    let proxy = proxy(&internet, &["public.test"], Caps::usual());
    let program = r#"
import socket, time
held = []
for _ in range(64):
    s = socket.create_connection(("127.0.0.1", 3128))
    s.sendall(b"GET http://public.test/ HTTP/1.1\r\nHost: public.test\r\n\r\n")
    s.recv(1)
    held.append(s)
print("stalled", flush=True)
time.sleep(60)
"#;
    let before = resident_mib();
    let (stop, stopped) = watch::channel(None);
    let live = Arc::new(StopWhenHeard(stop));
    let (_, record) = run_until(&bench, bench.python(program), &proxy, stopped, live).await;
    let held = resident_mib().saturating_sub(before);
    println!("64 stalled connections: {held} MiB more than before");
    assert!(held < 100, "{held} MiB");
    assert_eq!(record.decisions.len(), 64);
}

/// What this process has in memory.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib / 1024
}

/// How quick that is beside the stream which it goes through is printed, and asserted nowhere: the machine is others' too.
#[tokio::test]
async fn a_long_answer_comes_through_the_tunnel_whole() {
    const BYTES: usize = 128 << 20;
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let internet = Internet::default()
        .name("public.test", PUBLIC)
        .server(PUBLIC, 80, |mut stream| async move {
            let mut head = [0; 1024];
            let _: usize = stream.read(&mut head).await?;
            let length = format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n");
            stream.write_all(length.as_bytes()).await?;
            for _ in 0..BYTES / (64 << 10) {
                stream.write_all(&[b'x'; 64 << 10]).await?;
            }
            stream.shutdown().await
        })
        .await;
    let internet = Arc::new(internet);
    let caps = Caps {
        bytes: 1 << 30,
        ..Caps::usual()
    };
    let proxy = proxy(&internet, &["public.test"], caps);
    let wall = limits(|limits| limits.wall = Span::seconds(120));
    let raw = r"
import os, time
begun, total = time.monotonic(), 0
while part := os.read(0, 65536):
    total += len(part)
print(total, time.monotonic() - begun)
";
    let tunnel = r#"
import socket, time
begun, total = time.monotonic(), 0
s = socket.create_connection(("127.0.0.1", 3128))
s.sendall(b"GET http://public.test/ HTTP/1.1\r\nHost: public.test\r\nConnection: close\r\n\r\n")
answer = s.makefile("rb", 65536)
while answer.readline() != b"\r\n": pass
while part := answer.read(65536):
    total += len(part)
print(total, time.monotonic() - begun)
"#;
    let mut stdin = bench.python(raw);
    stdin.stdin = Some(blob(&vec![b'x'; BYTES]));
    stdin.limits = wall;
    let raw = rate(&printed(&bench.run(stdin).await), BYTES);
    let mut job = bench.python(tunnel);
    job.limits = wall;
    let (report, _) = run(&bench, job, &proxy).await;
    let tunnel = rate(&printed(&report), BYTES);
    println!(
        "stdin {raw:.0} MB/s, tunnel {tunnel:.0} MB/s, {:.2} of it",
        tunnel / raw
    );
}

/// Megabytes a second, of what a job has counted: every byte.
fn rate(printed: &str, bytes: usize) -> f64 {
    let (count, seconds) = printed.trim().split_once(' ').unwrap();
    assert_eq!(count.parse::<usize>().unwrap(), bytes);
    bytes as f64 / 1e6 / seconds.parse::<f64>().unwrap()
}
