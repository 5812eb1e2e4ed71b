//! What a job may reach outside of its sandbox: hosts, ports and addresses, the rules that name them, and what was decided by
//! them. No I/O.
//!
//! Start with [`Rule`], one line of what is allowed, and [`Policy`], which judges by all of them. `address.rs` says what an address
//! is, `credential.rs` which requests get a credential that the job never has. `mayfly-egress` asks here before it dials, and only a [`CheckedAddress`] can be dialled at all; docs/egress.md is what users
//! read.
//!
//! Absent on purpose: whatever looks up or dials.

mod address;
mod caps;
mod credential;
mod name;
mod policy;
mod record;

pub use address::AddressClass;
pub use caps::Caps;
pub use credential::{AmbiguousPath, CredentialRule, CredentialRuleFault, PlainPath};
pub use ipnet::IpNet;
pub use name::{Host, HostName, NameFault, Target};
pub use policy::{Admitted, CheckedAddress, Inside, Policy, Rule, RuleFault};
pub use record::{Decision, EgressRecord, Reason, Verdict};
