//! How attempts travel between the server and its executors: the messages, and the state machines that decide about
//! grants, leases, receipts, ticks and fences. No I/O, no async, no clock, no randomness: everything comes in as an
//! argument and goes out as a value, so that a model can drive all of it through any order of events.
//!
//! Start with [`message`], then follow an attempt: [`scheduler`] makes it and decides when it is published,
//! [`executor::Executor`] asks for it, [`recorder`] grants it and takes its result, [`reconciler`] finds out whose
//! session is dead. What the server's side decides on are the plain [`record`]s that a store loads into a
//! [`ledger::Ledger`]; what it decides comes back as a list of [`record::Change`]s for the same transaction.
//!
//! What holds, whichever process, broker or host dies meanwhile, and which part of it is where:
//!
//! * An attempt starts at most once, in the transaction that makes it started ([`record::AttemptState::after`]).
//! * A result counts only from the session that holds the attempt while it is not over ([`recorder`]).
//! * A session is dead only after a mark has passed through its own queue behind everything that it had sent
//!   ([`reconciler`]); an executor's own lease ends before that, and its sandboxes before its lease ([`executor`]).
//!
//! What is too long for a message lies on the server, by [`blob`]; an order is equipped with that by
//! [`message::BlobPlaces`].
//!
//! Whose job is next [`fairness`] decides, and why a job waits [`waiting`] says.
//!
//! Absent on purpose: whatever sends or stores (`mayfly-queue`, `mayfly-store`).

pub mod blob;
pub mod content;
pub mod executor;
pub mod fairness;
pub mod ledger;
pub mod message;
pub mod orphans;
pub mod reconciler;
pub mod record;
pub mod recorder;
pub mod rest;
pub mod rules;
pub mod scheduler;
pub mod time;
pub mod timing;
pub mod token;
pub mod waiting;

#[cfg(test)]
mod samples;
