//! Takes secrets out of a stream of bytes: the job's own ones, however they are written, and what has the published shape
//! of a token. No I/O, no async, no clock.
//!
//! ```
//! use mayfly_redact::{Matcher, Redactor, Rules, Secrets};
//!
//! let secrets = Secrets::new(["correct-horse-battery"]).expect("few and short enough");
//! let matcher = Matcher::new(&Rules::all(), &secrets);
//! let (mut redactor, mut out) = (Redactor::new(&matcher), Vec::new());
//! redactor.push(b"it is correct-ho", &mut out);
//! assert_eq!(out, b"it is "); // what may become a secret waits
//! redactor.push(b"rse-battery!\n", &mut out);
//! let counts = redactor.finish(&mut out);
//! assert_eq!(out, b"it is [redacted:secret]!\n");
//! assert_eq!(counts.of("secret"), 1);
//! ```
//!
//! What is taken out is defined on the whole stream, so that no division into chunks changes it: every match, of every
//! rule and every form of every secret, at every place, each as long as it goes. Those that overlap are one redaction, so
//! that no end of a secret stays. It is named by the match that starts first; of those that start at one place, a
//! secret's comes first, then the rules in their order.
//!
//! Start reading at [`Redactor`], then `machine.rs` (one rule after its anchor) and `automaton.rs` (all literals at
//! once). The rules are in `rules/table.rs`, and docs/redaction.md is what users read.
//!
//! Decided: every shape starts with a literal, its *anchor*, and has no alternatives after it, so that a rule is a counter
//! and not a regular expression. A shape without an upper length is certain once it has its least length; from there on
//! it is taken out as it comes, and not held.
//!
//! Absent on purpose: a flush by time (it would let out half a secret), patterns of a tenant's own, entropy.

mod automaton;
mod bytes;
mod counts;
mod filter;
mod left;
mod machine;
mod matcher;
mod redactor;
mod rules;
mod secrets;

pub use counts::Counts;
pub use matcher::Matcher;
pub use redactor::Redactor;
pub use rules::{RuleInfo, Rules, SECRET, UnknownRule};
pub use secrets::{
    LEAST_ENCODED_BYTES, LEAST_SECRET_BYTES, MOST_FORM_BYTES, MOST_SECRET_BYTES, MOST_SECRETS, Secrets,
    SecretsError,
};
