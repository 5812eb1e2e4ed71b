use chrono::TimeZone as _;
use serde_json::Value;

use super::*;
use crate::outcome::{CapturedStream, Refusal, RefusalStage};

fn stream(bytes: &[u8]) -> CapturedStream {
    let count = StreamCount {
        bytes: bytes.len() as u64,
        digest: Digest::of(bytes),
        truncated: false,
    };
    CapturedStream {
        count,
        head: bytes.to_vec(),
        tail: Vec::new(),
        redacted: Some(Redacted {
            counts: [("jwt".to_owned(), 2)].into(),
            bytes: 400,
            mark_bytes: 28,
        }),
    }
}

fn report() -> RunReport {
    RunReport {
        outcome: Outcome::decided(EndState::Succeeded, Cause::Exited),
        stdout: stream(b"a secret of the job"),
        stderr: stream(b""),
        usage: None,
        sandbox: None,
        started_at: None,
        ended_at: Utc.timestamp_millis_opt(1_790_000_000_123).unwrap(),
        uploaded: None,
        artifacts: None,
        egress: None,
    }
}

fn sandbox() -> SandboxFacts {
    let digest = Digest::of(b"a part");
    SandboxFacts {
        sandbox_id: crate::id::SandboxId::from_uuid(uuid::Uuid::nil()),
        container_id: "c".to_owned(),
        image: crate::image::ImagePin {
            reference: "python:3".to_owned(),
            digest,
            config_digest: digest,
            platform: "linux/amd64".to_owned(),
        },
        origin: crate::run::Origin::Cold,
        runtime: "runc".to_owned(),
        engine: "Docker".to_owned(),
        kernel: "Linux".to_owned(),
        host: None,
        user_namespace: None,
        in_force: crate::limits::LimitRules::default().defaults,
        enforced_digest: digest,
        filter_digest: digest,
        guest_digest: digest,
        not_enforceable: BTreeMap::new(),
        warm: None,
    }
}

fn finished(salt: &Salt) -> AuditEvent {
    event(&report(), salt)
}

fn event(report: &RunReport, salt: &Salt) -> AuditEvent {
    let digest = Digest::of(b"image");
    let context = FinishedContext {
        executor: ExecutorId::from_uuid(uuid::Uuid::nil()),
        session: SessionId::from_uuid(uuid::Uuid::nil()),
        image_digest: digest,
        policy_version: digest,
        asked: LimitsAsked::default(),
        salt,
    };
    AuditEvent {
        id: AuditEventId::from_uuid(uuid::Uuid::nil()),
        at: Utc.timestamp_millis_opt(1_790_000_000_456).unwrap(),
        tenant: TenantId::LOCAL,
        job: Some(JobId::from_uuid(uuid::Uuid::nil())),
        attempt: None,
        fact: Fact::RunFinished(Box::new(Finished::new(report, &context))),
    }
}

#[test]
fn an_event_has_one_canonical_form_that_names_its_kind() {
    let event = finished(&Salt::from_bytes([7; 32]));
    let bytes = event.canonical_bytes();
    let value: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(canonical_json(&value), bytes, "writing it again changes nothing");
    assert_eq!(value["fact"]["kind"], event.fact.kind().as_str());
    assert_eq!(value["at"], "2026-09-21T14:13:20.456Z");
    assert_eq!(value["fact"]["stdout"]["bytes"], 19);
    assert_eq!(value["fact"]["stdout_redacted"]["counts"]["jwt"], 2);
}

#[test]
fn what_a_job_calls_its_own_things_is_left_out() {
    let salt = Salt::from_bytes([7; 32]);
    let mut report = report();
    report.outcome.evidence.refused = Some(Refusal {
        stage: RefusalStage::Exec,
        reason: "No such file or directory".to_owned(),
        subject: Some("a name of the job".to_owned()),
    });
    let text = String::from_utf8(event(&report, &salt).canonical_bytes()).unwrap();
    assert!(
        text.contains("No such file or directory") && !text.contains("a name of the job"),
        "{text}"
    );
}

#[test]
fn files_stand_in_it_as_commitments_and_without_their_names() {
    let (salt, other) = (Salt::from_bytes([7; 32]), Salt::from_bytes([8; 32]));
    let digest = Digest::of(b"content");
    let mut report = report();
    report.artifacts = Some(Artifacts {
        files: vec![Artifact {
            name: "a name of the job".into(),
            bytes: 7,
            digest,
            redacted: Redacted::default(),
            is_text: true,
            number: 0,
        }],
        left_out: vec![crate::artifact::LeftOut {
            name: "another name of the job".into(),
            why: crate::artifact::LeftOutWhy::Link,
            bytes: None,
        }],
        not_named: 2,
        incomplete: None,
    });
    let written = |salt| String::from_utf8(event(&report, salt).canonical_bytes()).unwrap();
    let text = written(&salt);
    assert!(
        !text.contains("name of the job") && !text.contains(&digest.to_hex()),
        "{text}"
    );
    let value: Value = serde_json::from_str(&text).unwrap();
    let kept = &value["fact"]["artifacts"];
    assert_eq!(
        (&kept["files"][0]["bytes"], &kept["left_out"]),
        (&7.into(), &3.into())
    );
    assert_eq!(
        kept["files"][0]["digest"],
        serde_json::json!(salt.commit(&digest))
    );
    assert_ne!(text, written(&other));
}

#[test]
fn why_a_job_started_cold_is_left_out_since_it_may_name_a_file_of_it() {
    let salt = Salt::from_bytes([7; 32]);
    let mut report = report();
    let mut sandbox = sandbox();
    sandbox.warm = Some(crate::run::WarmFacts {
        imports: Vec::new(),
        boot_us: Some(1),
        used: false,
        why_cold: Some("the file `a name of the job` would be read early".to_owned()),
    });
    report.sandbox = Some(sandbox);
    let text = String::from_utf8(event(&report, &salt).canonical_bytes()).unwrap();
    assert!(
        text.contains("\"used\":false") && !text.contains("a name of the job"),
        "{text}"
    );
}

#[test]
fn output_stands_in_it_only_as_a_commitment_under_the_runs_salt() {
    let text = String::from_utf8(finished(&Salt::from_bytes([7; 32])).canonical_bytes()).unwrap();
    assert!(!text.contains("secret"));
    assert!(
        !text.contains(&Digest::of(b"a secret of the job").to_hex()),
        "a plain digest can be guessed"
    );
    assert_ne!(
        finished(&Salt::from_bytes([7; 32])),
        finished(&Salt::from_bytes([8; 32]))
    );
}

#[test]
fn what_a_run_asked_of_hosts_is_committed_to_under_its_salt_and_not_named() {
    use crate::egress::{Decision, Reason};
    let decision = |name: &str| Decision {
        at_ms: 1,
        method: "GET".to_owned(),
        name: name.to_owned(),
        port: Some(80),
        address: None,
        class: None,
        verdict: Verdict::Allowed,
        reason: Reason::Allowed,
        credential: None,
        sent_bytes: 2,
        received_bytes: 3,
        took_ms: 4,
    };
    let record = |name: &str| EgressRecord {
        decisions: vec![decision(name)],
        counts: [(Verdict::Allowed, 1)].into(),
        not_listed: 0,
        sent_bytes: 2,
        received_bytes: 3,
    };
    let (salt, other) = (Salt::from_bytes([7; 32]), Salt::from_bytes([8; 32]));
    let told = EgressSummary::new(&record("canary.test"), &salt);
    assert_eq!(told, EgressSummary::new(&record("canary.test"), &salt));
    for summary in [
        EgressSummary::new(&record("canary.test"), &other),
        EgressSummary::new(&record("other.test"), &salt),
    ] {
        assert_ne!(summary.decisions, told.decisions);
    }
    let text = serde_json::to_string(&told).unwrap();
    assert!(
        text.starts_with("{\"counts\":{\"allowed\":1}") && !text.contains("canary"),
        "{text}"
    );
    // Without the salt nobody can try names.
    let plain = Digest::of(&canonical_json(&record("canary.test").decisions));
    assert_ne!(told.decisions, plain);
}
