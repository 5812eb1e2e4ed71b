//! Memory, CPU, processes and the limits of each process.

use serde_json::Value;

use super::{Mutant, four_times, list, set};

pub(super) fn all() -> Vec<Mutant> {
    let mut all = of_the_group();
    all.extend(of_each_process());
    all
}

fn of_the_group() -> Vec<Mutant> {
    vec![
        Mutant::new("Memory", "four times", |create| {
            four_times(create, "Memory");
            four_times(create, "MemorySwap");
        })
        .seen_inside(&["cgroup.memory_bytes"]),
        Mutant::new("MemorySwap", "four times", |create| {
            four_times(create, "MemorySwap")
        })
        .seen_inside(&["cgroup.memory_swap_bytes"]),
        Mutant::new("MemorySwappiness", "60", set("HostConfig.MemorySwappiness", 60)).unseen_inside(),
        Mutant::new("OomKillDisable", "true", set("HostConfig.OomKillDisable", true)),
        Mutant::new("OomScoreAdj", "0", set("HostConfig.OomScoreAdj", 0))
            .seen_inside(&["guest.oom_score_adj"]),
        Mutant::new(
            "NanoCpus",
            "half as much again",
            set("HostConfig.NanoCpus", 1_500_000_000),
        )
        .seen_inside(&["cgroup.cpu_quota_us"]),
        Mutant::new("PidsLimit", "four times", |create| {
            four_times(create, "PidsLimit")
        })
        .seen_inside(&["cgroup.pids"]),
    ]
}

fn of_each_process() -> Vec<Mutant> {
    vec![
        ulimit("Ulimits core", "core", "unlimited", "rlimits[core]", |_| -1),
        ulimit(
            "Ulimits fsize",
            "fsize",
            "four times",
            "rlimits[fsize]",
            |limit| 4 * limit,
        ),
        ulimit(
            "Ulimits memlock",
            "memlock",
            "four times",
            "rlimits[memlock]",
            |limit| 4 * limit,
        ),
        // No wider, but other than asked: that it is read back shows also where the engine may give no more.
        ulimit(
            "Ulimits memlock",
            "memlock",
            "half",
            "rlimits[memlock]",
            |limit| limit / 2,
        ),
        ulimit(
            "Ulimits msgqueue",
            "msgqueue",
            "four times",
            "rlimits[msgqueue]",
            |limit| 4 * limit,
        ),
        ulimit(
            "Ulimits msgqueue",
            "msgqueue",
            "half",
            "rlimits[msgqueue]",
            |limit| limit / 2,
        ),
        ulimit(
            "Ulimits nofile",
            "nofile",
            "four times",
            "rlimits[nofile]",
            |limit| 4 * limit,
        )
        .seen_by(&["H-58a"]),
        ulimit(
            "Ulimits nproc",
            "nproc",
            "four times",
            "rlimits[nproc]",
            |limit| 4 * limit,
        ),
        ulimit(
            "Ulimits sigpending",
            "sigpending",
            "four times",
            "rlimits[sigpending]",
            |limit| 4 * limit,
        ),
    ]
}

fn ulimit(
    field: &'static str,
    name: &'static str,
    to: &str,
    inside: &str,
    weak: impl Fn(i64) -> i64 + Send + Sync + 'static,
) -> Mutant {
    Mutant::new(field, to, move |create: &mut Value| {
        let mut limits = list(create, "Ulimits").iter_mut();
        let found = limits.find(|found| found["Name"] == name).unwrap();
        let weak = weak(found["Hard"].as_i64().unwrap());
        found["Soft"] = weak.into();
        found["Hard"] = weak.into();
    })
    .seen_inside(&[inside])
}
