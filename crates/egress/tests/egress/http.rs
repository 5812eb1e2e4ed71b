//! Requests in clear.

use mayfly_egress::{Reason, Verdict};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::world::{World, rest, until};

const PUBLIC: &str = "93.184.216.34";

fn world() -> World {
    let world = World::new(&["a.test", "b.test:8080"]);
    world.name("a.test", &[PUBLIC]);
    world.name("b.test", &["93.184.216.35"]);
    world
}

#[tokio::test]
async fn a_request_goes_on_as_it_was_understood_and_its_answer_comes_back() {
    let mut world = world();
    let mut job = world.connect();
    job.write_all(
        b"GET HTTP://A.test:80/x?y=1 HTTP/1.1\r\nhost: a.TEST.\r\nAccept: */*\r\nProxy-Authorization: Basic eA==\r\n\
          Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nUpgrade: h2c\r\n\r\n",
    )
    .await
    .unwrap();
    let (address, mut server) = world.server().await;
    assert_eq!(address, format!("{PUBLIC}:80"));
    let got = until(&mut server, "\r\n\r\n").await;
    assert_eq!(
        got,
        "GET /x?y=1 HTTP/1.1\r\nHost: a.test\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    );
    server
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nKeep-Alive: timeout=5\r\nX-Y: z\r\n\r\nhi")
        .await
        .unwrap();
    let answer = until(&mut job, "hi").await;
    assert_eq!(answer, "HTTP/1.1 200 OK\r\nX-Y: z\r\nContent-Length: 2\r\n\r\nhi");
    drop(job);
    let decisions = world.decisions().await;
    assert_eq!(decisions[0].verdict, Verdict::Allowed);
    assert_eq!(
        (decisions[0].method.as_str(), decisions[0].name.as_str()),
        ("GET", "a.test")
    );
    assert_eq!(decisions[0].address, Some(PUBLIC.parse().unwrap()));
    assert_eq!(decisions[0].sent_bytes, got.len() as u64);
    assert_eq!(decisions[0].received_bytes, 71);
}

#[tokio::test]
async fn each_request_on_a_connection_is_decided_and_dialled_by_itself() {
    let mut world = world();
    let mut job = world.connect();
    job.write_all(b"GET http://a.test/1 HTTP/1.1\r\nHost: a.test\r\n\r\nGET http://b.test:8080/2 HTTP/1.1\r\nHost: b.test:8080\r\n\r\nGET http://evil.test/3 HTTP/1.1\r\nHost: evil.test\r\n\r\n")
        .await
        .unwrap();
    for (expected, line) in [
        (format!("{PUBLIC}:80"), "GET /1 "),
        ("93.184.216.35:8080".to_owned(), "GET /2 "),
    ] {
        let (address, mut server) = world.server().await;
        assert_eq!(address, expected);
        assert!(until(&mut server, "\r\n\r\n").await.starts_with(line));
        server
            .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
            .await
            .unwrap();
        assert!(
            until(&mut job, "0\r\n\r\n")
                .await
                .ends_with("2\r\nok\r\n0\r\n\r\n")
        );
        // Nothing of the next one is in it.
        assert_eq!(rest(&mut server).await, "");
    }
    assert!(rest(&mut job).await.starts_with("HTTP/1.1 403 "));
    assert_eq!(
        world.reasons().await,
        [Reason::Allowed, Reason::Allowed, Reason::NameNotAllowed]
    );
    assert_eq!(world.dialled(), Vec::<String>::new());
}

#[tokio::test]
async fn a_body_is_not_another_request_whatever_is_in_it() {
    let mut world = world();
    let inside = "GET /secret HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let mut job = world.connect();
    let request = format!(
        "POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n{inside}",
        inside.len()
    );
    job.write_all(request.as_bytes()).await.unwrap();
    let (_, mut server) = world.server().await;
    let got = until(&mut server, inside).await;
    assert!(
        got.contains(&format!("Content-Length: {}\r\n", inside.len())),
        "{got}"
    );
    server
        .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
        .await
        .unwrap();
    until(&mut job, "\r\n\r\n").await;
    drop(job);
    assert_eq!(world.reasons().await, [Reason::Allowed]);
}

#[tokio::test]
async fn what_could_be_taken_for_two_requests_is_none() {
    for fields in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Content-Length: 4\r\nContent-Length: 5",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding:\x0bchunked",
        "Content-Length: 4\r\n\tX: y",
        "Content-Length: 4,5",
    ] {
        let mut world = world();
        let answer = world
            .ask(&format!(
                "POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n\r\n0\r\n\r\n"
            ))
            .await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{fields}: {answer}");
        assert_eq!(world.reasons().await, [Reason::BadRequest], "{fields}");
        assert_eq!(world.dialled(), Vec::<String>::new(), "{fields}");
    }
}

#[tokio::test]
async fn a_body_of_bad_chunks_ends_the_connection() {
    let mut world = world();
    let mut job = world.connect();
    job.write_all(b"POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\n\r\nGET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n")
        .await
        .unwrap();
    let (_, mut server) = world.server().await;
    let got = rest(&mut server).await;
    assert!(!got.contains("abc"), "{got}");
    rest(&mut job).await;
    assert_eq!(world.reasons().await, [Reason::BadRequest]);
    assert_eq!(world.dialled(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_has_no_one_meaning_is_not_passed_on() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
        "HTTP/1.1 200 OK\r\nX: y\r\n z\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
        "SSH-2.0-x\r\n\r\n",
        "",
    ] {
        let mut world = world();
        let mut job = world.connect();
        job.write_all(b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n")
            .await
            .unwrap();
        let (_, mut server) = world.server().await;
        until(&mut server, "\r\n\r\n").await;
        server.write_all(answer.as_bytes()).await.unwrap();
        drop(server);
        let got = rest(&mut job).await;
        assert!(got.starts_with("HTTP/1.1 502 "), "{answer:?}: {got}");
        assert_eq!(world.reasons().await, [Reason::BadResponse], "{answer:?}");
    }
}

#[tokio::test]
async fn a_redirect_is_the_jobs_to_follow_and_decided_like_any_other() {
    let mut world = world();
    let mut job = world.connect();
    job.write_all(b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n")
        .await
        .unwrap();
    let (_, mut server) = world.server().await;
    until(&mut server, "\r\n\r\n").await;
    let location = "http://169.254.169.254/latest/meta-data/";
    server
        .write_all(
            format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n").as_bytes(),
        )
        .await
        .unwrap();
    assert!(until(&mut job, "\r\n\r\n").await.contains(location));
    job.write_all(format!("GET {location} HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n").as_bytes())
        .await
        .unwrap();
    assert!(rest(&mut job).await.starts_with("HTTP/1.1 403 "));
    assert_eq!(
        world.reasons().await,
        [Reason::Allowed, Reason::AddressNotAllowed]
    );
    assert_eq!(world.dialled(), Vec::<String>::new());
}

#[tokio::test]
async fn an_old_client_gets_the_body_without_chunks_and_the_end_as_its_end() {
    let mut world = world();
    let mut job = world.connect();
    job.write_all(b"GET http://a.test/ HTTP/1.0\r\n\r\n")
        .await
        .unwrap();
    let (_, mut server) = world.server().await;
    until(&mut server, "\r\n\r\n").await;
    server
        .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
        .await
        .unwrap();
    let answer = rest(&mut job).await;
    assert_eq!(answer, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok");
    assert_eq!(world.reasons().await, [Reason::Allowed]);
}

#[tokio::test]
async fn an_answer_may_come_before_the_request_is_whole() {
    let mut world = world();
    let mut job = world.connect();
    job.write_all(b"POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n")
        .await
        .unwrap();
    let (_, mut server) = world.server().await;
    assert!(
        until(&mut server, "\r\n\r\n")
            .await
            .contains("Expect: 100-continue\r\n")
    );
    server.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
    assert_eq!(until(&mut job, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    server
        .write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        .await
        .unwrap();
    let answer = rest(&mut job).await;
    assert!(answer.starts_with("HTTP/1.1 413 Too Large\r\n"), "{answer}");
    assert_eq!(world.reasons().await, [Reason::Allowed]);
    let mut byte = [0];
    assert_eq!(server.read(&mut byte).await.unwrap(), 0);
}
