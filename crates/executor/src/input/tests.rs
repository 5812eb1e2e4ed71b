use mayfly_core::{
    id::{AttemptId, JobId, TenantId},
    job::{Blob, InputFile},
    outcome::{Cause, EndState},
};
use mayfly_dispatch::{
    message::{BlobPlaces, READS, VERSION},
    time::ServerTime,
    token::TokenKey,
};
use serde_json::json;

use super::*;
use crate::blobs::{
    HttpBlobs, NoBlobs,
    scripted::{Scripted, answer},
};

/// A job that brings something, and its order from a server at this address.
fn ordered(base: &str) -> (ResolvedJob, DispatchMessage, Vec<u8>) {
    order_of(bringing(), base)
}

fn bringing() -> ResolvedJob {
    let mut job = mayfly_testkit::job(&["true"], json!({}));
    job.files = vec![InputFile {
        path: "data".to_owned(),
        content: Blob::from(vec![0xfe; 100_000]),
        executable: true,
        mode: None,
    }];
    job
}

fn order_of(job: ResolvedJob, base: &str) -> (ResolvedJob, DispatchMessage, Vec<u8>) {
    let key = TokenKey::from_bytes([7; 32]);
    let attempt = AttemptId::new();
    let whole = DispatchMessage {
        v: VERSION,
        tenant: TenantId::LOCAL,
        job: JobId::new(),
        attempt,
        number: 1,
        publication: 1,
        token: key.token(attempt),
        resolved: job.clone(),
        input: None,
        output: None,
        artifacts: None,
        secrets: None,
        fetched: None,
    };
    let places = BlobPlaces {
        base: base.to_owned(),
        key: key.blob_key(),
        input_above: 8192,
        output_above: 64 << 20,
    };
    let content = JobContent::take(&mut whole.resolved.clone()).encode();
    (
        job,
        places.equip(whole, READS, ServerTime::from_micros(0)),
        content,
    )
}

async fn complete_from(
    answers: Vec<Vec<u8>>,
) -> (Result<ResolvedJob, InputError>, Scripted, DispatchMessage) {
    let server = Scripted::start(answers).await;
    let (_, order, _) = ordered(&server.base);
    let blobs = HttpBlobs::new().unwrap();
    let done = complete(&blobs, &order, &CancellationToken::new()).await;
    (done, server, order)
}

fn content() -> Vec<u8> {
    ordered("http://127.0.0.1").2
}

#[tokio::test]
async fn a_job_is_made_whole_by_what_its_order_names() {
    let content = content();
    let (done, server, _) = complete_from(vec![answer("200 OK", content.len(), &content)]).await;
    let (whole, ..) = ordered("http://127.0.0.1");
    assert_eq!(done.unwrap(), whole);
    assert_eq!(server.asked(), 1);
    let heard = server.heard().to_lowercase();
    assert!(
        !heard.contains("authorization") && !heard.contains("cookie"),
        "{heard}"
    );
}

/// Cut off, another length by its header or in fact, another content, a server with no time: each is asked for again.
#[tokio::test]
async fn what_is_not_what_the_order_names_is_asked_for_again() {
    let content = content();
    let mut other = content.clone();
    other[50] ^= 1;
    let longer = [content.as_slice(), b"x"].concat();
    let endless = [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".as_slice(),
        &longer,
    ]
    .concat();
    let answers = vec![
        answer("200 OK", content.len(), &content[..60_000]),
        answer("200 OK", content.len() - 1, &content[1..]),
        answer("200 OK", longer.len(), &longer),
        endless,
        answer("200 OK", other.len(), &other),
        answer("503 Service Unavailable", 0, b""),
        answer("200 OK", content.len(), &content),
    ];
    let count = answers.len();
    let (done, server, _) = complete_from(answers).await;
    assert_eq!(done.unwrap(), ordered("http://127.0.0.1").0);
    assert_eq!(server.asked(), count);
}

#[tokio::test]
async fn a_refusal_and_a_redirect_are_final_and_no_text_of_them_has_the_address() {
    let elsewhere = "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
    for refusal in [answer("404 Not Found", 0, b""), elsewhere.as_bytes().to_vec()] {
        let (done, server, order) = complete_from(vec![refusal]).await;
        let error = done.unwrap_err();
        assert_eq!(server.asked(), 1);
        let outcome = error.evidence().judge();
        assert_eq!(
            (outcome.state, outcome.cause),
            (EndState::Error, Cause::ContentUnavailable)
        );
        let url = order.input.unwrap().url;
        let (_, secret) = url.reveal().split_once('?').unwrap();
        let shown = format!("{error:?} {} {outcome:?}", mayfly_core::chain::Chain(&error));
        assert!(!shown.contains(secret) && !shown.contains("signature"), "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_not_there_is_waited_for_and_then_given_up() {
    let (_, order, _) = ordered("http://127.0.0.1:1");
    let blobs = HttpBlobs::new().unwrap();
    let begun = tokio::time::Instant::now();
    let error = complete(&blobs, &order, &CancellationToken::new())
        .await
        .unwrap_err();
    let waited = begun.elapsed();
    assert!(waited > LIMIT / 2 && waited <= LIMIT, "{waited:?}");
    let shown = format!("{error:?} {}", mayfly_core::chain::Chain(&error));
    assert!(!shown.contains("signature"), "{shown}");
}

#[tokio::test]
async fn what_is_not_wanted_any_more_is_given_up() {
    let server = Scripted::start(vec![answer("503 Service Unavailable", 0, b"")]).await;
    let (_, order, _) = ordered(&server.base);
    let (blobs, unwanted) = (HttpBlobs::new().unwrap(), CancellationToken::new());
    unwanted.cancel();
    let given_up = complete(&blobs, &order, &unwanted).await;
    assert!(matches!(given_up, Err(InputError::GivenUp)));
    let nothing = complete(&NoBlobs, &order, &CancellationToken::new()).await;
    assert!(matches!(nothing, Err(InputError::Fetch(BlobError::NoWay))));
}

/// A job with a secret of its own and two that it names, and its order.
fn naming(base: &str) -> DispatchMessage {
    let mut job = mayfly_testkit::job(&["true"], json!({}));
    job.secrets
        .insert("OWN".to_owned(), "horse-of-ours".to_owned().into());
    let name = || "KEY".parse().unwrap();
    job.named_secrets.env.insert("TOKEN".to_owned(), name());
    job.named_secrets.files.insert("conf/key".to_owned(), name());
    order_of(job, base).1
}

const VALUES: &[u8] =
    br#"{"env": {"OWN": "horse-of-ours", "TOKEN": "horse-of-theirs"}, "files": {"conf/key": "horse-of-theirs"}}"#;

async fn given(answers: Vec<Vec<u8>>) -> (Result<ResolvedJob, InputError>, Scripted) {
    let server = Scripted::start(answers).await;
    let order = naming(&server.base);
    assert!(order.resolved.secrets.is_empty());
    let blobs = HttpBlobs::new().unwrap();
    let done = complete(&blobs, &order, &CancellationToken::new()).await;
    (done, server)
}

#[tokio::test]
async fn secrets_come_to_their_places_and_a_file_of_one_is_for_its_owner_alone() {
    let answers = vec![
        answer("503 Service Unavailable", 0, b""),
        answer("200 OK", VALUES.len(), VALUES),
    ];
    let (done, server) = given(answers).await;
    let job = done.unwrap();
    assert_eq!(server.asked(), 2);
    let variables: Vec<_> = job.variables().collect();
    assert!(
        variables.contains(&("OWN", "horse-of-ours")) && variables.contains(&("TOKEN", "horse-of-theirs"))
    );
    let file = InputFile {
        path: "conf/key".to_owned(),
        content: Blob::from("horse-of-theirs"),
        executable: false,
        mode: FileMode::new(0o400),
    };
    assert_eq!(job.files, [file]);
    assert_eq!(
        job.secret_values().count(),
        3,
        "all of them are looked for in output"
    );
    assert!(job.named_secrets.is_empty());
}

#[tokio::test]
async fn a_secret_that_is_gone_or_does_not_come_is_said_in_words_without_any() {
    let missing = br#"{"env": {"OWN": "horse-of-ours", "TOKEN": "horse-of-theirs"}}"#;
    let own_missing = br#"{"env": {"TOKEN": "horse"}, "files": {"conf/key": "horse"}}"#;
    let long = vec![b' '; 1 + (1 << 20)];
    for (sent, said) in [
        (answer("410 Gone", 0, b""), "is kept no more"),
        (answer("200 OK", missing.len(), missing), "is of no use"),
        (answer("200 OK", 7, b"\"horse\""), "is of no use"),
        (answer("200 OK", long.len(), &long), "more than the 1048576 bytes"),
        (
            answer("404 Not Found", 0, b""),
            "could not fetch the job's secrets",
        ),
    ] {
        let (done, server) = given(vec![sent]).await;
        let error = done.unwrap_err();
        assert_eq!(server.asked(), 1, "{said}");
        let outcome = error.evidence().judge();
        assert_eq!(outcome.cause, Cause::ContentUnavailable);
        let shown = format!("{error:?} {} {outcome:?}", mayfly_core::chain::Chain(&error));
        assert!(shown.contains(said), "{shown}");
        assert!(
            !shown.contains("horse") && !shown.contains("signature"),
            "{shown}"
        );
    }
    // Without anybody to ask, its own are missing from an answer: an order that never left this process.
    let server = Scripted::start(vec![answer("200 OK", own_missing.len(), own_missing)]).await;
    let mut order = naming(&server.base);
    order
        .resolved
        .secrets
        .insert("OWN".to_owned(), "horse".to_owned().into());
    let done = complete(&HttpBlobs::new().unwrap(), &order, &CancellationToken::new()).await;
    assert!(matches!(done, Err(InputError::Secrets)));
    let nobody = complete(&NoBlobs, &order, &CancellationToken::new()).await;
    assert!(matches!(nobody, Err(InputError::FetchSecrets(BlobError::NoWay))));
}
