//! Exit codes: one table, for `mayfly run` and for everything that fails before there is a job.
//!
//! A program's own exit code is passed on, so that any code can be a program's. Who must tell them apart reads
//! `--json`, where `state` says what happened.

use mayfly_core::outcome::{EndState, Outcome};

/// Everything went well.
pub(crate) const OK: u8 = 0;
/// A batch has ended, and not every item of it has succeeded; an executor has ended, and what it ran was killed; a model has
/// given no answer.
pub(crate) const SOME_FAILED: u8 = 1;
/// A wrong flag, a wrong job, a wrong setting (`EX_USAGE`, sysexits.h).
pub(crate) const USAGE: u8 = 64;
/// A file that was named can't be read (`EX_NOINPUT`).
pub(crate) const NO_INPUT: u8 = 66;
/// The image is not known, or can't be had.
pub(crate) const NO_IMAGE: u8 = 68;
/// No container engine or server answers (`EX_UNAVAILABLE`).
pub(crate) const NO_ENGINE: u8 = 69;
/// Trouble of our own before there is a job (`EX_SOFTWARE`).
pub(crate) const INTERNAL: u8 = 70;
/// What was asked about is not there: a job, an image.
pub(crate) const NOT_FOUND: u8 = 72;
/// Something was asked for and can't be written to stdout (`EX_CANTCREAT`, sysexits.h).
pub(crate) const NO_OUTPUT: u8 = 73;
/// The database can't be used (`EX_IOERR`).
pub(crate) const NO_STORE: u8 = 74;
/// Another process is at it; later it may work (`EX_TEMPFAIL`, sysexits.h).
pub(crate) const IN_USE: u8 = 75;

/// What answers is not the API, or another version of it (`EX_PROTOCOL`, sysexits.h).
pub(crate) const PROTOCOL: u8 = 76;
/// The server does not know the key, or the key may not (`EX_NOPERM`, sysexits.h).
pub(crate) const NO_PERMISSION: u8 = 77;
/// This host is not as it must be: `mayfly doctor` found a problem, an executor takes no work (`EX_CONFIG`, sysexits.h).
pub(crate) const UNFIT: u8 = 78;
/// Stopped before the end of a batch, of a bench, or of the wait for a server: 128 and the number of SIGINT, as shells have it.
pub(crate) const STOPPED: u8 = 130;

/// What each code of ours means, for people. The program's own codes are not in it.
pub(crate) const TABLE: &[(u8, &str)] = &[
    (OK, "all is well"),
    (
        SOME_FAILED,
        "mayfly batch: an item did not succeed; mayfly executor: what ran was killed at its end; mayfly ask: no answer",
    ),
    (USAGE, "a wrong flag, job or setting"),
    (NO_INPUT, "a file that can't be read"),
    (NO_IMAGE, "an image that is not known, or can't be had"),
    (NO_ENGINE, "no container engine answers, or no server"),
    (INTERNAL, "trouble of mayfly's own before there is a job"),
    (NOT_FOUND, "what was asked about is not there"),
    (NO_OUTPUT, "the output can't be written"),
    (NO_STORE, "the database can't be used"),
    (
        IN_USE,
        "later it may work: another process runs the batch, writes into the file, or is the same executor; the quota at the \
         server is used up; an output is not on record yet",
    ),
    (
        PROTOCOL,
        "what answers is not mayfly's API, or another version of it",
    ),
    (
        NO_PERMISSION,
        "the server does not know the key, or the key may not",
    ),
    (
        UNFIT,
        "mayfly doctor has found a problem; mayfly executor takes no work on this host",
    ),
    (118, "the job's executor died, and it may not be tried again"),
    (119, "the job waited longer than it may"),
    (120, "the job was canceled"),
    (121, "the job passed a limit that its policy kills on"),
    (122, "the job was killed for memory"),
    (123, "the job was rejected"),
    (124, "the job ran into its wall-clock limit"),
    (125, "trouble of mayfly's own, after all attempts"),
    (126, "the program was not started, or left no word"),
    (
        STOPPED,
        "stopped before the end: of a batch, of the wait for a server's job",
    ),
];

/// Added to the number of the signal that ended a program, as shells do.
const SIGNALED: u8 = 128;

/// The exit code of `mayfly run` for a job that ended so.
pub(crate) fn of_outcome(outcome: &Outcome) -> u8 {
    match outcome.state {
        EndState::Succeeded => OK,
        EndState::Failed => match (outcome.exit_code, outcome.signal) {
            (Some(code), _) => code,
            (None, Some(signal)) => SIGNALED.saturating_add(signal),
            // Not started, or gone without a word: as a shell says of a command that it can't run.
            (None, None) => 126,
        },
        EndState::Lost => 118,
        EndState::Expired => 119,
        EndState::Canceled => 120,
        EndState::LimitExceeded => 121,
        EndState::OutOfMemory => 122,
        EndState::Rejected => 123,
        EndState::TimedOut => 124,
        EndState::Error => 125,
    }
}

#[cfg(test)]
mod tests {
    use mayfly_core::outcome::{Cause, Evidence, ProcessEnd};

    use super::*;

    #[test]
    fn a_programs_own_end_is_passed_on() {
        let code = |end| {
            of_outcome(
                &Evidence {
                    end: Some(end),
                    ..Evidence::default()
                }
                .judge(),
            )
        };
        assert_eq!(code(ProcessEnd::Code(0)), 0);
        assert_eq!(code(ProcessEnd::Code(137)), 137);
        assert_eq!(code(ProcessEnd::Signal(11)), 139);
    }

    #[test]
    fn every_other_state_has_a_code_of_its_own() {
        let states = [
            EndState::Lost,
            EndState::Expired,
            EndState::Canceled,
            EndState::LimitExceeded,
            EndState::OutOfMemory,
            EndState::Rejected,
            EndState::TimedOut,
            EndState::Error,
        ];
        let codes: std::collections::BTreeSet<u8> = states
            .iter()
            .map(|state| of_outcome(&Outcome::decided(*state, Cause::Abandoned)))
            .collect();
        assert_eq!(codes.len(), states.len());
        let before_a_job = [
            USAGE,
            NO_INPUT,
            NO_IMAGE,
            NO_ENGINE,
            INTERNAL,
            NOT_FOUND,
            NO_OUTPUT,
            NO_STORE,
            IN_USE,
            PROTOCOL,
            NO_PERMISSION,
            UNFIT,
        ];
        assert!(before_a_job.iter().all(|code| !codes.contains(code)));
        let table: Vec<u8> = TABLE.iter().map(|(code, _)| *code).collect();
        assert!(table.is_sorted(), "{table:?}");
        let known: std::collections::BTreeSet<u8> = codes
            .into_iter()
            .chain(before_a_job)
            .chain([OK, SOME_FAILED, 126, STOPPED])
            .collect();
        assert_eq!(known, table.into_iter().collect());
    }
}
