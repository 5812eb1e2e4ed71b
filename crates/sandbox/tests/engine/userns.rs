//! An engine that maps the users of its containers (`userns-remap`): jobs run on it, and nothing of it is believed.

use std::sync::Arc;

use mayfly_core::{
    outcome::{Cause, EndState, MismatchSource},
    run::UserNamespace,
};
use mayfly_sandbox::seam::Sandbox;
use mayfly_testkit::engine::SecondEngine;
use serde_json::{Value, json};

use crate::{
    lies::{behind, found_out, liar, named},
    proxy::{Change, Lie, Proxy},
    support::{Bench, on_gvisor, skipped, text},
};

/// The first id that `scripts/second-engine` maps to, and how many.
const MAPPED: UserNamespace = UserNamespace {
    first_uid: 0x7000_0000,
    first_gid: 0x7000_0000,
    count: 65_536,
    others: None,
};

/// Such an engine of this test's own, with our image; nothing where this machine can't have one, which is printed.
async fn mapping() -> Option<SecondEngine> {
    if on_gvisor() {
        skipped("an engine that maps users: gVisor has users of its own");
        return None;
    }
    Bench::set_up().await?;
    let engine = SecondEngine::start(&["--userns"])
        .map_err(|why| skipped(&why))
        .ok()?;
    engine.load(&Bench::image_name().await?);
    Some(engine)
}

/// Becomes root, opens whatever control groups have for writing, and uses the devices.
const PROGRAM: &str = r#"
import json, os
def refused(call, *arguments):
    try: call(*arguments)
    except OSError as error: return error.errno
files = [os.path.join(folder, name) for folder, _, names in os.walk("/sys/fs/cgroup") for name in names]
open("/dev/null", "w").write("x")
print(json.dumps({
    "uid_map": open("/proc/self/uid_map").read().split(),
    "gid_map": open("/proc/self/gid_map").read().split(),
    "setuid": refused(os.setuid, 0),
    "setgid": refused(os.setgid, 0),
    "cgroup_files": len(files),
    "open_for_writing": [file for file in files if not refused(os.open, file, os.O_WRONLY)],
    "random": len(os.urandom(8)) + len(open("/dev/urandom", "rb").read(8)),
    "owner_of_dev_null": os.stat("/dev/null").st_uid,
    "owner_of_work": os.stat("/work").st_uid == os.getuid(),
}))
"#;

#[tokio::test]
async fn a_job_runs_where_users_are_mapped_and_is_nobody_of_the_host() {
    let Some(engine) = mapping().await else {
        return;
    };
    let bench = Bench::at(Some(engine.host().to_owned()), 8, None).await.unwrap();
    assert!(bench.sandboxes.engine().facts().remaps_users());
    assert_eq!(
        bench.sandboxes.engine().facts().mapped_root(),
        Some((MAPPED.first_uid, MAPPED.first_gid))
    );

    // What the host says of the guest while it waits.
    let waiting = bench
        .sandboxes
        .prepare(bench.request(&bench.python("")))
        .await
        .unwrap();
    let docker = bench.engine().await;
    let found = docker
        .inspect_container(&waiting.facts().container_id, None)
        .await
        .unwrap();
    let pid = found.state.unwrap().pid.unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    for name in ["Uid:", "Gid:"] {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        let ids: Vec<u32> = line.split_whitespace().map(|id| id.parse().unwrap()).collect();
        let of_the_sandbox = MAPPED.first_uid + 1..MAPPED.first_uid + MAPPED.count;
        assert!(
            ids.len() == 4 && ids.iter().all(|id| of_the_sandbox.contains(id)),
            "{name} {ids:?}"
        );
    }
    waiting.discard().await;

    let report = bench.run(bench.python(PROGRAM)).await;
    assert_eq!(
        (report.outcome.state, report.outcome.cause),
        (EndState::Succeeded, Cause::Exited),
        "{report:#?}"
    );
    assert_eq!(report.sandbox.as_ref().unwrap().user_namespace, Some(MAPPED));
    let said: Value = serde_json::from_str(&text(&report.stdout)).unwrap();
    assert!(said["cgroup_files"].as_u64().unwrap() > 20, "{said}");
    let map = json!(["0", MAPPED.first_uid.to_string(), MAPPED.count.to_string()]);
    for (name, value) in [
        ("uid_map", map.clone()),
        ("gid_map", map),
        ("setuid", json!(1)),
        ("setgid", json!(1)),
        ("open_for_writing", json!([])),
        ("random", json!(16)),
        // The host's root, who is nobody in here.
        ("owner_of_dev_null", json!(65_534)),
        ("owner_of_work", json!(true)),
    ] {
        assert_eq!(said[name], value, "{name}: {said}");
    }
}

/// Tells each of these lies about a sandbox of an engine, and sees it named.
async fn each_is_named(bench: &Bench, proxy: &Proxy, lies: Vec<(&str, Lie)>) {
    for (place, lie) in lies {
        let found = found_out(bench, proxy, lie).await.unwrap();
        assert!(named(&found, MismatchSource::Guest, place), "{place}: {found:?}");
    }
    bench.assert_nothing_is_left().await;
}

/// A guest that says this of one thing.
fn says(place: &'static str, value: Value) -> (&'static str, Lie) {
    let change: Change = Arc::new(move |ready: &mut Value| ready[place] = value.clone());
    (place, Lie::Ready(change))
}

/// A guest of whose control groups the job could open two files.
fn open_cgroups() -> (&'static str, Lie) {
    let change = |ready: &mut Value| {
        let mut probes = ready["probes"].as_array_mut().unwrap().iter_mut();
        let probe = probes.find(|result| result["probe"] == "open_cgroups").unwrap();
        probe["answer"] = json!({"returned": 2});
    };
    ("probes[open_cgroups]", Lie::Ready(Arc::new(change)))
}

fn range(inside: u32, outside: u32, count: u32) -> Value {
    json!({"inside": inside, "outside": outside, "count": count})
}

#[tokio::test]
async fn a_guest_that_says_that_users_are_mapped_where_the_engine_maps_none_is_refused() {
    if on_gvisor() {
        return skipped("users by a guest's word, on runc: the lies about each field tell gVisor's");
    }
    let Some((bench, proxy, honest)) = liar().await else {
        return;
    };
    assert_eq!(honest.ready["uid_map"], json!([range(0, 0, u32::MAX)]));
    let mut lies = vec![open_cgroups()];
    for place in ["uid_map", "gid_map"] {
        lies.extend([
            says(place, json!([range(0, MAPPED.first_uid, MAPPED.count)])),
            says(place, json!([range(0, 0, 65_536)])),
            says(place, json!([range(0, 1000, 1), range(1, 100_000, 65_536)])),
            says(place, json!([])),
        ]);
    }
    each_is_named(&bench, &proxy, lies).await;
}

#[tokio::test]
async fn a_guest_that_says_something_else_of_mapped_users_is_refused() {
    let Some(engine) = mapping().await else {
        return;
    };
    let (bench, proxy, honest) = behind(Proxy::before(engine.host()).await).await.unwrap();
    let first = MAPPED.first_uid;
    assert_eq!(honest.ready["uid_map"], json!([range(0, first, MAPPED.count)]));
    let mut lies = vec![open_cgroups()];
    for place in ["uid_map", "gid_map"] {
        lies.extend([
            says(place, json!([range(0, 0, u32::MAX)])),
            says(place, json!([range(0, 0, MAPPED.count)])),
            says(place, json!([range(0, first + 1, MAPPED.count)])),
            says(place, json!([range(1, first, MAPPED.count)])),
            says(place, json!([range(0, first, 20_000)])),
            says(place, json!([range(0, first, 1), range(1, 100_000, 65_536)])),
            says(place, json!([])),
        ]);
    }
    each_is_named(&bench, &proxy, lies).await;

    // Without the mapping that the engine has for all others. Beyond that it would not even start: the guest's volume is
    // the mapped root's.
    let change = |create: &mut Value| create["HostConfig"]["UsernsMode"] = "host".into();
    let found = found_out(&bench, &proxy, Lie::Create(Arc::new(change)))
        .await
        .unwrap();
    let place = "HostConfig.UsernsMode";
    assert!(named(&found, MismatchSource::Inspect, place), "{found:?}");
    bench.assert_nothing_is_left().await;
}
