use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use mayfly_core::{
    digest::Digest,
    outcome::{CapturedStream, Evidence, KilledFor, Mismatch, MismatchSource, ProcessEnd, StreamCount},
    run::RunReport,
};

use super::{judge::EXIT_CODE, *};
use crate::{Swept, seam::ReadySandbox};

fn stream(bytes: &[u8]) -> CapturedStream {
    CapturedStream {
        count: StreamCount {
            bytes: bytes.len() as u64,
            digest: Digest::of(bytes),
            truncated: false,
        },
        head: bytes.to_vec(),
        tail: Vec::new(),
        redacted: None,
    }
}

fn report(evidence: Evidence, stdout: &str) -> RunReport {
    RunReport {
        outcome: evidence.judge(),
        stdout: stream(stdout.as_bytes()),
        stderr: stream(b""),
        usage: None,
        sandbox: None,
        started_at: None,
        ended_at: DateTime::<Utc>::UNIX_EPOCH,
        uploaded: None,
        artifacts: None,
        egress: None,
    }
}

fn exited(code: u8) -> Evidence {
    Evidence {
        started: true,
        end: Some(ProcessEnd::Code(code)),
        engine_exit_code: Some(0),
        ..Evidence::default()
    }
}

fn killed(why: KilledFor) -> Evidence {
    Evidence {
        started: true,
        end: Some(ProcessEnd::Signal(9)),
        killed_for: Some(why),
        ..Evidence::default()
    }
}

/// The report of a run in a sandbox that holds.
fn held(probe: &Probe, runtime: &str) -> RunReport {
    let lines = probe.answers.iter().map(|expected| {
        let word = match expected.answer.of(runtime) {
            Answer::Refused => "EPERM EACCES".to_owned(),
            Answer::Exactly(word) => word.to_owned(),
            Answer::AtMost(most) => most.to_string(),
            Answer::Free => "done".to_owned(),
        };
        format!("{}: {word}\n", expected.name)
    });
    let evidence = match probe.ends.of(runtime) {
        End::Itself | End::ItselfOrOutOfMemory => exited(EXIT_CODE),
        End::OutOfMemory => Evidence {
            oom_kills: Some(1),
            engine_oom_killed: Some(true),
            end: Some(ProcessEnd::Signal(9)),
            ..exited(0)
        },
        End::Deadline => killed(KilledFor::ExecutorDeadline),
        End::Counted => killed(KilledFor::Cancel),
    };
    report(evidence, &lines.collect::<String>())
}

const COUNTED: Counted = Counted {
    processes: Some(17),
    allowed: 17,
};

fn probe(id: &str) -> &'static Probe {
    ALL.iter().find(|probe| probe.id == id).unwrap()
}

#[test]
fn a_sandbox_that_holds_is_said_to_hold_on_both_runtimes() {
    for runtime in ["runc", "crun", "runsc"] {
        for probe in ALL {
            let found = judge(probe, runtime, &held(probe, runtime), COUNTED);
            assert_eq!(found, Vec::<String>::new(), "{} on {runtime}", probe.id);
        }
    }
}

#[test]
fn one_attempt_that_is_not_refused_breaks_a_probe() {
    for probe in ALL {
        let good = held(probe, "runc");
        let text = String::from_utf8(good.stdout.head.clone()).unwrap();
        for expected in probe.answers {
            let worse = match expected.answer.runc {
                Answer::Refused => "EPERM done",
                Answer::AtMost(_) => "999999999999",
                Answer::Exactly(_) => "something_else",
                Answer::Free => continue,
            };
            for (line, what) in [
                (format!("{}: {worse}\n", expected.name), "worse"),
                (String::new(), "absent"),
            ] {
                let kept: String = text
                    .lines()
                    .filter(|line| !line.starts_with(&format!("{}: ", expected.name)))
                    .map(|line| format!("{line}\n"))
                    .chain([line])
                    .collect();
                let report = RunReport {
                    stdout: stream(kept.as_bytes()),
                    ..good.clone()
                };
                let found = judge(probe, "runc", &report, COUNTED);
                assert!(
                    found.iter().any(|why| why.starts_with(expected.name)),
                    "{} {what}: {found:?}",
                    probe.id
                );
            }
        }
    }
}

#[test]
fn a_call_that_reaches_the_kernel_and_is_wrong_there_is_not_refused() {
    let kernel = probe("kernel_calls");
    let text = String::from_utf8(held(kernel, "runc").stdout.head).unwrap();
    for error in ["EFAULT", "EINVAL", "E2BIG"] {
        let text = text.replace("bpf: EPERM EACCES", &format!("bpf: {error}"));
        let found = judge(kernel, "runc", &report(exited(EXIT_CODE), &text), COUNTED);
        assert_eq!(found, [format!("bpf: {error}")]);
    }
}

#[test]
fn any_other_end_breaks_a_probe() {
    for probe in ALL {
        for (evidence, name) in [
            (exited(0), "0"),
            (exited(1), "1"),
            (killed(KilledFor::OutputLimit), "for output"),
            (
                Evidence {
                    started: true,
                    ..Evidence::default()
                },
                "the guest is lost",
            ),
        ] {
            let report = RunReport {
                outcome: evidence.judge(),
                ..held(probe, "runc")
            };
            let found = judge(probe, "runc", &report, COUNTED);
            assert!(
                found.iter().any(|why| why.starts_with("it ended otherwise")),
                "{} {name}: {found:?}",
                probe.id
            );
        }
    }
}

#[test]
fn a_host_that_counts_too_many_processes_or_none_breaks_the_fork_bomb() {
    let bomb = probe("fork_bomb");
    for (processes, what) in [(Some(18), "18 processes"), (None, "no processes")] {
        let counted = Counted {
            processes,
            allowed: 17,
        };
        let found = judge(bomb, "runc", &held(bomb, "runc"), counted);
        assert!(found.iter().any(|why| why.contains(what)), "{found:?}");
    }
}

#[test]
fn output_that_is_kept_beyond_its_limit_and_settings_that_differ_break_a_probe() {
    let flood = probe("output_flood");
    let long = RunReport {
        stdout: stream(&[b'x'; 16 * 1024 + 1]),
        ..held(flood, "runc")
    };
    assert!(judge(flood, "runc", &long, COUNTED)[0].contains("16385 bytes of stdout"));
    let mut evidence = exited(EXIT_CODE);
    evidence
        .contradictions
        .push("guest and engine disagree".to_owned());
    let privileges = probe("privileges");
    let two_accounts = RunReport {
        outcome: evidence.judge(),
        ..held(privileges, "runc")
    };
    assert!(!judge(privileges, "runc", &two_accounts, COUNTED).is_empty());
    let mut evidence = exited(EXIT_CODE);
    evidence.mismatches.push(Mismatch {
        source: MismatchSource::Guest,
        field: "cgroup.pids".to_owned(),
        asked: "17".to_owned(),
        found: "max".to_owned(),
    });
    let differs = RunReport {
        outcome: evidence.judge(),
        ..held(privileges, "runc")
    };
    assert!(
        judge(privileges, "runc", &differs, COUNTED)
            .iter()
            .any(|why| why.contains("cgroup.pids"))
    );
}

#[test]
fn a_name_stands_once_and_every_program_accounts_for_what_is_asked_of_it() {
    let names: BTreeSet<_> = ALL.iter().map(|probe| probe.id).collect();
    assert_eq!(names.len(), ALL.len());
    for probe in ALL {
        for expected in probe.answers {
            let name = expected.name.strip_suffix("_namespace").unwrap_or(expected.name);
            assert!(
                probe.program.contains(&format!("'{name}'")),
                "{}: {name}",
                probe.id
            );
        }
        for runtime in ["runc", "runsc"] {
            assert!(!probe.expected(runtime).is_empty());
        }
    }
}

/// Makes no sandbox.
struct Refusing(fn() -> PrepareError);

#[async_trait]
impl Sandbox for Refusing {
    async fn prepare(&self, _: SandboxRequest) -> Result<Box<dyn ReadySandbox>, PrepareError> {
        Err((self.0)())
    }

    async fn drain(&self) {}

    async fn remove_all_of(&self, _: ExecutorId) -> Result<Swept, EngineError> {
        Ok(Swept::default())
    }
}

/// Always counts the same.
struct Always(usize);

#[async_trait]
impl Census for Always {
    async fn processes(&self, _: &str) -> Result<Option<u64>, EngineError> {
        Ok(None)
    }

    async fn containers(&self, _: ExecutorId) -> Result<usize, EngineError> {
        match self.0 {
            usize::MAX => Err(EngineError::NoUid(1)),
            count => Ok(count),
        }
    }
}

fn subject<'a>(sandbox: &'a Refusing, census: &'a Always) -> Subject<'a> {
    let digest = Digest::of(b"image");
    Subject {
        sandbox,
        census,
        image: ImagePin {
            reference: "python".to_owned(),
            digest,
            config_digest: digest,
            platform: "linux/amd64".to_owned(),
        },
        runtime: "runc".to_owned(),
        executor: ExecutorId::new(),
        session: SessionId::new(),
    }
}

#[tokio::test]
async fn a_sandbox_that_is_not_as_asked_for_breaks_every_probe_and_trouble_proves_nothing() {
    let census = Always(0);
    let mismatch = Refusing(|| PrepareError::Mismatch(Vec::new()));
    let trouble = Refusing(|| PrepareError::RuntimeUnavailable("runc".to_owned()));
    for probe in ALL {
        assert_eq!(
            run(&subject(&mismatch, &census), probe).await.result,
            ProbeResult::Broken
        );
        let verdict = run(&subject(&trouble, &census), probe).await;
        assert_eq!(
            verdict.result,
            ProbeResult::NotRun,
            "{}: {:?}",
            probe.id,
            verdict.why
        );
        assert!(verdict.why[0].contains("no runtime"), "{:?}", verdict.why);
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_that_stays_breaks_the_last_probe() {
    let sandbox = Refusing(|| PrepareError::Mismatch(Vec::new()));
    for (census, result) in [
        (Always(0), ProbeResult::Held),
        (Always(1), ProbeResult::Broken),
        (Always(usize::MAX), ProbeResult::NotRun),
    ] {
        assert_eq!(nothing_is_left(&subject(&sandbox, &census)).await.result, result);
    }
}

#[test]
fn every_probe_is_a_job_by_the_defaults_of_the_product() {
    let (sandbox, census) = (Refusing(|| PrepareError::Mismatch(Vec::new())), Always(0));
    let subject = subject(&sandbox, &census);
    for probe in ALL {
        let job = job(&subject, probe).unwrap();
        assert_eq!(Some(job.limits.pids), probe.limits.pids);
        assert_eq!(job.runtime, "runc");
        let texts = job
            .files
            .iter()
            .map(|file| String::from_utf8_lossy(file.content.as_bytes()));
        assert!(
            texts.into_iter().any(|text| text.starts_with("LIMITS = {")),
            "{}",
            probe.id
        );
    }
}
