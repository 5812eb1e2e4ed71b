//! What a call comes to.

use mayfly_core::id::JobId;
use serde_json::Value;

use crate::kept::{Image, KeptFile};

/// What a call comes to, for a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// What the model reads.
    pub text: String,
    /// The same for programs, as the tool's `output_schema` has it; none where the call itself was wrong or has failed.
    pub structured: Option<Value>,
    /// Whether the call has failed, or what it ran has.
    pub is_error: bool,
    /// The job that it was about.
    pub job: Option<JobId>,
    /// Files that are kept of it.
    pub files: Vec<KeptFile>,
    /// Images among them.
    pub images: Vec<Image>,
}

impl Answer {
    /// A call that was wrong, or that could not be carried out.
    pub(crate) const fn failed(text: String, job: Option<JobId>) -> Self {
        Self {
            text,
            structured: None,
            is_error: true,
            job,
            files: Vec::new(),
            images: Vec::new(),
        }
    }
}
