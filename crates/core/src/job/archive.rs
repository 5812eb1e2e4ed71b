//! Archives that a job brings, and the files that become of them.

use mayfly_archive::{Expanded, File, Format, Limits, Problem, Tree, expand, most_expanded};
use serde::{Deserialize, Serialize};

use super::{Blob, FileMode, InputFile, JobSpec, validate::wrong_path};
use crate::{
    fault::{Fault, Faults, excerpt},
    policy::ContentRules,
};

/// Most archives of one job.
pub const MAX_ARCHIVES: usize = 16;

/// An archive whose files are put into `/work`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct InputArchive {
    /// The archive itself.
    pub content: Blob,
    /// What it is; where this is left out its first bytes say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<ArchiveFormat>,
    /// The folder below `/work` into which it goes, with `/` between its parts; `/work` itself where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
}

/// Formats of archives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ArchiveFormat {
    /// A zip.
    #[serde(rename = "zip")]
    Zip,
    /// A tar that is not compressed.
    #[serde(rename = "tar")]
    Tar,
    /// A tar in gzip.
    #[serde(rename = "tar.gz")]
    TarGz,
}

impl From<ArchiveFormat> for Format {
    fn from(format: ArchiveFormat) -> Self {
        match format {
            ArchiveFormat::Zip => Self::Zip,
            ArchiveFormat::Tar => Self::Tar,
            ArchiveFormat::TarGz => Self::TarGz,
        }
    }
}

/// The files of all archives, as far as the job's own leave room for them. `tree` has the names of the job's own.
pub(super) fn files(
    spec: &JobSpec,
    rules: &ContentRules,
    mut tree: Tree,
    faults: &mut Faults,
) -> Vec<InputFile> {
    if spec.archives.len() > MAX_ARCHIVES {
        let message = format!(
            "{} archives are more than the {MAX_ARCHIVES} that a job may have",
            spec.archives.len()
        );
        faults.push(Fault::new("archives", "too_many", message));
        return Vec::new();
    }
    let mut limits = Limits {
        bytes: rules.total.as_bytes().saturating_sub(spec.content_bytes()),
        files: (rules.files as usize).saturating_sub(spec.files.len() + spec.uploads.len()),
        path_bytes: rules.path_bytes as usize,
    };
    let mut files = Vec::new();
    for (index, archive) in spec.archives.iter().enumerate() {
        let place = format!("archives[{index}]");
        let expanded = expand_one(archive, &place, rules, &limits, &mut tree, faults);
        for file in expanded.files {
            limits.bytes = limits.bytes.saturating_sub(file.content.len() as u64);
            limits.files = limits.files.saturating_sub(1);
            files.push(input_file(file));
        }
        for problem in expanded.problems {
            faults.push(fault(&place, problem));
        }
        if expanded.more_problems > 0 {
            let message = format!("and {} more things are wrong with it", expanded.more_problems);
            faults.push(Fault::new(place, "more", message));
        }
    }
    files
}

fn expand_one(
    archive: &InputArchive,
    place: &str,
    rules: &ContentRules,
    limits: &Limits,
    tree: &mut Tree,
    faults: &mut Faults,
) -> Expanded {
    let bytes = archive.content.as_bytes();
    let Some(format) = archive.format.map(Format::from).or_else(|| Format::of(bytes)) else {
        let message = "it is no zip, tar or tar.gz, by its first bytes; send bytes as {\"base64\": \"…\"}";
        faults.push(Fault::new(format!("{place}.content"), "unknown_format", message));
        return Expanded::default();
    };
    match &archive.into {
        Some(into) if let Some(message) = wrong_path(into, rules) => {
            let message = format!("{:?}: {message}", excerpt(into));
            faults.push(Fault::new(format!("{place}.into"), "bad_path", message));
            // What is wrong within it is said too, and none of it takes a place of others.
            expand(bytes, format, "", limits, &mut Tree::default())
        }
        into => expand(bytes, format, into.as_deref().unwrap_or_default(), limits, tree),
    }
}

fn fault(place: &str, problem: Problem) -> Fault {
    let path = match problem.name {
        Some(name) => format!("{place}[\"{name}\"]"),
        None => place.to_owned(),
    };
    Fault::new(path, problem.code, problem.message)
}

/// The usual modes are said as they are of a job's own files.
fn input_file(file: File) -> InputFile {
    let mode = file.mode.and_then(FileMode::new).unwrap_or(FileMode::USUAL);
    InputFile {
        path: file.path,
        content: Blob::from(file.content),
        executable: mode == FileMode::EXECUTABLE,
        mode: (mode != FileMode::EXECUTABLE && mode != FileMode::USUAL).then_some(mode),
    }
}

impl JobSpec {
    /// Most bytes that its archives take in memory while a policy is applied: compressed tars are held once more while their
    /// files are taken out of them.
    #[must_use]
    pub fn most_expanded_bytes(&self, rules: &ContentRules) -> u64 {
        let each = self
            .archives
            .iter()
            .map(|archive| most_expanded(archive.content.as_bytes().len() as u64));
        each.fold(0, u64::saturating_add)
            .min(rules.total.as_bytes().saturating_mul(2))
    }
}
