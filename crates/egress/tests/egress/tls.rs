//! What goes through CONNECT.

use mayfly_egress::{Reason, Verdict};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, pki_types::ServerName};

use crate::world::{World, rest, until};

const PUBLIC: &str = "93.184.216.34";

/// What a client of TLS says first to this name.
fn hello(name: &str) -> Vec<u8> {
    let config = ClientConfig::builder()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(config.into(), name).unwrap();
    let mut said = Vec::new();
    client.write_tls(&mut said).unwrap();
    said
}

/// A connection through which something can be said, and its server.
async fn connected(world: &mut World, target: &str) -> (DuplexStream, DuplexStream) {
    let mut job = world.connect();
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    job.write_all(request.as_bytes()).await.unwrap();
    let (_, server) = world.server().await;
    let answer = until(&mut job, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    (job, server)
}

fn world() -> World {
    let world = World::new(&["a.test", "tcp://db.test:5432", "10.2.0.0/16:443"]);
    world.name("a.test", &[PUBLIC]);
    world.name("db.test", &["93.184.216.36"]);
    world
}

#[tokio::test]
async fn tls_to_the_name_that_was_asked_for_goes_through_byte_by_byte() {
    let mut world = world();
    let (mut job, mut server) = connected(&mut world, "a.test:443").await;
    let said = hello("A.test");
    // In pieces, as a network may bring it.
    for piece in said.chunks(7) {
        job.write_all(piece).await.unwrap();
    }
    let mut got = vec![0; said.len()];
    server.read_exact(&mut got).await.unwrap();
    assert_eq!(got, said);
    server.write_all(b"server's").await.unwrap();
    assert_eq!(until(&mut job, "server's").await, "server's");
    job.write_all(b"more").await.unwrap();
    assert_eq!(until(&mut server, "more").await, "more");
    job.shutdown().await.unwrap();
    assert_eq!(rest(&mut server).await, "");
    server.write_all(b" and the rest").await.unwrap();
    drop(server);
    assert_eq!(rest(&mut job).await, " and the rest");
    let decision = &world.decisions().await[0];
    assert_eq!(decision.verdict, Verdict::Allowed);
    assert_eq!((decision.name.as_str(), decision.port), ("a.test", Some(443)));
    assert_eq!(decision.sent_bytes, said.len() as u64 + 4);
    assert_eq!(decision.received_bytes, 21);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_tls_to_that_name_never_reaches_the_server() {
    for (said, reason) in [
        (hello("evil.test"), Reason::ServerNameMismatch),
        (hello("sub.a.test"), Reason::ServerNameMismatch),
        (hello("192.0.2.1"), Reason::NoServerName),
        (
            b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n".to_vec(),
            Reason::NotTls,
        ),
        (b"CONNECT evil.test:443 HTTP/1.1\r\n\r\n".to_vec(), Reason::NotTls),
        (b"SSH-2.0-OpenSSH_9\r\n".to_vec(), Reason::NotTls),
        (b"\x16\x03\x01\x00\x04\x02\x00\x00\x00".to_vec(), Reason::BadHello),
    ] {
        let mut world = world();
        let (mut job, mut server) = connected(&mut world, "a.test:443").await;
        job.write_all(&said).await.unwrap();
        assert_eq!(rest(&mut server).await, "", "{reason:?}");
        let mut told = Vec::new();
        job.read_to_end(&mut told).await.unwrap();
        // A client of TLS hears why in its own words.
        let alert = matches!(reason, Reason::ServerNameMismatch | Reason::NoServerName);
        assert_eq!(told == [21, 3, 3, 0, 2, 2, 112], alert, "{reason:?}");
        let decision = &world.decisions().await[0];
        assert_eq!((decision.reason, decision.verdict), (reason, Verdict::Refused));
        assert_eq!((decision.sent_bytes, decision.received_bytes), (0, 0));
    }
}

#[tokio::test]
async fn to_an_address_that_the_policy_names_tls_says_no_name() {
    let mut world = world();
    let (mut job, mut server) = connected(&mut world, "10.2.0.7:443").await;
    let said = hello("10.2.0.7");
    job.write_all(&said).await.unwrap();
    let mut got = vec![0; said.len()];
    server.read_exact(&mut got).await.unwrap();
    assert_eq!(got, said);
    let (mut job, mut server) = connected(&mut world, "10.2.0.8:443").await;
    job.write_all(&hello("evil.test")).await.unwrap();
    assert_eq!(rest(&mut server).await, "");
}

#[tokio::test]
async fn where_a_rule_says_so_anything_goes_through() {
    let mut world = world();
    let (mut job, mut server) = connected(&mut world, "db.test:5432").await;
    // The server may speak first.
    server.write_all(b"hello").await.unwrap();
    assert_eq!(until(&mut job, "hello").await, "hello");
    job.write_all(b"not TLS").await.unwrap();
    assert_eq!(until(&mut server, "not TLS").await, "not TLS");
}

#[tokio::test]
async fn what_is_said_before_the_answer_is_not_lost() {
    let mut world = world();
    let mut job = world.connect();
    let said = [
        b"CONNECT a.test:443 HTTP/1.0\r\n\r\n".to_vec(),
        hello("a.test"),
        b"early".to_vec(),
    ]
    .concat();
    job.write_all(&said).await.unwrap();
    let (_, mut server) = world.server().await;
    job.shutdown().await.unwrap();
    let mut got = Vec::new();
    server.read_to_end(&mut got).await.unwrap();
    assert!(got.ends_with(b"early"));
    drop(server);
    rest(&mut job).await;
    assert_eq!(world.reasons().await, [Reason::Allowed]);
}
