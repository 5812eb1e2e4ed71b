//! Files that are kept of jobs, as resources of the protocol.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mayfly_core::id::JobId;
use mayfly_tools::{KeptFile, Toolbox};
use rmcp::{
    ErrorData,
    model::{Resource, ResourceContents},
};

/// The address of a file (RFC 6570).
pub(crate) const TEMPLATE: &str = "mayfly://jobs/{job}/artifacts/{index}";

/// Most bytes of a file that is read as a resource, which is in memory as a whole.
const MOST_BYTES: u64 = 8 << 20;

/// A file's place, for a result that names it.
pub(crate) fn link(job: JobId, file: &KeptFile) -> Resource {
    Resource::new(address(job, file.index), file.name.clone()).with_size(file.bytes)
}

fn address(job: JobId, index: u32) -> String {
    format!("mayfly://jobs/{job}/artifacts/{index}")
}

fn parse(uri: &str) -> Option<(JobId, u32)> {
    let (job, index) = uri.strip_prefix("mayfly://jobs/")?.split_once("/artifacts/")?;
    Some((job.parse().ok()?, index.parse().ok()?))
}

/// Reads the file at an address.
pub(crate) async fn read(toolbox: &Toolbox, uri: &str) -> Result<ResourceContents, ErrorData> {
    let Some((job, index)) = parse(uri) else {
        let why = format!("there is no such resource: one is {TEMPLATE}");
        return Err(ErrorData::resource_not_found(why, None));
    };
    let content = toolbox.content(job, index, MOST_BYTES).await;
    let content = content.map_err(|answer| ErrorData::resource_not_found(answer.text, None))?;
    let media_type = content.media_type;
    let contents = match String::from_utf8(content.bytes) {
        Ok(text) => ResourceContents::text(text, uri),
        Err(error) => ResourceContents::blob(STANDARD.encode(error.as_bytes()), uri)
            .with_mime_type(media_type.unwrap_or("application/octet-stream")),
    };
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_back_to_its_file_and_no_other_text_does() {
        let job = JobId::new();
        assert_eq!(parse(&address(job, 3)), Some((job, 3)));
        for wrong in [
            "mayfly://jobs/7/artifacts/0",
            "file:///etc/passwd",
            "mayfly://jobs/",
            "",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert_eq!(parse(&format!("mayfly://jobs/{job}/artifacts/-1")), None);
    }
}
