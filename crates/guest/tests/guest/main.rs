//! The guest on the real kernel: as pid 1 of new namespaces, with the capabilities that a sandbox
//! gives it, driven by frames, attacked by its job.
//!
//! These tests need root, `unshare`, `setpriv` and `python3`. Where one is missing each says so and
//! passes without having shown anything.

#[cfg(test)]
mod alike;
#[cfg(test)]
mod attacks;
#[cfg(test)]
mod collect;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod report;
#[cfg(test)]
mod size;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod warm;
