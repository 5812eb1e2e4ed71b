//! Bounds of one run, and its end.

use std::{sync::Arc, time::Duration};

use mayfly_egress::{Reason, Verdict};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::world::{World, rest, until};

const PUBLIC: &str = "93.184.216.34";
const GET: &[u8] = b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n";

async fn asked(world: &mut World) -> (DuplexStream, DuplexStream) {
    let mut job = world.connect();
    job.write_all(GET).await.unwrap();
    let (_, mut server) = world.server().await;
    until(&mut server, "\r\n\r\n").await;
    (job, server)
}

#[tokio::test(start_paused = true)]
async fn a_thousand_connections_are_answered_and_no_more_than_may_be_are_held() {
    let mut world = World::with(&["a.test"], |caps| caps.listed = 2000);
    world.name("a.test", &[PUBLIC]);
    let mut held = Vec::new();
    for _ in 0..64 {
        held.push(asked(&mut world).await);
    }
    let mut waiting = Vec::new();
    for _ in 64..1000 {
        let mut job = world.connect();
        job.write_all(GET).await.unwrap();
        waiting.push(job);
    }
    for mut job in waiting {
        let answer = rest(&mut job).await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    }
    assert_eq!(world.dialled(), Vec::<String>::new());
    for (job, mut server) in held {
        server
            .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
            .await
            .unwrap();
        drop(job);
    }
    let reasons = world.reasons().await;
    let count = |reason| reasons.iter().filter(|found| **found == reason).count();
    assert_eq!(count(Reason::TooManyConnections), 936);
    assert_eq!(reasons.len(), 1000);
    // The places are free again.
    let (mut job, mut server) = asked(&mut world).await;
    server
        .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
        .await
        .unwrap();
    until(&mut job, "\r\n\r\n").await;
}

#[tokio::test]
async fn an_endless_answer_ends_with_the_runs_bytes_and_so_does_everything_after_it() {
    let mut world = World::with(&["a.test"], |caps| caps.bytes = 1 << 20);
    world.name("a.test", &[PUBLIC]);
    let (mut job, mut server) = asked(&mut world).await;
    world.tasks.spawn(async move {
        let head = b"HTTP/1.1 200 OK\r\n\r\n";
        if server.write_all(head).await.is_ok() {
            while server.write_all(&[b'x'; 4096]).await.is_ok() {}
        }
    });
    let mut all = Vec::new();
    job.read_to_end(&mut all).await.unwrap();
    assert!(all.len() < (1 << 20) + (128 << 10), "{}", all.len());
    let answer = world
        .ask("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n")
        .await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    let decisions = world.decisions().await;
    assert_eq!(decisions[0].reason, Reason::BytesUsedUp);
    assert_eq!(decisions[0].verdict, Verdict::Cut);
    assert!(decisions[0].received_bytes >= 1 << 20);
    assert_eq!(decisions[1].reason, Reason::BytesUsedUp);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_is_waited_for_so_long() {
    let mut world = World::with(&["a.test"], |caps| caps.idle_time = Duration::from_secs(5));
    world.name("a.test", &[PUBLIC]);
    let (mut job, _server) = asked(&mut world).await;
    let mut answer = String::new();
    job.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    assert_eq!(world.reasons().await, [Reason::Idle]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_a_byte_now_and_then_has_an_end_too() {
    let mut world = World::with(&["a.test"], |caps| {
        caps.idle_time = Duration::from_secs(5);
        caps.request_time = Duration::from_secs(60);
    });
    world.name("a.test", &[PUBLIC]);
    let (mut job, mut server) = asked(&mut world).await;
    world.tasks.spawn(async move {
        let head = b"HTTP/1.1 200 OK\r\n\r\n";
        let mut said = server.write_all(head).await;
        while said.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
            said = server.write_all(b"x").await;
        }
    });
    let mut answer = String::new();
    job.read_to_string(&mut answer).await.unwrap();
    assert!(answer.len() > 50, "{answer}");
    assert_eq!(world.reasons().await, [Reason::TimeUp]);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_does_not_say_what_it_wants_is_not_waited_for() {
    let mut world = World::new(&["a.test"]);
    world.name("a.test", &[PUBLIC]);
    let mut silent = world.connect();
    let mut told = String::new();
    silent.read_to_string(&mut told).await.unwrap();
    assert_eq!(told, "");
    let mut slow = world.connect();
    slow.write_all(b"GET http://a").await.unwrap();
    slow.read_to_string(&mut told).await.unwrap();
    assert!(told.starts_with("HTTP/1.1 400 "), "{told}");
    let mut mute = world.connect();
    mute.write_all(b"CONNECT a.test:443 HTTP/1.1\r\n\r\n")
        .await
        .unwrap();
    let (_, mut server) = world.server().await;
    let mut got = String::new();
    server.read_to_string(&mut got).await.unwrap();
    assert_eq!(got, "");
    assert_eq!(world.reasons().await, [Reason::BadRequest, Reason::BadHello]);
}

#[tokio::test]
async fn names_below_a_wildcard_are_counted() {
    let world = World::with(&["*.a.test", "b.a.test"], |caps| caps.wildcard_names = 3);
    for name in ["1", "2", "3", "4", "3", "b"] {
        world
            .ask(&format!("CONNECT {name}.a.test:443 HTTP/1.1\r\n\r\n"))
            .await;
    }
    assert_eq!(
        world.asked(),
        ["1.a.test", "2.a.test", "3.a.test", "3.a.test", "b.a.test"]
    );
    assert_eq!(world.reasons().await[3], Reason::TooManyNames);
}

#[tokio::test]
async fn requests_are_counted() {
    let mut world = World::with(&["a.test"], |caps| caps.requests = 2);
    for _ in 0..3 {
        world.ask("CONNECT a.test:443 HTTP/1.1\r\n\r\n").await;
    }
    let expected = [Reason::NotResolved, Reason::NotResolved, Reason::TooManyRequests];
    assert_eq!(world.reasons().await, expected);
    assert_eq!(world.dialled(), Vec::<String>::new());
}

#[tokio::test]
async fn with_the_runs_end_every_connection_ends_and_nothing_is_dialled() {
    let mut world = World::new(&["a.test"]);
    world.name("a.test", &[PUBLIC]);
    let (mut job, mut server) = asked(&mut world).await;
    let mut waiting = world.connect();
    world.proxy.close();
    assert_eq!(rest(&mut job).await, "");
    assert_eq!(rest(&mut server).await, "");
    // It has been said already, and is not heard.
    let _: std::io::Result<()> = waiting.write_all(GET).await;
    assert_eq!(rest(&mut waiting).await, "");
    let mut late = world.connect();
    let _: std::io::Result<()> = late.write_all(GET).await;
    assert_eq!(rest(&mut late).await, "");
    assert_eq!(world.reasons().await, [Reason::RunOver]);
    assert_eq!(world.asked(), ["a.test"]);
    assert_eq!(world.dialled(), Vec::<String>::new());
}

#[tokio::test]
async fn a_connection_whose_task_is_gone_is_on_the_record_as_cut() {
    let mut world = World::new(&["a.test"]);
    world.name("a.test", &[PUBLIC]);
    let (mut job, ours) = tokio::io::duplex(1024);
    let proxy = Arc::clone(&world.proxy);
    let task = world.tasks.spawn(async move { proxy.serve(ours).await });
    job.write_all(GET).await.unwrap();
    let (_, mut server) = world.server().await;
    until(&mut server, "\r\n\r\n").await;
    task.abort();
    assert_eq!(rest(&mut server).await, "");
    let decisions = world.decisions().await;
    assert_eq!(decisions[0].verdict, Verdict::Cut);
    assert_eq!(decisions[0].name, "a.test");
}
