//! The hostile battery: programs that attack their sandbox, their guest, their host and their neighbours, through the
//! real binary on a real engine, on runc and on gVisor.
//!
//! The programs and what is expected of each stand in `programs/*.py` (`battery/table.rs` says how). All of one runtime
//! go through one process, several at a time, beside a neighbour that was there before them, and among honest programs.
//! The verdict comes from the host's side: the record, the engine, the kernel, canaries on the host and in the
//! neighbour. What a program says is compared too, but nothing rests on it alone.
//!
//! `make test` takes the programs marked `always`; `MAYFLY_TEST_HOSTILE=all`, as `make test-hostile` sets it, takes all
//! and writes what was found to `MAYFLY_TEST_HOSTILE_RESULT`.

#![expect(clippy::print_stderr, reason = "figures of a run are for whoever reads it")]

mod battery {
    pub(crate) mod figures;
    pub(crate) mod ground;
    pub(crate) mod judge;
    pub(crate) mod neighbour;
    pub(crate) mod page;
    pub(crate) mod run;
    pub(crate) mod table;
}
#[expect(dead_code, reason = "the faults' own parts are not used here")]
#[path = "../faults/batch.rs"]
mod batch;
#[expect(dead_code, reason = "the faults' own parts are not used here")]
#[path = "../faults/census.rs"]
mod census;
mod engine;
#[expect(dead_code, reason = "the faults' own parts are not used here")]
#[path = "../faults/process.rs"]
mod process;
#[expect(dead_code, reason = "the faults' own parts are not used here")]
#[path = "../faults/record.rs"]
mod record;
#[path = "result.rs"]
mod result;
#[path = "../newcomer/support.rs"]
mod support;

use battery::{run, table::Runtime};
use support::Mayfly;

#[test]
fn on_runc_every_program_is_held_and_ends_as_it_truly_does() {
    if let Some(mayfly) = Mayfly::with_python() {
        run::all(&mayfly, Runtime::Runc, "");
    }
}

#[test]
fn on_gvisor_every_program_is_held_and_ends_as_it_truly_does() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    if engine::machines_engine_has_gvisor() {
        run::all(&mayfly, Runtime::Runsc, "");
    } else if let Some(engine) = engine::with_gvisor(&mayfly, &[]) {
        run::all(&mayfly, Runtime::Runsc, engine.host());
    }
}
