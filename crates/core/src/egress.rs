//! What a job may reach outside of its sandbox: what its policy lets it ask for, and what is in force. The rules themselves, and what
//! is recorded of each request, are in `mayfly-reach`.

use mayfly_reach::{Caps, Policy, Rule};
pub use mayfly_reach::{CredentialRule, CredentialRuleFault, Decision, EgressRecord, IpNet, Reason, Verdict};
use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    fault::{Fault, Faults, excerpt},
    units::{ByteSize, Span},
};

/// Most rules of one job, and of a policy.
pub const MAX_RULES: usize = 64;

/// Most decisions that a report lists: as many of those that let something through as of the others.
pub const MAX_DECISIONS: usize = 400;

/// Longest text of one: a name as it was asked for, and marks in place of what was taken out of it.
pub const MAX_DECISION_TEXT: usize = 2048;

/// Most connections of a run at a time: what a guest carries.
const MAX_CONNECTIONS: u32 = 64;

/// Most requests of a run.
const MAX_REQUESTS: u32 = 1_000_000;

/// Longest that one request may take.
const LONGEST_REQUEST: Span = Span::seconds(24 * 3600);

/// What a policy lets jobs reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EgressRules {
    /// What a job may ask for: each of its rules must be covered by one of these, at most 64. With none of them no job has
    /// egress.
    #[serde(deserialize_with = "list")]
    pub allow: Vec<String>,
    /// Connections at a time, at most 64.
    pub connections: u32,
    /// Requests of a run, at most 1,000,000.
    pub requests: u32,
    /// Bytes of a run, both ways together.
    pub bytes: ByteSize,
    /// Longest that one request may take, at most a day.
    pub request_time: Span,
}

impl Default for EgressRules {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            connections: MAX_CONNECTIONS,
            requests: 10_000,
            bytes: ByteSize::mib(1024),
            request_time: Span::seconds(3600),
        }
    }
}

/// A list of texts, or one text with commas between them, as a variable of the environment has it.
fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "expected a list of rules, or one text with commas between them"
    )]
    enum Written {
        List(Vec<String>),
        Text(String),
    }
    Ok(match Written::deserialize(deserializer)? {
        Written::List(list) => list,
        Written::Text(text) => {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            parts.map(ToOwned::to_owned).collect()
        }
    })
}

/// What is in force for a job that may reach something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EgressInForce {
    /// Its rules, each in its one spelling.
    pub allow: Vec<String>,
    /// Connections at a time.
    pub connections: u32,
    /// Requests of the run.
    pub requests: u32,
    /// Bytes of the run, both ways together.
    pub bytes: ByteSize,
    /// Longest that one request may take.
    pub request_time: Span,
}

/// A rule of an order that is none: nothing is started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the egress rule {0:?} of the order is none")]
pub struct NoRule(String);

impl EgressInForce {
    /// The policy by which each request is judged. `own` are addresses that no rule opens.
    ///
    /// # Errors
    /// A text that is no rule.
    pub fn policy(&self, own: Vec<IpNet>) -> Result<Policy, NoRule> {
        let rule = |text: &String| text.parse().map_err(|_| NoRule(text.clone()));
        let rules = self.allow.iter().map(rule).collect::<Result<_, _>>()?;
        Ok(Policy::new(rules, own))
    }

    /// Its bounds.
    #[must_use]
    pub fn caps(&self) -> Caps {
        Caps {
            connections: self.connections as usize,
            requests: u64::from(self.requests),
            bytes: self.bytes.as_bytes(),
            request_time: self.request_time.as_duration(),
            listed: MAX_DECISIONS / 2,
            ..Caps::usual()
        }
    }
}

impl EgressRules {
    /// Whether an executor can go by them.
    ///
    /// # Errors
    /// Every text that is no rule, and every bound that is beyond what can be had.
    pub fn check(&self) -> Result<(), Faults> {
        let mut faults = Faults::default();
        parse_all("egress.allow", &self.allow, &mut faults);
        for (name, value, most) in [
            ("egress.connections", self.connections, MAX_CONNECTIONS),
            ("egress.requests", self.requests, MAX_REQUESTS),
        ] {
            if !(1..=most).contains(&value) {
                let message = format!("{value} is not between 1 and {most}");
                faults.push(Fault::new(name, "out_of_range", message));
            }
        }
        if self.request_time < Span::seconds(1) || self.request_time > LONGEST_REQUEST {
            let message = format!("{} is not between 1s and {LONGEST_REQUEST}", self.request_time);
            faults.push(Fault::new("egress.request_time", "out_of_range", message));
        }
        faults.into_result(())
    }

    /// What is in force for a job that asks for these rules; nothing, where it asks for none.
    pub(crate) fn resolve(&self, asked: &[String], faults: &mut Faults) -> Option<EgressInForce> {
        let allowed: Vec<Rule> = self.allow.iter().filter_map(|text| text.parse().ok()).collect();
        let rules = parse_all("egress", asked, faults);
        for (place, rule) in &rules {
            if !allowed.iter().any(|one| one.covers(rule)) {
                let list = if self.allow.is_empty() {
                    "nothing".to_owned()
                } else {
                    self.allow.join(", ")
                };
                let message = format!("{rule} is not allowed; the policy lets jobs reach: {list}");
                faults.push(Fault::new(format!("egress[{place}]"), "not_allowed", message));
            }
        }
        (!rules.is_empty()).then(|| EgressInForce {
            allow: rules.iter().map(|(_, rule)| rule.to_string()).collect(),
            connections: self.connections,
            requests: self.requests,
            bytes: self.bytes,
            request_time: self.request_time,
        })
    }
}

/// The rules that texts are, each with its place.
fn parse_all(field: &str, texts: &[String], faults: &mut Faults) -> Vec<(usize, Rule)> {
    if texts.len() > MAX_RULES {
        let message = format!("{} rules are more than {MAX_RULES}", texts.len());
        faults.push(Fault::new(field, "too_many", message));
        return Vec::new();
    }
    let mut rules = Vec::with_capacity(texts.len());
    for (place, text) in texts.iter().enumerate() {
        match text.parse() {
            Ok(rule) => rules.push((place, rule)),
            Err(fault) => faults.push(Fault::new(
                format!("{field}[{place}]"),
                "bad_rule",
                format!("{:?} is no rule: {fault}", excerpt(text)),
            )),
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str]) -> EgressRules {
        EgressRules {
            allow: allow.iter().map(|text| (*text).to_owned()).collect(),
            ..EgressRules::default()
        }
    }

    fn resolve(
        rules: &EgressRules,
        asked: &[&str],
    ) -> Result<Option<EgressInForce>, Vec<(String, &'static str)>> {
        let asked: Vec<String> = asked.iter().map(|text| (*text).to_owned()).collect();
        let mut faults = Faults::default();
        let found = rules.resolve(&asked, &mut faults);
        let told: Vec<_> = faults
            .iter()
            .map(|fault| (fault.path.clone(), fault.code))
            .collect();
        if told.is_empty() { Ok(found) } else { Err(told) }
    }

    #[test]
    fn a_job_has_what_it_asks_for_and_its_policy_covers() {
        let rules = rules(&["*.example.com", "pypi.org:443", "10.2.0.0/16:443"]);
        let found = resolve(&rules, &["PyPI.org:443", "a.Example.com.", "10.2.3.0/24:443"]);
        let found = found.unwrap().unwrap();
        assert_eq!(found.allow, ["pypi.org:443", "a.example.com", "10.2.3.0/24:443"]);
        assert_eq!(found.caps().listed, 200);
        assert!(found.policy(Vec::new()).is_ok());
        assert_eq!(resolve(&rules, &[]), Ok(None));
        let refused = resolve(&rules, &["pypi.org", "a.example.com", "*", "10.0.0.0/8:443"]);
        assert_eq!(
            refused.unwrap_err(),
            [
                ("egress[2]".to_owned(), "bad_rule"),
                ("egress[0]".to_owned(), "not_allowed"),
                ("egress[3]".to_owned(), "not_allowed"),
            ]
        );
        let nothing = resolve(&EgressRules::default(), &["pypi.org"]);
        assert_eq!(nothing.unwrap_err(), [("egress[0]".to_owned(), "not_allowed")]);
        let many = vec!["pypi.org:443"; MAX_RULES + 1];
        assert_eq!(
            resolve(&rules, &many).unwrap_err(),
            [("egress".to_owned(), "too_many")]
        );
    }

    #[test]
    fn rules_and_bounds_that_nobody_can_go_by_are_refused() {
        assert_eq!(rules(&["pypi.org", "*.example.com"]).check(), Ok(()));
        let written: EgressRules =
            serde_json::from_str(r#"{"allow": "pypi.org, *.example.com:80"}"#).unwrap();
        assert_eq!(written.allow, ["pypi.org", "*.example.com:80"]);
        assert!(serde_json::from_str::<EgressRules>(r#"{"allow": 7}"#).is_err());
        let wrong = EgressRules {
            connections: 65,
            requests: 0,
            request_time: Span::seconds(0),
            ..rules(&["pypi.org", "*"])
        };
        let faults = wrong.check().unwrap_err();
        let paths: Vec<_> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "egress.allow[1]",
                "egress.connections",
                "egress.requests",
                "egress.request_time"
            ]
        );
        let order = EgressInForce {
            allow: vec!["*".to_owned()],
            ..resolve(&rules(&["a.test"]), &["a.test"]).unwrap().unwrap()
        };
        assert!(order.policy(Vec::new()).is_err());
    }
}
