//! What the record says of the host, and hosts that are judged not to be fit.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use mayfly_core::host::Posture;
use mayfly_sandbox::{
    HostCheck, Preflight, Refused,
    error::EngineError,
    seam::{PrepareError, Sandbox as _},
};

use crate::support::{Bench, docker, runtime};

fn preflight(refused: Vec<Refused>) -> Preflight {
    Preflight {
        posture: Posture::Production,
        missed: vec!["engine.versions.runc".to_owned(), "engine.lsm".to_owned()],
        not_checked: vec!["host".to_owned()],
        refused,
    }
}

#[tokio::test]
async fn the_record_names_the_host_and_what_it_missed() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let check = HostCheck::new(move |facts| {
        seen.lock().unwrap().push(facts.clone());
        preflight(Vec::new())
    });
    let Some(bench) = Bench::with_check(check).await else {
        return;
    };
    let report = bench.run(bench.python("print('here')")).await;
    let sandbox = report.sandbox.unwrap();
    let host = sandbox.host.unwrap();
    let client = docker().await;
    let (version, info) = (client.version().await.unwrap(), client.info().await.unwrap());
    let component = |name: &str| {
        let found = version.components.iter().flatten().find(|part| part.name == name);
        found.map(|part| part.version.clone())
    };
    assert_eq!(host.posture, Posture::Production);
    assert_eq!(host.missed, ["engine.versions.runc", "engine.lsm"]);
    assert_eq!(host.not_checked, ["host"]);
    assert_eq!(Some(host.kernel), info.kernel_version);
    assert_eq!(host.containerd, component("containerd"));
    // gVisor's version is nobody's to tell: its kernel's is beside it, in the sandbox's own facts.
    let own = (runtime() == "runc").then(|| component("runc")).flatten();
    assert_eq!(host.runtime_version, own);
    let cgroup = info.cgroup_version.map(|version| version.to_string());
    assert_eq!(Some(host.cgroup_version.to_string()), cgroup);
    let options = info.security_options.unwrap_or_default().concat();
    for name in ["apparmor", "selinux"] {
        assert_eq!(
            host.lsm.iter().any(|lsm| lsm == name),
            options.contains(name),
            "{name}"
        );
    }
    assert!(host.checked_at <= report.started_at.unwrap());
    let asked = asked.lock().unwrap();
    assert_eq!(
        asked[0].engine(),
        sandbox.engine,
        "it is judged by the engine's word"
    );
}

#[tokio::test]
async fn no_container_is_made_on_a_host_that_is_not_fit() {
    let fit = Arc::new(AtomicBool::new(true));
    let is_fit = Arc::clone(&fit);
    let check = HostCheck::new(move |_| {
        let why = Refused {
            name: "engine.versions.runc".to_owned(),
            why: "1.1.5 is below 1.3.6".to_owned(),
        };
        preflight(if is_fit.load(Ordering::SeqCst) {
            vec![]
        } else {
            vec![why]
        })
    });
    let Some(bench) = Bench::with_check(check).await else {
        return;
    };
    let first = bench.sandboxes.host().await.unwrap();
    fit.store(false, Ordering::SeqCst);
    let (found, ()) = tokio::join!(
        bench.sandboxes.look_at_host(),
        bench.sandboxes.host_differs_from(&first)
    );
    assert_eq!(found.unwrap().refused().len(), 1);
    let prepared = bench.sandboxes.prepare(bench.request(&bench.python(""))).await;
    let error = prepared.map(drop).unwrap_err();
    assert!(!error.may_pass(), "waiting does not mend it");
    let PrepareError::Engine(EngineError::HostUnfit(why)) = error else {
        panic!("{error:?}");
    };
    assert_eq!(why, "engine.versions.runc: 1.1.5 is below 1.3.6");
    bench.assert_nothing_is_left().await;

    fit.store(true, Ordering::SeqCst);
    bench.sandboxes.look_at_host().await.unwrap();
    let report = bench.run(bench.python("print('mended')")).await;
    assert_eq!(report.stdout.head, b"mended\n");
}
