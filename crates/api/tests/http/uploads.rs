//! Uploads: sent once, named by jobs, and fetched by the address in an order alone.

use mayfly_core::{artifact::PIECE, digest::Digest, id::JobId};
use mayfly_dispatch::{
    message::{BlobPlaces, DispatchMessage, FETCHED_SINCE, READS},
    token::TokenKey,
};
use mayfly_store::{contract::bench::success, uploads::MAX_UNDER_WAY};
use reqwest::{Method, Response, StatusCode, header};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::ground::{Ground, Who, spec};

fn path(digest: Digest) -> String {
    format!("/v1/uploads/{digest}")
}

async fn put(ground: &Ground, who: Who, digest: Digest, content: &[u8]) -> Response {
    let request = ground.by(who, Method::PUT, &path(digest)).body(content.to_vec());
    request.send().await.unwrap()
}

async fn upload(ground: &Ground, who: Who, content: &[u8]) -> Digest {
    let digest = Digest::of(content);
    let answer = put(ground, who, digest, content).await;
    assert_eq!(answer.status(), StatusCode::CREATED);
    digest
}

async fn json_of(answer: Response) -> (StatusCode, Value) {
    (answer.status(), answer.json().await.unwrap())
}

async fn listed(ground: &Ground, who: Who) -> Value {
    json_of(ground.get(who, "/v1/uploads").send().await.unwrap())
        .await
        .1
}

async fn submit(ground: &Ground, who: Who, uploads: Value) -> (StatusCode, Value) {
    let mut job = spec();
    job["uploads"] = uploads;
    json_of(ground.post(who, "/v1/jobs", &job).send().await.unwrap()).await
}

/// A job that has started: its order as it would be sent.
async fn started(ground: &Ground, uploads: Value) -> DispatchMessage {
    let (status, answer) = submit(ground, Who::Submitter, uploads).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    let job: JobId = answer["job"].as_str().unwrap().parse().unwrap();
    let whole = ground.start(job).await;
    let places = BlobPlaces {
        base: ground.url(""),
        // As the ground's server has it.
        key: TokenKey::from_bytes([7; 32]).blob_key(),
        input_above: 1 << 20,
        output_above: 64 << 20,
    };
    assert_eq!(places.least_version(&whole), FETCHED_SINCE);
    places.equip(whole, READS, ground.bench.now)
}

#[tokio::test]
async fn what_is_uploaded_is_there_until_it_is_removed() {
    let mut ground = Ground::new().await;
    let content: Vec<u8> = (0..=255).cycle().take(2 * PIECE + 5).collect();
    let digest = Digest::of(&content);
    let begun = ground.bench.date();
    let first = put(&ground, Who::Submitter, digest, &content).await;
    assert_eq!(first.headers()[header::LOCATION], path(digest).as_str());
    let (status, first) = json_of(first).await;
    assert_eq!(status, StatusCode::CREATED);
    let hour = chrono::TimeDelta::hours(1);
    let expected = json!({
        "digest": digest, "bytes": content.len(), "kept_at": begun, "used_at": begun, "kept_until": begun + hour,
    });
    assert_eq!(first, expected);
    ground.pass(std::time::Duration::from_secs(60));
    let used = ground.bench.date();
    let again = json!({
        "digest": digest, "bytes": content.len(), "kept_at": begun, "used_at": used, "kept_until": used + hour,
    });
    assert_eq!(
        json_of(put(&ground, Who::Admin, digest, &content).await).await,
        (StatusCode::OK, again.clone())
    );
    assert_eq!(
        json_of(ground.get(Who::Submitter, &path(digest)).send().await.unwrap()).await,
        (StatusCode::OK, again.clone())
    );
    assert_eq!(
        listed(&ground, Who::Submitter).await,
        json!({"uploads": [again], "next": null})
    );
    assert_eq!(
        listed(&ground, Who::Stranger).await,
        json!({"uploads": [], "next": null})
    );
    // Another's is one's own to send.
    upload(&ground, Who::Stranger, &content).await;
    let remove = || ground.by(Who::Submitter, Method::DELETE, &path(digest));
    assert_eq!(remove().send().await.unwrap().status(), StatusCode::NO_CONTENT);
    assert_eq!(remove().send().await.unwrap().status(), StatusCode::NOT_FOUND);
    assert_eq!(
        ground
            .get(Who::Submitter, &path(digest))
            .send()
            .await
            .unwrap()
            .status(),
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        ground
            .get(Who::Stranger, &path(digest))
            .send()
            .await
            .unwrap()
            .status(),
        StatusCode::OK
    );
    let audit = ground
        .get(Who::Admin, "/v1/audit?kind=upload_kept")
        .send()
        .await
        .unwrap();
    let audit = audit.text().await.unwrap();
    assert!(!audit.contains(&digest.to_string()), "{audit}");
}

#[tokio::test]
async fn a_list_goes_on_where_its_page_ends() {
    let ground = Ground::new().await;
    let mut digests = Vec::new();
    for content in [b"1", b"2", b"3"] {
        digests.push(upload(&ground, Who::Submitter, content).await);
    }
    let mut found = Vec::new();
    let mut query = "?limit=2".to_owned();
    loop {
        let page = ground
            .get(Who::Submitter, &format!("/v1/uploads{query}"))
            .send()
            .await
            .unwrap();
        let (_, page) = json_of(page).await;
        let uploads = page["uploads"].as_array().unwrap();
        assert!(uploads.len() <= 2);
        found.extend(uploads.iter().map(|upload| upload["digest"].clone()));
        let Some(next) = page["next"].as_str() else { break };
        query = format!("?limit=2&cursor={next}");
    }
    assert_eq!(json!(found), json!(digests));
}

#[tokio::test]
async fn what_is_not_what_it_says_is_not_kept() {
    let ground = Ground::new().await;
    let digest = Digest::of(b"content");
    let (status, problem) = json_of(put(&ground, Who::Submitter, digest, b"another").await).await;
    assert_eq!(
        (status, &problem["faults"][0]["code"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("other_digest"))
    );
    let message = problem["faults"][0]["message"].as_str().unwrap();
    assert!(message.contains(&Digest::of(b"another").to_string()), "{message}");
    let (status, problem) = json_of(put(&ground, Who::Submitter, digest, &vec![0; 9 << 20]).await).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::PAYLOAD_TOO_LARGE, &json!("body_too_large"))
    );
    // Without a length, by chunks.
    let chunked = ground.by(Who::Submitter, Method::PUT, &path(digest));
    let stream = futures_util::stream::iter([Ok::<_, std::io::Error>("content")]);
    let (status, problem) = json_of(
        chunked
            .body(reqwest::Body::wrap_stream(stream))
            .send()
            .await
            .unwrap(),
    )
    .await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::BAD_REQUEST, &json!("invalid_parameter"))
    );
    assert!(
        problem["detail"].as_str().unwrap().contains("Content-Length"),
        "{problem}"
    );
    assert_eq!(listed(&ground, Who::Submitter).await["uploads"], json!([]));
    // All that a tenant may have is free again.
    upload(&ground, Who::Submitter, &vec![1; 8 << 20]).await;
    let (status, problem) =
        json_of(put(&ground, Who::Submitter, Digest::of(&[2; 5 << 20]), &[2; 5 << 20]).await).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("conflict"))
    );
    assert!(
        problem["detail"].as_str().unwrap().contains("remove one first"),
        "{problem}"
    );
    upload(&ground, Who::Submitter, &vec![2; 4 << 20]).await;
}

#[tokio::test]
async fn uploads_that_break_off_leave_nothing_and_stand_in_nobodys_way() {
    let ground = Ground::new().await;
    // As many as may be under way at once: each is seen to be, and then cut off.
    let mut open = Vec::new();
    for number in 0..MAX_UNDER_WAY {
        let digest = Digest::of(number.to_string().as_bytes());
        let address = ground.url("").replace("http://", "");
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let head = format!(
            "PUT {} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
            path(digest),
            ground.key(Who::Submitter).reveal(),
            PIECE + 9,
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 21];
        // It is only asked for once it has begun.
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 100 Continue");
        stream.write_all(&vec![7; PIECE + 1]).await.unwrap();
        open.push(stream);
    }
    let content = b"one more";
    let (status, problem) = json_of(put(&ground, Who::Submitter, Digest::of(content), content).await).await;
    assert_eq!(status, StatusCode::CONFLICT, "{problem}");
    assert!(
        problem["detail"].as_str().unwrap().contains("under way"),
        "{problem}"
    );
    drop(open);
    // Each is given up once it is seen to be cut off.
    let all = async {
        loop {
            let answer = put(&ground, Who::Submitter, Digest::of(content), content).await;
            match answer.status() {
                StatusCode::CREATED => break,
                StatusCode::CONFLICT => tokio::task::yield_now().await,
                other => panic!("{other}"),
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), all)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_job_has_its_uploads_by_the_address_in_its_order_alone() {
    let ground = Ground::new().await;
    let large = [vec![1; PIECE], vec![2; 3]].concat();
    let (large_digest, small) = (
        upload(&ground, Who::Submitter, &large).await,
        upload(&ground, Who::Submitter, b"small").await,
    );
    let uploads = json!([
        {"path": "in/large", "digest": large_digest},
        {"path": "small", "digest": small, "mode": "0600"},
    ]);
    let order = started(&ground, uploads).await;
    let place = order.fetched.clone().unwrap();
    let get = async |url: &str| ground.client.get(url).send().await.unwrap();
    for (file, piece, expected) in [(0, 0, &large[..PIECE]), (0, 1, &large[PIECE..]), (1, 0, b"small")] {
        let answer = get(place.of_piece(file, piece).reveal()).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/octet-stream");
        assert_eq!(answer.bytes().await.unwrap(), expected);
    }
    let right = place.of_piece(1, 0).reveal().to_owned();
    for wrong in [
        place.of_piece(0, 2).reveal().to_owned(),
        place.of_piece(2, 0).reveal().to_owned(),
        place.reveal().to_owned(),
        right.replace("/file?", "/input?"),
        right.replace("/file?", "/artifact?"),
        right.replace("&signature=", "&signature=0"),
        right.replace("bytes=", "bytes=1"),
        right.replace(&order.attempt.to_string(), &order.job.to_string()),
    ] {
        assert_eq!(get(&wrong).await.status(), StatusCode::NOT_FOUND, "{wrong}");
    }
    let put = ground.client.put(&right).body("other").send().await.unwrap();
    assert_eq!(put.status(), StatusCode::NOT_FOUND);
    let remove = ground.by(Who::Submitter, Method::DELETE, &path(small));
    let (status, problem) = json_of(remove.send().await.unwrap()).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("conflict"))
    );
    // What a job brings is shown by its digests as ever, and ends with the attempt.
    ground.finish(&order, success()).await;
    assert_eq!(get(&right).await.status(), StatusCode::NOT_FOUND);
    let remove = ground.by(Who::Submitter, Method::DELETE, &path(small));
    assert_eq!(remove.send().await.unwrap().status(), StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_job_names_uploads_of_its_own_tenant_that_are_there() {
    let ground = Ground::new().await;
    let own = upload(&ground, Who::Submitter, b"own").await;
    let theirs = upload(&ground, Who::Stranger, b"theirs").await;
    let missing = Digest::of(b"missing");
    let (status, problem) = submit(
        &ground,
        Who::Submitter,
        json!([
            {"path": "a", "digest": own},
            {"path": "b", "digest": theirs},
            {"path": "c", "digest": missing},
            {"path": "a", "digest": own},
        ]),
    )
    .await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("invalid_job"))
    );
    let found: Vec<_> = problem["faults"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| (fault["path"].as_str().unwrap(), fault["code"].as_str().unwrap()))
        .collect();
    let expected = [
        ("uploads[3].path", "duplicate"),
        ("uploads[1].digest", "not_uploaded"),
        ("uploads[2].digest", "not_uploaded"),
    ];
    assert_eq!(found, expected);
    // Another tenant's reads as one that is not there.
    let message = |index: usize| problem["faults"][index]["message"].as_str().unwrap().to_owned();
    assert_eq!(
        message(1).replace(&theirs.to_string(), ""),
        message(2).replace(&missing.to_string(), "")
    );
    let length = json!([{"path": "a", "digest": own, "bytes": 3}]);
    let (status, problem) = submit(&ground, Who::Submitter, length).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("invalid_body")),
        "nobody says it"
    );
}

#[tokio::test]
async fn a_server_that_executors_do_not_reach_takes_no_job_with_uploads() {
    let ground = Ground::without_artifacts().await;
    let own = upload(&ground, Who::Submitter, b"own").await;
    let (status, problem) = submit(&ground, Who::Submitter, json!([{"path": "a", "digest": own}])).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(problem["faults"][0]["path"], "uploads");
    assert_eq!(problem["faults"][0]["code"], "not_supported");
}
