//! The battery of deaths: processes and engines that are killed, frozen and cut off in the middle of their work, on a
//! real engine and through the real binary. What is promised of that is in the README; each file names its part.

#![expect(clippy::print_stderr, reason = "figures of a run are for whoever reads it")]

mod batch;
mod census;
mod cut;
mod engine;
mod kill;
mod leaks;
mod process;
mod record;
#[expect(dead_code, reason = "the battery's own parts are not used here")]
#[path = "../hostile/result.rs"]
mod result;
mod rounds;
#[path = "../hostile/engine.rs"]
mod second_engine;
#[path = "../newcomer/support.rs"]
mod support;

/// How long everything may take of which no time is promised, on a machine that does much else.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(300);
