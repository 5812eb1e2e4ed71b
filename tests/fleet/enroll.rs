//! Executors whose ids something else has made, as those of the compose file.

use std::process::{Command, Output};

use mayfly_core::id::ExecutorId;
use mayfly_store::executors::{ExecutorState, ExecutorStore as _};

use crate::support::Fleet;

fn enroll(fleet: &Fleet, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mayfly"))
        .args(["executor", "enroll"])
        .args(args)
        .env_remove("HOME")
        .envs(
            fleet.servers[0]
                .settings()
                .iter()
                .filter(|(name, _)| name.starts_with("MAYFLY_DATABASE__")),
        )
        .output()
        .expect("mayfly starts")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_with_an_id_of_its_own_is_enrolled_once_and_asking_again_changes_nothing() {
    let Some(fleet) = Fleet::start(0).await else {
        return;
    };
    let (id, other) = (ExecutorId::new().to_string(), ExecutorId::new().to_string());
    for said in [
        "executor given of pool gpu is enrolled\n",
        "executor given of pool gpu was enrolled before\n",
    ] {
        let output = enroll(&fleet, &["given", "--id", &id, "--pool", "gpu"]);
        let why = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{why}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), said);
    }
    let wrong: [&[&str]; 3] = [
        &["given", "--id", &other, "--pool", "gpu"],
        &["another", "--id", &id, "--pool", "gpu"],
        &["given", "--id", &id, "--pool", "default"],
    ];
    for args in wrong {
        let output = enroll(&fleet, args);
        let why = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{args:?}: {why}");
        assert!(why.contains("already") && why.contains(args[2]), "{why}");
    }
    let listed = fleet.store.list_executors(None, 10).await.expect("listing works");
    let listed: Vec<_> = listed
        .iter()
        .map(|executor| {
            (
                executor.id.to_string(),
                executor.name.as_str(),
                executor.pool.as_str(),
            )
        })
        .collect();
    assert_eq!(listed, [(id.clone(), "given", "gpu")]);
    let events = fleet
        .services
        .count("SELECT count(*) FROM audit_events WHERE kind = 'executor_enrolled'");
    assert_eq!(events, 1);
    let found = fleet.store.find_executor(id.parse().expect("it is an id")).await;
    let found = found.expect("finding works").expect("it is there");
    assert_eq!(found.state(), ExecutorState::NeverSeen);
}
