//! Who the guest and the job are, and what they may do.

use mayfly_protocol::{Capabilities, Identity, Ids};

use super::{
    Findings,
    report::Expected,
    tables::{Table, reason},
};
use crate::baseline::GUEST_OOM_SCORE_ADJ;

/// KILL, SETGID and SETUID of `linux/capability.h`: what the guest keeps.
const GUEST_CAPABILITIES: u64 = 1 << 5 | 1 << 6 | 1 << 7;
/// What the guest sets for the job.
const JOB_OOM_SCORE_ADJ: i32 = 1000;
/// `SECCOMP_MODE_FILTER` of `linux/seccomp.h`.
const SECCOMP_FILTER: u32 = 2;

pub(super) fn check_guest(f: &mut Findings, expected: &Expected<'_>, found: &Identity) {
    let asked = Asked {
        name: "guest",
        id: expected.uids.guest,
        capabilities: GUEST_CAPABILITIES,
        oom_score_adj: i32::try_from(GUEST_OOM_SCORE_ADJ).unwrap_or(i32::MAX),
        // Another process of the same user can't look inside.
        dumpable: Some(0),
    };
    check(f, expected, &asked, found);
}

pub(super) fn check_job(f: &mut Findings, expected: &Expected<'_>, found: &Identity) {
    let asked = Asked {
        name: "job",
        id: expected.uids.job,
        capabilities: 0,
        oom_score_adj: JOB_OOM_SCORE_ADJ,
        // The host's fs.suid_dumpable until its execve(2), which then decides by the program.
        dumpable: None,
    };
    check(f, expected, &asked, found);
}

struct Asked {
    name: &'static str,
    id: u32,
    capabilities: u64,
    oom_score_adj: i32,
    dumpable: Option<i32>,
}

fn check(f: &mut Findings, expected: &Expected<'_>, asked: &Asked, found: &Identity) {
    let Identity {
        uid,
        gid,
        groups,
        caps,
        no_new_privs,
        seccomp_mode,
        seccomp_filters,
        dumpable,
        oom_score_adj,
    } = found;
    let field = |name: &str| format!("{}.{name}", asked.name);
    check_ids(f, &field("uid"), asked.id, uid);
    check_ids(f, &field("gid"), asked.id, gid);
    f.equal(&field("groups"), &Vec::<u32>::new(), groups);
    // Linux has shown them since 4.3; gVisor has none to show.
    let may_be_silent = expected.table() == Table::Gvisor;
    check_capabilities(f, &field("caps"), asked.capabilities, caps, may_be_silent);
    if let Some(asked) = asked.dumpable {
        f.equal(&field("dumpable"), &asked, dumpable);
    }
    match expected.table() {
        Table::HostKernel => {
            f.equal(&field("no_new_privs"), &Some(true), no_new_privs);
            f.equal(&field("seccomp_mode"), &Some(SECCOMP_FILTER), seccomp_mode);
            // The engine's filter and none beside it.
            f.expect(
                *seccomp_filters == Some(1)
                    || seccomp_filters.is_none() && !counts_filters(&expected.engine.kernel),
                &field("seccomp_filters"),
                || "1".to_owned(),
                || format!("{seccomp_filters:?}"),
            );
            f.equal(&field("oom_score_adj"), &Some(asked.oom_score_adj), oom_score_adj);
        }
        Table::Gvisor => {
            f.expect(
                matches!(no_new_privs, None | Some(true)),
                &field("no_new_privs"),
                || "true, or not shown".to_owned(),
                || format!("{no_new_privs:?}"),
            );
            for (what, why) in [
                reason::NO_NEW_PRIVS_GVISOR,
                reason::SECCOMP_GVISOR,
                reason::OOM_GVISOR,
            ] {
                f.not_enforceable(what, why);
            }
        }
    }
}

fn check_ids(f: &mut Findings, field: &str, asked: u32, found: &Ids) {
    let Ids {
        real,
        effective,
        saved,
        fs,
    } = found;
    f.equal(&format!("{field}.real"), &asked, real);
    f.equal(&format!("{field}.effective"), &asked, effective);
    f.equal(&format!("{field}.saved"), &asked, saved);
    f.equal(&format!("{field}.fs"), &asked, fs);
}

/// Whether a kernel of this release shows how many filters a process has: `Seccomp_filters` of proc_pid_status(5), since 5.9.
fn counts_filters(release: &str) -> bool {
    let mut numbers = release.split('.').map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..digits].parse::<u32>().ok()
    });
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) >= (5, 9),
        // What is no release of Linux is refused elsewhere.
        _ => true,
    }
}

fn check_capabilities(f: &mut Findings, field: &str, asked: u64, found: &Capabilities, may_be_silent: bool) {
    let Capabilities {
        inheritable,
        permitted,
        effective,
        bounding,
        ambient,
    } = found;
    f.equal(&format!("{field}.inheritable"), &0, inheritable);
    f.equal(&format!("{field}.permitted"), &asked, permitted);
    f.equal(&format!("{field}.effective"), &asked, effective);
    f.equal(&format!("{field}.bounding"), &0, bounding);
    f.expect(
        *ambient == Some(0) || ambient.is_none() && may_be_silent,
        &format!("{field}.ambient"),
        || "0".to_owned(),
        || format!("{ambient:?}"),
    );
}

#[cfg(test)]
mod tests {
    use super::counts_filters;

    #[test]
    fn filters_are_counted_since_5_9() {
        for (release, counts) in [
            ("5.8.0-63-generic", false),
            ("4.18.0-553.el8", false),
            ("5.9", true),
            ("5.10.0-28-amd64", true),
            ("6.18.44-fc-v857", true),
            ("what", true),
        ] {
            assert_eq!(counts_filters(release), counts, "{release}");
        }
    }
}
