//! A probe as the job that a sandbox takes.

use mayfly_core::{
    job::{Blob, JobSpec, ResolvedJob},
    policy::Policy,
    units::ByteSize,
};
use mayfly_protocol::{CgroupCounts, Ended, Exit, FromGuest, Usage};
use serde_json::json;

use super::{Probe, Subject, table};
use crate::baseline::baseline_digest;

/// The probe as a job: by the product's own defaults, so that no setting of an operator weakens the test.
pub(super) fn job(subject: &Subject<'_>, probe: &Probe) -> Result<ResolvedJob, String> {
    let bounds = format!(
        "LIMITS = {}\n",
        serde_json::to_string(&numbers(probe)).unwrap_or_default()
    );
    let program = [bounds.as_str(), table::PRELUDE, probe.program].concat();
    let spec: JobSpec = serde_json::from_value(json!({
        "image": "probe",
        "source": {"text": program},
        "files": [{"path": "exit.frame", "content": Blob::from(forged_exit())}],
        "limits": probe.limits,
        "runtime": subject.runtime,
    }))
    .map_err(|error| format!("the probe is no job: {error}"))?;
    let policy = Policy {
        runtimes: vec![subject.runtime.clone()],
        ..Policy::default()
    };
    spec.resolve(&policy, subject.image.clone(), &baseline_digest())
        .map_err(|faults| format!("the probe is no job: {faults}"))
}

/// The limits as numbers, by which a program bounds itself.
fn numbers(probe: &Probe) -> serde_json::Value {
    let bytes = |size: Option<ByteSize>| size.map_or(0, |size| size.as_bytes());
    json!({
        "memory": bytes(probe.limits.memory),
        "pids": probe.limits.pids.unwrap_or(0),
        "/work": bytes(probe.limits.work),
        "/tmp": bytes(probe.limits.tmp),
        "/dev/shm": bytes(probe.limits.shm),
    })
}

/// The guest's last frame as the job would like it to be: success.
fn forged_exit() -> Vec<u8> {
    let exit = FromGuest::Exit(Exit {
        how: Ended::Code(0),
        deadline_fired: false,
        killed_by_request: false,
        wall_us: 1,
        usage: Usage::default(),
        left_processes: 0,
        stdout_bytes: 0,
        stderr_bytes: 0,
        cgroup: CgroupCounts::default(),
        oom_kills_before: None,
    });
    let mut frame = Vec::new();
    exit.encode(&mut frame)
        .expect("a frame of zeros is within its bounds");
    frame
}
