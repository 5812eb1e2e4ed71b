//! The matrix: what the programs do, what strikes them, and what can then be true.

use std::fmt;

use mayfly_core::{
    job::ResolvedJob,
    limits::Limits,
    outcome::{Cause, EndState},
    policy::OnOutputLimit,
    run::RunReport,
    units::{ByteSize, Span},
};

use crate::support::{Bench, limits, on_gvisor};

/// The wall-clock limit, in milliseconds, where it is to be reached.
const WALL_MS: u64 = 600;
/// How long before it a program acts that is to end at about that moment: about what it takes to start.
const START_MS: u64 = 40;
/// Between a program's word and its act, where the fault is a call to the engine: about what that takes.
const PAUSE_MS: u64 = 30;
/// The limit where it is not to be reached.
const FAR: Span = Span::seconds(60);
/// Most output of a program that is killed for more.
pub(super) const OUTPUT_LIMIT: ByteSize = ByteSize::kib(4);

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct End(EndState, Cause);

impl End {
    pub(super) const fn of(report: &RunReport) -> Self {
        Self(report.outcome.state, report.outcome.cause)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{:?}", self.0, self.1)
    }
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

const OUT_OF_MEMORY: End = End(EndState::OutOfMemory, Cause::MemoryLimit);
const TIMED_OUT: End = End(EndState::TimedOut, Cause::WallClock);
const CANCELED: End = End(EndState::Canceled, Cause::CanceledByRequest);
const GUEST_LOST: End = End(EndState::Failed, Cause::GuestLost);
const OURS: End = End(EndState::Error, Cause::EngineFailure);

/// A program, by how it ends where nothing else ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    ExitsZero,
    ExitsThree,
    Segfaults,
    TakesAllMemory,
    Sleeps,
    /// There is no limit on CPU time: it ends by the wall clock, or with whatever strikes it.
    Computes,
    FloodsPids,
    FillsWork,
    PrintsTooMuch,
}

impl Program {
    pub(super) const ALL: [Self; 9] = [
        Self::ExitsZero,
        Self::ExitsThree,
        Self::Segfaults,
        Self::TakesAllMemory,
        Self::Sleeps,
        Self::Computes,
        Self::FloodsPids,
        Self::FillsWork,
        Self::PrintsTooMuch,
    ];

    /// The exit code or, negative, the signal that is the program's own.
    pub(super) const fn own_end(self) -> Option<i16> {
        match self {
            Self::ExitsZero => Some(0),
            Self::ExitsThree => Some(3),
            Self::FloodsPids => Some(5),
            Self::FillsWork => Some(6),
            Self::Segfaults => Some(-11),
            Self::TakesAllMemory => Some(-9),
            Self::Sleeps | Self::Computes | Self::PrintsTooMuch => None,
        }
    }

    /// What it does when its moment has come.
    const fn act(self) -> &'static str {
        match self {
            Self::ExitsZero => "os._exit(0)",
            Self::ExitsThree => "os._exit(3)",
            Self::Segfaults => "os.kill(os.getpid(), signal.SIGSEGV)",
            Self::TakesAllMemory => "kept = []\nwhile True: kept.append(bytearray(1 << 20))",
            Self::Sleeps => "while True: time.sleep(1)",
            Self::Computes => "while True: pass",
            Self::FloodsPids => {
                "try:\n  while True:\n    if os.fork() == 0:\n      while True: time.sleep(1)\n\
                 except OSError as error: os._exit(5 if error.errno == errno.EAGAIN else 50)"
            }
            Self::FillsWork => {
                "full = os.open('full', os.O_WRONLY | os.O_CREAT)\ntry:\n  while True: os.write(full, bytes(65536))\n\
                 except OSError as error: os._exit(6 if error.errno == errno.ENOSPC else 60)"
            }
            Self::PrintsTooMuch => "while True: os.write(1, b'x' * 1024)",
        }
    }

    /// When it speaks, on which the fault strikes, and how long after that it acts; in milliseconds.
    const fn pauses(self, fault: Fault) -> (u64, u64) {
        match (self, fault) {
            (Self::Computes, _) | (Self::Sleeps, Fault::None | Fault::WallClock) => (0, 0),
            // Its end is the limit, and so is the moment of the fault.
            (Self::Sleeps, _) => (WALL_MS - 2 * START_MS, 0),
            (_, Fault::WallClock) => (0, WALL_MS - START_MS),
            (_, Fault::ContainerKilled | Fault::ContainerRemoved) => (0, PAUSE_MS),
            (_, Fault::None | Fault::Cancel | Fault::GuestKilled | Fault::StreamCut) => (0, 0),
        }
    }

    /// Whether the wall clock is to end it, or may.
    const fn reaches_the_wall(self, fault: Fault) -> bool {
        matches!(
            (self, fault),
            (Self::Sleeps, _) | (Self::Computes, Fault::None) | (_, Fault::WallClock)
        )
    }

    pub(super) fn job(self, bench: &Bench, fault: Fault) -> ResolvedJob {
        let (before, after) = self.pauses(fault);
        let mut job = bench.python(&format!(
            "import errno, os, signal, time\ntime.sleep({before} / 1000)\nos.write(1, b'running\\n')\n\
             time.sleep({after} / 1000)\n{}\n",
            self.act()
        ));
        job.limits = limits(|limits: &mut Limits| {
            limits.wall = if self.reaches_the_wall(fault) {
                Span::millis(WALL_MS)
            } else {
                FAR
            };
            match self {
                Self::TakesAllMemory => {
                    limits.memory = ByteSize::mib(64);
                    limits.work = ByteSize::mib(16);
                    limits.tmp = ByteSize::mib(8);
                }
                Self::FloodsPids => limits.pids = 16,
                Self::FillsWork => limits.work = ByteSize::mib(4),
                Self::PrintsTooMuch => limits.stdout = OUTPUT_LIMIT,
                Self::ExitsZero | Self::ExitsThree | Self::Segfaults | Self::Sleeps | Self::Computes => {}
            }
        });
        if self == Self::PrintsTooMuch {
            job.on_output_limit = OnOutputLimit::Kill;
        }
        job
    }
}

/// What strikes a program at about the moment of its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    WallClock,
    Cancel,
    /// By the engine's API, by somebody else.
    ContainerKilled,
    /// By force, the same way.
    ContainerRemoved,
    /// By a signal from the host.
    GuestKilled,
    /// The connection to the engine over which the guest is spoken with.
    StreamCut,
}

/// All ends that can be true of a program beside a fault: its own, where it has the time for that, and the fault's.
pub(super) fn true_ends(program: Program, fault: Fault) -> Vec<End> {
    let own = match program {
        Program::ExitsZero => Some(End(EndState::Succeeded, Cause::Exited)),
        Program::ExitsThree | Program::FloodsPids | Program::FillsWork => {
            Some(End(EndState::Failed, Cause::Exited))
        }
        Program::Segfaults => Some(End(EndState::Failed, Cause::Signaled)),
        Program::TakesAllMemory => Some(OUT_OF_MEMORY),
        Program::Sleeps => Some(TIMED_OUT),
        Program::Computes => (fault == Fault::None).then_some(TIMED_OUT),
        Program::PrintsTooMuch => Some(End(EndState::LimitExceeded, Cause::OutputLimit)),
    };
    let faults = match fault {
        Fault::None => None,
        Fault::WallClock => Some(TIMED_OUT),
        Fault::Cancel => Some(CANCELED),
        Fault::ContainerKilled | Fault::GuestKilled => Some(GUEST_LOST),
        Fault::ContainerRemoved | Fault::StreamCut => Some(OURS),
    };
    // There the whole sandbox is killed, and nobody but the engine can tell for what, which it does late or never.
    let untold = (program == Program::TakesAllMemory && on_gvisor()).then_some(GUEST_LOST);
    own.into_iter().chain(faults).chain(untold).collect()
}
