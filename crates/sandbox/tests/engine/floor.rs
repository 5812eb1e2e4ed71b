//! The engine's floor: the same program, with nothing of ours around it.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
    time::Duration,
};

use bollard::query_parameters as query;
use mayfly_core::id::ExecutorId;
use serde_json::Value;

use crate::support::{Bench, address, docker, skipped};

fn command(program: &str) -> Vec<String> {
    ["python3", "-c", program].map(str::to_owned).to_vec()
}

#[tokio::test]
async fn a_program_runs_on_the_floor_and_leaves_nothing() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let program = "import os; print(os.getuid() > 1000, os.getcwd()); raise SystemExit(3)";
    let owner = ExecutorId::new();
    let job = bench.python("");
    let floor = bench.sandboxes.floor(&job, command(program), owner);
    let run = floor.await.unwrap().run().await.unwrap();
    assert_eq!(
        (run.exit_code, run.stdout_bytes),
        (3, "True /work\n".len() as u64)
    );
    for part in [run.create, run.attach, run.start, run.wait, run.remove] {
        assert!(part > Duration::ZERO, "{run:?}");
    }
    assert_eq!(bench.sandboxes.containers_of(owner).await.unwrap(), 0);
    bench.assert_nothing_is_left().await;
}

#[tokio::test]
async fn what_was_broken_off_can_be_counted_and_removed_by_its_owner() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let (mine, other) = (ExecutorId::new(), ExecutorId::new());
    let job = bench.python("");
    let endless = || command("import time; print(flush=True); time.sleep(600)");
    let floor = bench.sandboxes.floor(&job, endless(), mine).await.unwrap();
    let neighbour = bench.sandboxes.floor(&job, endless(), other).await.unwrap();
    // Neither run ends: they are dropped when both containers run. One that is still being created is listed, and can't
    // be removed yet.
    tokio::select! {
        ended = floor.run() => panic!("{ended:?}"),
        ended = neighbour.run() => panic!("{ended:?}"),
        () = async {
            while bench.running().await.len() < 2 {
                tokio::task::yield_now().await;
            }
        } => {}
    }
    assert_eq!(bench.sandboxes.remove_containers_of(mine).await.unwrap(), 1);
    assert_eq!(bench.sandboxes.containers_of(mine).await.unwrap(), 0);
    assert_eq!(bench.sandboxes.remove_containers_of(other).await.unwrap(), 1);
    bench.assert_nothing_is_left().await;
}

/// The engine's own word: a container that the command line made of our flags beside a sandbox of ours.
#[tokio::test]
async fn the_command_line_asks_for_the_container_that_a_sandbox_is() {
    use mayfly_sandbox::seam::Sandbox as _;

    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let owner = ExecutorId::new();
    let job = bench.python("");
    let floor = bench
        .sandboxes
        .floor(&job, command("print()"), owner)
        .await
        .unwrap();
    let Some(filter) = floor.filter() else {
        return skipped("docker run: Podman takes the filter by its path");
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("filter.json");
    std::fs::write(&file, filter).unwrap();
    let run = floor.docker_run(&file).unwrap();
    let mut create = Command::new("docker");
    if let Some(address) = address() {
        create.args(["--host", &address]);
    }
    // The same flags, without the run.
    assert_eq!(run.arguments()[0], "run");
    let Ok(output) = create.arg("create").args(&run.arguments()[1..]).output() else {
        return skipped("docker run: there is no client `docker`");
    };
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let by_command_line = host_config(String::from_utf8(output.stdout).unwrap().trim()).await;
    let sandbox = bench.sandboxes.prepare(bench.request(&job)).await.unwrap();
    let ours = host_config(&sandbox.facts().container_id).await;
    sandbox.discard().await;
    assert_eq!(bench.sandboxes.remove_containers_of(owner).await.unwrap(), 1);
    let differing: BTreeSet<&String> = ours
        .keys()
        .chain(by_command_line.keys())
        .filter(|name| ours.get(*name) != by_command_line.get(*name))
        .collect();
    // It removes itself; its tmpfs is another user's; there are no words for what more of /proc is hidden.
    let known = ["AutoRemove", "MaskedPaths", "Tmpfs"].map(str::to_owned);
    assert_eq!(
        differing,
        known.iter().collect(),
        "{ours:#?} {by_command_line:#?}"
    );
    run.removed();
    bench.assert_nothing_is_left().await;
}

/// What the engine has for a container.
async fn host_config(container: &str) -> BTreeMap<String, Value> {
    let options = None::<query::InspectContainerOptions>;
    let inspected = docker()
        .await
        .inspect_container(container, options)
        .await
        .unwrap();
    let config = serde_json::to_value(inspected.host_config.unwrap()).unwrap();
    serde_json::from_value(substance(config).unwrap()).unwrap()
}

/// Without what is the same as nothing, and with lists, which are sets here, in one order.
fn substance(value: Value) -> Option<Value> {
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::Number(number) => (number.as_i64() != Some(0)).then_some(Value::Number(number)),
        Value::String(text) => (!text.is_empty()).then_some(Value::String(text)),
        Value::Bool(true) => Some(value),
        Value::Array(list) => {
            let mut list: Vec<Value> = list.into_iter().filter_map(substance).collect();
            list.sort_by_key(ToString::to_string);
            (!list.is_empty()).then_some(Value::Array(list))
        }
        Value::Object(map) => {
            let map: serde_json::Map<_, _> = map
                .into_iter()
                .filter_map(|(name, value)| Some((name, substance(value)?)))
                .collect();
            (!map.is_empty()).then_some(Value::Object(map))
        }
    }
}
