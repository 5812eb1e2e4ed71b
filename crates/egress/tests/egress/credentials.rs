//! Credentials: what the server gets, what the job gets, and what neither does.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mayfly_egress::{
    Credential, CredentialRule, Credentials, Decision, NoCredentials, Reason, Trust, Verdict,
};
use mayfly_testkit::certificate::Certificate;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, split};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::world::{World, skip, until};

const PUBLIC: &str = "93.184.216.34";
/// With characters that other forms write otherwise.
const CANARY: &str = "Ca/nary+\"0123456789-mayfly";
const SECOND: &str = "second-Canary-9876543210";
const HOST: &str = "api.test";

/// A server, what it proves itself with, and the credentials for it.
struct Ground {
    world: World,
    tls: TlsAcceptor,
}

/// What the server has of a connection.
struct Server {
    address: String,
    from: ReadHalf<TlsStream<DuplexStream>>,
    to: WriteHalf<TlsStream<DuplexStream>>,
}

fn credential(name: &str, host: &str, paths: &[&str], header: &str, value: &str) -> Credential {
    let rule = CredentialRule::new(host, 443, &["GET", "POST"], paths).unwrap();
    let prefix = if header == "Authorization" { "Bearer " } else { "" };
    Credential::new(name, rule, header, prefix, value).unwrap()
}

fn credentials(trusted: &Certificate) -> Credentials {
    let all = vec![
        credential("wide", HOST, &["/v1/*", "/v1"], "Authorization", CANARY),
        credential("near", HOST, &["/v1/near/*"], "X-Near", SECOND),
        credential(
            "not-mine",
            "other.test",
            &["/*"],
            "Authorization",
            "of-nobody-else-12345",
        ),
    ];
    Credentials::new(all, Trust::Only(trusted.chain.clone())).unwrap()
}

impl Ground {
    fn new() -> Option<Self> {
        let Some(certificate) = Certificate::of("DNS:api.test") else {
            skip("openssl is not here, which makes the certificate");
            return None;
        };
        let world = World::new(&["api.test:443", "other.test"])
            .with_credentials(&credentials(&certificate), &["not-mine"]);
        world.name(HOST, &[PUBLIC]);
        world.name("other.test", &["93.184.216.40"]);
        Some(Self {
            world,
            tls: certificate.acceptor(),
        })
    }

    async fn server(&mut self) -> Server {
        let (address, stream) = self.world.server().await;
        let (from, to) = split(self.tls.accept(stream).await.unwrap());
        Server { address, from, to }
    }

    /// Sends a head and gives what the server gets of it, with the server and the job's side.
    async fn asked(&mut self, head: &str) -> (String, Server, DuplexStream) {
        let mut job = self.world.connect();
        job.write_all(format!("{head}\r\n\r\n").as_bytes()).await.unwrap();
        let mut server = self.server().await;
        let got = server.head().await;
        (got, server, job)
    }

    /// What the job gets of this answer, and what is on record.
    async fn answered(&mut self, answer: &[u8]) -> (Vec<u8>, Decision) {
        let (_, mut server, mut job) = self.asked(&get("/v1/x")).await;
        let saying = async {
            // A connection that is cut takes no more.
            let _: std::io::Result<()> = server.to.write_all(answer).await;
            let _: std::io::Result<()> = server.to.shutdown().await;
        };
        let mut got = Vec::new();
        let (_, read) = tokio::join!(saying, job.read_to_end(&mut got));
        read.unwrap();
        drop(job);
        (got, self.world.decisions().await.pop().unwrap())
    }
}

impl Server {
    async fn head(&mut self) -> String {
        let mut all = Vec::new();
        while !all.ends_with(b"\r\n\r\n") {
            all.push(self.from.read_u8().await.unwrap());
        }
        String::from_utf8(all).unwrap()
    }

    async fn says(&mut self, answer: &str) {
        self.to.write_all(answer.as_bytes()).await.unwrap();
        self.to.flush().await.unwrap();
    }
}

fn get(path: &str) -> String {
    // Closed by the job, so that whatever comes has an end.
    format!("GET http://{HOST}{path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close")
}

fn sized(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn the_server_gets_the_credential_by_tls_and_the_job_its_answer() {
    let Some(mut ground) = Ground::new() else { return };
    let (got, mut server, mut job) = ground
        .asked(&format!(
            "GET http://{HOST}/v1/x?y=../1 HTTP/1.1\r\nHost: {HOST}\r\nAccept: */*"
        ))
        .await;
    assert_eq!(server.address, format!("{PUBLIC}:443"));
    assert_eq!(
        got,
        format!(
            "GET /v1/x?y=../1 HTTP/1.1\r\nHost: {HOST}\r\nAccept: */*\r\nAccept-Encoding: identity\r\n\
             Authorization: Bearer {CANARY}\r\nConnection: close\r\n\r\n"
        )
    );
    server
        .says("HTTP/1.1 302 Found\r\nLocation: https://api.test/v2\r\nSet-Cookie: a=b\r\nset-cookie2: c\r\nContent-Length: 2\r\n\r\nhi")
        .await;
    let answer = until(&mut job, "hi").await;
    assert_eq!(
        answer,
        "HTTP/1.1 302 Found\r\nLocation: https://api.test/v2\r\nContent-Length: 2\r\n\r\nhi"
    );
    // The connection goes on, and the next request is judged by itself.
    job.write_all(format!("{}\r\n\r\n", get("/v1/near/x")).as_bytes())
        .await
        .unwrap();
    let mut server = ground.server().await;
    let got = server.head().await;
    assert!(
        got.contains(&format!("X-Near: {SECOND}\r\n")) && !got.contains(CANARY),
        "{got}"
    );
    server.says(&sized("ok")).await;
    until(&mut job, "ok").await;
    job.write_all(format!("{}\r\n\r\n", get("/v2")).as_bytes())
        .await
        .unwrap_or_default();
    drop(job);
    let decisions = ground.world.decisions().await;
    let told: Vec<_> = decisions
        .iter()
        .map(|one| (one.credential.as_deref(), one.port, one.verdict, one.reason))
        .collect();
    assert_eq!(
        told,
        [
            (Some("wide"), Some(443), Verdict::Allowed, Reason::Allowed),
            (Some("near"), Some(443), Verdict::Allowed, Reason::Allowed),
        ]
    );
    assert!(!format!("{decisions:?}{:?}", ground.world.proxy).contains(CANARY));
}

#[tokio::test]
async fn what_the_job_says_of_itself_does_not_go_on() {
    let Some(mut ground) = Ground::new() else { return };
    let head = format!(
        "{}\r\nAuthorization: Bearer mine\r\nAUTHORIZATION: mine\r\nauthorization: mine\r\nCookie: mine\r\ncookie: mine\r\n\
         Proxy-Authorization: mine\r\nX_Api_Key: mine\r\nX-HTTP-Method-Override: DELETE\r\nX-Original-URL: /mine\r\n\
         X-Forwarded-Host: mine\r\nRange: bytes=0-4\r\nIf-Range: mine\r\nAccept-Encoding: gzip\r\nTE: trailers\r\n\
         Upgrade: websocket\r\nX-Kept: yes",
        get("/v1/x")
    )
    .replace("Connection: close", "Connection: close, upgrade, Authorization, Accept-Encoding");
    let (got, mut server, mut job) = ground.asked(&head).await;
    assert_eq!(
        got,
        format!(
            "GET /v1/x HTTP/1.1\r\nHost: {HOST}\r\nX-Kept: yes\r\nAccept-Encoding: identity\r\n\
             Authorization: Bearer {CANARY}\r\nConnection: close\r\n\r\n"
        )
    );
    server.says(&sized("ok")).await;
    until(&mut job, "ok").await;
}

#[tokio::test]
async fn what_no_rule_names_is_refused_before_anything_is_looked_up() {
    let target = |line: &str| {
        let host = if line.contains(":443") {
            "api.test:443"
        } else {
            HOST
        };
        format!("{line} HTTP/1.1\r\nHost: {host}\r\n\r\n")
    };
    for (request, status, reason) in [
        (target("GET http://api.test/v2"), 403, Reason::NoCredential),
        (target("GET http://api.test:443/v2"), 403, Reason::NoCredential),
        (target("DELETE http://api.test/v1/x"), 403, Reason::NoCredential),
        (target("get http://api.test/v1/x"), 403, Reason::NoCredential),
        (target("TRACE http://api.test/v1/x"), 405, Reason::MethodRefused),
        (target("trace http://api.test/v1/x"), 405, Reason::MethodRefused),
        (target("TRACK http://api.test/v1/x"), 405, Reason::MethodRefused),
        (target("GET http://api.test/v1/../v2"), 400, Reason::AmbiguousPath),
        (target("GET http://api.test/v1/%2e%2e/v2"), 400, Reason::AmbiguousPath),
        (target("GET http://api.test/v1/..%2fv2"), 400, Reason::AmbiguousPath),
        (target("GET http://api.test/v1/%252e%252e/v2"), 400, Reason::AmbiguousPath),
        (target("GET http://api.test/v1/..;/v2"), 400, Reason::AmbiguousPath),
        (target("GET http://api.test/v1/..\\v2"), 400, Reason::AmbiguousPath),
        (target("GET http://api.test//v1/x"), 400, Reason::AmbiguousPath),
        (target("OPTIONS http://api.test"), 400, Reason::AmbiguousPath),
        (target("CONNECT api.test:443"), 403, Reason::ConnectRefused),
        ("CONNECT API.test.:443 HTTP/1.1\r\n\r\n".to_owned(), 403, Reason::ConnectRefused),
        (
            "POST http://api.test/v1/x HTTP/1.1\r\nHost: api.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
                .to_owned(),
            400,
            Reason::BadRequest,
        ),
        (
            "GET http://api.test/v1/x HTTP/1.1\r\nHost: api.test\r\nX: y\r\n z\r\n\r\n".to_owned(),
            400,
            Reason::BadRequest,
        ),
        (
            "GET http://api.test/v1/x HTTP/1.1\r\nHost: other.test\r\n\r\n".to_owned(),
            400,
            Reason::HostMismatch,
        ),
    ] {
        let Some(mut ground) = Ground::new() else { return };
        let answer = ground.world.ask(&request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
        assert!(!answer.contains(CANARY));
        assert_eq!(ground.world.reasons().await, [reason], "{request}");
        assert_eq!(ground.world.asked(), Vec::<String>::new(), "{request}");
        assert_eq!(ground.world.dialled(), Vec::<String>::new(), "{request}");
    }
}

#[tokio::test]
async fn a_job_whose_own_rules_do_not_name_the_host_at_the_rules_port_gets_nothing() {
    let Some(certificate) = Certificate::of("DNS:api.test") else {
        return skip("openssl is not here, which makes the certificate");
    };
    for (rule, reason) in [
        ("b.test", Reason::NameNotAllowed),
        ("api.test:80", Reason::PortNotAllowed),
    ] {
        let mut world = World::new(&[rule]).with_credentials(&credentials(&certificate), &[]);
        world.name(HOST, &[PUBLIC]);
        world.ask(&format!("{}\r\n\r\n", get("/v1/x"))).await;
        world.ask("CONNECT api.test:443 HTTP/1.1\r\n\r\n").await;
        // Nor does it hear of rules.
        world.ask(&format!("{}\r\n\r\n", get("/v2"))).await;
        assert_eq!(world.reasons().await, [reason; 3], "{rule}");
        assert_eq!(world.dialled(), Vec::<String>::new());
    }
    // An address of the name that may not be reached is not, with a credential either.
    let mut world = World::new(&["api.test"]).with_credentials(&credentials(&certificate), &[]);
    world.name(HOST, &["10.0.0.7"]);
    world.ask(&format!("{}\r\n\r\n", get("/v1/x"))).await;
    assert_eq!(world.reasons().await, [Reason::AddressRefused]);
    assert_eq!(world.dialled(), Vec::<String>::new());
}

/// Of a run that may not use it the host is one like any other.
#[tokio::test]
async fn a_credential_that_the_run_may_not_use_is_not_used() {
    let Some(mut ground) = Ground::new() else { return };
    let mut job = ground.world.connect();
    job.write_all(b"GET http://other.test/v1 HTTP/1.1\r\nHost: other.test\r\nAuthorization: mine\r\n\r\n")
        .await
        .unwrap();
    let (address, mut server) = ground.world.server().await;
    assert_eq!(address, "93.184.216.40:80");
    let got = until(&mut server, "\r\n\r\n").await;
    assert!(
        got.contains("Authorization: mine\r\n") && !got.contains("of-nobody"),
        "{got}"
    );
    server
        .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
        .await
        .unwrap();
    until(&mut job, "\r\n\r\n").await;
    drop(job);
    assert_eq!(ground.world.decisions().await[0].credential, None);
}

#[tokio::test]
async fn a_server_that_does_not_prove_its_name_gets_nothing() {
    for (server, trusted) in [("DNS:evil.test", true), ("DNS:api.test", false)] {
        let (Some(shown), Some(other)) = (Certificate::of(server), Certificate::of("DNS:api.test")) else {
            return skip("openssl is not here, which makes the certificate");
        };
        let known = if trusted { &shown } else { &other };
        let mut world = World::new(&["api.test"]).with_credentials(&credentials(known), &[]);
        world.name(HOST, &[PUBLIC]);
        let mut job = world.connect();
        job.write_all(format!("{}\r\n\r\n", get("/v1/x")).as_bytes())
            .await
            .unwrap();
        let (_, stream) = world.server().await;
        assert!(shown.acceptor().accept(stream).await.is_err());
        let mut answer = String::new();
        job.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        let decisions = world.decisions().await;
        assert_eq!(
            (decisions[0].reason, decisions[0].verdict),
            (Reason::NotTrusted, Verdict::Failed)
        );
        assert_eq!(decisions[0].credential.as_deref(), Some("wide"));
    }
}

/// The credential in the forms that are looked for, each with how much of it is of what stands before the credential.
fn forms() -> Vec<(String, usize)> {
    let hex: String = CANARY.bytes().map(|byte| format!("{byte:02x}")).collect();
    let inside = |before: &str| {
        let before = format!("{before}Bearer ");
        let text = STANDARD.encode(format!("{before}{CANARY} and more"));
        (text, (before.len() * 8).div_ceil(6))
    };
    let (plain, begins) = inside("");
    let json = serde_json::to_string(CANARY).unwrap();
    let alone = [
        CANARY.to_owned(),
        CANARY.to_lowercase(),
        CANARY.to_uppercase(),
        hex.to_uppercase(),
        hex,
        CANARY.replace('/', "%2F").replace('+', "%2B").replace('"', "%22"),
        CANARY.replace('/', "%2f").replace('+', "%2b").replace('"', "%22"),
        json.trim_matches('"').to_owned(),
        CANARY.replace('"', "\\\"").replace('/', "\\/"),
        SECOND.to_owned(),
    ];
    let mut all: Vec<_> = alone.map(|form| (form, 0)).into();
    let url_safe = plain.replace('+', "-").replace('/', "_");
    all.extend([inside("1"), inside("12"), (url_safe, begins), (plain, begins)]);
    all
}

#[tokio::test]
async fn an_answer_with_the_credential_in_its_head_is_not_passed_on() {
    for (form, _) in forms() {
        let Some(mut ground) = Ground::new() else { return };
        let (got, decision) = ground
            .answered(format!("HTTP/1.1 200 OK\r\nX-Echo: {form}\r\nContent-Length: 2\r\n\r\nhi").as_bytes())
            .await;
        let got = String::from_utf8(got).unwrap();
        assert!(got.starts_with("HTTP/1.1 502 ") && !got.contains(&form), "{got}");
        assert_eq!(
            (decision.reason, decision.verdict),
            (Reason::CredentialEchoed, Verdict::Cut)
        );
        assert_eq!(decision.credential.as_deref(), Some("wide"));
    }
    for (head, what) in [
        (
            format!("HTTP/1.1 200 {CANARY}\r\nContent-Length: 0\r\n\r\n"),
            "words",
        ),
        (
            format!("HTTP/1.1 100 Continue\r\nX: {CANARY}\r\n\r\n{}", sized("x")),
            "interim",
        ),
        (format!("HTTP/1.1 200 OK\r\n{}: x\r\n\r\n", SECOND), "name"),
    ] {
        let Some(mut ground) = Ground::new() else { return };
        let (got, decision) = ground.answered(head.as_bytes()).await;
        let got = String::from_utf8(got).unwrap();
        assert!(!got.contains(CANARY) && !got.contains(SECOND), "{what}: {got}");
        assert_eq!(decision.reason, Reason::CredentialEchoed, "{what}");
    }
}

#[tokio::test]
async fn a_body_is_cut_before_the_credential_whatever_pieces_it_comes_in() {
    for (form, before) in forms() {
        for piece in [1, 7, 4096] {
            let Some(mut ground) = Ground::new() else { return };
            let text = format!("it is {form}, and more");
            let mut answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            for bytes in text.as_bytes().chunks(piece) {
                answer.extend(format!("{:x}\r\n", bytes.len()).bytes());
                answer.extend(bytes);
                answer.extend(b"\r\n");
            }
            answer.extend(b"0\r\n\r\n");
            let (got, decision) = ground.answered(&answer).await;
            let got = String::from_utf8(got).unwrap();
            let body: String = got.split("\r\n").skip(3).step_by(2).collect();
            // Not even the beginning of it.
            let harmless = format!("it is {}", &form[..before]);
            assert!(harmless.starts_with(&body), "{form}: {body:?}");
            assert!(
                !got.ends_with("0\r\n\r\n"),
                "{form}: the job sees that it was cut"
            );
            assert_eq!(
                (decision.reason, decision.verdict),
                (Reason::CredentialEchoed, Verdict::Cut),
                "{form}"
            );
        }
    }
}

#[tokio::test]
async fn bodies_of_every_length_are_looked_through_and_others_come_whole() {
    let begun = &CANARY[..CANARY.len() - 1];
    for (answer, echo) in [
        (sized(&format!("x{CANARY}")), true),
        (format!("HTTP/1.1 200 OK\r\n\r\n{CANARY}"), true),
        // What ends in the midst of it.
        (sized(begun), true),
        (
            format!(
                "HTTP/1.1 500 Oh\r\nContent-Length: {}\r\n\r\n{CANARY}",
                CANARY.len()
            ),
            true,
        ),
        (sized(&format!("{}x", &CANARY[..7])), false),
        (format!("HTTP/1.1 200 OK\r\n\r\n{}", &CANARY[..7]), false),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nCa/nary\r\n0\r\nX: Ca/nary+\r\n\r\n"
                .to_owned(),
            false,
        ),
    ] {
        let Some(mut ground) = Ground::new() else { return };
        let (got, decision) = ground.answered(answer.as_bytes()).await;
        let got = String::from_utf8(got).unwrap();
        if echo {
            assert!(!got.contains("Ca/nary"), "{got}");
            assert_eq!(decision.reason, Reason::CredentialEchoed, "{answer}");
        } else {
            assert!(got.contains("Ca/nary"), "{got}");
            assert_eq!(decision.reason, Reason::Allowed, "{answer}");
        }
    }
}

/// Fields behind the last chunk are not passed on, whatever is in them.
#[tokio::test]
async fn trailers_do_not_reach_the_job() {
    let Some(mut ground) = Ground::new() else { return };
    let answer =
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX: {CANARY}\r\n\r\n");
    let (got, decision) = ground.answered(answer.as_bytes()).await;
    let got = String::from_utf8(got).unwrap();
    assert!(got.ends_with("2\r\nhi\r\n0\r\n\r\n"), "{got}");
    assert_eq!(decision.reason, Reason::Allowed);
}

#[tokio::test]
async fn an_answer_that_nobody_can_look_through_is_refused() {
    for head in [
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip",
        "HTTP/1.1 200 OK\r\ncontent-encoding: identity\r\nContent-Encoding: br",
        "HTTP/1.1 200 OK\r\nContent-Encoding: identity, zstd",
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-1/9",
    ] {
        let Some(mut ground) = Ground::new() else { return };
        let (got, decision) = ground
            .answered(format!("{head}\r\nContent-Length: 2\r\n\r\nhi").as_bytes())
            .await;
        assert!(got.starts_with(b"HTTP/1.1 502 "), "{head}");
        assert_eq!(
            (decision.reason, decision.verdict),
            (Reason::OpaqueAnswer, Verdict::Failed),
            "{head}"
        );
    }
    let Some(mut ground) = Ground::new() else { return };
    let (got, _) = ground
        .answered(b"HTTP/1.1 200 OK\r\nContent-Encoding: Identity\r\nContent-Length: 2\r\n\r\nhi")
        .await;
    assert!(got.ends_with(b"hi"));
}

#[test]
fn credentials_for_the_same_requests_or_without_anybody_to_trust_are_none() {
    let Some(certificate) = Certificate::of("DNS:api.test") else {
        return skip("openssl is not here, which makes the certificate");
    };
    let two = || {
        let one = |name| credential(name, HOST, &["/v1/*"], "Authorization", CANARY);
        vec![one("a"), one("b")]
    };
    let error = Credentials::new(two(), Trust::Only(certificate.chain)).unwrap_err();
    assert!(
        matches!(&error, NoCredentials::Collide(one, other) if (one.as_str(), other.as_str()) == ("a", "b")),
        "{error:?}"
    );
    for pem in [
        &b""[..],
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        let error = Credentials::new(Vec::new(), Trust::Only(pem.to_vec())).unwrap_err();
        assert!(matches!(error, NoCredentials::Trust(_)), "{error:?}");
    }
}
