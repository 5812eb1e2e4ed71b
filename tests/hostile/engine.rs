//! A container engine of a test's own that has the catalog's image `python`. Each test file uses a part of this.
#![allow(
    dead_code,
    unused_imports,
    reason = "each test file is a crate of its own, and uses a part of this"
)]

use std::process::Command;

pub(crate) use mayfly_testkit::engine::{SecondEngine, find, is_root};

use crate::support::{Mayfly, skip};

/// One that has gVisor, with these further options of `scripts/second-engine`. Nothing where this machine can't have one;
/// that is printed and counted.
pub(crate) fn with_gvisor(mayfly: &Mayfly, options: &[&str]) -> Option<SecondEngine> {
    if find("runsc").is_none() {
        skip("runsc is not installed (scripts/second-engine start DIR --install)");
        return None;
    }
    plain(mayfly, options)
}

/// The same, with or without gVisor.
pub(crate) fn plain(mayfly: &Mayfly, options: &[&str]) -> Option<SecondEngine> {
    let engine = SecondEngine::start(options).map_err(|why| skip(&why)).ok()?;
    // The very image that the machine's engine has: the catalog pins it by its id.
    let list = mayfly.command(["image", "list", "--json"]).output();
    let list = list.expect("mayfly starts").stdout;
    let python: serde_json::Value = serde_json::from_slice(&list).expect("a catalog of one image");
    let id = python["pin"]["config_digest"].as_str();
    engine.load(id.expect("a pinned image has an id"));
    Some(engine)
}

/// Whether the engine that `DOCKER_HOST` names has gVisor.
pub(crate) fn machines_engine_has_gvisor() -> bool {
    let info = Command::new("docker")
        .args([
            "info",
            "--format",
            "{{range $name, $_ := .Runtimes}}{{$name}} {{end}}",
        ])
        .output();
    info.is_ok_and(|info| {
        String::from_utf8_lossy(&info.stdout)
            .split_whitespace()
            .any(|name| name == "runsc")
    })
}
