//! Images on an engine: found, pinned to what exactly they are, pulled by digest, loaded from an archive.
//!
//! A pin holds two digests. `digest` is what a registry serves it by, where one does; an image that was loaded from an
//! archive has none, and there it is the image's id. `config_digest` is the engine's id, the digest of the image's
//! configuration, which itself names each layer by digest: it is what a container is compared with.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use bollard::{
    models::{CreateImageInfo, ImageInspect},
    query_parameters::{CreateImageOptions, ImportImageOptions},
};
use chrono::{DateTime, Utc};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use mayfly_core::{digest::Digest, image::ImagePin};
use tokio_util::io::ReaderStream;

use crate::{engine::Engine, error::EngineError};

/// Bound of loading an archive: it is on this host, and at most some hundred megabytes.
const LOAD_LIMIT: Duration = Duration::from_secs(120);

/// The images of an engine.
#[derive(Debug, Clone)]
pub struct Images {
    engine: Engine,
}

/// Why an image can't be had.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The engine has none by that reference.
    #[error("image `{reference}` is not on this engine")]
    Absent {
        /// What was looked for.
        reference: String,
    },
    /// An engine mounts a writable volume of the host for each of these, whatever a container asks for.
    #[error(
        "image `{reference}` declares the volume {volumes}: an engine would mount a writable host folder there in each \
         run; build it without VOLUME"
    )]
    HasVolume {
        /// The image.
        reference: String,
        /// Its volumes.
        volumes: String,
    },
    /// What the engine says of an image can't be understood.
    #[error("the engine says of image `{reference}`: {what}")]
    Unusable {
        /// The image.
        reference: String,
        /// What is wrong.
        what: String,
    },
    /// The registry or the engine refused a pull.
    #[error("image `{reference}` can't be pulled: {reason}")]
    Pull {
        /// The image.
        reference: String,
        /// What the engine said.
        reason: String,
    },
    /// A pull took too long.
    #[error("image `{reference}` was not pulled within {} s", limit.as_secs())]
    PullTimedOut {
        /// The image.
        reference: String,
        /// The bound.
        limit: Duration,
    },
    /// An archive can't be read.
    #[error("the image archive {} can't be read", path.display())]
    Archive {
        /// Where it is.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// An archive can't be loaded.
    #[error("the image archive {} can't be loaded: {reason}", path.display())]
    Load {
        /// Where it is.
        path: PathBuf,
        /// What the engine said.
        reason: String,
    },
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// How far a pull is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullProgress {
    /// Bytes that have come.
    pub bytes: u64,
    /// Bytes that are known of so far.
    pub of: u64,
}

/// What an engine says of a pinned image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageLook {
    /// Whether it has the pinned id.
    pub is_the_pinned_one: bool,
    /// Whether the engine still knows it by the digest that a registry serves it by; an image without one keeps it.
    pub keeps_its_digest: bool,
    /// When it was built, by its own word.
    pub created: Option<DateTime<Utc>>,
}

impl Images {
    /// The images of this engine.
    #[must_use]
    pub const fn new(engine: Engine) -> Self {
        Self { engine }
    }

    /// Pins what a reference means on this engine now: `repository:tag`, `repository@sha256:…`, or an image's id.
    ///
    /// # Errors
    /// [`ImageError::Absent`], an image with volumes, trouble with the engine.
    pub async fn pin(&self, reference: &str) -> Result<ImagePin, ImageError> {
        let found = self.engine.find_image(reference).await?;
        let found = found.ok_or_else(|| ImageError::Absent {
            reference: reference.to_owned(),
        })?;
        pin_of(reference, &found)
    }

    /// Whether the engine has exactly the image of a pin.
    ///
    /// # Errors
    /// Trouble with the engine.
    pub async fn has(&self, pin: &ImagePin) -> Result<bool, ImageError> {
        let found = self.engine.find_image(&pin.config_digest.to_string()).await?;
        Ok(found
            .and_then(|image| image.id)
            .is_some_and(|id| id == pin.config_digest.to_string()))
    }

    /// What the engine says of the image of a pin; `None` where it has no such image.
    ///
    /// # Errors
    /// Trouble with the engine.
    pub async fn look(&self, pin: &ImagePin) -> Result<Option<ImageLook>, ImageError> {
        let id = pin.config_digest.to_string();
        let Some(found) = self.engine.find_image(&id).await? else {
            return Ok(None);
        };
        let served = format!("@{}", pin.digest);
        let served = found
            .repo_digests
            .iter()
            .flatten()
            .any(|entry| entry.ends_with(&served));
        Ok(Some(ImageLook {
            is_the_pinned_one: found.id.as_deref() == Some(id.as_str()),
            keeps_its_digest: served || pin.digest == pin.config_digest,
            created: found.created,
        }))
    }

    /// Pulls an image, within a bound.
    ///
    /// # Errors
    /// What the registry or the engine said, or the bound.
    pub async fn pull(
        &self,
        reference: &str,
        limit: Duration,
        progress: impl FnMut(PullProgress) + Send,
    ) -> Result<(), ImageError> {
        let options = CreateImageOptions {
            from_image: Some(reference.to_owned()),
            ..Default::default()
        };
        let pull = follow(
            self.engine.client().create_image(Some(options), None, None),
            progress,
        );
        match tokio::time::timeout(limit, pull).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(reason)) => Err(ImageError::Pull {
                reference: reference.to_owned(),
                reason,
            }),
            Err(_) => Err(ImageError::PullTimedOut {
                reference: reference.to_owned(),
                limit,
            }),
        }
    }

    /// Loads a docker-archive or an OCI layout in a tar file.
    ///
    /// # Errors
    /// A file that can't be read, or what the engine said.
    pub async fn load(&self, archive: &Path) -> Result<(), ImageError> {
        let unreadable = |source| ImageError::Archive {
            path: archive.to_owned(),
            source,
        };
        let file = tokio::fs::File::open(archive).await.map_err(unreadable)?;
        let body = bollard::body_try_stream(ReaderStream::new(file));
        let loading = self
            .engine
            .client()
            .import_image(ImportImageOptions::default(), body, None);
        let failed = |reason| ImageError::Load {
            path: archive.to_owned(),
            reason,
        };
        match tokio::time::timeout(LOAD_LIMIT, loading.try_for_each(|_| async { Ok(()) })).await {
            Ok(loaded) => loaded.map_err(|error| failed(crate::error::chain(&error))),
            Err(_) => Err(failed(format!(
                "the engine did not do it within {} s",
                LOAD_LIMIT.as_secs()
            ))),
        }
    }
}

/// Follows a pull to its end. A failure comes as an item of the stream that says so, not as an error of it.
async fn follow(
    pull: impl Stream<Item = Result<CreateImageInfo, bollard::errors::Error>>,
    mut progress: impl FnMut(PullProgress),
) -> Result<(), String> {
    let mut layers = std::collections::HashMap::new();
    let mut pull = std::pin::pin!(pull);
    while let Some(step) = pull.next().await {
        let step = step.map_err(|error| crate::error::chain(&error))?;
        if let Some(error) = step.error_detail {
            return Err(error
                .message
                .unwrap_or_else(|| "the engine gave no reason".to_owned()));
        }
        let detail = step.progress_detail.unwrap_or_default();
        if let (Some(layer), Some(bytes), Some(of)) = (step.id, detail.current, detail.total) {
            layers.insert(
                layer,
                (u64::try_from(bytes).unwrap_or(0), u64::try_from(of).unwrap_or(0)),
            );
            let sums = layers
                .values()
                .fold((0, 0), |(bytes, of), layer| (bytes + layer.0, of + layer.1));
            progress(PullProgress {
                bytes: sums.0,
                of: sums.1,
            });
        }
    }
    Ok(())
}

fn pin_of(reference: &str, image: &ImageInspect) -> Result<ImagePin, ImageError> {
    let unusable = |what: String| ImageError::Unusable {
        reference: reference.to_owned(),
        what,
    };
    let id = image.id.as_deref().unwrap_or_default();
    let config_digest: Digest = id
        .parse()
        .map_err(|_| unusable(format!("its id is `{id}`, which is no digest")))?;
    let volumes = image
        .config
        .as_ref()
        .and_then(|config| config.volumes.clone())
        .unwrap_or_default();
    if !volumes.is_empty() {
        return Err(ImageError::HasVolume {
            reference: reference.to_owned(),
            volumes: volumes.join(", "),
        });
    }
    let platform = match (&image.os, &image.architecture) {
        (Some(os), Some(architecture)) => format!("{os}/{architecture}"),
        _ => return Err(unusable("neither operating system nor architecture".to_owned())),
    };
    let served = served_as(reference, image.repo_digests.as_deref().unwrap_or_default());
    Ok(ImagePin {
        reference: reference.to_owned(),
        digest: served.unwrap_or(config_digest),
        config_digest,
        platform,
    })
}

/// The digest that a registry serves the image by: the one that was asked for, else the one of the same repository,
/// else the first in alphabetical order, so that the answer does not depend on the engine's order.
fn served_as(reference: &str, served: &[String]) -> Option<Digest> {
    let digest = |entry: &str| {
        entry
            .split_once('@')
            .and_then(|(_, digest)| digest.parse::<Digest>().ok())
    };
    let mut served: Vec<_> = served.iter().map(String::as_str).collect();
    served.sort_unstable();
    let (repository, asked) = match reference.split_once('@') {
        Some((repository, asked)) => (repository, Some(asked)),
        None => (reference, None),
    };
    let repository = match repository.rsplit_once(':') {
        Some((before, tag)) if !tag.contains('/') => before,
        _ => repository,
    };
    let of_repository = |entry: &&&str| {
        entry
            .split_once('@')
            .is_some_and(|(name, _)| same_repository(name, repository))
    };
    let asked_for = served
        .iter()
        .find(|entry| asked.is_some_and(|asked| entry.ends_with(asked)));
    asked_for
        .or_else(|| served.iter().find(of_repository))
        .or(served.first())
        .and_then(|entry| digest(entry))
}

/// Whether two names mean one repository: engines shorten those of the default registry.
fn same_repository(one: &str, other: &str) -> bool {
    let short = |name: &str| {
        let name = name.strip_prefix("docker.io/").unwrap_or(name);
        name.strip_prefix("library/").unwrap_or(name).to_owned()
    };
    short(one) == short(other)
}

#[cfg(test)]
mod tests {
    use bollard::models::ImageConfig;
    use futures_util::stream;

    use super::*;

    fn image(served: &[&str], volumes: &[&str]) -> ImageInspect {
        ImageInspect {
            id: Some(Digest::of(b"config").to_string()),
            os: Some("linux".to_owned()),
            architecture: Some("amd64".to_owned()),
            repo_digests: Some(served.iter().map(|text| (*text).to_owned()).collect()),
            config: Some(ImageConfig {
                volumes: Some(volumes.iter().map(|text| (*text).to_owned()).collect()),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    #[test]
    fn an_image_that_no_registry_has_is_pinned_by_its_id() {
        let pin = pin_of("mayfly/python:1", &image(&[], &[])).unwrap();
        assert_eq!(
            (pin.digest, pin.config_digest),
            (Digest::of(b"config"), Digest::of(b"config"))
        );
        assert_eq!(pin.platform, "linux/amd64");
    }

    #[test]
    fn the_digest_of_the_repository_that_was_asked_for_is_the_pins() {
        let (ours, theirs) = (Digest::of(b"ours"), Digest::of(b"theirs"));
        let served = [format!("a.example/python@{theirs}"), format!("python@{ours}")];
        let served: Vec<_> = served.iter().map(String::as_str).collect();
        let both = image(&served, &[]);
        assert_eq!(pin_of("docker.io/library/python:3", &both).unwrap().digest, ours);
        assert_eq!(
            pin_of(&format!("a.example/python@{theirs}"), &both)
                .unwrap()
                .digest,
            theirs
        );
        assert_eq!(pin_of("a.example/python:3", &both).unwrap().digest, theirs);
    }

    #[test]
    fn an_image_with_a_volume_is_refused() {
        let error = pin_of("db:1", &image(&[], &["/data"])).unwrap_err();
        assert!(
            matches!(error, ImageError::HasVolume { ref volumes, .. } if volumes == "/data"),
            "{error}"
        );
    }

    #[test]
    fn an_id_that_is_no_digest_is_refused() {
        let strange = ImageInspect {
            id: Some("1".to_owned()),
            ..image(&[], &[])
        };
        assert!(matches!(
            pin_of("x:1", &strange),
            Err(ImageError::Unusable { .. })
        ));
    }

    #[tokio::test]
    async fn a_failure_inside_the_stream_of_a_pull_is_a_failure() {
        let failed: CreateImageInfo = serde_json::from_str(
            r#"{"errorDetail": {"message": "manifest unknown"}, "error": "manifest unknown"}"#,
        )
        .unwrap();
        let steps = stream::iter([Ok(CreateImageInfo::default()), Ok(failed)]);
        assert_eq!(follow(steps, |_| {}).await, Err("manifest unknown".to_owned()));
    }

    #[tokio::test]
    async fn progress_is_summed_over_layers() {
        let step = |layer: &str, bytes, of| -> CreateImageInfo {
            serde_json::from_value(
                serde_json::json!({"id": layer, "progressDetail": {"current": bytes, "total": of}}),
            )
            .unwrap()
        };
        let steps = stream::iter([Ok(step("a", 1, 10)), Ok(step("b", 5, 20)), Ok(step("a", 10, 10))]);
        let mut seen = Vec::new();
        follow(steps, |progress| seen.push((progress.bytes, progress.of)))
            .await
            .unwrap();
        assert_eq!(seen, [(1, 10), (6, 30), (15, 30)]);
    }
}
