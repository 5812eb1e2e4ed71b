//! The roles of a fleet as processes of their own: what each is made of, how it begins, and how it ends.
//!
//! They are the same roles that `embedded` wires into one process, on RabbitMQ and PostgreSQL instead of a queue in
//! memory and a file.

pub(crate) mod accounts;
pub(crate) mod broker;
pub(crate) mod database;
pub(crate) mod dev;
pub(crate) mod enroll;
pub(crate) mod executor;
pub(crate) mod server;
pub(crate) mod vault;

pub(crate) mod api;
mod fitness;
pub(crate) mod hub;
mod images;
mod letters;
mod life;
mod lock;
mod seams;

use mayfly_dispatch::timing::Timing;
use mayfly_failpoints::times_divided_by;

/// The times of the protocol: the standard ones, shorter where a test asks a build for tests for it.
fn timing() -> Timing {
    let timing = Timing::standard().divided_by(times_divided_by());
    timing.expect("the standard times keep every margin, also when divided")
}
