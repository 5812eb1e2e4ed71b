//! From the image that a job names to what exactly will run, and the ways to our own images.

use std::path::{Path, PathBuf};

use mayfly_core::{
    chain::Chain,
    clock::Clock,
    image::{ImageName, ImagePin},
};
use mayfly_sandbox::{
    engine::Engine,
    images::{ImageError, Images},
};
use mayfly_settings::{ImageSettings, ImageSource, Settings};
use mayfly_store::seam::Store;
use serde::Deserialize;
use tokio::process::Command;

use crate::{context, exit, failure::Failure, progress::Step};

/// The image that is there without being pinned by hand.
const PYTHON: &str = "python";

/// Our own images for jobs: each has a recipe, and `mayfly image ensure` gets it.
const OWN: [&str; 4] = [PYTHON, "python-data", "node", "shell"];

/// Resolves names.
pub(crate) struct Catalog<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) images: &'a Images,
    pub(crate) settings: &'a ImageSettings,
    pub(crate) clock: &'a dyn Clock,
}

/// What a recipe says of the image that it has built.
#[derive(Debug, Deserialize)]
struct Built {
    image_id: String,
    archive: PathBuf,
}

impl Catalog<'_> {
    /// What a job's image means now, on this engine.
    pub(crate) async fn resolve(&self, name: &ImageName) -> Result<ImagePin, Failure> {
        let name = match name {
            ImageName::Catalog(name) => name,
            ImageName::Digest { .. } => return self.by_digest(name).await,
        };
        if name == PYTHON {
            self.ensure(name).await
        } else {
            self.pinned(name).await
        }
    }

    /// What a name was pinned to by hand.
    async fn pinned(&self, name: &str) -> Result<ImagePin, Failure> {
        let Some(entry) = self.store.find_image(name).await? else {
            let add = if OWN.contains(&name) {
                format!("`mayfly image ensure {name}` builds it and adds it")
            } else {
                format!("`mayfly image pin {name} REFERENCE` adds it")
            };
            let error = anyhow::anyhow!(
                "image `{name}` is not in the catalog: `mayfly image list` shows what is, {add}"
            );
            return Err(Failure::new(exit::NO_IMAGE, error));
        };
        if self.images.has(&entry.pin).await? {
            return Ok(entry.pin);
        }
        let error = anyhow::anyhow!(
            "image `{name}` is pinned to {} and not on this engine any more: `{}` gets it again",
            entry.pin.digest,
            again(name, &entry.pin)
        );
        Err(Failure::new(exit::NO_IMAGE, error))
    }

    async fn by_digest(&self, name: &ImageName) -> Result<ImagePin, Failure> {
        match self.images.pin(&name.to_string()).await {
            Err(ImageError::Absent { .. }) => {
                let error = anyhow::anyhow!(
                    "image `{name}` is not on this engine, and nothing is pulled on the way to a run: get it once with \
                     `mayfly image pin NAME {name}`"
                );
                Err(Failure::new(exit::NO_IMAGE, error))
            }
            found => Ok(found?),
        }
    }

    /// Pins a name to what a reference means; pulled where it is not on the engine.
    pub(crate) async fn pin(&self, name: &str, reference: &str) -> Result<ImagePin, Failure> {
        check_pin(name, reference)?;
        let pin = found(self.images, self.settings, reference).await?;
        self.store.pin_image(name, &pin, None, self.clock.now()).await?;
        Ok(pin)
    }

    async fn pull(&self, reference: &str) -> Result<(), ImageError> {
        pull(self.images, self.settings, reference).await
    }

    /// Gets one of our own images and pins its name: present, else pulled, else built, as the settings allow.
    pub(crate) async fn ensure(&self, name: &str) -> Result<ImagePin, Failure> {
        let entry = self.store.find_image(name).await?;
        if let Some(entry) = &entry
            && self.images.has(&entry.pin).await?
        {
            return Ok(entry.pin.clone());
        }
        // A name of ours may have been given to another image; then it is not ours to replace.
        let is_ours = OWN.contains(&name) && entry.is_none_or(|entry| is_ours(name, &entry.pin));
        if !is_ours {
            return self.pinned(name).await;
        }
        let official = (name == PYTHON).then_some(self.settings.python.as_str());
        let mut reasons = Vec::new();
        let source = self.settings.source;
        if matches!(source, ImageSource::Auto | ImageSource::Present) {
            match self.present(name, official).await {
                Ok(pin) => return self.keep(name, pin).await,
                Err(error) => reasons.push(error),
            }
        }
        if let Some(official) = official
            && matches!(source, ImageSource::Auto | ImageSource::Pull)
        {
            let pulled = async {
                self.pull(official).await?;
                self.images.pin(official).await
            };
            match pulled.await {
                Ok(pin) => return self.keep(name, pin).await,
                Err(ImageError::Engine(error)) => return Err(error.into()),
                Err(error) => reasons.push(Chain(&error).to_string()),
            }
        }
        if matches!(source, ImageSource::Auto | ImageSource::Build) {
            match self.build(name).await {
                Ok(pin) => return Ok(pin),
                Err(error) => reasons.push(error),
            }
        }
        let error = anyhow::anyhow!(
            "the image `{name}` can't be had: {}. Get an image {} into the engine in any other way, then \
             `mayfly image pin {name} REFERENCE`",
            reasons.join("; "),
            if official.is_some() {
                "with Python 3"
            } else {
                "like it"
            }
        );
        Err(Failure::new(exit::NO_IMAGE, error))
    }

    async fn keep(&self, name: &str, pin: ImagePin) -> Result<ImagePin, Failure> {
        self.store.pin_image(name, &pin, None, self.clock.now()).await?;
        Ok(pin)
    }

    /// An image that is on the engine already: the official one, or the one that a recipe has built before.
    async fn present(&self, name: &str, official: Option<&str>) -> Result<ImagePin, String> {
        if let Some(official) = official
            && let Ok(pin) = self.images.pin(official).await
        {
            return Ok(pin);
        }
        for record in self.records(name) {
            let Ok(text) = tokio::fs::read(&record).await else {
                continue;
            };
            let Ok(built) = serde_json::from_slice::<Built>(&text) else {
                continue;
            };
            if let Ok(pin) = self.images.pin(&built.image_id).await {
                return Ok(pin);
            }
        }
        Err("it is not on this engine".to_owned())
    }

    /// Where a recipe leaves the records of what it has built, one for each architecture.
    fn records(&self, name: &str) -> Vec<PathBuf> {
        let cache = self.cache();
        ["amd64", "arm64"]
            .map(|architecture| cache.join(format!("{name}-{architecture}.json")))
            .to_vec()
    }

    fn cache(&self) -> PathBuf {
        self.settings.recipes.join("../../.cache/images")
    }

    /// Builds one of our own images from Debian packages, loads it, and pins its name.
    pub(crate) async fn build(&self, name: &str) -> Result<ImagePin, String> {
        let recipe = self.settings.recipes.join(name).join("build");
        if !recipe.is_file() {
            return Err(format!(
                "there is no recipe {} (run this in mayfly's source folder, or set MAYFLY_IMAGE__RECIPES to its \
                 deploy/images)",
                recipe.display()
            ));
        }
        let built = run_recipe(&recipe, name).await?;
        let archive = self.cache().join(&built.archive);
        let archive = if built.archive.is_absolute() {
            built.archive
        } else {
            archive
        };
        {
            let _step = Step::begin(format!("loading {}", archive.display()));
            self.images
                .load(&archive)
                .await
                .map_err(|error| Chain(&error).to_string())?;
        }
        let pin = self
            .images
            .pin(&built.image_id)
            .await
            .map_err(|error| Chain(&error).to_string())?;
        self.store
            .pin_image(name, &pin, None, self.clock.now())
            .await
            .map_err(|error| Chain(&error).to_string())?;
        Ok(pin)
    }
}

/// The command that gets the image of a pin again, where the engine has lost it.
pub(crate) fn again(name: &str, pin: &ImagePin) -> String {
    if OWN.contains(&name) && is_ours(name, pin) {
        format!("mayfly image ensure {name}")
    } else {
        format!("mayfly image pin {name} {}", pin.reference)
    }
}

/// Whether what one of our names means is our image, as far as its pin says: what a recipe has built is pinned by its id,
/// which no registry serves. `python` may be the official one.
fn is_ours(name: &str, pin: &ImagePin) -> bool {
    name == PYTHON || pin.reference.starts_with("sha256:")
}

/// What a reference means on the engine of the settings, for a name that is a catalog's elsewhere; pulled where it is not
/// on the engine.
#[cfg_attr(
    not(feature = "fleet"),
    expect(dead_code, reason = "only a server has such a catalog")
)]
pub(crate) async fn find_pin(settings: &Settings, name: &str, reference: &str) -> Result<ImagePin, Failure> {
    check_pin(name, reference)?;
    let images = Images::new(Engine::connect(context::address(&settings.sandbox)).await?);
    found(&images, &settings.image, reference).await
}

/// Whether a name and a reference can be a pin at all.
fn check_pin(name: &str, reference: &str) -> Result<(), Failure> {
    if !matches!(name.parse(), Ok(ImageName::Catalog(_))) {
        return Err(Failure::usage(format!(
            "`{name}` can't be a name of the catalog: it is made of lower-case letters, digits, `.`, `_` and `-`, and \
             begins and ends with a letter or digit"
        )));
    }
    if reference.trim().is_empty() {
        return Err(Failure::usage(
            "the reference is empty: give `repository:tag`, `repository@sha256:…` or an image id of the engine",
        ));
    }
    if is_abbreviated(reference) {
        return Err(Failure::usage(format!(
            "`{reference}` is a part of an image's id, and an engine takes the first image that it fits: give \
             `repository:tag`, `repository@sha256:…` or the whole id, `sha256:` and 64 digits"
        )));
    }
    Ok(())
}

/// What a reference means on an engine; pulled where it is not there.
async fn found(images: &Images, settings: &ImageSettings, reference: &str) -> Result<ImagePin, Failure> {
    match images.pin(reference).await {
        Err(ImageError::Absent { .. }) => {
            pull(images, settings, reference).await?;
            Ok(images.pin(reference).await?)
        }
        found => Ok(found?),
    }
}

async fn pull(images: &Images, settings: &ImageSettings, reference: &str) -> Result<(), ImageError> {
    let step = Step::begin(format!("pulling {reference}"));
    let limit = settings.pull_timeout.as_duration();
    images
        .pull(reference, limit, |progress| {
            step.bytes(progress.bytes, progress.of)
        })
        .await
}

/// Whether an engine would take this for the beginning of an id.
fn is_abbreviated(reference: &str) -> bool {
    let digits = reference.strip_prefix("sha256:").unwrap_or(reference);
    digits.len() < 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Runs a recipe; its progress goes to our stderr, and what it has built comes as one JSON object.
async fn run_recipe(recipe: &Path, name: &str) -> Result<Built, String> {
    let _step = Step::begin(format!("building the image {name} from Debian packages"));
    let recipe_failed = |error: std::io::Error| format!("{} can't be run: {error}", recipe.display());
    let output = Command::new(recipe)
        .arg("--json")
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::inherit())
        .output()
        .await
        .map_err(recipe_failed)?;
    if !output.status.success() {
        return Err(format!("{} ended with {}", recipe.display(), output.status));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{} printed no record: {error}", recipe.display()))
}

#[cfg(test)]
mod tests {
    use mayfly_core::digest::Digest;

    use super::*;

    #[test]
    fn what_a_recipe_has_built_is_built_again_and_what_was_pulled_is_pulled_again() {
        let digest = Digest::of(b"image");
        let pin = |reference: &str| ImagePin {
            reference: reference.to_owned(),
            digest,
            config_digest: digest,
            platform: "linux/amd64".to_owned(),
        };
        let id = digest.to_string();
        for (name, reference, command) in [
            ("shell", id.as_str(), "mayfly image ensure shell".to_owned()),
            ("node", "node:22", "mayfly image pin node node:22".to_owned()),
            (
                "python",
                "python:3.13-slim",
                "mayfly image ensure python".to_owned(),
            ),
            ("tools", id.as_str(), format!("mayfly image pin tools {id}")),
        ] {
            assert_eq!(again(name, &pin(reference)), command);
        }
    }

    #[test]
    fn a_part_of_an_id_is_no_reference_to_pin() {
        let whole = "0123456789abcdef".repeat(4);
        for part in ["", "0", "773195", "sha256:", "sha256:00", &whole[1..]] {
            assert!(is_abbreviated(part), "{part}");
        }
        for reference in [
            &whole,
            &format!("sha256:{whole}"),
            "python",
            "beef:1",
            "a.example/beef",
            "python:3.13-slim",
        ] {
            assert!(!is_abbreviated(reference), "{reference}");
        }
    }
}
