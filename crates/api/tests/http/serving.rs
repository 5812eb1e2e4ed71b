//! Listening: TLS, and the end in order.

use std::{sync::Arc, time::Duration};

use mayfly_api::{Api, tls_config};
use mayfly_store::{contract::bench::success, records::JobFilter};
use mayfly_testkit::certificate::Certificate;
use reqwest::{Method, StatusCode};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::ground::{Doubles, Ground, Who, generous, parts, spec};

#[tokio::test]
async fn with_a_certificate_it_is_served_by_tls_alone() {
    let Some(Certificate { chain, key }) = Certificate::of("IP:127.0.0.1") else {
        return crate::ground::skip("openssl is not here, which makes the certificate");
    };
    let ground = Ground::new().await;
    let doubles = Arc::new(Doubles::default());
    let api = Api::new(parts(
        Arc::clone(&ground.bench.store),
        ground.clock(),
        &doubles,
        generous(),
    ));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = tls_config(&chain, &key).unwrap();
    let stop = CancellationToken::new();
    let asked = stop.clone();
    let serving =
        TaskTracker::new().spawn(async move { api.serve(listener, Some(tls), asked).await.unwrap() });
    let trusting = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(&chain).unwrap()])
        .no_proxy()
        .timeout(Duration::from_secs(20))
        .build()
        .unwrap();
    let answer = trusting
        .get(format!("https://{address}/v1/version"))
        .send()
        .await
        .unwrap();
    assert_eq!(
        (answer.status(), answer.version()),
        (StatusCode::OK, reqwest::Version::HTTP_2)
    );
    let stranger = ground
        .client
        .get(format!("https://{address}/v1/version"))
        .send()
        .await;
    assert!(
        stranger.is_err(),
        "a certificate of nobody's is trusted by nobody else"
    );
    // Plain HTTP gets no answer, and a handshake that never comes holds up nothing.
    assert!(
        ground
            .client
            .get(format!("http://{address}/v1/version"))
            .send()
            .await
            .is_err()
    );
    let silent = tokio::net::TcpStream::connect(address).await.unwrap();
    let answer = trusting
        .get(format!("https://{address}/v1/version"))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    stop.cancel();
    serving.await.unwrap();
    drop(silent);
}

#[test]
fn what_is_no_certificate_or_key_is_refused_without_showing_it() {
    let Some(Certificate { chain, key }) = Certificate::of("IP:127.0.0.1") else {
        return crate::ground::skip("openssl is not here, which makes the certificate");
    };
    let secret = String::from_utf8(key.clone()).unwrap();
    let secret = secret.lines().nth(1).unwrap();
    let cut = &key[..key.len() / 2];
    for (chain, key) in [(&b""[..], &key[..]), (&chain, b""), (&key, &chain), (&chain, cut)] {
        let error = tls_config(chain, key).unwrap_err();
        let text = format!("{error:?} {}", mayfly_core::chain::Chain(&error));
        assert!(!text.contains(secret), "{text}");
    }
}

/// What is waited for is answered as it stands, what is new is not taken, and the server is gone then.
#[tokio::test]
async fn a_server_that_stops_finishes_what_is_under_way() {
    let ground = Ground::new().await;
    let message = ground.started(ground.tenant).await;
    let path = format!("/v1/jobs/{}?wait=60s", message.job);
    let waiting = ground.get(Who::Viewer, &path).send();
    let stopping = async {
        // The other one is there once it is seen to be waited for.
        let slow = ground.post(Who::Submitter, "/v1/jobs?wait=60s", &spec()).send();
        let stop = async {
            while ground
                .bench
                .store
                .list_jobs(ground.tenant, &JobFilter::default(), None, 10)
                .await
                .unwrap()
                .jobs
                .len()
                < 2
            {
                tokio::task::yield_now().await;
            }
            ground.ask_to_stop();
        };
        tokio::join!(slow, stop).0.unwrap()
    };
    let (waited, submitted) = tokio::join!(waiting, stopping);
    assert_eq!(waited.unwrap().status(), StatusCode::OK);
    assert_eq!(submitted.status(), StatusCode::ACCEPTED);
    ground.stopped().await;
    assert!(ground.open(Method::GET, "/v1/version").send().await.is_err());
    ground.finish(&message, success()).await;
}
