//! What jobs give and what runs leave comes back as it was.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, Utc};
use mayfly_core::{
    digest::Digest,
    egress::{Decision, EgressRecord, Reason, Verdict},
    host::{HostFacts, Posture},
    id::{SandboxId, TenantId},
    job::InputFile,
    outcome::{
        CapturedStream, Cause, EndState, Mismatch, MismatchSource, Redacted, Refusal, RefusalStage,
        StreamCount, Trouble, TroubleKind, Usage,
    },
    run::{Origin, OtherIds, RunReport, SandboxFacts, UserNamespace, WarmFacts},
};
use mayfly_dispatch::message::SessionEvent;

use super::{
    Place,
    bench::{Bench, Plan, report, success},
};

/// What tends to break what is stored as text, or written into a statement or a terminal.
const HOSTILE: &[&str] = &[
    "",
    "\0",
    "a\0b",
    "'; DROP TABLE audit_events; --",
    "\"}],\"kind\":\"job_ended\",\"x\":[{\"",
    "\u{1b}]0;title\u{7}\u{1b}[2J",
    "\u{202e}txt.exe\u{2066}",
    "\u{feff}\u{fffd}\u{10ffff}",
    "?1 :name @name $name",
    "\r\nSet-Cookie: a=b",
    "NULL",
    "\\u0000\\",
];

/// NUL, what is no UTF-8, and a stream of which head and tail are kept.
pub async fn output_comes_back_byte_for_byte(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let streams: [(&[u8], &[u8], u64); 5] = [
        (b"", b"", 0),
        (b"\0\0\0", b"", 3),
        (&every_byte, b"", 256),
        (b"\xff\xfe\xc3\x28", b"\xe2\x82", 1 << 40),
        (&[b'x'; 300_000], &[0x80; 70_000], u64::from(u32::MAX)),
    ];
    for (head, tail, bytes) in streams {
        let captured = CapturedStream {
            count: StreamCount {
                bytes,
                digest: Digest::of(head),
                truncated: !tail.is_empty(),
            },
            head: head.to_vec(),
            tail: tail.to_vec(),
            redacted: Some(Redacted {
                counts: BTreeMap::from([("jwt".to_owned(), bytes)]),
                bytes: bytes / 2,
                mark_bytes: 1,
            }),
        };
        for to_stderr in [false, true] {
            let mut sent = success();
            let stream = if to_stderr {
                &mut sent.stderr
            } else {
                &mut sent.stdout
            };
            *stream = captured.clone();
            let message = bench.started(&Plan::once(), &mut client).await;
            bench.send(&client.finish(message.attempt, sent.clone())).await;
            assert_eq!(bench.job(message.job).await.report(), Some(&sent));
        }
    }
}

/// And its event names none of them.
pub async fn what_a_run_asked_of_hosts_outside_comes_back(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let decision = |name: &str, verdict, reason| Decision {
        at_ms: 7,
        method: "CONNECT".to_owned(),
        name: name.to_owned(),
        port: Some(443),
        address: Some(std::net::IpAddr::from([93, 184, 216, 34])),
        class: None,
        verdict,
        reason,
        credential: None,
        sent_bytes: u64::MAX >> 12,
        received_bytes: 3,
        took_ms: 4,
    };
    let mut decisions: Vec<_> = HOSTILE
        .iter()
        .map(|name| decision(name, Verdict::Refused, Reason::BadName))
        .collect();
    decisions.push(decision("canary.test", Verdict::Allowed, Reason::Allowed));
    let sent = RunReport {
        egress: Some(EgressRecord {
            counts: [(Verdict::Allowed, 1), (Verdict::Refused, HOSTILE.len() as u64)].into(),
            decisions,
            not_listed: 5,
            sent_bytes: 6,
            received_bytes: 7,
        }),
        ..success()
    };
    let message = bench.started(&Plan::once(), &mut client).await;
    bench.send(&client.finish(message.attempt, sent.clone())).await;
    assert_eq!(bench.job(message.job).await.report(), Some(&sent));
    let events = bench.events(Default::default()).await;
    let bodies = events
        .iter()
        .map(|event| String::from_utf8_lossy(&event.body).into_owned());
    let finished = bodies
        .filter(|body| body.contains("run_finished"))
        .collect::<Vec<_>>();
    assert!(
        finished[0].contains("\"egress\":{\"counts\":{\"allowed\":1"),
        "{finished:?}"
    );
    assert!(!finished[0].contains("canary"), "{finished:?}");
}

/// Every text of it.
pub async fn a_report_with_hostile_text_comes_back_as_it_was(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    for text in HOSTILE.iter().map(|text| (*text).to_owned()) {
        let mut sent = report(EndState::Error, Cause::Undeliverable, text.as_bytes());
        let evidence = &mut sent.outcome.evidence;
        evidence.contradictions = vec![text.clone(); 3];
        evidence.mismatches.push(Mismatch {
            source: MismatchSource::Guest,
            field: text.clone(),
            asked: text.clone(),
            found: text.clone(),
        });
        evidence.refused = Some(Refusal {
            stage: RefusalStage::Exec,
            reason: text.clone(),
            subject: Some(text.clone()),
        });
        evidence.trouble = Some(Trouble {
            kind: TroubleKind::Engine,
            message: text.clone(),
        });
        let plan = Plan::once();
        sent.sandbox = Some(SandboxFacts {
            sandbox_id: SandboxId::new(),
            origin: Origin::Warm { idle_ms: 1 },
            container_id: text.clone(),
            image: plan.resolved.pin.clone(),
            runtime: text.clone(),
            engine: text.clone(),
            kernel: text.clone(),
            host: Some(HostFacts {
                posture: Posture::Production,
                runtime_version: Some(text.clone()),
                containerd: Some(text.clone()),
                kernel: text.clone(),
                cgroup_version: 2,
                lsm: vec![text.clone()],
                missed: vec![text.clone()],
                not_checked: vec![text.clone()],
                checked_at: DateTime::UNIX_EPOCH,
            }),
            user_namespace: Some(UserNamespace {
                first_uid: u32::MAX,
                first_gid: u32::MAX,
                count: 1,
                others: Some(OtherIds {
                    first_uid: u32::MAX,
                    first_gid: u32::MAX,
                }),
            }),
            in_force: plan.resolved.limits,
            enforced_digest: Digest::of(b""),
            filter_digest: Digest::of(b""),
            guest_digest: Digest::of(b""),
            not_enforceable: BTreeMap::from([(text.clone(), text.clone())]),
            warm: Some(WarmFacts {
                imports: vec![text.clone()],
                boot_us: Some(1),
                used: false,
                why_cold: Some(text.clone()),
            }),
        });
        let message = bench.started(&plan, &mut client).await;
        bench.send(&client.finish(message.attempt, sent.clone())).await;
        let job = bench.job(message.job).await;
        assert_eq!(job.report(), Some(&sent));
        assert_eq!(job.job.outcome, Some(sent.outcome.clone()));
        for event in bench.events(Default::default()).await {
            let body: serde_json::Value = serde_json::from_slice(&event.body).expect("a body is JSON");
            assert_eq!(body["fact"]["kind"], event.kind, "{text:?}");
        }
    }
}

/// Every text of it, in what is stored and in what is dispatched.
pub async fn a_job_with_hostile_text_comes_back_as_it_was(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    bench.session().await;
    for text in HOSTILE.iter().map(|text| (*text).to_owned()) {
        let mut plan = Plan::once();
        let resolved = &mut plan.resolved;
        resolved.argv = vec![text.clone(); 2];
        resolved.files.push(InputFile {
            path: text.clone(),
            content: text.clone().into_bytes().into(),
            executable: true,
            mode: None,
        });
        resolved.files.push(InputFile {
            path: "bytes".to_owned(),
            content: vec![0, 255, 0xc3, 0x28].into(),
            executable: false,
            mode: None,
        });
        resolved.stdin = Some(text.clone().into_bytes().into());
        resolved.env.insert(text.clone(), text.clone());
        resolved.secrets.insert(text.clone(), text.clone().into());
        resolved.redaction.without = vec![text.clone()];
        resolved.runtime.clone_from(&text);
        let mut new = plan.job(bench.date());
        new.labels = BTreeMap::from([(text.clone(), text.clone())]);
        let accepted = bench.store.submit(new.clone(), bench.date()).await;
        accepted.expect("the job is accepted");
        let found = bench.job(new.id).await;
        assert_eq!(found.resolved.as_ref(), Some(&*new.resolved));
        assert_eq!(found.job.labels, new.labels);
        assert_eq!(bench.dispatch().await.remove(0).resolved, *new.resolved);
    }
}

/// No count of a hostile executor makes a batch fail.
pub async fn the_largest_numbers_come_back(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = super::bench::Client::new();
    let opened = client.opened(u32::MAX);
    bench.send(&opened).await;
    let message = bench.dispatched(&Plan::once()).await;
    let mut ask = client.ask(&message);
    if let SessionEvent::Starting { publication, .. } = &mut ask.events[0] {
        *publication = u32::MAX;
    }
    bench.send(&ask).await;
    let mut beat = client.beat(&[message.attempt]);
    if let Some(heartbeat) = &mut beat.heartbeat {
        heartbeat.free_slots = u32::MAX;
    }
    bench.send(&beat).await;
    let mut sent = success();
    sent.stdout.count.bytes = u64::MAX;
    sent.outcome.evidence.oom_kills = Some(u64::MAX);
    sent.outcome.evidence.engine_exit_code = Some(i64::MIN);
    sent.usage = Some(Usage {
        user_us: u64::MAX,
        system_us: u64::MAX,
        max_rss_bytes: u64::MAX,
        peak_memory_bytes: Some(u64::MAX),
        cpu_throttled_us: Some(u64::MAX),
        wall_us: u64::MAX,
    });
    (sent.started_at, sent.ended_at) = (Some(DateTime::<Utc>::MIN_UTC), DateTime::<Utc>::MAX_UTC);
    bench.send(&client.finish(message.attempt, sent.clone())).await;
    assert_eq!(bench.job(message.job).await.report(), Some(&sent));
}

/// Whatever is tried afterwards, by whomever.
pub async fn an_outcome_is_never_replaced(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let message = bench.started(&Plan::default(), &mut client).await;
    bench.send(&client.finish(message.attempt, success())).await;
    let decided = bench.job(message.job).await;
    let other = report(EndState::Failed, Cause::Exited, b"another");
    bench.send(&client.finish(message.attempt, other.clone())).await;
    bench.send(&client.beat(&[])).await;
    let context = bench.context();
    let store = &bench.store;
    store
        .cancel(TenantId::LOCAL, message.job, &context)
        .await
        .expect("cancelling works");
    store
        .dead_lettered(message.attempt, message.publication, &context)
        .await
        .expect("noting works");
    store
        .publications_confirmed(&[(message.attempt, 1)], &context)
        .await
        .expect("noting works");
    let mut next = super::bench::Client::of(client.executor);
    bench.send(&next.opened(1)).await;
    bench.send(&next.finish(message.attempt, other)).await;
    bench.pass(bench.timing.lease);
    bench.tick().await;
    bench
        .store
        .expire(super::bench::POOL, &bench.context())
        .await
        .expect("expiring works");
    assert_eq!(bench.job(message.job).await, decided);
    let ends = bench.kinds(message.job).await;
    assert_eq!(ends.iter().filter(|kind| *kind == "job_ended").count(), 1);
}
