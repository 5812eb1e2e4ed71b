//! Values that the unit tests share.

use std::collections::BTreeMap;

use chrono::DateTime;
use mayfly_core::{
    digest::Digest,
    id::{AttemptId, JobId, TenantId},
    image::ImagePin,
    job::{ResolvedJob, RetryPolicy},
    limits::{LimitRules, LimitsAsked},
    outcome::{CapturedStream, Cause, EndState, Outcome, StreamCount},
    policy::{Network, OnOutputLimit},
    run::RunReport,
    self_test::{SelfTest, SelfTestFailure, SelfTestResult},
};
use uuid::Uuid;

use crate::{
    message::{DispatchMessage, VERSION},
    token::TokenKey,
};

pub(crate) fn key() -> TokenKey {
    TokenKey::from_bytes([7; 32])
}

pub(crate) fn report() -> RunReport {
    report_of(EndState::Succeeded, Cause::Exited)
}

pub(crate) fn report_of(state: EndState, cause: Cause) -> RunReport {
    let stream = CapturedStream {
        count: StreamCount {
            bytes: 0,
            digest: Digest::of(b""),
            truncated: false,
        },
        head: Vec::new(),
        tail: Vec::new(),
        redacted: None,
    };
    RunReport {
        outcome: Outcome::decided(state, cause),
        stdout: stream.clone(),
        stderr: stream,
        usage: None,
        sandbox: None,
        started_at: None,
        ended_at: DateTime::UNIX_EPOCH,
        uploaded: None,
        artifacts: None,
        egress: None,
    }
}

/// A self-test with so many programs that were not held: one without has passed.
pub(crate) fn self_test(failures: usize) -> SelfTest {
    let failure = SelfTestFailure {
        runtime: "runc".to_owned(),
        probe: "memory".to_owned(),
        why: "it got more than its limit".to_owned(),
    };
    SelfTest {
        at: DateTime::UNIX_EPOCH,
        result: if failures == 0 {
            SelfTestResult::Passed
        } else {
            SelfTestResult::Failed
        },
        runtimes: vec!["runc".to_owned()],
        programs: 20,
        failures: vec![failure; failures],
        accepted: vec!["engine.lsm".to_owned()],
    }
}

pub(crate) fn dispatch_message(attempt: AttemptId, publication: u32) -> DispatchMessage {
    let digest = Digest::of(b"image");
    DispatchMessage {
        v: VERSION,
        tenant: TenantId::LOCAL,
        job: JobId::from_uuid(Uuid::from_u128(100)),
        attempt,
        number: 1,
        publication,
        token: key().token(attempt),
        resolved: ResolvedJob {
            image: "python".parse().expect("`python` is a name"),
            pin: ImagePin {
                reference: "python".to_owned(),
                digest,
                config_digest: digest,
                platform: "linux/amd64".to_owned(),
            },
            argv: vec!["python3".to_owned()],
            files: Vec::new(),
            stdin: None,
            env: BTreeMap::new(),
            secrets: Default::default(),
            secret_files: Default::default(),
            fetched: Vec::new(),
            named_secrets: Default::default(),
            redaction: Default::default(),
            asked: LimitsAsked::default(),
            limits: LimitRules::default().defaults,
            network: Network::None,
            egress: None,
            runtime: "runc".to_owned(),
            on_output_limit: OnOutputLimit::Truncate,
            artifacts: Vec::new(),
            artifacts_after: Default::default(),
            artifact_limits: None,
            retry: RetryPolicy::default(),
            policy_version: digest,
        },
        input: None,
        output: None,
        artifacts: None,
        secrets: None,
        fetched: None,
    }
}
