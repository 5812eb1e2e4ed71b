//! The Store seam: where jobs, attempts, results and audit events are kept.
//!
//! Start with [`seam::Store`]. Every method is one transaction that is committed when it returns, together with the
//! audit events that it makes true; what it decides about grants, leases and receipts it asks `mayfly-dispatch`, so that
//! no implementation decides for itself. The module `contract` (a feature of the same name, for tests alone) is the suite
//! that every implementation passes.
//!
//! Absent on purpose: SQL, and any implementation.

pub mod accounts;
pub mod blobs;
#[cfg(feature = "contract")]
pub mod contract;
pub mod error;
pub mod executors;
pub mod letters;
pub mod records;
pub mod seam;
pub mod secrets;
pub mod uploads;
