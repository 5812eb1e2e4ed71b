//! The domain of mayfly: what a job is, what it may ask for, how it ended, and what is put on record. No I/O, no
//! async, no clock: everything here can be tested by calling it.
//!
//! Start with [`job`] (what a tenant submits and what becomes of it), then [`outcome`] (how a run ended, decided from
//! evidence by one function), [`state`] (how a job moves) and [`audit`] (the facts that are kept). Who may do what to whom begins in [`account`].
//!
//! Decided here: ids are UUIDv7; quantities carry units and refuse bare numbers; an image runs by digest; a policy's
//! version is a digest of everything that it and the sandbox baseline say. Absent on purpose: messages between roles
//! (`mayfly-dispatch`), frames between executor and guest (`mayfly-protocol`), and anything that stores or sends.

pub mod account;
pub mod artifact;
pub mod audit;
mod canonical;
pub mod chain;
pub mod clock;
pub mod digest;
pub mod egress;
pub mod fault;
pub mod host;
pub mod id;
pub mod image;
pub mod job;
pub mod limits;
#[cfg(feature = "openapi")]
mod openapi;
pub mod outcome;
pub mod policy;
pub mod run;
pub mod self_test;
pub mod state;
pub mod units;
pub mod word;
