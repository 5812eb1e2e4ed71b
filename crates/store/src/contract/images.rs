//! The catalog.

use std::sync::Arc;

use mayfly_core::{digest::Digest, id::KeyId, image::ImagePin};

use super::{Place, bench::Bench};
use crate::records::{AuditFilter, ImageEntry};

fn pin(content: &[u8]) -> ImagePin {
    ImagePin {
        reference: "registry.example/python:3".to_owned(),
        digest: Digest::of(content),
        config_digest: Digest::of(b"config"),
        platform: "linux/arm64".to_owned(),
    }
}

async fn set(bench: &Bench, name: &str, pin: &ImagePin) {
    let set = bench.store.pin_image(name, pin, None, bench.date()).await;
    set.expect("pinning works");
}

/// Also beside others, by name.
pub async fn a_pin_is_found_and_on_record(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let by = KeyId::new();
    let pinned = bench
        .store
        .pin_image("python", &pin(b"one"), Some(by), bench.date())
        .await;
    pinned.expect("pinning works");
    set(&bench, "node", &pin(b"two")).await;
    let entry = |name: &str, pin| ImageEntry {
        name: name.to_owned(),
        pin,
        pinned_at: bench.date(),
    };
    let (python, node) = (entry("python", pin(b"one")), entry("node", pin(b"two")));
    let found = bench.store.find_image("python").await.expect("finding works");
    assert_eq!(found.as_ref(), Some(&python));
    let all = bench.store.list_images().await.expect("listing works");
    assert_eq!(all, [node, python]);
    let none = bench.store.find_image("pythoN").await.expect("finding works");
    assert_eq!(none, None);
    let events = bench.events(AuditFilter::default()).await;
    let kinds: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["image_pinned", "image_pinned"]);
    let body: serde_json::Value = serde_json::from_slice(&events[0].body).expect("a body is JSON");
    assert_eq!(body["fact"]["name"], "python");
    assert_eq!(body["fact"]["digest"], Digest::of(b"one").to_string());
    assert_eq!(body["fact"]["by"], by.to_string());
}

/// Not even when it was pinned.
pub async fn pinning_the_same_again_changes_nothing(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    set(&bench, "python", &pin(b"one")).await;
    let before = bench.store.list_images().await.expect("listing works");
    let mut commits = bench.store.commits();
    commits.borrow_and_update();
    bench.pass(std::time::Duration::from_secs(60));
    set(&bench, "python", &pin(b"one")).await;
    assert_eq!(bench.store.list_images().await.expect("listing works"), before);
    assert_eq!(bench.events(AuditFilter::default()).await.len(), 1);
    assert!(!commits.has_changed().expect("the store is there"));
}

/// Whichever part of it is another.
pub async fn a_new_pin_replaces_the_old_one_on_record(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let first = pin(b"one");
    set(&bench, "python", &first).await;
    let others = [
        pin(b"two"),
        ImagePin {
            config_digest: Digest::of(b"another"),
            ..first.clone()
        },
        ImagePin {
            reference: "python:3".to_owned(),
            ..first.clone()
        },
        ImagePin {
            platform: "linux/amd64".to_owned(),
            ..first.clone()
        },
    ];
    for (count, other) in (1..).step_by(2).zip(others) {
        bench.pass(std::time::Duration::from_secs(60));
        set(&bench, "python", &other).await;
        let found = bench.store.find_image("python").await.expect("finding works");
        let found = found.expect("it is there");
        assert_eq!((found.pin, found.pinned_at), (other, bench.date()));
        assert_eq!(bench.events(AuditFilter::default()).await.len(), count + 1);
        set(&bench, "python", &first).await;
    }
}
