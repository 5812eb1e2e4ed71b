use proptest::prelude::*;

use super::*;

mod precedence;

fn judged(evidence: Evidence) -> (EndState, Cause) {
    let outcome = evidence.judge();
    (outcome.state, outcome.cause)
}

fn ended(end: ProcessEnd) -> Evidence {
    Evidence {
        started: true,
        end: Some(end),
        oom_kills: Some(0),
        ..Evidence::default()
    }
}

#[test]
fn an_exit_code_of_137_is_an_exit_code() {
    assert_eq!(
        judged(ended(ProcessEnd::Code(137))),
        (EndState::Failed, Cause::Exited)
    );
    assert_eq!(ended(ProcessEnd::Code(137)).judge().exit_code, Some(137));
}

#[test]
fn a_sigkill_is_the_memory_limit_only_where_the_kernel_counted_a_kill() {
    let kill = ended(ProcessEnd::Signal(9));
    assert_eq!(judged(kill.clone()), (EndState::Failed, Cause::Signaled));
    assert_eq!(
        judged(Evidence {
            oom_kills: Some(1),
            ..kill.clone()
        }),
        (EndState::OutOfMemory, Cause::MemoryLimit)
    );
    let uncounted = Evidence {
        oom_kills: None,
        engine_oom_killed: Some(true),
        ..kill
    };
    assert_eq!(judged(uncounted), (EndState::OutOfMemory, Cause::MemoryLimit));
    let other = Evidence {
        oom_kills: Some(1),
        ..ended(ProcessEnd::Signal(11))
    };
    assert_eq!(judged(other), (EndState::Failed, Cause::Signaled));
}

#[test]
fn a_child_killed_for_memory_does_not_undo_its_parents_success() {
    let child = |code| Evidence {
        oom_kills: Some(1),
        engine_oom_killed: Some(true),
        ..ended(ProcessEnd::Code(code))
    };
    assert_eq!(judged(child(0)), (EndState::Succeeded, Cause::Exited));
    assert_eq!(child(0).judge().evidence.oom_kills, Some(1));
    assert_eq!(judged(child(1)), (EndState::Failed, Cause::ChildOutOfMemory));
}

#[test]
fn a_kill_of_ours_is_the_cause_whatever_code_it_leaves() {
    for end in [ProcessEnd::Code(0), ProcessEnd::Code(1), ProcessEnd::Signal(9)] {
        let with = |killed| Evidence {
            killed_for: Some(killed),
            oom_kills: Some(3),
            ..ended(end)
        };
        assert_eq!(
            judged(with(KilledFor::ExecutorDeadline)),
            (EndState::TimedOut, Cause::WallClock)
        );
        assert_eq!(
            judged(with(KilledFor::GuestDeadline)),
            (EndState::TimedOut, Cause::WallClock)
        );
        assert_eq!(
            judged(with(KilledFor::Cancel)),
            (EndState::Canceled, Cause::CanceledByRequest)
        );
        assert_eq!(
            judged(with(KilledFor::OutputLimit)),
            (EndState::LimitExceeded, Cause::OutputLimit)
        );
        assert_eq!(
            judged(with(KilledFor::Abandoned)),
            (EndState::Error, Cause::Abandoned)
        );
    }
}

#[test]
fn a_guest_that_is_gone_without_a_word_is_the_jobs_doing() {
    let started = Evidence {
        started: true,
        ..Evidence::default()
    };
    assert_eq!(judged(started.clone()), (EndState::Failed, Cause::GuestLost));
    assert_eq!(Cause::GuestLost.blame(), Blame::Job);
    let memory = Evidence {
        engine_oom_killed: Some(true),
        ..started
    };
    assert_eq!(judged(memory), (EndState::OutOfMemory, Cause::MemoryLimit));
}

#[test]
fn what_the_guest_refused_is_told_apart() {
    let refused = |stage| Evidence {
        refused: Some(Refusal {
            stage,
            reason: "No such file or directory".into(),
            subject: None,
        }),
        ..Evidence::default()
    };
    assert_eq!(
        judged(refused(RefusalStage::Exec)),
        (EndState::Failed, Cause::CommandNotStarted)
    );
    assert_eq!(
        judged(refused(RefusalStage::Files)),
        (EndState::Failed, Cause::FilesDidNotFit)
    );
    assert_eq!(
        judged(refused(RefusalStage::Setup)),
        (EndState::Error, Cause::EngineFailure)
    );
}

fn mismatch() -> Mismatch {
    Mismatch {
        source: MismatchSource::Inspect,
        field: "HostConfig.ReadonlyRootfs".into(),
        asked: "true".into(),
        found: "false".into(),
    }
}

fn any_evidence() -> impl Strategy<Value = Evidence> {
    let ends = prop_oneof![
        Just(None),
        any::<u8>().prop_map(|code| Some(ProcessEnd::Code(code))),
        (1u8..65).prop_map(|signal| Some(ProcessEnd::Signal(signal))),
    ];
    let kills = prop::option::of(prop::sample::select(vec![
        KilledFor::ExecutorDeadline,
        KilledFor::GuestDeadline,
        KilledFor::Cancel,
        KilledFor::OutputLimit,
        KilledFor::Abandoned,
    ]));
    let troubles = prop::option::of(prop::sample::select(vec![
        TroubleKind::Engine,
        TroubleKind::Image,
        TroubleKind::Runtime,
        TroubleKind::Guest,
        TroubleKind::Abandoned,
    ]));
    (
        ends,
        kills,
        troubles,
        any::<bool>(),
        prop::option::of(0u64..3),
        prop::option::of(any::<bool>()),
        any::<bool>(),
    )
        .prop_map(
            |(end, killed_for, trouble, mismatched, oom_kills, engine_oom_killed, started)| Evidence {
                started,
                end,
                killed_for,
                oom_kills,
                engine_oom_killed,
                trouble: trouble.map(|kind| Trouble {
                    kind,
                    message: "the engine did not answer".into(),
                }),
                mismatches: if mismatched { vec![mismatch()] } else { Vec::new() },
                ..Evidence::default()
            },
        )
}

proptest! {
    /// The rules that hold for all evidence, whatever else it says.
    #[test]
    fn any_evidence_is_judged_by_the_same_rules(evidence in any_evidence()) {
        let outcome = evidence.clone().judge();
        prop_assert_eq!(&outcome.evidence, &evidence);
        // Success needs an observed exit with 0, no kill of ours, no trouble of ours and no difference.
        let clean = evidence.mismatches.is_empty() && evidence.trouble.is_none() && evidence.killed_for.is_none();
        let success = clean && evidence.end == Some(ProcessEnd::Code(0));
        prop_assert_eq!(outcome.state == EndState::Succeeded, success);
        // A difference is never anything but a refusal, and trouble of ours is never the job's.
        if !evidence.mismatches.is_empty() {
            prop_assert_eq!(outcome.state, EndState::Rejected);
        } else if evidence.trouble.is_some() {
            prop_assert_ne!(outcome.cause.blame(), Blame::Job);
        } else if evidence.killed_for.is_none() {
            prop_assert_eq!(outcome.cause.blame(), Blame::Job);
        }
        // The state of memory needs the kernel's or the engine's word.
        if outcome.state == EndState::OutOfMemory {
            prop_assert!(evidence.oom_kills.is_some_and(|n| n > 0) || evidence.engine_oom_killed == Some(true));
        }
    }
}

#[test]
fn a_stream_of_before_redaction_reads_as_it_was_and_one_in_which_nothing_was_found_is_another() {
    let digest = Digest::of(b"ab");
    let before =
        format!(r#"{{"count":{{"bytes":2,"digest":"{digest}","truncated":false}},"head":"YWI=","tail":""}}"#);
    let read: CapturedStream = serde_json::from_str(&before).unwrap();
    assert_eq!(read.redacted, None);
    assert_eq!(serde_json::to_string(&read).unwrap(), before);
    let nothing = CapturedStream {
        redacted: Some(Redacted::default()),
        ..read
    };
    let text = serde_json::to_string(&nothing).unwrap();
    assert!(text.ends_with(r#""redacted":{}}"#), "{text}");
    assert_eq!(serde_json::from_str::<CapturedStream>(&text).unwrap(), nothing);
}

/// No count of a hostile executor makes a number wrap.
#[test]
fn what_is_left_of_a_stream_is_what_was_written_with_marks_for_what_was_taken_out() {
    let stream = |written, bytes, mark_bytes| CapturedStream {
        count: StreamCount {
            bytes: written,
            digest: Digest::of(b""),
            truncated: true,
        },
        head: vec![b'x'; 30],
        tail: vec![b'x'; 10],
        redacted: Some(Redacted {
            counts: [("secret".to_owned(), u64::MAX), ("jwt".to_owned(), 1)].into(),
            bytes,
            mark_bytes,
        }),
    };
    for (written, bytes, mark_bytes, left) in [
        (100, 20, 17, 97),
        (10, 20, 17, 17),
        (u64::MAX, 0, u64::MAX, u64::MAX),
    ] {
        let stream = stream(written, bytes, mark_bytes);
        assert_eq!(stream.shown_bytes(), left);
        assert_eq!(stream.omitted().as_bytes(), left.saturating_sub(40));
        assert_eq!(stream.redacted.unwrap().total(), u64::MAX);
    }
}
