//! The kind of a sandbox: all that is fixed when it is created.

use mayfly_core::{
    id::ExecutorId,
    image::ImagePin,
    limits::Limits,
    policy::Network,
    units::{ByteSize, CpuShare},
};

use crate::{
    seam::{Loopback, SandboxRequest},
    warm::WarmCommand,
};

/// What two requests must have in common for one to be served by a sandbox that was made for the other.
///
/// Engine, syscall filter and guest are the same for all sandboxes of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    executor: ExecutorId,
    /// The whole pin: the record names it.
    image: ImagePin,
    runtime: String,
    memory: ByteSize,
    cpu: CpuShare,
    pids: u32,
    work: ByteSize,
    tmp: ByteSize,
    shm: ByteSize,
    open_files: u32,
    network: Network,
    loopback: Loopback,
    warm: Option<WarmCommand>,
}

impl Key {
    /// The kind that a request asks for. A new field of a request does not compile until it is decided here.
    pub(crate) fn of(request: &SandboxRequest) -> Self {
        let SandboxRequest {
            // Each sandbox has its own, whoever gets it.
            sandbox_id: _,
            executor,
            // A label for people. One that waited through the end of a session has never had a job, so that it is as
            // good in the next.
            session: _,
            image,
            runtime,
            limits,
            network,
            loopback,
            warm,
            // The pool asks for the longest, and gives nothing to a job that would need more.
            longest_idle: _,
        } = request;
        let Limits {
            memory,
            cpu,
            pids,
            // The executor and the guest keep it, and the reaper's label is made for the longest.
            wall: _,
            work,
            tmp,
            shm,
            // The executor keeps them.
            stdout: _,
            stderr: _,
            open_files,
        } = limits;
        Self {
            executor: *executor,
            image: image.clone(),
            runtime: runtime.clone(),
            memory: *memory,
            cpu: *cpu,
            pids: *pids,
            work: *work,
            tmp: *tmp,
            shm: *shm,
            open_files: *open_files,
            network: *network,
            loopback: *loopback,
            warm: warm.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mayfly_core::{
        digest::Digest,
        id::{SandboxId, SessionId},
        units::Span,
    };

    use super::*;
    use crate::baseline::sample_request;

    fn changed(change: impl FnOnce(&mut SandboxRequest)) -> bool {
        let (one, mut other) = (sample_request(), sample_request());
        change(&mut other);
        Key::of(&one) != Key::of(&other)
    }

    #[test]
    fn whatever_is_fixed_at_creation_makes_another_kind() {
        let changes: [fn(&mut SandboxRequest); 17] = [
            |request| request.executor = ExecutorId::new(),
            |request| request.image.digest = Digest::of(b"other"),
            |request| request.image.config_digest = Digest::of(b"other"),
            |request| request.image.reference.push('x'),
            |request| request.image.platform.push('x'),
            |request| request.runtime.push('x'),
            |request| request.limits.memory = ByteSize::mib(1),
            |request| request.limits.cpu = CpuShare::millis(1),
            |request| request.limits.pids += 1,
            |request| request.limits.work = ByteSize::mib(1),
            |request| request.limits.tmp = ByteSize::mib(1),
            |request| request.limits.shm = ByteSize::mib(1),
            |request| request.limits.open_files += 1,
            |request| request.warm = WarmCommand::python(Vec::new()).ok(),
            |request| request.warm = WarmCommand::python(vec!["json".to_owned()]).ok(),
            |request| request.loopback = Loopback::Open,
            |request| match request.network {
                // The only one there is; with a second this is a change as the others are.
                Network::None => request.runtime.push('y'),
            },
        ];
        for (n, change) in changes.into_iter().enumerate() {
            assert!(changed(change), "change {n} must make another kind");
        }
    }

    #[test]
    fn what_is_kept_by_the_executor_or_names_one_sandbox_does_not() {
        assert!(!changed(|request| {
            request.sandbox_id = SandboxId::new();
            request.session = SessionId::new();
            request.longest_idle = Duration::from_secs(1);
            request.limits.wall = Span::seconds(1);
            request.limits.stdout = ByteSize::mib(3);
            request.limits.stderr = ByteSize::mib(3);
        }));
    }
}
