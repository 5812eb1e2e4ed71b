//! Sandboxes: one container for one run, made, checked, used and destroyed through a container engine.
//!
//! Start with [`seam`], which is all that the executor role sees: prepare a sandbox, run one job in it, or discard it.
//! Behind it stands one implementation, on the engine's HTTP API; [`pool`] is the same seam around it, with sandboxes that
//! are made before their job is known.
//!
//! [`probes`] holds the hostile programs by which a host is tested; [`redaction`] says what is taken out of output, which
//! happens where the output comes in, so that nothing behind it has a secret to keep.
//!
//! Decided here: every setting is read back twice before a job is sent, from the engine and from inside; nothing falls
//! back in silence; the archive API is never used on a container that has run; every call to the engine has a bound.
//! No type of the engine's client shows in a public signature, error sources apart.

pub mod collect;
pub mod engine;
pub mod error;
pub mod fetched;
pub mod filter;
pub mod floor;
pub mod images;
pub mod pool;
pub mod probes;
pub mod redaction;
pub mod seam;

mod baseline;
mod capture;
mod channel;
mod container;
mod docker;
mod egress;
mod evidence;
mod guest_binary;
mod guest_volume;
mod host;
mod outbox;
mod ready;
mod reaper;
mod run;
mod syscalls;
mod uids;
mod verify;
mod warm;

pub use baseline::baseline_digest;
pub use docker::DockerSandbox;
pub use host::{FoundHost, HostCheck, Preflight, Refused};
pub use reaper::{Leftovers, Swept};
pub use warm::{NotAModule, WarmCommand};
