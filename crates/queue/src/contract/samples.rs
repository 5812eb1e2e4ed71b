//! Messages to send.

use mayfly_core::{
    digest::Digest,
    id::{AttemptId, ExecutorId, JobId, SessionId, TenantId},
    image::ImagePin,
    job::JobSpec,
    policy::Policy,
};
use mayfly_dispatch::{
    message::{DispatchMessage, EventBatch, READS, Reply, SessionEvent, Tick, VERSION},
    token::TokenKey,
};

/// An attempt that is like no other.
pub(super) fn attempt() -> DispatchMessage {
    let spec = serde_json::json!({"image": "python", "command": ["python3", "-c", "print('\u{1f41d}\\0')"]});
    let spec: JobSpec = serde_json::from_value(spec).expect("these fields make a job");
    let digest = Digest::of(b"image");
    let pin = ImagePin {
        reference: "python:1".into(),
        digest,
        config_digest: digest,
        platform: "linux/amd64".into(),
    };
    let resolved = spec
        .resolve(&Policy::default(), pin, &Digest::of(b"baseline"))
        .expect("the job has no faults");
    let id = AttemptId::new();
    DispatchMessage {
        v: VERSION,
        tenant: TenantId::LOCAL,
        job: JobId::new(),
        attempt: id,
        number: 1,
        publication: 1,
        token: TokenKey::from_bytes([7; 32]).token(id),
        resolved,
        input: None,
        output: None,
        artifacts: None,
        secrets: None,
        fetched: None,
    }
}

/// A session's batch of one event, which has this number.
pub(super) fn batch(executor: ExecutorId, session: SessionId, number: u64) -> EventBatch {
    EventBatch {
        v: VERSION,
        executor,
        session,
        first: number,
        events: vec![SessionEvent::Closed],
        heartbeat: None,
    }
}

pub(super) fn tick(epoch: u64, number: u64) -> Tick {
    Tick {
        v: VERSION,
        epoch,
        number,
        judged: Vec::new(),
    }
}

pub(super) fn reply(session: SessionId, processed: u64) -> Reply {
    Reply {
        v: VERSION,
        session,
        processed,
        gap: false,
        answers: Vec::new(),
        stops: Vec::new(),
        dead: false,
        cordoned: false,
    }
}

/// A message of a build that is newer than this one, with fields that it does not know.
pub(super) fn newer() -> Vec<u8> {
    format!("{{\"v\":{},\"what\":\"is this\"}}", READS + 1).into_bytes()
}
