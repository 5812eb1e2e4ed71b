//! Texts that have the shape of a rule, made at random of its pattern. No token is written anywhere.

use proptest::{prelude::*, strategy::ValueTree as _, string::bytes_regex, test_runner::TestRunner};

/// What stands before the secret and stays, and the secret.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) kept: Vec<u8>,
    pub(crate) secret: Vec<u8>,
    /// What must follow.
    pub(crate) then: &'static str,
}

impl Sample {
    pub(crate) fn text(&self) -> Vec<u8> {
        [&*self.kept, &self.secret, self.then.as_bytes()].concat()
    }
}

/// Texts of one pattern, as `RuleInfo::patterns` gives it.
pub(crate) fn of(pattern: &str) -> impl Strategy<Value = Sample> + use<> {
    let mut body = pattern;
    if let Some((_, behind)) = body.strip_prefix("(?<!").and_then(|rest| rest.split_once(')')) {
        body = behind;
    }
    let mut then = "";
    if let Some((before, _)) = body.split_once("(?=[@])") {
        (body, then) = (before, "@");
    }
    body = body.split_once("(?!").map_or(body, |(before, _)| before);
    let mut tail = "";
    if let Some((before, _)) = body.split_once("[^]*?") {
        (body, tail) = (before, "\n-----END OF THAT KEY-----");
    }
    let (kept, secret) = body.split_once("\\K").unwrap_or(("", body));
    let strategy = |pattern: &str| bytes_regex(&format!("(?s-u:{pattern})")).expect("a pattern of the table");
    (strategy(kept), strategy(secret)).prop_map(move |(kept, mut secret)| {
        secret.extend_from_slice(tail.as_bytes());
        Sample { kept, secret, then }
    })
}

/// A fixed choice of them.
pub(crate) fn some(pattern: &str, count: usize) -> Vec<Sample> {
    let (mut runner, strategy) = (TestRunner::deterministic(), of(pattern));
    (0..count)
        .map(|_| strategy.new_tree(&mut runner).expect("a sample").current())
        .collect()
}
