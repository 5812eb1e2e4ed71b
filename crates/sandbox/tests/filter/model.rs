//! What a profile says of a call, by the letter of the specification: 64-bit comparisons, all conditions of a rule.

use std::collections::{BTreeMap, BTreeSet};

use mayfly_sandbox::filter::Profile;
use serde_json::Value;

use super::bench::{Call, Outcome};

/// What a profile does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// The kernel answers.
    Allowed,
    /// The filter answers this.
    Answered(Outcome),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Condition {
    Equal(u64),
    LessThan(u64),
    Masked(u64, u64),
}

/// A rule with conditions: by argument, and what it decides.
struct Rule {
    conditions: BTreeMap<usize, Condition>,
    decision: Decision,
}

/// The rules about arguments, by call.
pub(super) struct Model(BTreeMap<String, Vec<Rule>>);

impl Condition {
    fn of(json: &Value) -> Self {
        let value = json["value"].as_u64().unwrap();
        match json["op"].as_str().unwrap() {
            "SCMP_CMP_EQ" => Self::Equal(value),
            "SCMP_CMP_LT" => Self::LessThan(value),
            "SCMP_CMP_MASKED_EQ" => Self::Masked(value, json["valueTwo"].as_u64().unwrap()),
            other => panic!("{other} is not sound"),
        }
    }

    const fn holds(self, argument: u64) -> bool {
        match self {
            Self::Equal(value) => argument == value,
            Self::LessThan(value) => argument < value,
            Self::Masked(mask, bits) => argument & mask == bits,
        }
    }

    /// An argument for which it holds.
    const fn example(self) -> u64 {
        match self {
            Self::Equal(value) | Self::Masked(_, value) => value,
            Self::LessThan(value) => value - 1,
        }
    }

    /// The numbers that a compiled rule compares with.
    fn constants(self) -> Vec<u64> {
        match self {
            Self::Equal(value) => vec![value],
            Self::LessThan(value) => vec![value - 1, value, value + 1],
            Self::Masked(mask, bits) => vec![mask, bits, mask & mask.wrapping_neg()],
        }
    }
}

impl Model {
    pub(super) fn of(profile: &Profile) -> Self {
        let mut rules: BTreeMap<String, Vec<Rule>> = BTreeMap::new();
        for rule in profile.to_json()["syscalls"].as_array().unwrap() {
            let Some(args) = rule.get("args").and_then(Value::as_array) else {
                continue;
            };
            for name in rule["names"].as_array().unwrap() {
                let decision = match rule["errnoRet"].as_i64() {
                    None => Decision::Allowed,
                    Some(0) => Decision::Answered(Outcome::Returned(0)),
                    Some(errno) => Decision::Answered(Outcome::Errno(i32::try_from(errno).unwrap())),
                };
                let conditions = args
                    .iter()
                    .map(|arg| {
                        (
                            usize::try_from(arg["index"].as_u64().unwrap()).unwrap(),
                            Condition::of(arg),
                        )
                    })
                    .collect();
                rules
                    .entry(name.as_str().unwrap().to_owned())
                    .or_default()
                    .push(Rule { conditions, decision });
            }
        }
        Self(rules)
    }

    /// Calls around every rule, one argument at a time away from it: to every number that any rule of that call
    /// compares with, and to its own with such a number in the upper half, where the kernel doesn't look. Arguments
    /// that no rule looks at are -1. Each with what is decided of it.
    pub(super) fn neighbourhood(&self) -> Vec<(Call, Decision)> {
        let mut calls = BTreeMap::new();
        for (name, rules) in &self.0 {
            let mut numbers: BTreeSet<u64> = [0, 1, 2, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff].into();
            numbers.extend(
                rules
                    .iter()
                    .flat_map(|rule| rule.conditions.values())
                    .flat_map(|condition| condition.constants()),
            );
            for rule in rules {
                for (index, condition) in &rule.conditions {
                    let own = condition.example();
                    let upper = numbers.iter().map(|number| number << 32);
                    let others = numbers
                        .iter()
                        .copied()
                        .chain(upper.clone().map(|upper| own | upper));
                    let elsewhere = numbers
                        .iter()
                        .flat_map(|low| [1 << 32, 6 << 32].map(|upper| low | upper));
                    for value in others.chain(elsewhere) {
                        let mut arguments = [u64::MAX; 6];
                        for (other, condition) in &rule.conditions {
                            arguments[*other] = condition.example();
                        }
                        arguments[*index] = value;
                        let words: String = arguments
                            .iter()
                            .map(|argument| format!(" {argument:#x}"))
                            .collect();
                        calls.insert(format!("{name}{words}"), decide(rules, &arguments));
                    }
                }
            }
        }
        calls
            .into_iter()
            .map(|(call, decision)| (Call(call), decision))
            .collect()
    }
}

fn decide(rules: &[Rule], arguments: &[u64; 6]) -> Decision {
    rules
        .iter()
        .find(|rule| {
            rule.conditions
                .iter()
                .all(|(index, condition)| condition.holds(arguments[*index]))
        })
        .map_or(Decision::Answered(Outcome::Errno(1)), |rule| rule.decision)
}
