//! An engine or a guest that lies about one setting: no job runs, and the setting is named.

use std::{collections::BTreeSet, sync::Arc};

use mayfly_core::outcome::{Cause, EndState, Mismatch, MismatchSource};
use mayfly_sandbox::seam::{NoLiveOutput, PrepareError, Run, Sandbox};
use serde_json::Value;
use tokio::sync::watch;

use crate::{
    every_lie,
    proxy::{Lie, Proxy, Seen},
    support::{Bench, matcher, on_gvisor, settled, skipped, text},
};

/// A bench whose engine can lie, and what is true of one of its sandboxes.
pub(crate) async fn liar() -> Option<(Bench, Proxy, Seen)> {
    Bench::set_up().await?;
    behind(Proxy::start().await).await
}

/// The same behind this proxy.
pub(crate) async fn behind(proxy: Proxy) -> Option<(Bench, Proxy, Seen)> {
    let bench = Bench::at(Some(proxy.address.clone()), 128, None).await?;
    // The proxy itself changes nothing: a job runs through it.
    let job = bench.python("print('honest')");
    let sandbox = bench.sandboxes.prepare(bench.request(&job)).await.unwrap();
    let seen = proxy.seen();
    let run = Run {
        collect: None,
        fetched: None,
        egress: None,
        matcher: matcher(&job),
        job: Arc::new(job),
        stop: watch::channel(None).1,
        live: Arc::new(NoLiveOutput),
    };
    let report = settled(sandbox.run(run).await).await;
    assert_eq!(
        (report.outcome.state, report.outcome.cause),
        (EndState::Succeeded, Cause::Exited),
        "{report:#?}"
    );
    assert_eq!(text(&report.stdout), "honest\n");
    assert_eq!(proxy.frames_to_guests()[0], "job");
    Some((bench, proxy, seen))
}

/// Tells a lie and returns what was found; nothing of a job has gone to the guest.
pub(crate) async fn found_out(bench: &Bench, proxy: &Proxy, lie: Lie) -> Result<Vec<Mismatch>, PrepareError> {
    // What the engine itself says is known before the start; what the kernel says can't be.
    let starts = usize::from(matches!(lie, Lie::Ready(_)));
    proxy.tell(lie);
    let job = bench.python("raise SystemExit('this must not run')");
    let prepared = bench.sandboxes.prepare(bench.request(&job)).await;
    assert_eq!(proxy.frames_to_guests(), Vec::<&str>::new());
    match prepared {
        Ok(sandbox) => {
            sandbox.discard().await;
            Ok(Vec::new())
        }
        Err(PrepareError::Mismatch(mismatches)) => {
            assert_eq!(proxy.starts(), starts, "{mismatches:?}");
            let outcome = PrepareError::Mismatch(mismatches.clone()).evidence().judge();
            assert_eq!(
                (outcome.state, outcome.cause),
                (EndState::Rejected, Cause::SandboxMismatch)
            );
            Ok(mismatches)
        }
        Err(other) => Err(other),
    }
}

pub(crate) fn named(mismatches: &[Mismatch], source: MismatchSource, place: &str) -> bool {
    mismatches.iter().any(|found| {
        found.source == source && (place.starts_with(&found.field) || found.field.starts_with(place))
    })
}

#[tokio::test]
async fn a_kill_for_memory_that_the_engine_tells_after_the_end_is_heard() {
    if !on_gvisor() {
        return skipped("a late word of a kill for memory: on runc the guest outlives it and tells itself");
    }
    let Some((bench, proxy, _)) = liar().await else {
        return;
    };
    // What an engine says that heard of the end first: its events alone know better.
    let change = |inspect: &mut Value| inspect["State"]["OOMKilled"] = Value::Bool(false);
    proxy.tell(Lie::Inspect(Arc::new(change)));
    let report = bench
        .run(bench.python("b = []\nwhile True: b.append(bytearray(1 << 20))"))
        .await;
    assert_eq!(
        (report.outcome.state, report.outcome.cause),
        (EndState::OutOfMemory, Cause::MemoryLimit),
        "{report:#?}"
    );
    let found = proxy.seen().inspect["State"]["OOMKilled"].clone();
    assert!(found.is_boolean(), "{found}");
    bench.assert_nothing_is_left().await;
}

/// The places of a create request, by the names that inspect has for them.
fn inspect_name(place: &str) -> String {
    if place.starts_with("HostConfig.") {
        place.to_owned()
    } else {
        format!("Config.{place}")
    }
}

#[tokio::test]
async fn an_engine_that_says_something_else_than_was_asked_for_is_refused_for_every_field_that_we_set() {
    let Some((bench, proxy, seen)) = liar().await else {
        return;
    };
    let mut told = BTreeSet::new();
    for lie in every_lie::about(&seen.create) {
        let place = inspect_name(&lie.place);
        // One lie about each place is enough here; every way to lie is tried without an engine.
        if !told.insert(place.clone()) {
            continue;
        }
        let (before, after, what) = (seen.create.clone(), lie.document, lie.what);
        let change = move |inspect: &mut Value| {
            let host = &mut inspect["HostConfig"];
            carry_over(&before["HostConfig"], &after["HostConfig"], host);
            let config = |create: &Value| {
                let mut create = create.as_object().unwrap().clone();
                create.remove("HostConfig");
                Value::Object(create)
            };
            carry_over(&config(&before), &config(&after), &mut inspect["Config"]);
        };
        let found = found_out(&bench, &proxy, Lie::Inspect(Arc::new(change)))
            .await
            .unwrap();
        assert!(
            found.len() == 1 && named(&found, MismatchSource::Inspect, &place),
            "{place}, {what}: {found:?}"
        );
    }
    eprintln!("{} places", told.len());
    assert!(told.len() > 60, "{}", told.len());
    bench.assert_nothing_is_left().await;
}

#[tokio::test]
async fn an_engine_that_drops_a_field_is_refused_for_every_field_that_we_set() {
    let Some((bench, proxy, seen)) = liar().await else {
        return;
    };
    let host: Vec<_> = names(&seen.create["HostConfig"])
        .map(|name| format!("HostConfig.{name}"))
        .collect();
    let config = names(&seen.create).filter(|name| name != "HostConfig");
    let (mut dropped, mut same) = (0, Vec::<String>::new());
    for place in config.map(|name| format!("Config.{name}")).chain(host) {
        let (part, name) = place
            .split_once('.')
            .map(|(part, name)| (part.to_owned(), name.to_owned()))
            .unwrap();
        let at = |create: &Value| match part.as_str() {
            "HostConfig" => create["HostConfig"][&name].clone(),
            _ => create[&name].clone(),
        };
        // Left out, these are what we ask for.
        let usual = is_empty(&at(&seen.create)) && name != "Init" && name != "MemorySwappiness";
        if usual {
            continue;
        }
        let change = {
            let (part, name) = (part.clone(), name.clone());
            move |create: &mut Value| {
                let fields = if part == "HostConfig" {
                    &mut create["HostConfig"]
                } else {
                    create
                };
                fields.as_object_mut().unwrap().remove(&name).unwrap();
            }
        };
        match found_out(&bench, &proxy, Lie::Create(Arc::new(change))).await {
            // What the engine does by default is what we ask for: there is no difference to find.
            Ok(found) if found.is_empty() => {
                assert_eq!(proxy.seen().inspect[&part][&name], at(&seen.create), "{place}");
                same.push(place);
                continue;
            }
            Ok(found) => assert!(
                named(&found, MismatchSource::Inspect, &place),
                "{place}: {found:?}"
            ),
            // The engine itself wants an image, and memory where there is swap.
            Err(error) => assert!(
                matches!(place.as_str(), "Config.Image" | "HostConfig.Memory"),
                "{place}: {error:?}"
            ),
        }
        dropped += 1;
    }
    eprintln!(
        "{dropped} fields dropped and named; by default as asked: {}",
        same.join(", ")
    );
    assert!(dropped > 28, "{dropped}");
    bench.assert_nothing_is_left().await;
}

#[tokio::test]
async fn a_guest_that_reports_something_else_is_refused_for_every_field_of_its_report() {
    let Some((bench, proxy, seen)) = liar().await else {
        return;
    };
    // What proves nothing on its own; each lie about the rest is tried without an engine.
    let proves_nothing = ["version", "kernel.version", "job.dumpable"];
    let (mut told, mut unnoticed) = (BTreeSet::new(), BTreeSet::new());
    for lie in every_lie::about(&seen.ready) {
        let (kind, _) = lie.place.split_once('[').unwrap_or((&lie.place, ""));
        let of_a_list = kind != lie.place;
        let ours = [
            "mounts[/work]",
            "filesystems[/work]",
            "rlimits[nofile]",
            "probes[socket_alg]",
        ];
        let skip = proves_nothing.contains(&lie.place.as_str())
            || (of_a_list && !ours.iter().any(|entry| lie.place.starts_with(entry)))
            || [
                "source",
                "super_options",
                "options",
                "resource",
                "path",
                "probe",
                "mount_point",
            ]
            .iter()
            .any(|name| lie.place.ends_with(name))
            || serde_json::from_value::<mayfly_protocol::ReadyReport>(lie.document.clone()).is_err();
        if skip || !told.insert(lie.place.clone()) {
            continue;
        }
        // The ids and the rest of the truth are those of the next sandbox: only the lie is carried over.
        let (before, after) = (seen.ready.clone(), lie.document);
        let change = move |ready: &mut Value| carry_over(&before, &after, ready);
        let found = found_out(&bench, &proxy, Lie::Ready(Arc::new(change)))
            .await
            .unwrap();
        if !named(&found, MismatchSource::Guest, &lie.place) {
            unnoticed.insert(lie.place);
        }
    }
    let expected: &[&str] = if on_gvisor() { &UNSEEN_ON_GVISOR } else { &[] };
    let unnoticed: Vec<&str> = unnoticed.iter().map(String::as_str).collect();
    assert_eq!(unnoticed, expected);
    eprintln!("{} fields", told.len());
    assert!(told.len() > 50, "{}", told.len());
    bench.assert_nothing_is_left().await;
}

/// Makes the difference between two documents in a third. Lists of named items may be in any order.
pub(crate) fn carry_over(before: &Value, after: &Value, target: &mut Value) {
    if before == after {
        return;
    }
    match (before, after, &mut *target) {
        (Value::Object(before), Value::Object(after), Value::Object(target)) => {
            for (name, after) in after {
                let target = target.entry(name.clone()).or_insert(Value::Null);
                carry_over(before.get(name).unwrap_or(&Value::Null), after, target);
            }
            target.retain(|name, _| !before.contains_key(name) || after.contains_key(name));
        }
        (Value::Array(before), Value::Array(after), Value::Array(target))
            if before.iter().zip(after).all(|(before, after)| {
                every_lie::key(before).is_some() && every_lie::key(before) == every_lie::key(after)
            }) && before.len() == after.len() =>
        {
            for (before, after) in before.iter().zip(after) {
                let target = target
                    .iter_mut()
                    .find(|item| every_lie::key(item) == every_lie::key(before));
                carry_over(before, after, target.expect("each sandbox reports the same"));
            }
        }
        // A list that has become longer or shorter by one named item.
        (Value::Array(before), Value::Array(after), Value::Array(target))
            if before.iter().any(|item| every_lie::key(item).is_some()) =>
        {
            let gone = before.iter().find(|item| !after.contains(item));
            match gone {
                Some(gone) => target.retain(|item| every_lie::key(item) != every_lie::key(gone)),
                None => target.push(target[0].clone()),
            }
        }
        (_, after, target) => *target = after.clone(),
    }
}

fn names(object: &Value) -> impl Iterator<Item = String> {
    object.as_object().unwrap().keys().cloned()
}

/// What an engine's answer holds where nothing was set.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// It is heard after the report, which stands.
#[tokio::test]
async fn an_engine_that_lies_about_the_end_is_contradicted_and_changes_no_outcome() {
    let Some((bench, proxy, _)) = liar().await else {
        return;
    };
    proxy.tell(Lie::Inspect(Arc::new(|found: &mut Value| {
        found["State"]["ExitCode"] = 9.into();
        found["State"]["OOMKilled"] = true.into();
    })));
    let job = bench.python("print('done')");
    let sandbox = bench.sandboxes.prepare(bench.request(&job)).await.unwrap();
    let run = Run {
        collect: None,
        fetched: None,
        egress: None,
        matcher: matcher(&job),
        job: Arc::new(job),
        stop: watch::channel(None).1,
        live: Arc::new(NoLiveOutput),
    };
    let (report, contradictions) = sandbox.run(run).await.settled().await;
    assert_eq!(
        (report.outcome.state, report.outcome.cause),
        (EndState::Succeeded, Cause::Exited),
        "{report:#?}"
    );
    let [exit, memory] = contradictions.as_slice() else {
        panic!("{contradictions:?}");
    };
    assert!(exit.contains("ended with 9"), "{exit}");
    assert!(memory.contains("memory"), "{memory}");
    bench.assert_nothing_is_left().await;
}

/// What gVisor's kernel says of itself and not of what confines it: its own cgroups and filters, a root that only the
/// mount's options call read-only, scores for a kill that the host's kernel makes, paths that it has itself. Each stands on the
/// record as not enforceable or not seen from inside.
const UNSEEN_ON_GVISOR: [&str; 17] = [
    "cgroup.cpu_period_us",
    "cgroup.cpu_quota_us",
    "cgroup.memory_bytes",
    "cgroup.memory_swap_bytes",
    "cgroup.pids",
    "cgroup.version",
    "filesystems[/work].free_inodes",
    "guest.oom_score_adj",
    "guest.seccomp_filters",
    "guest.seccomp_mode",
    "job.oom_score_adj",
    "job.seccomp_filters",
    "job.seccomp_mode",
    "marker.errno",
    "present",
    "probes[socket_alg].answer.errno",
    "root_read_only",
];
