//! For tests alone: a sandbox that does what its job says without a container, jobs for it, a queue that loses what a
//! broker loses, a proxy that breaks connections as networks do, a container engine that may be killed, a
//! language model that says what a script decides, and an Internet with certificates of its own.
//!
//! The sandbox stands in for the Sandbox seam where roles are tested on their wiring: what they do when a run hangs, a
//! sandbox can't be made, or everything is asked to stop. How a real sandbox behaves is tested on a real engine.

pub mod certificate;
pub mod engine;
pub mod internet;
pub mod model;
pub mod proxy;
pub mod queue;
pub mod sandbox;

use mayfly_core::{
    digest::Digest,
    image::ImagePin,
    job::{JobSpec, ResolvedJob},
    policy::Policy,
};
use serde_json::json;

/// A job with this command, resolved by the default policy; `more` are further fields of its spec.
///
/// # Panics
/// Fields that make no job.
#[must_use]
pub fn job(command: &[&str], more: serde_json::Value) -> ResolvedJob {
    let mut spec = json!({"image": "python", "command": command});
    if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
        spec.extend(more.clone());
    }
    let spec: JobSpec = serde_json::from_value(spec).expect("the fields make a job");
    let digest = Digest::of(b"image");
    let pin = ImagePin {
        reference: "python:1".into(),
        digest,
        config_digest: digest,
        platform: "linux/amd64".into(),
    };
    spec.resolve(&Policy::default(), pin, &Digest::of(b"baseline"))
        .expect("the job has no faults")
}
