//! The images of an executor: on its engine before it takes a job, by digest.

use std::collections::BTreeMap;

use mayfly_core::image::ImagePin;
use mayfly_sandbox::{
    engine::Engine,
    images::{ImageError, Images},
};
use mayfly_settings::{ImageSource, Settings};

use crate::{exit, failure::Failure};

/// The image that an executor has which names none.
const USUAL: &str = "python";

/// Makes sure of each, and says what it is.
pub(crate) async fn ready(
    settings: &Settings,
    engine: &Engine,
) -> Result<BTreeMap<String, ImagePin>, Failure> {
    let named = &settings.executor.images;
    let usual = BTreeMap::from([(USUAL.to_owned(), settings.image.python.clone())]);
    let images = Images::new(engine.clone());
    let mut pins = BTreeMap::new();
    for (name, reference) in if named.is_empty() { &usual } else { named } {
        let pin = one(settings, &images, reference)
            .await
            .map_err(|failure| failure.about(format!("setting `executor.images.{name}`")))?;
        tracing::info!(image = name, digest = %pin.digest, "the image is here");
        pins.insert(name.clone(), pin);
    }
    Ok(pins)
}

async fn one(settings: &Settings, images: &Images, reference: &str) -> Result<ImagePin, Failure> {
    match images.pin(reference).await {
        Err(ImageError::Absent { .. }) => {}
        found => return Ok(found?),
    }
    // An id says what an image is, and not where it comes from.
    let has_source = reference.contains('@');
    let may_pull = matches!(settings.image.source, ImageSource::Auto | ImageSource::Pull);
    if !has_source || !may_pull {
        let why = if has_source {
            "and `image.source` forbids to pull it"
        } else {
            "and an id can't be pulled: load it (docker load)"
        };
        let error = anyhow::anyhow!("image `{reference}` is not on this engine, {why}");
        return Err(Failure::new(exit::NO_IMAGE, error));
    }
    tracing::info!(image = reference, "pulling the image");
    let limit = settings.image.pull_timeout.as_duration();
    images.pull(reference, limit, |_| {}).await?;
    Ok(images.pin(reference).await?)
}
