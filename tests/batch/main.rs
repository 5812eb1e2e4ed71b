//! `mayfly batch` as a person and as a script use it: the real binary, on the machine's engine.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

#[path = "../newcomer/support.rs"]
mod support;

mod place;

mod faulty;
mod going_on;
mod stopping;
mod whole;
