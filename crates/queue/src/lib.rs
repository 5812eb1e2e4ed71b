//! How messages travel between the server and its executors: the [`seam::Queue`] seam, and the queue of one process.
//!
//! Start with [`seam`]: what a broker must do, and what its users must expect of it. [`memory::MemoryQueue`] does it
//! for roles that share a process, and `rabbitmq::RabbitQueue`, behind the feature of that name, for a fleet. What both
//! have to pass is the suite in `contract`, behind a feature too.
//!
//! Nothing here decides anything about attempts, leases or receipts: that is `mayfly-dispatch`, which also says what
//! the messages are and how they are written.

#[cfg(feature = "contract")]
pub mod contract;
pub mod memory;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
pub mod seam;
