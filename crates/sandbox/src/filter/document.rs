//! The document as engines read it.

use serde::Serialize;

/// `EPERM`, the answer to what no rule names.
const DEFAULT_ERRNO: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document {
    default_action: Action,
    /// Says to newer engines what 20.10 takes for granted.
    default_errno_ret: u32,
    /// Given outright: with `archMap` the engine would add the 32-bit ABIs.
    architectures: [&'static str; 1],
    syscalls: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rule {
    /// For people; engines ignore it.
    comment: &'static str,
    names: Vec<&'static str>,
    action: Action,
    #[serde(skip_serializing_if = "Option::is_none")]
    errno_ret: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    args: Vec<Condition>,
}

/// A condition on one argument. All of a rule must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Condition {
    index: u32,
    /// At most 53 bits, so that canonical JSON writes it exactly.
    value: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_two: Option<u64>,
    op: Operator,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum Action {
    #[serde(rename = "SCMP_ACT_ALLOW")]
    Allow,
    #[serde(rename = "SCMP_ACT_ERRNO")]
    Errno,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum Operator {
    #[serde(rename = "SCMP_CMP_EQ")]
    Equal,
    #[serde(rename = "SCMP_CMP_LT")]
    LessThan,
    /// `argument & value == value_two`.
    #[serde(rename = "SCMP_CMP_MASKED_EQ")]
    MaskedEqual,
}

impl Document {
    pub(super) const fn new(architecture: &'static str, syscalls: Vec<Rule>) -> Self {
        Self {
            default_action: Action::Errno,
            default_errno_ret: DEFAULT_ERRNO,
            architectures: [architecture],
            syscalls,
        }
    }
}

impl Rule {
    pub(super) fn allow(comment: &'static str, names: &[&'static str]) -> Self {
        Self {
            comment,
            names: names.to_vec(),
            action: Action::Allow,
            errno_ret: None,
            args: Vec::new(),
        }
    }

    /// Answers with this `errno`, or with success where it is 0, and makes no call.
    pub(super) fn answer(comment: &'static str, errno: u32, names: &[&'static str]) -> Self {
        Self {
            action: Action::Errno,
            errno_ret: Some(errno),
            ..Self::allow(comment, names)
        }
    }

    /// Only where these hold. Each must be about another argument.
    pub(super) fn when(self, args: &[Condition]) -> Self {
        Self {
            args: args.to_vec(),
            ..self
        }
    }
}

impl Condition {
    pub(super) const fn equal(index: u32, value: u64) -> Self {
        Self {
            index,
            value,
            value_two: None,
            op: Operator::Equal,
        }
    }

    pub(super) const fn less_than(index: u32, value: u64) -> Self {
        Self {
            index,
            value,
            value_two: None,
            op: Operator::LessThan,
        }
    }

    /// The bits of `mask` in the argument are those of `bits`; the others may be any.
    pub(super) const fn masked(index: u32, mask: u64, bits: u64) -> Self {
        Self {
            index,
            value: mask,
            value_two: Some(bits),
            op: Operator::MaskedEqual,
        }
    }
}
