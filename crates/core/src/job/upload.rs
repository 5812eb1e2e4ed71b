//! Files that a tenant has uploaded before: a job names them by their digests, and their bytes are in none of its messages.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{FileMode, JobSpec};
use crate::{
    digest::Digest,
    fault::{Fault, Faults},
    limits::Limits,
    policy::ContentRules,
    units::ByteSize,
};

/// A file of the job that its tenant has uploaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct UploadedFile {
    /// Below `/work`, with `/` between its parts.
    pub path: String,
    /// The digest of its content, by which it was uploaded.
    pub digest: Digest,
    /// Whether it may be executed: mode 0755, and 0644 where not.
    #[serde(default)]
    pub executable: bool,
    /// Its permission bits, where `executable` does not say enough. Either this or `executable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<FileMode>,
    /// How long it is, once that has been looked up. Nobody says it.
    #[serde(skip)]
    pub bytes: Option<u64>,
}

/// A file of a job that its executor fetches and gives to the sandbox piece by piece.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FetchedFile {
    /// Below `/work`.
    pub path: String,
    /// Its permission bits.
    pub mode: FileMode,
    /// The digest of its content.
    pub digest: Digest,
    /// Its length.
    pub bytes: u64,
}

impl JobSpec {
    /// The digests of the uploads that the job names, in their order.
    pub fn named_uploads(&self) -> impl Iterator<Item = Digest> {
        self.uploads.iter().map(|file| file.digest)
    }

    /// Takes note of how long uploads are. Those of which nothing is noted are faults of the job.
    pub fn know_uploads(&mut self, lengths: &BTreeMap<Digest, u64>) {
        for file in &mut self.uploads {
            file.bytes = lengths.get(&file.digest).copied();
        }
    }
}

/// The uploads of a job as its executor is told of them, and what is wrong with them beside their paths.
pub(super) fn check(spec: &JobSpec, rules: &ContentRules, faults: &mut Faults) -> Vec<FetchedFile> {
    let (mut files, mut total) = (Vec::with_capacity(spec.uploads.len()), 0_u64);
    for (index, file) in spec.uploads.iter().enumerate() {
        let Some(bytes) = file.bytes else {
            let message = format!("there is no upload {}: upload it first", file.digest);
            faults.push(Fault::new(
                format!("uploads[{index}].digest"),
                "not_uploaded",
                message,
            ));
            continue;
        };
        total = total.saturating_add(bytes);
        files.push(FetchedFile {
            path: file.path.clone(),
            mode: FileMode::asked(file.mode, file.executable),
            digest: file.digest,
            bytes,
        });
    }
    if total > rules.uploads.as_bytes() {
        let message = format!(
            "the uploads are {total} bytes together, over the policy's ceiling, {}",
            rules.uploads
        );
        faults.push(Fault::new("uploads", "too_large", message));
    }
    files
}

/// Whether uploads fit into `/work`.
pub(super) fn check_disk(files: &[FetchedFile], beside: u64, limits: &Limits, faults: &mut Faults) {
    let fetched = files
        .iter()
        .fold(0, |sum: u64, file| sum.saturating_add(file.bytes));
    let total = fetched.saturating_add(beside);
    if fetched == 0 {
        return;
    }
    if total > limits.work.as_bytes() {
        let message = format!(
            "the job's files are {} and don't fit into /work, {}: ask for more as `limits.work`, and for as much more \
             `limits.memory`, which it lies in",
            ByteSize::bytes(total),
            limits.work
        );
        faults.push(Fault::new("uploads", "does_not_fit", message));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{image::ImagePin, job::ResolvedJob, policy::Policy};

    const MIB: u64 = 1 << 20;

    fn digest(of: &str) -> Digest {
        Digest::of(of.as_bytes())
    }

    /// A job with these uploads, of which these are known.
    fn resolve(more: Value, known: &[(&str, u64)]) -> Result<ResolvedJob, Vec<(String, &'static str)>> {
        let mut spec = json!({"image": "python", "command": ["true"]});
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let mut spec: JobSpec = serde_json::from_value(spec).expect("a job that can be read");
        spec.know_uploads(&known.iter().map(|(of, bytes)| (digest(of), *bytes)).collect());
        let image = digest("image");
        let pin = ImagePin {
            reference: "python:1".into(),
            digest: image,
            config_digest: image,
            platform: "linux/amd64".into(),
        };
        spec.resolve(&Policy::default(), pin, &digest("baseline"))
            .map_err(|faults| {
                let each = faults.iter();
                each.map(|fault| (fault.path.clone(), fault.code)).collect()
            })
    }

    #[test]
    fn an_upload_is_a_file_that_is_fetched() {
        let job = resolve(
            json!({"uploads": [
                {"path": "in/a.bin", "digest": digest("a"), "mode": "0600"},
                {"path": "tool", "digest": digest("b"), "executable": true},
            ]}),
            &[("a", 7), ("b", 3 * MIB)],
        )
        .unwrap();
        let file = |path: &str, mode, of, bytes| FetchedFile {
            path: path.to_owned(),
            mode: FileMode::new(mode).unwrap(),
            digest: digest(of),
            bytes,
        };
        assert_eq!(
            job.fetched,
            [file("in/a.bin", 0o600, "a", 7), file("tool", 0o755, "b", 3 * MIB)]
        );
        assert!(job.files.is_empty());
    }

    #[test]
    fn a_record_says_the_same_of_a_file_whichever_way_it_came() {
        let uploaded = json!({"uploads": [{"path": "in", "digest": digest("text")}]});
        let uploaded = resolve(uploaded, &[("text", 4)]).unwrap();
        let sent = resolve(json!({"files": [{"path": "in", "content": "text"}]}), &[]).unwrap();
        assert_eq!(uploaded.content_digests(), sent.content_digests());
        assert_ne!(
            resolve(json!({}), &[]).unwrap().content_digests(),
            sent.content_digests()
        );
    }

    #[test]
    fn what_is_wrong_with_uploads_is_listed_with_all_else() {
        let found = resolve(
            json!({
                "files": [{"path": "a", "content": ""}],
                "uploads": [
                    {"path": "a", "digest": digest("known")},
                    {"path": "/b", "digest": digest("known")},
                    {"path": "a/c", "digest": digest("unknown")},
                    {"path": "d", "digest": digest("known"), "mode": "0600", "executable": true},
                ],
            }),
            &[("known", 1)],
        );
        let expected = [
            ("uploads[0].path", "duplicate"),
            ("uploads[1].path", "bad_path"),
            ("uploads[3].mode", "ambiguous"),
            ("uploads[2].path", "below_a_file"),
            ("uploads[2].digest", "not_uploaded"),
        ];
        let expected = expected.map(|(path, code)| (path.to_owned(), code));
        assert_eq!(found.unwrap_err(), expected);
    }

    #[test]
    fn uploads_have_room_in_the_policy_and_in_the_sandbox() {
        let with = |limits: Value| json!({"limits": limits, "uploads": [{"path": "a", "digest": digest("a")}], "stdin": "x"});
        let room = json!({"work": "64MiB", "memory": "256MiB"});
        assert!(resolve(with(room.clone()), &[("a", 64 * MIB - 1)]).is_ok());
        let too_long = resolve(with(room), &[("a", 64 * MIB)]).unwrap_err();
        assert_eq!(too_long, [("uploads".to_owned(), "does_not_fit")]);
        let beyond = resolve(with(json!({})), &[("a", 1024 * MIB + 1)]).unwrap_err();
        assert!(
            beyond.contains(&("uploads".to_owned(), "too_large")),
            "{beyond:?}"
        );
    }
}
