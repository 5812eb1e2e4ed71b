//! The limits of the control group as they are seen from inside.

use mayfly_protocol::CgroupLimits;

use super::{
    Findings,
    report::{Expected, PAGE},
    tables::{Table, counts_swap, reason},
};
use crate::{baseline::engine_pids_limit, engine::CgroupVersion};

/// What engines make of a number of CPUs: so much of each 100 ms (moby `daemon/daemon_unix.go`, "NanoCPUs").
const CPU_PERIOD_US: u64 = 100_000;

pub(super) fn check(f: &mut Findings, expected: &Expected<'_>, found: &CgroupLimits) {
    let CgroupLimits {
        version,
        memory_bytes,
        memory_swap_bytes,
        pids,
        cpu_quota_us,
        cpu_period_us,
    } = found;
    if expected.table() == Table::Gvisor {
        let (what, why) = reason::CGROUP_GVISOR;
        f.not_enforceable(what, why);
        return;
    }
    let limits = &expected.request.limits;
    let asked_version = match expected.engine.cgroup {
        CgroupVersion::V1 => 1,
        CgroupVersion::V2 => 2,
    };
    f.equal("cgroup.version", &Some(asked_version), version);
    // The kernel counts in pages and rounds down.
    let memory = limits.memory.as_bytes() / PAGE * PAGE;
    f.equal("cgroup.memory_bytes", &Some(memory), memory_bytes);
    if counts_swap(expected.engine) {
        f.equal("cgroup.memory_swap_bytes", &Some(memory), memory_swap_bytes);
    } else {
        let (what, why) = reason::SWAP;
        f.not_enforceable(what, why);
    }
    let asked_pids = u64::try_from(engine_pids_limit(expected.request)).ok();
    f.equal("cgroup.pids", &asked_pids, pids);
    check_cpu(f, limits.cpu.as_millis(), *cpu_quota_us, *cpu_period_us);
}

/// What was asked for is the share.
fn check_cpu(f: &mut Findings, millis: u32, quota_us: Option<u64>, period_us: Option<u64>) {
    f.equal("cgroup.cpu_period_us", &Some(CPU_PERIOD_US), &period_us);
    let asked = period_us.and_then(|period| period.checked_mul(millis.into()).map(|share| share / 1000));
    f.expect(
        quota_us.is_some() && quota_us == asked,
        "cgroup.cpu_quota_us",
        || format!("{asked:?}"),
        || format!("{quota_us:?}"),
    );
}
