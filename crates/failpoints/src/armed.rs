//! What a point is in a process that tests make die.
#![expect(
    clippy::disallowed_methods,
    reason = "what a test asks for is no setting, and nobody hands it through the roles"
)]

use std::{
    path::PathBuf,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::process::{Signal, getpid, kill_process};

use crate::Point;

/// What the variable asks for.
#[derive(Debug, PartialEq, Eq)]
struct Trap {
    point: Point,
    /// At which passage, from 1.
    nth: u64,
    signal: Signal,
}

impl Trap {
    /// Reads `NAME[:NTH[:ACTION]]`.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let name = parts.next()?;
        let point = Point::ALL.into_iter().find(|point| point.name() == name)?;
        let nth = parts.next().map_or(Some(1), |nth| nth.parse().ok())?;
        let signal = match parts.next() {
            None | Some("kill") => Signal::KILL,
            Some("stop") => Signal::STOP,
            Some(_) => return None,
        };
        (parts.next().is_none() && nth > 0).then_some(Self { point, nth, signal })
    }
}

/// What the variable asks for: a trap from the start, or a file in which one may be found at any time.
enum Asked {
    Nothing,
    Trap(Trap),
    File(PathBuf),
}

static ASKED: OnceLock<Asked> = OnceLock::new();
static PASSED: AtomicU64 = AtomicU64::new(0);
/// Taking what a file says is one step, for this process.
static TAKING: Mutex<()> = Mutex::new(());

fn asked() -> Asked {
    let Ok(text) = std::env::var("MAYFLY_TEST_FAILPOINT") else {
        return Asked::Nothing;
    };
    if let Some(file) = text.strip_prefix('@') {
        return Asked::File(file.into());
    }
    let trap = Trap::parse(&text);
    Asked::Trap(trap.unwrap_or_else(|| panic!("MAYFLY_TEST_FAILPOINT={text} names no point")))
}

/// The trap that a file holds for this point. It is taken with that: of several processes that share the file one gets it.
fn take(file: &PathBuf, point: Point) -> Option<Trap> {
    let _taking = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let text = std::fs::read_to_string(file).ok()?;
    let trap =
        Trap::parse(text.trim()).unwrap_or_else(|| panic!("{} names no point: {text}", file.display()));
    (trap.point == point && std::fs::remove_file(file).is_ok()).then_some(trap)
}

/// The process has come to a point.
///
/// # Panics
/// The variable is set to something that can't be read: a test that is wrong must not pass.
pub fn reach(point: Point) {
    let taken;
    let trap = match ASKED.get_or_init(asked) {
        Asked::Nothing => return,
        Asked::Trap(trap) => {
            if trap.point != point || PASSED.fetch_add(1, Ordering::SeqCst) + 1 != trap.nth {
                return;
            }
            trap
        }
        Asked::File(file) => match take(file, point) {
            None => return,
            Some(trap) => {
                taken = trap;
                &taken
            }
        },
    };
    if let Some(file) = std::env::var_os("MAYFLY_TEST_FAILPOINT_HIT") {
        // Without it the test finds the point unreached, which is a failure by itself.
        std::fs::write(file, point.name()).unwrap_or_default();
    }
    // Its own process: the call fails for no reason that exists.
    kill_process(getpid(), trap.signal).unwrap_or_default();
    if trap.signal == Signal::KILL {
        // The signal may be taken by another thread a moment later.
        loop {
            std::thread::park();
        }
    }
}

/// By what the times of the protocol are divided in this process.
///
/// # Panics
/// The variable is set to something that is no number from 1 to 60.
pub fn times_divided_by() -> u32 {
    divisor("MAYFLY_TEST_TIMES_DIVIDED_BY", 60)
}

/// By what the times between self-tests are divided in this process.
///
/// # Panics
/// The variable is set to something that is no number from 1 to 600.
pub fn self_tests_divided_by() -> u32 {
    divisor("MAYFLY_TEST_SELF_TESTS_DIVIDED_BY", 600)
}

fn divisor(name: &str, most: u32) -> u32 {
    let Ok(text) = std::env::var(name) else {
        return 1;
    };
    let divisor = text.parse().ok().filter(|divisor| (1..=most).contains(divisor));
    divisor.unwrap_or_else(|| panic!("{name}={text} is no number from 1 to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trap_is_a_point_a_passage_and_an_action() {
        let trap = |point, nth, signal| Some(Trap { point, nth, signal });
        assert_eq!(Trap::parse("job-sent"), trap(Point::JobSent, 1, Signal::KILL));
        assert_eq!(Trap::parse("run-ended:3"), trap(Point::RunEnded, 3, Signal::KILL));
        assert_eq!(
            Trap::parse("events-taken:2:stop"),
            trap(Point::EventsTaken, 2, Signal::STOP)
        );
        for wrong in [
            "",
            "job",
            "job-sent:0",
            "job-sent:x",
            "job-sent:1:end",
            "job-sent:1:kill:2",
        ] {
            assert_eq!(Trap::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_file_is_taken_by_the_point_that_it_names_and_by_one_alone() {
        let file = std::env::temp_dir().join(format!("mayfly-trap-{}", std::process::id()));
        assert!(take(&file, Point::JobSent).is_none(), "there is none yet");
        std::fs::write(&file, "job-sent:1:stop\n").unwrap();
        assert!(take(&file, Point::RunEnded).is_none());
        let trap = take(&file, Point::JobSent);
        assert_eq!(
            trap,
            Some(Trap {
                point: Point::JobSent,
                nth: 1,
                signal: Signal::STOP
            })
        );
        assert!(take(&file, Point::JobSent).is_none());
    }
}
