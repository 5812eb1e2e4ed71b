//! What a run proves of its sandbox.

use std::collections::BTreeMap;

use mayfly_core::{
    outcome::{Cause, EndState},
    run::RunReport,
};

use super::{Answer, Counted, End, Probe};

/// The exit code that every probe ends with by itself: one that no other end has.
pub(super) const EXIT_CODE: u8 = 73;
/// Errors that say that an attempt came to nothing; all others mean that it reached what it was aimed at.
const REFUSALS: &[&str] = &[
    "EACCES",
    "EAFNOSUPPORT",
    "EHOSTUNREACH",
    "ENETUNREACH",
    "ENODEV",
    "ENOENT",
    "ENOSYS",
    "ENOTSUP",
    "ENXIO",
    "EPERM",
    "EPROTONOSUPPORT",
    "EROFS",
    "ESOCKTNOSUPPORT",
    "ESRCH",
    "EXDEV",
];

/// What holds, in words.
pub(super) fn expected(probe: &Probe, runtime: &str) -> String {
    let end = match probe.ends.of(runtime) {
        End::Itself => "ends by itself",
        End::OutOfMemory => "is killed for memory",
        End::ItselfOrOutOfMemory => "ends by itself, or is killed for memory",
        End::Deadline => "is killed at its time limit",
        End::Counted => "is counted by the host within its limit, and killed",
    };
    let free = probe
        .answers
        .iter()
        .filter(|expected| expected.answer.of(runtime) == Answer::Free)
        .count();
    if probe.answers.is_empty() {
        end.to_owned()
    } else if free == probe.answers.len() {
        format!("{end}; gVisor's own kernel may answer as it likes")
    } else if free > 0 {
        format!("nothing reaches the host; {end}")
    } else {
        format!("nothing is had; {end}")
    }
}

/// Every point at which a run shows that the sandbox did not hold.
pub(super) fn judge(probe: &Probe, runtime: &str, report: &RunReport, counted: Counted) -> Vec<String> {
    let mut wrong = Vec::new();
    check_end(probe.ends.of(runtime), report, &mut wrong);
    let evidence = &report.outcome.evidence;
    wrong.extend(
        evidence
            .contradictions
            .iter()
            .map(|what| format!("two accounts of the end: {what}")),
    );
    wrong.extend(
        evidence
            .mismatches
            .iter()
            .map(|mismatch| format!("{} is {}, not {}", mismatch.field, mismatch.found, mismatch.asked)),
    );
    check_output(probe, report, &mut wrong);
    if probe.ends.of(runtime) == End::Counted {
        match counted.processes {
            Some(found) if found > counted.allowed => {
                wrong.push(format!(
                    "the host counts {found} processes, and {} are allowed",
                    counted.allowed
                ));
            }
            Some(_) => {}
            None => wrong.push("the host counted no processes".to_owned()),
        }
    }
    // A program that was killed for memory may have been killed before its account.
    let told = account(&report.stdout.head);
    let cut_short = report.outcome.state == EndState::OutOfMemory;
    for expected in probe.answers {
        let found = told.get(expected.name);
        match (found, expected.answer.of(runtime)) {
            (_, Answer::Free) => {}
            (None, _) if cut_short => {}
            (None, _) => wrong.push(format!("{}: no answer", expected.name)),
            (Some(words), answer) => wrong.extend(
                words
                    .iter()
                    .filter(|word| !holds(answer, word))
                    .map(|word| format!("{}: {word}", expected.name)),
            ),
        }
    }
    if !wrong.is_empty() && !report.stderr.head.is_empty() {
        let complaint = String::from_utf8_lossy(&report.stderr.head);
        let last = complaint.lines().last().unwrap_or_default();
        wrong.push(format!(
            "it wrote: {}",
            last.chars().take(200).collect::<String>()
        ));
    }
    wrong
}

fn check_end(end: End, report: &RunReport, wrong: &mut Vec<String>) {
    let outcome = &report.outcome;
    let by_itself = outcome.cause == Cause::Exited && outcome.exit_code == Some(EXIT_CODE);
    let holds = match end {
        End::Itself => by_itself,
        End::OutOfMemory => outcome.state == EndState::OutOfMemory,
        End::ItselfOrOutOfMemory => by_itself || outcome.state == EndState::OutOfMemory,
        End::Deadline => outcome.state == EndState::TimedOut,
        End::Counted => outcome.state == EndState::Canceled,
    };
    if !holds {
        let code = outcome
            .exit_code
            .map_or_else(String::new, |code| format!(", exit code {code}"));
        let signal = outcome
            .signal
            .map_or_else(String::new, |signal| format!(", signal {signal}"));
        wrong.push(format!(
            "it ended otherwise: {:?}, {:?}{code}{signal}",
            outcome.state, outcome.cause
        ));
    }
}

/// What is kept of the output is bounded, whatever the program writes.
fn check_output(probe: &Probe, report: &RunReport, wrong: &mut Vec<String>) {
    for (name, stream, limit) in [
        ("stdout", &report.stdout, probe.limits.stdout),
        ("stderr", &report.stderr, probe.limits.stderr),
    ] {
        let kept = stream.head.len() as u64 + stream.tail.len() as u64;
        if let Some(limit) = limit.filter(|limit| kept > limit.as_bytes()) {
            wrong.push(format!(
                "{kept} bytes of {name} are kept, and {limit} are allowed"
            ));
        }
    }
}

/// The lines `NAME: WORD WORD` of a program's account.
fn account(stdout: &[u8]) -> BTreeMap<String, Vec<String>> {
    let text = String::from_utf8_lossy(stdout);
    let lines = text.lines().filter_map(|line| line.split_once(": "));
    lines
        .map(|(name, words)| {
            (
                name.to_owned(),
                words.split_whitespace().map(str::to_owned).collect(),
            )
        })
        .collect()
}

fn holds(answer: Answer, word: &str) -> bool {
    match answer {
        Answer::Refused => REFUSALS.contains(&word),
        Answer::Exactly(expected) => word == expected,
        Answer::AtMost(most) => word.parse::<u64>().is_ok_and(|found| found <= most),
        Answer::Free => true,
    }
}
