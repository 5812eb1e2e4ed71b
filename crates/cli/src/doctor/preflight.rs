//! What a host must have before it is used, as one list for everybody who asks: `mayfly doctor`, an executor that begins, one
//! whose engine is back, and the record of each run. The findings are the doctor's own; here is decided which of them
//! count, by which names they are accepted, and what the posture makes of them.

use mayfly_sandbox::{HostCheck, Preflight, Refused, engine::EngineFacts};
use mayfly_settings::{Posture, SandboxSettings};

use super::{
    engine,
    finding::{Finding, Status},
    host, locality,
};
use crate::context;

/// The finding that has a name for each part that is below its floor.
const VERSIONS: &str = "engine.versions";

/// What counts, by the ids of findings: what of these is a warning or a problem is missed.
const COUNTED: &[&str] = &[
    VERSIONS,
    "engine.kernel",
    "engine.cgroup",
    "engine.limits",
    "engine.lsm",
    "engine.seccomp",
    "host.core_pattern",
    "host.dev_null",
    "host.uids",
    "host.unprivileged_bpf_disabled",
    "host.dmesg_restrict",
    "host.kptr_restrict",
    "host.ptrace_scope",
    "host.protected_hardlinks",
    "host.perf_event_paranoid",
    "host.modules",
];

/// All of them, where another host's files can't be read.
const HOST: &str = "host";

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    /// What is missed. The id is the name: `engine.versions.runc`.
    pub(crate) missed: Vec<Finding>,
    /// Names of what could not be looked at.
    pub(crate) not_checked: Vec<String>,
}

impl Looked {
    /// What counts of these findings.
    pub(super) fn of(facts: &EngineFacts, findings: &[Finding]) -> Self {
        let mut looked = Self::default();
        for finding in findings {
            let counts = COUNTED.contains(&finding.id.as_str());
            match finding.status {
                Status::Warning | Status::Problem if finding.id == VERSIONS => {
                    looked
                        .missed
                        .extend(engine::below(facts).map(|(floor, found)| Finding {
                            id: format!("{VERSIONS}.{}", floor.name),
                            found,
                            ..finding.clone()
                        }));
                }
                Status::Warning | Status::Problem if counts => looked.missed.push(finding.clone()),
                Status::Skipped if counts || finding.id == HOST => {
                    looked.not_checked.push(finding.id.clone());
                }
                Status::Ok | Status::Note | Status::Warning | Status::Problem | Status::Skipped => {}
            }
        }
        looked
    }

    /// What the posture makes of it.
    fn judged(self, posture: Posture, accept: &[String]) -> Preflight {
        let refused = self.missed.iter().filter(|finding| {
            posture == Posture::Production && !accept.iter().any(|name| accepts(name, &finding.id))
        });
        Preflight {
            posture,
            refused: refused
                .map(|finding| Refused {
                    name: finding.id.clone(),
                    why: format!("{} ({}; {})", finding.found, finding.means, finding.mend),
                })
                .collect(),
            missed: self.missed.into_iter().map(|finding| finding.id).collect(),
            not_checked: self.not_checked,
        }
    }
}

/// The names by which something may be accepted.
#[cfg(feature = "fleet")]
pub(crate) fn names() -> Vec<String> {
    let versions = super::floors::FLOORS
        .iter()
        .filter(|floor| floor.component != "kernel");
    COUNTED
        .iter()
        .map(|name| (*name).to_owned())
        .chain(versions.map(|floor| format!("{VERSIONS}.{}", floor.name)))
        .collect()
}

/// `engine.versions` accepts all of them.
fn accepts(accepted: &str, name: &str) -> bool {
    name.strip_prefix(accepted)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// How a process of these settings judges its host.
pub(crate) fn host_check(settings: &SandboxSettings, posture: Posture, accept: &[String]) -> HostCheck {
    let first_uid = settings.first_uid;
    let address = context::address(settings).map(ToOwned::to_owned);
    let accept = accept.to_vec();
    HostCheck::new(move |facts| {
        let mut findings = engine::floors(facts);
        let uids = host::uids_of_sandboxes(first_uid, Some(facts));
        findings.extend(host::check(locality(facts, address.as_deref()), uids));
        Looked::of(facts, &findings).judged(posture, &accept)
    })
}

/// `mayfly run` is for development: what is missed is listed, and it goes on.
pub(super) fn posture(facts: &EngineFacts, findings: &[Finding]) -> Finding {
    let Looked { missed, not_checked } = Looked::of(facts, findings);
    let names: Vec<&str> = missed.iter().map(|finding| finding.id.as_str()).collect();
    let unknown = if not_checked.is_empty() {
        String::new()
    } else {
        format!("; not looked at: {}", not_checked.join(", "))
    };
    if names.is_empty() {
        return Finding::ok(
            "posture.floors",
            format!("development; production would find nothing missing{unknown}"),
        )
        .means(
            "every floor is met: versions, kernel, cgroup, limits, LSM, seccomp, and the host's own settings",
        );
    }
    let names = names.join(", ");
    Finding::warning("posture.floors", format!("development; production would refuse for {names}{unknown}"))
        .means("`mayfly run` and `mayfly batch` work on such a host; one that runs the code of strangers should miss none")
        .mend("mend what is named, or judge each for yourself: a distribution that backports fixes meets engine.versions")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked() -> Looked {
        Looked {
            missed: vec![
                Finding::warning("engine.versions.runc", "old"),
                Finding::warning("engine.lsm", "none"),
                Finding::warning("host.modules", "tls"),
            ],
            not_checked: Vec::new(),
        }
    }

    fn refused(posture: Posture, accepted: &[&str]) -> Vec<String> {
        let accepted: Vec<String> = accepted.iter().map(|name| (*name).to_owned()).collect();
        let judged = looked().judged(posture, &accepted);
        assert_eq!(
            judged.missed.len(),
            3,
            "what is accepted is on record all the same"
        );
        judged.refused.into_iter().map(|refused| refused.name).collect()
    }

    #[test]
    fn production_refuses_for_whatever_nobody_has_accepted() {
        let all = ["engine.versions.runc", "engine.lsm", "host.modules"];
        assert_eq!(refused(Posture::Production, &[]), all);
        assert_eq!(refused(Posture::Production, &["engine.versions"]), all[1..]);
        assert_eq!(refused(Posture::Production, &["engine.versions.runc"]), all[1..]);
        assert_eq!(refused(Posture::Production, &["engine.versions.containerd"]), all);
        assert!(refused(Posture::Production, &all).is_empty());
        assert!(refused(Posture::Development, &[]).is_empty());
    }

    #[test]
    fn what_could_not_be_looked_at_is_named_and_is_no_reason_to_refuse() {
        let findings = [
            Finding::skipped("host.ptrace_scope", "the kernel has none"),
            Finding::skipped("host", "it is elsewhere"),
            Finding::skipped("space.engine", "it is elsewhere"),
            Finding::note("host.max_user_namespaces", "many"),
            Finding::problem("engine.users", "rootless"),
        ];
        let found = Looked::of(&engine::tests::good(), &findings);
        assert_eq!(found.not_checked, ["host.ptrace_scope", "host"]);
        assert!(found.judged(Posture::Production, &[]).refused.is_empty());
    }

    #[test]
    fn each_part_below_its_floor_has_a_name_of_its_own() {
        let mut facts = engine::tests::good();
        facts.version = "20.10.24+dfsg1".to_owned();
        facts.details.runtime = Some(("runc".to_owned(), "1.1.5".to_owned()));
        let found = Looked::of(&facts, &engine::floors(&facts));
        let names: Vec<_> = found.missed.iter().map(|finding| finding.id.as_str()).collect();
        assert_eq!(names, ["engine.versions.docker", "engine.versions.runc"]);
        assert!(
            found.missed[1].found.contains("runc 1.1.5") && !found.missed[1].found.contains("20.10"),
            "{}",
            found.missed[1].found
        );
        #[cfg(feature = "fleet")]
        for name in names {
            assert!(super::names().iter().any(|known| known == name), "{name}");
        }
    }
}
