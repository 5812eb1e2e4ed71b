//! What is refused, before anything is dialled.

use mayfly_egress::{AddressClass, Reason, Verdict};

use crate::world::World;

/// An address on the Internet, which stands for one that the tests own.
const PUBLIC: &str = "93.184.216.34";

#[tokio::test]
async fn what_no_rule_names_is_neither_looked_up_nor_dialled() {
    for (request, reason, status) in [
        ("CONNECT evil.test:443 HTTP/1.1", Reason::NameNotAllowed, "403"),
        (
            "CONNECT metadata.google.internal:80 HTTP/1.1",
            Reason::NameNotAllowed,
            "403",
        ),
        (
            "CONNECT a.test.evil.test:443 HTTP/1.1",
            Reason::NameNotAllowed,
            "403",
        ),
        ("CONNECT a.test:22 HTTP/1.1", Reason::PortNotAllowed, "403"),
        ("CONNECT a.test:25 HTTP/1.1", Reason::PortNotAllowed, "403"),
        (
            "CONNECT 169.254.169.254:80 HTTP/1.1",
            Reason::AddressNotAllowed,
            "403",
        ),
        (
            "CONNECT 93.184.216.34:443 HTTP/1.1",
            Reason::AddressNotAllowed,
            "403",
        ),
        ("CONNECT [::1]:443 HTTP/1.1", Reason::AddressNotAllowed, "403"),
        (
            "CONNECT [::ffff:169.254.169.254]:80 HTTP/1.1",
            Reason::AddressNotAllowed,
            "403",
        ),
        (
            "CONNECT 127.0.0.1:3128 HTTP/1.1",
            Reason::AddressNotAllowed,
            "403",
        ),
        ("CONNECT localhost:3128 HTTP/1.1", Reason::NameNotAllowed, "403"),
        ("CONNECT 2852039166:80 HTTP/1.1", Reason::BadName, "400"),
        ("CONNECT 0xa9fea9fe:80 HTTP/1.1", Reason::BadName, "400"),
        ("CONNECT 0251.0376.0251.0376:80 HTTP/1.1", Reason::BadName, "400"),
        ("CONNECT 169.254.43518:80 HTTP/1.1", Reason::BadName, "400"),
        ("CONNECT 127.1:80 HTTP/1.1", Reason::BadName, "400"),
        ("CONNECT 0:80 HTTP/1.1", Reason::BadName, "400"),
        ("CONNECT [fe80::1%25eth0]:80 HTTP/1.1", Reason::BadName, "400"),
        ("CONNECT a.test HTTP/1.1", Reason::BadName, "400"),
        ("CONNECT a.test@evil.test:443 HTTP/1.1", Reason::BadName, "400"),
        ("CONNECT a.test\\evil.test:443 HTTP/1.1", Reason::BadName, "400"),
        ("CONNECT a.test%2eevil.test:443 HTTP/1.1", Reason::BadName, "400"),
        ("CONNECT http://a.test:443/ HTTP/1.1", Reason::BadName, "400"),
        (
            "CONNECT a.test:443 HTTP/1.1\r\nHost: evil.test:443",
            Reason::HostMismatch,
            "400",
        ),
        (
            "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\nHost: a.test:443",
            Reason::BadRequest,
            "400",
        ),
        (
            "CONNECT a.test:443 HTTP/1.1\r\nContent-Length: 5",
            Reason::BadRequest,
            "400",
        ),
        (
            "GET http://evil.test/ HTTP/1.1\r\nHost: evil.test",
            Reason::NameNotAllowed,
            "403",
        ),
        (
            "GET http://a.test:8080/ HTTP/1.1\r\nHost: a.test:8080",
            Reason::PortNotAllowed,
            "403",
        ),
        (
            "GET http://169.254.169.254/latest/ HTTP/1.1\r\nHost: 169.254.169.254",
            Reason::AddressNotAllowed,
            "403",
        ),
        (
            "GET http://a.test/ HTTP/1.1\r\nHost: evil.test",
            Reason::HostMismatch,
            "400",
        ),
        (
            "GET http://a.test/ HTTP/1.1\r\nHost: a.test:81",
            Reason::HostMismatch,
            "400",
        ),
        ("GET http://a.test/ HTTP/1.1", Reason::BadRequest, "400"),
        (
            "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nHost: evil.test",
            Reason::BadRequest,
            "400",
        ),
        (
            "GET http://user:pw@a.test/ HTTP/1.1\r\nHost: a.test",
            Reason::BadName,
            "400",
        ),
        (
            "GET http://evil.test#@a.test/ HTTP/1.1\r\nHost: a.test",
            Reason::BadRequest,
            "400",
        ),
        (
            "GET http:///path HTTP/1.1\r\nHost: a.test",
            Reason::BadName,
            "400",
        ),
        (
            "GET https://a.test/ HTTP/1.1\r\nHost: a.test",
            Reason::SchemeRefused,
            "400",
        ),
        (
            "GET ftp://a.test/ HTTP/1.1\r\nHost: a.test",
            Reason::SchemeRefused,
            "400",
        ),
        ("GET / HTTP/1.1\r\nHost: a.test", Reason::NotForAProxy, "400"),
        (
            "GET /http://a.test/ HTTP/1.1\r\nHost: a.test",
            Reason::NotForAProxy,
            "400",
        ),
        ("OPTIONS * HTTP/1.1\r\nHost: a.test", Reason::NotForAProxy, "400"),
        (
            "TRACE http://a.test/ HTTP/1.1\r\nHost: a.test",
            Reason::MethodRefused,
            "405",
        ),
        ("PRI * HTTP/2.0", Reason::BadRequest, "400"),
        (
            "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n X: y",
            Reason::BadRequest,
            "400",
        ),
        (
            "GET http://a.test/ HTTP/1.1\nHost: a.test",
            Reason::BadRequest,
            "400",
        ),
    ] {
        let mut world = World::new(&["a.test"]);
        world.name("a.test", &[PUBLIC]);
        let answer = world.ask(&format!("{request}\r\n\r\n")).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{request}: {answer}"
        );
        assert_eq!(world.reasons().await, [reason], "{request}");
        assert_eq!(world.dialled(), Vec::<String>::new(), "{request}");
        assert_eq!(world.asked(), Vec::<String>::new(), "{request}");
    }
}

#[tokio::test]
async fn a_name_with_an_address_that_may_not_be_reached_is_not_dialled() {
    for (address, class) in [
        ("127.0.0.1", AddressClass::Loopback),
        ("::1", AddressClass::Loopback),
        ("0.0.0.0", AddressClass::Unspecified),
        ("10.0.0.7", AddressClass::Private),
        ("192.168.1.1", AddressClass::Private),
        ("100.64.0.1", AddressClass::CarrierGrade),
        ("169.254.1.1", AddressClass::LinkLocal),
        ("169.254.169.254", AddressClass::Metadata),
        ("168.63.129.16", AddressClass::Metadata),
        ("fd00:ec2::254", AddressClass::Metadata),
        ("fd12::1", AddressClass::UniqueLocal),
        ("fe80::1", AddressClass::LinkLocal),
        ("224.0.0.1", AddressClass::Multicast),
        ("ff02::1", AddressClass::Multicast),
        ("::ffff:10.0.0.7", AddressClass::Embedded),
        ("::10.0.0.7", AddressClass::Embedded),
        ("64:ff9b::a00:7", AddressClass::Embedded),
        ("64:ff9b:1::a00:7", AddressClass::Embedded),
        ("2002:a00:7::1", AddressClass::Embedded),
        ("2001:0:a00:7::1", AddressClass::Embedded),
        ("198.18.0.1", AddressClass::Benchmark),
        ("240.0.0.1", AddressClass::Reserved),
    ] {
        // Beside one that is fine, whichever comes first.
        for addresses in [&[address][..], &[address, PUBLIC], &[PUBLIC, address]] {
            let mut world = World::new(&["a.test"]);
            world.name("a.test", addresses);
            let answer = world.ask("CONNECT a.test:443 HTTP/1.1\r\n\r\n").await;
            assert!(answer.starts_with("HTTP/1.1 403 "), "{address}: {answer}");
            let decisions = world.decisions().await;
            assert_eq!(decisions[0].reason, Reason::AddressRefused, "{address}");
            assert_eq!(decisions[0].class, Some(class), "{address}");
            assert_eq!(decisions[0].address, Some(address.parse().unwrap()));
            assert_eq!(world.dialled(), Vec::<String>::new(), "{address}");
        }
    }
}

#[tokio::test]
async fn a_service_of_ours_is_not_dialled_though_its_address_is_public() {
    let mut world = World::new(&["a.test", "198.41.0.0/24:443"]);
    world.name("a.test", &["198.41.0.4"]);
    for target in ["a.test:443", "198.41.0.4:443"] {
        let answer = world.ask(&format!("CONNECT {target} HTTP/1.1\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    }
    assert_eq!(world.reasons().await, [Reason::OwnAddress; 2]);
    assert_eq!(world.dialled(), Vec::<String>::new());
}

#[tokio::test]
async fn a_name_that_points_elsewhere_the_second_time_is_refused_then() {
    let mut world = World::new(&["a.test"]);
    world.name("a.test", &[PUBLIC]);
    world.name("a.test", &["169.254.169.254"]);
    let request = "CONNECT a.test:443 HTTP/1.1\r\n\r\n";
    let first = world.connect();
    let (mut reading, mut writing) = tokio::io::split(first);
    tokio::io::AsyncWriteExt::write_all(&mut writing, request.as_bytes())
        .await
        .unwrap();
    let (address, _server) = world.server().await;
    // What was looked up is what is dialled: nobody asks again in between.
    assert_eq!(address, format!("{PUBLIC}:443"));
    assert_eq!(world.asked(), ["a.test"]);
    let answer = world.ask(request).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert_eq!(world.asked(), ["a.test", "a.test"]);
    assert_eq!(world.dialled(), Vec::<String>::new());
    let mut byte = [0];
    tokio::io::AsyncReadExt::read(&mut reading, &mut byte)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_range_that_the_policy_names_is_dialled_by_name_and_by_address() {
    let mut world = World::new(&["a.test", "10.2.0.0/16:443", "[fd12::/32]:443"]);
    world.name("a.test", &["10.2.0.7"]);
    for (target, dialled) in [
        ("a.test:443", "10.2.0.7:443"),
        ("10.2.0.8:443", "10.2.0.8:443"),
        ("[fd12::9]:443", "[fd12::9]:443"),
    ] {
        let mut job = world.connect();
        let request = format!("CONNECT {target} HTTP/1.1\r\n\r\n");
        tokio::io::AsyncWriteExt::write_all(&mut job, request.as_bytes())
            .await
            .unwrap();
        let (address, _server) = world.server().await;
        assert_eq!(address, dialled);
    }
}

#[tokio::test]
async fn the_next_address_is_tried_where_one_does_not_answer() {
    let mut world = World::new(&["a.test"]);
    world.name("a.test", &["2606:2800::1", PUBLIC]);
    world.dead("2606:2800::1");
    let mut job = world.connect();
    tokio::io::AsyncWriteExt::write_all(&mut job, b"CONNECT a.test:443 HTTP/1.1\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(world.server().await.0, format!("{PUBLIC}:443"));
    drop(job);
    world.dead(PUBLIC);
    let answer = world.ask("CONNECT a.test:443 HTTP/1.1\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    let decisions = world.decisions().await;
    assert_eq!(decisions[1].reason, Reason::NotReached);
    assert_eq!(decisions[1].verdict, Verdict::Failed);
}

#[tokio::test]
async fn an_answer_says_what_was_asked_and_what_to_do() {
    let world = World::new(&["a.test"]);
    let answer = world.ask("CONNECT Evil.test.:443 HTTP/1.1\r\n\r\n").await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 403 the policy does not name this host\r\n"),
        "{head}"
    );
    assert!(body.contains("evil.test:443"), "{body}");
}
