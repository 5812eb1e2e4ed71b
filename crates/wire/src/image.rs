//! The image catalog.

use chrono::{DateTime, Utc};
use mayfly_core::{digest::Digest, image::ImagePin};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a name is to mean from here on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PinImage {
    /// The reference that it is pinned from, for people.
    #[schema(min_length = 1, max_length = 1024)]
    pub reference: String,
    /// The manifest's digest, or the image id for an image that no registry has.
    pub digest: Digest,
    /// The digest of the image's configuration: what an engine calls its id.
    pub config_digest: Digest,
    /// `linux/amd64`.
    #[schema(min_length = 1, max_length = 64)]
    pub platform: String,
}

impl From<PinImage> for ImagePin {
    fn from(pin: PinImage) -> Self {
        Self {
            reference: pin.reference,
            digest: pin.digest,
            config_digest: pin.config_digest,
            platform: pin.platform,
        }
    }
}

impl From<ImagePin> for PinImage {
    fn from(pin: ImagePin) -> Self {
        Self {
            reference: pin.reference,
            digest: pin.digest,
            config_digest: pin.config_digest,
            platform: pin.platform,
        }
    }
}

/// An entry of the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Image {
    /// The name that jobs use.
    pub name: String,
    /// What it means.
    pub pin: ImagePin,
    /// Since when.
    pub pinned_at: DateTime<Utc>,
}

/// The catalog, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageList {
    /// The entries.
    pub images: Vec<Image>,
}
