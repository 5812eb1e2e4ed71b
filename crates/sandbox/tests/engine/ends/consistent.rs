//! Whether all that a report says of an end fits together.

use mayfly_core::{
    job::ResolvedJob,
    outcome::{Cause, EndState, KilledFor, ProcessEnd, TroubleKind},
    run::RunReport,
};

use super::table::{Fault, OUTPUT_LIMIT, Program};
use crate::support::on_gvisor;

/// What of a report does not fit to the rest of it, to the program, or to what struck it.
pub(super) fn faults_of(
    job: &ResolvedJob,
    program: Program,
    fault: Fault,
    report: &RunReport,
    contradictions: &[String],
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut check = |fits: bool, what: &str| {
        if !fits {
            wrong.push(what.to_owned());
        }
    };
    let outcome = &report.outcome;
    let evidence = &outcome.evidence;
    let (code, signal) = match evidence.end {
        Some(ProcessEnd::Code(code)) => (Some(code), None),
        Some(ProcessEnd::Signal(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    check(
        (outcome.exit_code, outcome.signal) == (code, signal),
        "the exit code is not the one in the evidence",
    );
    check(
        evidence.clone().judge() == *outcome,
        "the evidence proves another outcome",
    );
    check(evidence.started, "it had spoken, and is not said to have started");
    // On a busy machine its time may be over before it comes to that; nothing strikes it then.
    let spoke = report.stdout.head.starts_with(b"running\n");
    // On gVisor the kernel kills the guest with it for memory, and what that had not passed on goes too.
    check(
        spoke || outcome.cause == Cause::WallClock || on_gvisor() && evidence.end.is_none(),
        "what it had said is lost",
    );
    check(
        evidence.mismatches.is_empty() && evidence.refused.is_none(),
        "it was as asked for, and was started",
    );
    check(
        (outcome.exit_code == Some(0)) == (outcome.state == EndState::Succeeded)
            || killed(evidence.killed_for),
        "success is exit code 0, and nothing else",
    );
    check(
        evidence.trouble.is_some() == (outcome.state == EndState::Error),
        "trouble of ours is an error, and an error is trouble of ours",
    );
    check(
        report.usage.is_some() == evidence.end.is_some(),
        "usage comes with the guest's account, and with nothing else",
    );
    // Only what strikes the guest itself leaves an engine's word that is not the guest's.
    let struck = matches!(
        fault,
        Fault::ContainerKilled | Fault::ContainerRemoved | Fault::GuestKilled
    );
    check(
        contradictions.is_empty() || struck,
        "the engine contradicts an account that nobody disturbed",
    );
    check(
        evidence.contradictions.is_empty() || struck,
        "the evidence contradicts itself, and nobody struck the guest",
    );
    check(
        evidence.oom_kills.is_none_or(|kills| kills == 0) || program == Program::TakesAllMemory,
        "the kernel killed for memory what has taken none",
    );
    let own_end = code.map(i16::from).or(signal.map(|signal| -i16::from(signal)));
    match outcome.cause {
        Cause::Exited | Cause::Signaled => {
            check(own_end == program.own_end(), "another program's end");
            check(evidence.killed_for.is_none(), "killed by us, and ended by itself");
        }
        Cause::MemoryLimit => {
            let counted = evidence.oom_kills.is_some_and(|kills| kills > 0);
            let told = evidence.oom_kills.is_none() && evidence.engine_oom_killed == Some(true);
            check(counted || told, "nobody counted a kill for memory");
            check(
                own_end.is_none_or(|end| end == -9),
                "the kernel kills with SIGKILL",
            );
        }
        Cause::WallClock => {
            let deadline = [KilledFor::ExecutorDeadline, KilledFor::GuestDeadline];
            check(
                evidence
                    .killed_for
                    .is_some_and(|killed| deadline.contains(&killed)),
                "timed out, and killed for something else",
            );
            check(
                ran_ms(report) >= job.limits.wall.as_millis(),
                "it had not run so long",
            );
        }
        Cause::CanceledByRequest => {
            check(
                evidence.killed_for == Some(KilledFor::Cancel),
                "canceled, and not killed for that",
            );
            check(fault == Fault::Cancel, "nobody has canceled it");
        }
        Cause::OutputLimit => {
            check(
                evidence.killed_for == Some(KilledFor::OutputLimit),
                "killed for something else than its output",
            );
            check(
                report.stdout.count.bytes > OUTPUT_LIMIT.as_bytes() && report.stdout.count.truncated,
                "it had not printed so much",
            );
        }
        Cause::GuestLost => {
            check(evidence.end.is_none(), "a guest that is lost gave an account");
            check(
                evidence.engine_exit_code.is_some_and(|code| code != 0),
                "the engine does not say that the guest ended badly",
            );
        }
        Cause::EngineFailure => check(
            evidence
                .trouble
                .as_ref()
                .is_some_and(|trouble| trouble.kind == TroubleKind::Engine && !trouble.message.is_empty()),
            "the engine failed, and nobody says how",
        ),
        _ => check(false, "no run ends so"),
    }
    if program == Program::FloodsPids && outcome.cause == Cause::Exited {
        check(
            evidence.pids_refused.is_none_or(|refused| refused > 0),
            "the limit on processes was met, and the kernel has not counted it",
        );
    }
    wrong
}

const fn killed(killed_for: Option<KilledFor>) -> bool {
    killed_for.is_some()
}

/// How long it ran: by the guest's clock, or from the outside where it could not say.
fn ran_ms(report: &RunReport) -> u64 {
    report.usage.map_or_else(
        || {
            let ran = report.started_at.map(|started| report.ended_at - started);
            ran.and_then(|ran| u64::try_from(ran.num_milliseconds()).ok())
                .unwrap_or(0)
        },
        |usage| usage.wall_us / 1000,
    )
}
