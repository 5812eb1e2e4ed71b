//! The sandbox on a real container engine.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "helpers of tests fail like tests, say what was skipped, and take their engine from the environment"
)]

#[path = "../../../guest/tests/guest/alike.rs"]
mod alike;
#[path = "../../src/verify/lies.rs"]
mod every_lie;
mod proxy;
#[path = "../../../../tests/hostile/result.rs"]
mod result;
mod support;
#[expect(
    dead_code,
    reason = "mutants run some of the battery's programs, and read no more of the table"
)]
#[path = "../../../../tests/hostile/battery/table.rs"]
mod table;

mod collect;
mod egress;
mod ends;
mod fetched;
mod floor;
mod harmful;
mod host;
mod hostile;
mod images;
mod interruptions;
mod lies;
mod mutants;
mod outcomes;
mod output;
mod pool;
mod preparation;
mod redaction;
mod rootless;
mod toolchains;
mod userns;
mod warm;
