//! Files that were kept of a job.

use mayfly_core::{
    artifact::{Artifact, Artifacts, LeftOut, LeftOutWhy},
    digest::Digest,
    outcome::Redacted,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::bytes::Bytes;

/// What came of the files that a job asked to keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ArtifactList {
    /// Whether anything was collected: the job asked for files, and ended in a way after which they are kept.
    pub collected: bool,
    /// The files, in the order of their names.
    pub files: Vec<ArtifactLine>,
    /// Files that were wanted and are not kept, as far as they are named.
    pub left_out: Vec<LeftOutLine>,
    /// How many more are not.
    pub not_named: u32,
    /// Why there may be files of which nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
}

/// A file that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ArtifactLine {
    /// Where it stands in the list, from 0: by this it is fetched.
    pub index: u32,
    /// Its name below `/work`. The program chose it.
    pub name: Bytes,
    /// How many bytes it has.
    pub bytes: u64,
    /// SHA-256 of its bytes, in hexadecimal digits.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub sha256: String,
    /// Whether it was taken for a text.
    pub is_text: bool,
    /// What was found in it, where anything was. Out of a text it was taken; in other files it still is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted: Option<Redacted>,
}

/// A file that is not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeftOutLine {
    /// Its name below `/work`. The program chose it.
    pub name: Bytes,
    /// Why.
    pub why: LeftOutWhy,
    /// How many bytes it had, of a regular file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl ArtifactList {
    /// What a report says of them.
    #[must_use]
    pub fn new(artifacts: Option<&Artifacts>) -> Self {
        let files = artifacts.map_or(&[][..], |artifacts| &artifacts.files);
        let left_out = artifacts.map_or(&[][..], |artifacts| &artifacts.left_out);
        Self {
            collected: artifacts.is_some(),
            files: (0..).zip(files).map(|(index, file)| line(index, file)).collect(),
            left_out: left_out.iter().map(left_out_line).collect(),
            not_named: artifacts.map_or(0, |artifacts| artifacts.not_named),
            incomplete: artifacts.and_then(|artifacts| artifacts.incomplete.clone()),
        }
    }
}

/// What an answer says of files that can't be so.
#[derive(Debug, thiserror::Error)]
#[error("the answer holds a file whose name or digest is none")]
pub struct NoArtifact;

impl TryFrom<ArtifactList> for Artifacts {
    type Error = NoArtifact;

    fn try_from(list: ArtifactList) -> Result<Self, NoArtifact> {
        let name = |name: Bytes| name.into_bytes().map(Into::into).map_err(|_| NoArtifact);
        let file = |file: ArtifactLine| {
            let mut digest = [0; 32];
            hex::decode_to_slice(&file.sha256, &mut digest).map_err(|_| NoArtifact)?;
            Ok(Artifact {
                name: name(file.name)?,
                bytes: file.bytes,
                digest: Digest::from_bytes(digest),
                redacted: file.redacted.unwrap_or_default(),
                is_text: file.is_text,
                number: file.index,
            })
        };
        let left_out = |file: LeftOutLine| {
            Ok(LeftOut {
                name: name(file.name)?,
                why: file.why,
                bytes: file.bytes,
            })
        };
        Ok(Self {
            files: list.files.into_iter().map(file).collect::<Result<_, _>>()?,
            left_out: list
                .left_out
                .into_iter()
                .map(left_out)
                .collect::<Result<_, _>>()?,
            not_named: list.not_named,
            incomplete: list.incomplete,
        })
    }
}

fn line(index: u32, file: &Artifact) -> ArtifactLine {
    ArtifactLine {
        index,
        name: Bytes::new(file.name.as_bytes()),
        bytes: file.bytes,
        sha256: file.digest.to_hex(),
        is_text: file.is_text,
        redacted: (!file.redacted.is_nothing()).then(|| file.redacted.clone()),
    }
}

fn left_out_line(file: &LeftOut) -> LeftOutLine {
    LeftOutLine {
        name: Bytes::new(file.name.as_bytes()),
        why: file.why,
        bytes: file.bytes,
    }
}
