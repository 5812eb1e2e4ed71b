use mayfly_core::{
    id::AttemptId,
    job::{Blob, InputFile},
    units::ByteSize,
};
use uuid::Uuid;

use super::*;
use crate::{
    content::ContentError,
    message::{READS, VERSION, Wire as _},
    samples,
    token::TokenKey,
};

const NOW: ServerTime = ServerTime::from_micros(1_000_000_000_000);

fn places() -> BlobPlaces {
    BlobPlaces {
        base: "https://fleet.example".to_owned(),
        key: TokenKey::from_bytes([7; 32]).blob_key(),
        input_above: 64 * 1024,
        output_above: 64 << 20,
    }
}

fn order(bytes: usize) -> DispatchMessage {
    let mut order = samples::dispatch_message(AttemptId::from_uuid(Uuid::from_u128(1)), 1);
    order.resolved.files = vec![InputFile {
        path: "data".to_owned(),
        content: Blob::from(vec![0xff; bytes]),
        executable: false,
        mode: None,
    }];
    order.resolved.stdin = Some(Blob::from("in"));
    order
}

#[test]
fn a_long_order_names_what_its_job_brings_and_is_short() {
    let whole = order(5 << 20);
    let sent = places().equip(whole.clone(), READS, NOW);
    assert_eq!(sent.v, BLOBS_SINCE);
    assert!(sent.encode().len() < 4096, "{}", sent.encode().len());
    assert_eq!(DispatchMessage::decode(&sent.encode()).unwrap(), sent);
    let input = sent.input.as_ref().unwrap();
    let mut job = whole.resolved.clone();
    let bytes = JobContent::take(&mut job).encode();
    assert_eq!(
        (input.bytes, input.digest),
        (bytes.len() as u64, Digest::of(&bytes))
    );
    assert_eq!(sent.resolved, job, "nothing else is left out");
    JobContent::decode(&bytes).unwrap().give_back(&mut job).unwrap();
    assert_eq!(job, whole.resolved);
    let twice = JobContent::decode(&bytes).unwrap().give_back(&mut job);
    assert!(matches!(twice, Err(ContentError::Twice)));
}

#[test]
fn an_order_with_secrets_of_its_own_is_none_for_older_readers_and_names_where_they_are_for_newer_ones() {
    let mut whole = order(5 << 20);
    assert_eq!(whole.least_version(), VERSION);
    let secret = mayfly_core::job::SecretText::from("hunter22".to_owned());
    whole.resolved.secrets.insert("TOKEN".to_owned(), secret);
    assert_eq!(whole.least_version(), SECRETS_SINCE);
    assert_eq!(places().least_version(&whole), SECRETS_APART_SINCE);
    whole.v = whole.least_version();
    let older = places().equip(whole.clone(), SECRETS_APART_SINCE - 1, NOW);
    assert!(older.input.is_some());
    assert_eq!((older.v, &older.secrets), (SECRETS_SINCE, &None));
    let read = DispatchMessage::decode(&older.encode()).unwrap();
    assert_eq!(read.resolved.secrets, whole.resolved.secrets);
    assert!(!format!("{read:?}").contains("hunter22"));
    let sent = places().equip(whole, READS, NOW);
    assert!(sent.input.is_some());
    assert_eq!(sent.v, SECRETS_APART_SINCE);
    assert!(!String::from_utf8(sent.encode()).unwrap().contains("hunter22"));
    let url = sent.secrets.as_ref().unwrap();
    assert!(
        url.reveal()
            .contains(&format!("/secrets?bytes={MAX_SECRETS_BYTES}&"))
    );
}

#[test]
fn an_order_with_named_secrets_or_secret_files_is_none_for_older_readers() {
    let mut named = order(1000);
    let name = "KEY".parse().unwrap();
    named.resolved.named_secrets.env.insert("TOKEN".to_owned(), name);
    let mut file = order(1000);
    let secret = mayfly_core::job::SecretText::from("hunter22".to_owned());
    file.resolved.secret_files.insert("key".to_owned(), secret);
    for whole in [named, file] {
        assert_eq!(whole.least_version(), SECRETS_APART_SINCE);
        let sent = places().equip(whole.clone(), READS, NOW);
        assert_eq!(sent.v, SECRETS_APART_SINCE);
        assert!(sent.secrets.is_some() && sent.input.is_none());
        let text = String::from_utf8(sent.encode()).unwrap();
        assert!(!text.contains("hunter22"), "{text}");
        assert_eq!(sent.resolved.named_secrets, whole.resolved.named_secrets);
        assert_eq!(DispatchMessage::decode(&sent.encode()).unwrap(), sent);
    }
    let bare = places().equip(order(1000), READS, NOW);
    assert_eq!((bare.v, bare.secrets), (VERSION, None));
}

#[test]
fn an_order_with_files_that_it_only_names_is_none_for_older_readers_and_says_where_they_are() {
    let mut whole = order(1000);
    let file = |path: &str, bytes| mayfly_core::job::FetchedFile {
        path: path.to_owned(),
        mode: mayfly_core::job::FileMode::USUAL,
        digest: Digest::of(path.as_bytes()),
        bytes,
    };
    whole.resolved.fetched = vec![file("a", 5 << 20), file("b", 3)];
    assert_eq!(whole.least_version(), FETCHED_SINCE);
    let sent = places().equip(whole.clone(), READS, NOW);
    assert_eq!((sent.v, &sent.input), (FETCHED_SINCE, &None));
    assert_eq!(sent.resolved, whole.resolved);
    let place = sent.fetched.as_ref().unwrap();
    let length = format!("/file?bytes={}&", (5 << 20) + 3);
    assert!(place.reveal().contains(&length), "{}", place.reveal());
    assert!(place.of_piece(1, 0).reveal().ends_with("&file=1&piece=0"));
    assert_eq!(DispatchMessage::decode(&sent.encode()).unwrap(), sent);
    assert_eq!(places().equip(order(1000), READS, NOW).fetched, None);
}

#[test]
fn an_order_with_egress_is_none_for_older_readers() {
    let mut whole = order(1000);
    let mut policy = mayfly_core::policy::Policy::default();
    policy.egress.allow = vec!["pypi.org".to_owned()];
    let spec = r#"{"image": "python", "command": ["true"], "egress": ["pypi.org"]}"#;
    let spec: mayfly_core::job::JobSpec = serde_json::from_str(spec).unwrap();
    let resolved = spec
        .resolve(&policy, whole.resolved.pin.clone(), &Digest::of(b""))
        .unwrap();
    whole.resolved.egress = resolved.egress;
    assert!(whole.resolved.egress.is_some());
    assert_eq!(whole.least_version(), EGRESS_SINCE);
    whole.v = whole.least_version();
    let sent = places().equip(whole, READS, NOW);
    assert_eq!(sent.v, EGRESS_SINCE);
    assert_eq!(DispatchMessage::decode(&sent.encode()).unwrap(), sent);
}

#[test]
fn an_order_with_modes_is_none_for_older_readers_and_stays_so_when_it_names_blobs() {
    let mut whole = order(5 << 20);
    whole.resolved.files[0].mode = mayfly_core::job::FileMode::new(0o640);
    assert_eq!(whole.least_version(), MODES_SINCE);
    whole.v = whole.least_version();
    let sent = places().equip(whole, READS, NOW);
    assert!(sent.input.is_some());
    assert_eq!(sent.v, MODES_SINCE);
}

#[test]
fn an_order_for_files_is_none_for_older_readers_and_names_a_place_for_them() {
    let mut whole = order(1000);
    whole.resolved.artifacts = vec!["*".to_owned()];
    let rules = mayfly_core::policy::ArtifactRules::default();
    whole.resolved.artifact_limits = Some(rules.limits());
    assert_eq!(whole.least_version(), ARTIFACTS_SINCE);
    let sent = places().equip(whole.clone(), READS, NOW);
    assert_eq!(sent.v, ARTIFACTS_SINCE);
    let url = sent.artifacts.as_ref().unwrap();
    assert!(
        url.reveal()
            .contains(&format!("/artifact?bytes={}&", rules.total.as_bytes()))
    );
    assert!(url.of_piece(3, 14).reveal().ends_with("&file=3&piece=14"));
    assert_eq!(DispatchMessage::decode(&sent.encode()).unwrap(), sent);
    // The place is good for as long as files are collected.
    let expiry = |order: &DispatchMessage| {
        let (_, rest) = order
            .artifacts
            .as_ref()
            .unwrap()
            .reveal()
            .split_once("expires=")
            .unwrap();
        rest.split('&').next().unwrap().parse::<i64>().unwrap()
    };
    let mut longer = whole.clone();
    longer.resolved.artifact_limits.as_mut().unwrap().time = mayfly_core::units::Span::seconds(121);
    assert_eq!(expiry(&places().equip(longer, READS, NOW)), expiry(&sent) + 1);
    assert_eq!(places().equip(whole, ARTIFACTS_SINCE - 1, NOW).artifacts, None);
}

#[test]
fn a_short_order_and_one_for_an_older_reader_carry_everything() {
    for (order, reads) in [
        (order(1000), READS),
        (order(5 << 20), BLOBS_SINCE - 1),
        (order(5 << 20), VERSION),
    ] {
        assert_eq!(places().equip(order.clone(), reads, NOW), order);
    }
    let mut bare = samples::dispatch_message(AttemptId::from_uuid(Uuid::from_u128(1)), 1);
    bare.resolved.argv = vec!["x".repeat(70_000)];
    assert_eq!(
        places().equip(bare.clone(), READS, NOW),
        bare,
        "there is nothing to leave out"
    );
}

#[test]
fn an_order_whose_run_may_write_much_names_a_place_for_it() {
    let mut short = order(10);
    let limits = &mut short.resolved.limits;
    (limits.stdout, limits.stderr) = (ByteSize::mib(1), ByteSize::mib(2));
    let places = BlobPlaces {
        output_above: (3 << 20) - 1,
        ..places()
    };
    let sent = places.equip(short.clone(), READS, NOW);
    let place = sent.output.as_ref().unwrap();
    assert_eq!(
        (sent.v, place.above, place.most),
        (BLOBS_SINCE, (3 << 20) - 1, 3 << 20)
    );
    assert!(place.url.reveal().contains("/output?bytes=3145728&"));
    assert_eq!(DispatchMessage::decode(&sent.encode()).unwrap(), sent);
    let enough = BlobPlaces {
        output_above: 3 << 20,
        ..places.clone()
    };
    assert_eq!(enough.equip(short.clone(), READS, NOW), short);
    assert_eq!(places.equip(short.clone(), BLOBS_SINCE - 1, NOW), short);
}

#[test]
fn an_order_that_names_more_than_a_content_may_have_is_refused() {
    let mut sent = places().equip(order(5 << 20), READS, NOW);
    sent.input.as_mut().unwrap().bytes = crate::message::MAX_MESSAGE_BYTES as u64 + 1;
    assert!(DispatchMessage::decode(&sent.encode()).is_err());
}

#[test]
fn no_address_shows_when_an_order_is_written_to_a_log() {
    let shown = format!("{:?}", places().equip(order(5 << 20), READS, NOW));
    assert!(
        !shown.contains("signature") && !shown.contains("expires="),
        "{shown}"
    );
}
