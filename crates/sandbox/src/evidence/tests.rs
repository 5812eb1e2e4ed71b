use std::io;

use mayfly_core::{
    outcome::{CapturedStream, Cause, EndState},
    units::ByteSize,
};
use mayfly_protocol::{CgroupCounts, EncodeError, ProtocolError, Usage as GuestUsage};
use mayfly_redact::{Matcher, Rules, Secrets};

use super::*;
use crate::capture::Capture;

fn empty() -> CapturedStream {
    let nothing = Matcher::new(&Rules::none(), &Secrets::default());
    Capture::new(ByteSize::kib(1), &nothing).finish().1
}

fn conversation(ending: Ending) -> Conversation {
    Conversation {
        ending,
        kill_asked: None,
        start_sent: true,
        started: true,
        warm: None,
        killed_before: false,
        started_at: None,
        stdout: empty(),
        stderr: empty(),
    }
}

fn exit(how: Ended) -> Exit {
    Exit {
        how,
        deadline_fired: false,
        killed_by_request: false,
        wall_us: 1,
        usage: GuestUsage::default(),
        left_processes: 0,
        stdout_bytes: 0,
        stderr_bytes: 0,
        cgroup: CgroupCounts {
            oom_kills: Some(0),
            pids_max_events: Some(0),
            cpu_throttled_us: Some(0),
            memory_peak_bytes: None,
        },
        oom_kills_before: Some(0),
    }
}

fn ended(code: i64) -> EngineWord {
    EngineWord::Ended(ContainerEnd {
        running: false,
        exit_code: Some(code),
        oom_killed: Some(false),
        being_removed: false,
    })
}

fn running() -> EngineWord {
    EngineWord::Ended(ContainerEnd {
        running: true,
        exit_code: Some(0),
        oom_killed: Some(false),
        being_removed: false,
    })
}

fn silent() -> EngineWord {
    EngineWord::Failed(EngineError::TimedOut {
        doing: "inspect the container",
        seconds: 10,
    })
}

fn judged(conversation: &Conversation, engine: &EngineWord) -> (EndState, Cause) {
    let outcome = weigh(conversation, engine).judge();
    (outcome.state, outcome.cause)
}

const GUEST_LOST: (EndState, Cause) = (EndState::Failed, Cause::GuestLost);
const OURS: (EndState, Cause) = (EndState::Error, Cause::EngineFailure);

#[test]
fn the_guests_account_counts_also_where_the_engine_is_silent() {
    let conversation = conversation(Ending::Exit(exit(Ended::Code(3))));
    assert_eq!(
        judged(&conversation, &silent()),
        (EndState::Failed, Cause::Exited)
    );
}

#[test]
fn a_kill_of_ours_is_the_cause_only_where_the_guest_says_that_it_killed() {
    let mut raced = conversation(Ending::Exit(exit(Ended::Code(0))));
    raced.kill_asked = Some(KilledFor::ExecutorDeadline);
    assert_eq!(judged(&raced, &ended(0)), (EndState::Succeeded, Cause::Exited));
    let mut killed = exit(Ended::Signal(9));
    killed.killed_by_request = true;
    raced.ending = Ending::Exit(killed);
    assert_eq!(judged(&raced, &ended(0)), (EndState::TimedOut, Cause::WallClock));
}

#[test]
fn too_much_output_is_the_cause_also_of_a_program_that_ended_before_the_kill() {
    let mut raced = conversation(Ending::Exit(exit(Ended::Code(0))));
    raced.kill_asked = Some(KilledFor::OutputLimit);
    assert_eq!(
        judged(&raced, &ended(0)),
        (EndState::LimitExceeded, Cause::OutputLimit)
    );
}

#[test]
fn a_kill_that_the_guest_claims_and_nobody_asked_for_is_a_contradiction() {
    let mut killed = exit(Ended::Signal(9));
    killed.killed_by_request = true;
    let evidence = weigh(&conversation(Ending::Exit(killed)), &ended(0));
    assert_eq!(evidence.contradictions.len(), 1);
    assert_eq!(evidence.killed_for, None);
}

#[test]
fn accounts_that_contradict_each_other_are_on_the_record() {
    let evidence = weigh(&conversation(Ending::Exit(exit(Ended::Code(0)))), &ended(137));
    assert!(
        evidence.contradictions[0].contains("137"),
        "{:?}",
        evidence.contradictions
    );
    let engine = EngineWord::Ended(ContainerEnd {
        running: false,
        exit_code: Some(0),
        oom_killed: Some(true),
        being_removed: false,
    });
    let evidence = weigh(&conversation(Ending::Exit(exit(Ended::Code(0)))), &engine);
    assert!(
        evidence.contradictions[0].contains("memory"),
        "{:?}",
        evidence.contradictions
    );
}

#[test]
fn an_engine_that_missed_a_kill_for_memory_contradicts_nobody() {
    let mut killed = exit(Ended::Signal(9));
    killed.cgroup.oom_kills = Some(1);
    let killed = conversation(Ending::Exit(killed));
    let evidence = weigh(&killed, &ended(0));
    assert_eq!(evidence.contradictions, Vec::<String>::new());
    assert_eq!(evidence.judge().cause, Cause::MemoryLimit);
    let late = said_late(&Account::of(&killed), &ended(0));
    assert_eq!(late, Vec::<String>::new());
}

#[test]
fn a_kill_for_memory_before_the_job_is_not_the_jobs() {
    let mut counted = exit(Ended::Signal(9));
    counted.oom_kills_before = Some(1);
    let counted = conversation(Ending::Exit(counted));
    let mut told = conversation(Ending::Exit(exit(Ended::Signal(9))));
    told.killed_before = true;
    // gVisor counts nothing inside, and the guest's account may be lost.
    let mut uncounted = exit(Ended::Signal(9));
    (uncounted.cgroup.oom_kills, uncounted.oom_kills_before) = (None, None);
    let mut uncounted = conversation(Ending::Exit(uncounted));
    uncounted.killed_before = true;
    for conversation in [counted, told, uncounted] {
        let evidence = weigh(&conversation, &oom_killed());
        assert_eq!(evidence.contradictions, Vec::<String>::new());
        assert_eq!(evidence.judge().cause, Cause::Signaled);
        let late = said_late(&Account::of(&conversation), &oom_killed());
        assert_eq!(late, Vec::<String>::new());
    }
    let mut lost = conversation(Ending::Lost(ChannelError::Closed));
    lost.killed_before = true;
    let engine = EngineWord::Ended(ContainerEnd {
        running: false,
        exit_code: Some(137),
        oom_killed: Some(true),
        being_removed: false,
    });
    assert_eq!(judged(&lost, &engine), GUEST_LOST);
    lost.killed_before = false;
    assert_eq!(judged(&lost, &engine).1, Cause::MemoryLimit);
}

#[test]
fn the_guests_own_deadline_is_a_deadline() {
    let mut late = exit(Ended::Signal(9));
    late.deadline_fired = true;
    assert_eq!(
        judged(&conversation(Ending::Exit(late)), &ended(0)),
        (EndState::TimedOut, Cause::WallClock)
    );
}

#[test]
fn what_the_guest_refuses_is_whose_fault_it_is() {
    let refused = |stage, asked| {
        let mut conversation = conversation(Ending::Refused(Refused::new(stage, Some(2), "main")));
        conversation.started = false;
        conversation.kill_asked = asked;
        judged(&conversation, &ended(0))
    };
    let not_started = (EndState::Failed, Cause::CommandNotStarted);
    assert_eq!(refused(Stage::Exec, None), not_started);
    assert_eq!(refused(Stage::Job, None), not_started);
    assert_eq!(
        refused(Stage::File, None),
        (EndState::Failed, Cause::FilesDidNotFit)
    );
    for stage in [
        Stage::Resources,
        Stage::Identity,
        Stage::Rlimit,
        Stage::Cwd,
        Stage::Canceled,
    ] {
        assert_eq!(refused(stage, None), OURS, "{stage:?}");
    }
    assert_eq!(
        refused(Stage::Canceled, Some(KilledFor::Cancel)),
        (EndState::Canceled, Cause::CanceledByRequest)
    );
}

#[test]
fn a_guest_that_is_gone_after_the_start_is_the_jobs_failure_and_before_it_ours() {
    for code in [137, 139, 1, 86] {
        let mut lost = conversation(Ending::Lost(ChannelError::Closed));
        assert_eq!(judged(&lost, &ended(code)), GUEST_LOST, "{code}");
        lost.start_sent = false;
        assert_eq!(judged(&lost, &ended(code)), OURS, "{code}");
    }
    let engine = EngineWord::Ended(ContainerEnd {
        running: false,
        exit_code: Some(137),
        oom_killed: Some(true),
        being_removed: false,
    });
    assert_eq!(
        judged(&conversation(Ending::Lost(ChannelError::Closed)), &engine),
        (EndState::OutOfMemory, Cause::MemoryLimit)
    );
}

#[test]
fn a_container_that_somebody_else_removed_is_trouble_of_ours() {
    let engine = || {
        EngineWord::Ended(ContainerEnd {
            running: false,
            exit_code: Some(137),
            oom_killed: Some(false),
            being_removed: true,
        })
    };
    let lost = conversation(Ending::Lost(ChannelError::Closed));
    assert_eq!(judged(&lost, &engine()), OURS);
    // What was asked for before is what it ended for, and what the guest has said stands.
    let mut asked = conversation(Ending::Lost(ChannelError::Closed));
    asked.kill_asked = Some(KilledFor::Cancel);
    assert_eq!(judged(&asked, &engine()).0, EndState::Canceled);
    let told = conversation(Ending::Exit(exit(Ended::Signal(9))));
    assert_eq!(judged(&told, &engine()).1, Cause::Signaled);
}

#[test]
fn a_stream_that_broke_off_under_a_living_guest_is_trouble_of_ours() {
    let broken = || ChannelError::Broken(io::Error::from(io::ErrorKind::ConnectionReset).into());
    assert_eq!(judged(&conversation(Ending::Lost(broken())), &running()), OURS);
    assert_eq!(judged(&conversation(Ending::Lost(broken())), &silent()), OURS);
    // Its account was written and did not come; its stdin was closed; it heard nothing; it was sent nonsense.
    for code in [0, 81, 82, 83] {
        assert_eq!(
            judged(&conversation(Ending::Lost(broken())), &ended(code)),
            OURS,
            "{code}"
        );
    }
}

#[test]
fn a_guest_that_breaks_the_protocol_does_so_for_the_job_once_it_has_one() {
    let error = || ChannelError::Protocol(ProtocolError::TooManySkipped);
    let mut broken = conversation(Ending::Lost(error()));
    let evidence = weigh(&broken, &ended(137));
    assert!(evidence.contradictions[0].contains("protocol"));
    assert_eq!(judged(&broken, &ended(137)), GUEST_LOST);
    broken.start_sent = false;
    assert_eq!(judged(&broken, &ended(137)), OURS);
}

#[test]
fn a_kill_by_force_is_what_was_asked_for_where_the_engine_confirms_it_and_ours_where_not() {
    let mut forced = conversation(Ending::Forced);
    forced.kill_asked = Some(KilledFor::ExecutorDeadline);
    assert_eq!(
        judged(&forced, &ended(137)),
        (EndState::TimedOut, Cause::WallClock)
    );
    assert_eq!(judged(&forced, &running()), OURS);
    assert_eq!(judged(&forced, &silent()), OURS);
}

#[test]
fn arguments_that_no_frame_holds_are_the_jobs_fault() {
    let too_long = EncodeError::Length {
        frame: "job",
        bytes: 70_000,
        limit: 65_536,
    };
    let mut lost = conversation(Ending::Lost(ChannelError::Encode(too_long)));
    lost.start_sent = false;
    assert_eq!(
        judged(&lost, &ended(81)),
        (EndState::Failed, Cause::CommandNotStarted)
    );
}

#[test]
fn the_outcome_is_the_same_whatever_the_engine_says_of_an_account_that_is_conclusive() {
    let blind = |how| {
        let mut exit = exit(how);
        exit.cgroup.oom_kills = None;
        exit
    };
    let words = || {
        [
            ended(0),
            ended(137),
            running(),
            silent(),
            oom_killed(),
            EngineWord::NotHeard,
        ]
    };
    for (ending, conclusive) in [
        (Ending::Exit(exit(Ended::Code(0))), true),
        (Ending::Exit(exit(Ended::Signal(9))), true),
        (Ending::Exit(blind(Ended::Code(1))), true),
        (Ending::Exit(blind(Ended::Signal(9))), false),
        (
            Ending::Refused(Refused::new(Stage::Exec, Some(2), "python")),
            true,
        ),
        (Ending::Lost(ChannelError::Closed), false),
        (Ending::Forced, false),
        (Ending::NotStarted, false),
    ] {
        let conversation = conversation(ending);
        assert_eq!(is_conclusive(&conversation), conclusive, "{conversation:?}");
        if conclusive {
            let outcomes: Vec<_> = words().iter().map(|word| judged(&conversation, word)).collect();
            assert!(
                outcomes.windows(2).all(|pair| pair[0] == pair[1]),
                "{conversation:?}: {outcomes:?}"
            );
        }
    }
}

#[test]
fn a_kill_for_memory_that_the_guest_could_not_see_is_told_late() {
    let mut unseen = exit(Ended::Code(0));
    unseen.cgroup.oom_kills = None;
    let account = Account::of(&conversation(Ending::Exit(unseen)));
    assert_eq!(said_late(&account, &oom_killed()).len(), 1);
    assert_eq!(said_late(&account, &ended(0)), Vec::<String>::new());
    let seen = Account::of(&conversation(Ending::Exit(exit(Ended::Code(0)))));
    assert_eq!(said_late(&seen, &oom_killed()).len(), 1);
    assert_eq!(said_late(&seen, &silent()), Vec::<String>::new());
}

fn oom_killed() -> EngineWord {
    EngineWord::Ended(ContainerEnd {
        running: false,
        exit_code: Some(0),
        oom_killed: Some(true),
        being_removed: false,
    })
}
