//! A rootless engine, which an account without rights runs: used where it can enforce limits, and else refused by what it lacks.

use mayfly_core::outcome::{Cause, EndState, Mismatch, MismatchSource};
use mayfly_sandbox::{
    engine::CgroupVersion,
    seam::{PrepareError, Sandbox as _},
};
use mayfly_testkit::engine::{SecondEngine, find};

use crate::support::{Bench, on_gvisor, skipped, text};

/// Such an engine of this test's own, with our image; nothing where this machine can't have one, which is printed.
async fn rootless() -> Option<SecondEngine> {
    if on_gvisor() {
        skipped("a rootless engine: its gVisor needs more than a rootless engine's defaults");
        return None;
    }
    Bench::set_up().await?;
    for (program, package) in [
        ("rootlesskit", "rootlesskit"),
        ("newuidmap", "uidmap"),
        ("setpriv", "util-linux"),
    ] {
        if find(program).is_none() {
            skipped(&format!(
                "a rootless engine: {program} is not installed (apt install {package})"
            ));
            return None;
        }
    }
    for (knob, off) in [
        ("user/max_user_namespaces", "0"),
        ("kernel/unprivileged_userns_clone", "0"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1"),
    ] {
        // The last two are kernels' of Debian and Ubuntu.
        let found = std::fs::read_to_string(format!("/proc/sys/{knob}")).unwrap_or_default();
        if found.trim() == off {
            skipped(&format!(
                "a rootless engine: {knob} is {off}, so that users may make no namespaces"
            ));
            return None;
        }
    }
    let engine = SecondEngine::start(&["--rootless", "--no-gvisor"])
        .map_err(|why| skipped(&why))
        .ok()?;
    engine.load(&Bench::image_name().await?);
    Some(engine)
}

#[tokio::test]
async fn a_rootless_engine_is_used_where_it_can_enforce_limits_and_is_else_refused_by_what_it_lacks() {
    let Some(engine) = rootless().await else {
        return;
    };
    let bench = Bench::at(Some(engine.host().to_owned()), 8, None).await.unwrap();
    let facts = bench.sandboxes.engine().facts();
    assert!(facts.is_rootless() && !facts.remaps_users(), "{facts:?}");
    let lacks: Vec<_> = facts
        .rootless_lacks()
        .iter()
        .map(|lack| format!("info.{}", lack.field))
        .collect();
    if facts.cgroup == CgroupVersion::V1 {
        // There is no delegating of these to a user.
        for field in [
            "CgroupVersion",
            "CgroupDriver",
            "MemoryLimit",
            "PidsLimit",
            "CpuCfsQuota",
        ] {
            assert!(lacks.contains(&format!("info.{field}")), "{field}: {lacks:?}");
        }
    }
    let job = bench.python("print(open('/proc/self/uid_map').read())");
    if lacks.is_empty() {
        let report = bench.run(job).await;
        let end = (report.outcome.state, report.outcome.cause);
        assert_eq!(end, (EndState::Succeeded, Cause::Exited), "{report:#?}");
        let users = report.sandbox.unwrap().user_namespace.unwrap();
        assert!(users.first_uid > 0 && users.others.is_some(), "{users:?}");
        assert!(text(&report.stdout).contains(&users.first_uid.to_string()));
    } else {
        let prepared = bench.sandboxes.prepare(bench.request(&job)).await.err();
        let Some(PrepareError::Mismatch(found)) = prepared else {
            panic!("{prepared:?}");
        };
        let fields: Vec<_> = found.iter().map(|mismatch| mismatch.field.clone()).collect();
        assert_eq!(fields, lacks, "{found:#?}");
        let by_the_engine = |mismatch: &Mismatch| mismatch.source == MismatchSource::Inspect;
        assert!(found.iter().all(by_the_engine), "{found:#?}");
    }
    bench.assert_nothing_is_left().await;
}
