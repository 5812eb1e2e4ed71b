//! Images: pinned, loaded, pulled.

use std::path::Path;

use mayfly_core::digest::Digest;
use mayfly_sandbox::{
    engine::Engine,
    images::{ImageError, Images},
};
use serde_json::json;

use crate::support::{address, no_engine};

/// The machine's engine, or nothing where there is none; that is printed and counted.
async fn images() -> Option<Images> {
    match Engine::connect(address().as_deref()).await {
        Ok(engine) => Some(Images::new(engine)),
        Err(error) => {
            no_engine(&error.to_string());
            None
        }
    }
}

/// Writes a docker-archive with one empty layer, and returns the image's id.
pub(crate) fn archive(path: &Path, tag: &str, config: &serde_json::Value) -> Digest {
    // Two blocks of zeros: a tar file without members.
    let layer = vec![0u8; 1024];
    let config = serde_json::to_vec(&json!({
        "architecture": "amd64", "os": "linux", "config": config,
        "rootfs": {"type": "layers", "diff_ids": [Digest::of(&layer)]},
    }))
    .unwrap();
    let id = Digest::of(&config);
    let name = format!("{}.json", id.to_hex());
    let manifest = json!([{"Config": name, "RepoTags": [tag], "Layers": ["layer.tar"]}]).to_string();
    let mut tar = tar::Builder::new(std::fs::File::create(path).unwrap());
    for (name, content) in [
        (name.as_str(), &config[..]),
        ("layer.tar", &layer),
        ("manifest.json", manifest.as_bytes()),
    ] {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, content).unwrap();
    }
    tar.finish().unwrap();
    id
}

#[tokio::test]
async fn a_loaded_image_is_pinned_by_its_id_and_found_again() {
    let Some(images) = images().await else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image.tar");
    let id = archive(&file, "mayfly-test/pinned:1", &json!({"Env": ["A=pinned"]}));
    images.load(&file).await.unwrap();
    let pin = images.pin("mayfly-test/pinned:1").await.unwrap();
    assert_eq!(
        (pin.digest, pin.config_digest, pin.platform.as_str()),
        (id, id, "linux/amd64")
    );
    assert!(images.has(&pin).await.unwrap());
    let other = mayfly_core::image::ImagePin {
        config_digest: Digest::of(b"another"),
        ..pin
    };
    assert!(!images.has(&other).await.unwrap());
}

#[tokio::test]
async fn an_image_with_a_volume_can_not_be_pinned() {
    let Some(images) = images().await else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image.tar");
    archive(&file, "mayfly-test/volume:1", &json!({"Volumes": {"/data": {}}}));
    images.load(&file).await.unwrap();
    let error = images.pin("mayfly-test/volume:1").await.unwrap_err();
    assert!(
        matches!(error, ImageError::HasVolume { ref volumes, .. } if volumes == "/data"),
        "{error}"
    );
}

#[tokio::test]
async fn what_is_not_there_and_what_is_no_image_are_told_apart() {
    let Some(images) = images().await else { return };
    assert!(matches!(
        images.pin("mayfly-test/absent:1").await,
        Err(ImageError::Absent { .. })
    ));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image.tar");
    assert!(matches!(
        images.load(&file).await,
        Err(ImageError::Archive { .. })
    ));
    std::fs::write(&file, b"no archive at all").unwrap();
    assert!(matches!(images.load(&file).await, Err(ImageError::Load { .. })));
}

#[tokio::test]
async fn a_pull_that_is_refused_says_why() {
    let Some(images) = images().await else { return };
    // A port of loopback on which nothing listens: the registry refuses at once.
    let digest = Digest::of(b"absent");
    let reference = format!("127.0.0.1:9/absent@{digest}");
    let error = images
        .pull(&reference, std::time::Duration::from_secs(60), |_| {})
        .await
        .unwrap_err();
    assert!(matches!(error, ImageError::Pull { .. }), "{error}");
}
