//! A host whose sandboxes hold, then do not, then hold again: what its executor says, takes, and leaves on record. The
//! engine is real, and so are the hostile programs; what makes them get away is a runtime that leaves one thing out of
//! what it is told.

use std::{os::unix::fs::PermissionsExt, path::Path};

use mayfly_core::{account::Role as KeyRole, outcome::EndState};
use mayfly_testkit::engine::{SecondEngine, find};
use serde_json::{Value, json};

use crate::support::{Api, Fleet, Plan, SOON, Services, python, skip, wait_for};

/// Self-tests take some 20 s on a machine that does nothing else.
const TESTED: std::time::Duration = SOON.saturating_mul(3);

/// A runtime that does as `runc` does, and gives no new privileges back while a file is there.
fn weakened(folder: &Path, runc: &Path) -> String {
    let (program, flag) = (folder.join("weakened-runc"), folder.join("weak"));
    let text = format!(
        "#!/bin/sh\n\
         if [ -e {flag} ]; then\n\
         previous=\n\
         for word in \"$@\"; do\n\
         if [ \"$previous\" = --bundle ]; then sed -i 's/\"noNewPrivileges\":true/\"noNewPrivileges\":false/' \"$word/config.json\"; fi\n\
         previous=$word\n\
         done\n\
         fi\n\
         exec {runc} \"$@\"\n",
        flag = flag.display(),
        runc = runc.display(),
    );
    std::fs::write(&program, text).expect("a program for the test");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("the program is ours");
    program.display().to_string()
}

/// The one executor of the fleet, once it stands as the test wants.
async fn executor(api: &Api, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    wait_for(TESTED, what, async || {
        let list: Value = api.get("/v1/executors").await.json().await.ok()?;
        let executor = list["executors"].get(0)?.clone();
        is_so(&executor).then_some(executor)
    })
    .await
}

/// Outcomes of self-tests in the fleet's log, the oldest first.
fn on_record(fleet: &Fleet, api: &Api) -> Vec<Value> {
    let lines = fleet.command(api, &["audit", "list", "--fleet", "--limit", "1000", "--json"]);
    lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("an event is JSON"))
        .filter(|event| event["fact"]["kind"] == "self_tested")
        .map(|event| event["fact"]["test"].clone())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_fails_its_self_test_takes_no_jobs_until_it_passes_and_all_of_it_is_on_record() {
    let Some(runc) = find("runc") else {
        skip("runc is not installed");
        return;
    };
    let Some(pin) = python() else { return };
    let folder = tempfile::tempdir().expect("a folder for the test");
    let runtime = format!("weakened={}", weakened(folder.path(), &runc));
    let engine = match SecondEngine::start(&["--no-gvisor", "--runtime", &runtime]) {
        Ok(engine) => engine,
        Err(why) => {
            skip(&why);
            return;
        }
    };
    engine.load(&pin.config_digest.to_string());
    let Some(services) = Services::start() else { return };
    // Only what is tried changes: jobs run on the engine's own runtime.
    let config = folder.path().join("executor.toml");
    std::fs::write(&config, "[policy]\nruntimes = [\"weakened\"]\n").expect("a file for the test");
    let config = config.display().to_string();
    let plan = Plan {
        executors: 1,
        engine: Some(engine.host()),
        of_executors: &[
            ("MAYFLY_CONFIG", &config),
            ("MAYFLY_EXECUTOR__ACCEPT", ""),
            // By the sixtieth: every ten seconds, and again a second after a failure.
            ("MAYFLY_EXECUTOR__SELF_TEST_EVERY", "10m"),
            ("MAYFLY_TEST_SELF_TESTS_DIVIDED_BY", "60"),
        ],
        ..Plan::default()
    };
    let mut fleet = Fleet::on(services, pin, plan).await;
    let (operator, submitter) = (fleet.api_of(0, KeyRole::Operator).await, fleet.api().await);

    let live = executor(&operator, "the first self-test", |found| found["state"] == "live").await;
    let test = &live["session"]["self_test"];
    assert_eq!(test["result"], "passed", "{live:#}");
    assert_eq!(test["runtimes"], json!(["weakened"]));
    assert!(
        test["programs"].as_u64().is_some_and(|programs| programs > 15),
        "{test}"
    );
    let job = fleet.submit("print('fit')", json!({})).await;
    assert_eq!(fleet.end_of(job, SOON).await, EndState::Succeeded);

    std::fs::write(folder.path().join("weak"), "").expect("a file for the test");
    let unfit = executor(&operator, "a self-test that fails", |found| {
        found["state"] == "unfit"
    })
    .await;
    let failure = &unfit["session"]["self_test"]["failures"][0];
    assert_eq!(failure["runtime"], "weakened", "{unfit:#}");
    let why = failure["why"].as_str().expect("it says why");
    assert!(why.contains("did not hold"), "{why}");
    let listed = fleet.command(&operator, &["executor", "list"]);
    assert!(
        listed.contains("takes no jobs until its self-test passes") && listed.contains("unfit"),
        "{listed}"
    );
    let log = fleet.executors[0].log();
    assert!(
        log.contains("the self-test has failed: no new job is taken"),
        "{log}"
    );

    let waiting = fleet.submit("print('later')", json!({})).await;
    let document: Value = submitter
        .get(&format!("/v1/jobs/{waiting}"))
        .await
        .json()
        .await
        .expect("JSON");
    assert_eq!(document["waiting_for"]["reason"], "no_executor", "{document:#}");
    let detail = document["waiting_for"]["detail"].as_str().expect("a sentence");
    assert!(detail.contains("failed their self-test (1)"), "{detail}");
    // It is tried again by itself, and fails again, and nothing is taken meanwhile.
    let failed = |tests: &[Value]| tests.iter().filter(|test| test["result"] == "failed").count();
    wait_for(TESTED, "a further failure", async || {
        (failed(&on_record(&fleet, &operator)) >= 2).then_some(())
    })
    .await;
    assert_eq!(fleet.details(waiting).await.job.state.end(), None);
    assert!(
        fleet
            .details(waiting)
            .await
            .attempts
            .iter()
            .all(|attempt| attempt.executor.is_none())
    );

    std::fs::remove_file(folder.path().join("weak")).expect("it is there");
    assert_eq!(fleet.end_of(waiting, TESTED).await, EndState::Succeeded);
    executor(&operator, "a self-test that passes", |found| {
        found["state"] == "live"
    })
    .await;
    let tests = on_record(&fleet, &operator);
    assert_eq!(tests[0]["result"], "passed", "{tests:#?}");
    assert_eq!(tests.last().expect("some")["result"], "passed", "{tests:#?}");
    assert!(failed(&tests) >= 2, "{tests:#?}");
    let table = fleet.command(&operator, &["audit", "list", "--fleet"]);
    assert!(
        table.contains("self_tested") && table.contains("executor_enrolled"),
        "{table}"
    );

    // Also in the middle of a self-test.
    fleet.executors[0].signal("TERM");
    assert_eq!(fleet.executors[0].ended(SOON).await.code(), Some(0));
    fleet.no_container_is_left().await;
    fleet.every_job_has_one_result();
}

/// What `production` refuses, by the names in the executor's last words, in their order.
fn refused(log: &str) -> Vec<String> {
    let words = log.split(|c: char| !(c.is_ascii_alphanumeric() || "._".contains(c)));
    let mut names: Vec<String> = Vec::new();
    let named = |word: &&str| {
        let of = |area| word.strip_prefix(area).is_some_and(|rest| !rest.is_empty());
        of("engine.") || of("host.")
    };
    for word in words.filter(named) {
        if !names.iter().any(|name| name == word) {
            names.push(word.to_owned());
        }
    }
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a_production_executor_begins_on_no_host_that_misses_a_floor_unless_that_is_accepted_and_recorded() {
    let engine = std::process::Command::new("docker")
        .args(["info", "--format", "{{json .SecurityOptions}}"])
        .output()
        .expect("docker starts");
    let options = String::from_utf8_lossy(&engine.stdout);
    if options.contains("apparmor") || options.contains("selinux") {
        skip("this engine has a security module: it misses no floor that is known beforehand");
        return;
    }
    let Some(mut fleet) = Fleet::start(0).await else {
        return;
    };
    let posture = ("MAYFLY_EXECUTOR__POSTURE", "production");
    fleet.add_executor(1, &[posture]);
    let status = fleet.executors[0].ended(SOON).await;
    let log = fleet.executors[0].log();
    assert_eq!(status.code(), Some(78), "{log}");
    let missed = refused(&log);
    assert!(missed.contains(&"engine.lsm".to_owned()), "{log}");

    let all = format!("self_test,{}", missed.join(","));
    fleet.add_executor(2, &[posture, ("MAYFLY_EXECUTOR__ACCEPT", &all)]);
    let operator = fleet.api_of(0, KeyRole::Operator).await;
    let live = wait_for(
        SOON,
        "an executor that accepts what its host misses",
        async || {
            let list: Value = operator.get("/v1/executors").await.json().await.ok()?;
            let mut found = list["executors"].as_array()?.iter();
            found.find(|executor| executor["state"] == "live").cloned()
        },
    )
    .await;
    assert_eq!(
        live["session"]["self_test"]["accepted"],
        json!(missed),
        "{live:#}"
    );
    let job = fleet.submit("print('accepted')", json!({})).await;
    assert_eq!(fleet.end_of(job, SOON).await, EndState::Succeeded);
    let recorded = on_record(&fleet, &operator);
    assert_eq!(recorded[0]["accepted"], json!(missed), "{recorded:#?}");
}

/// Changes the engine's configuration: which runtime is its own, so that it tells another version. It names `runc`'s alone by
/// that name.
fn configure(engine: &SecondEngine, default_runtime: &str) {
    let file = engine.folder().join("daemon.json");
    let text = std::fs::read_to_string(&file).expect("the script has written it");
    let mut config: Value = serde_json::from_str(&text).expect("it is JSON");
    config["default-runtime"] = default_runtime.into();
    std::fs::write(&file, config.to_string()).expect("it is ours");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_back_is_judged_again_and_jobs_say_what_their_host_missed() {
    let Some(runc) = find("runc") else {
        skip("runc is not installed");
        return;
    };
    let Some(pin) = python() else { return };
    let runtime = format!("other={}", runc.display());
    let engine = match SecondEngine::start(&["--no-gvisor", "--runtime", &runtime]) {
        Ok(engine) => engine,
        Err(why) => {
            skip(&why);
            return;
        }
    };
    let components = std::process::Command::new("docker")
        .args([
            "--host",
            engine.host(),
            "version",
            "--format",
            "{{json .Server.Components}}",
        ])
        .output()
        .expect("docker starts");
    let components = String::from_utf8_lossy(&components.stdout).into_owned();
    if !components.contains("\"Name\":\"runc\",\"Version\":\"1.1.") {
        skip("this engine's runc is at its floor, or has no name");
        return;
    }
    configure(&engine, "other");
    engine.kill();
    engine.restart();
    engine.load(&pin.config_digest.to_string());
    let Some(services) = Services::start() else { return };
    let plan = Plan {
        executors: 0,
        engine: Some(engine.host()),
        ..Plan::default()
    };
    let mut fleet = Fleet::on(services, pin, plan).await;
    let operator = fleet.api_of(0, KeyRole::Operator).await;

    // What this machine misses beside runc's version, which is not told.
    let posture = ("MAYFLY_EXECUTOR__POSTURE", "production");
    fleet.add_executor(1, &[posture]);
    let status = fleet.executors[0].ended(SOON).await;
    let log = fleet.executors[0].log();
    assert_eq!(status.code(), Some(78), "{log}");
    let missed = refused(&log);
    assert!(!missed.contains(&"engine.versions.runc".to_owned()), "{log}");
    let accept = format!("self_test,{}", missed.join(","));
    fleet.add_executor(2, &[posture, ("MAYFLY_EXECUTOR__ACCEPT", &accept)]);
    let live = "an executor that takes jobs";
    executor_named(&operator, "executor-2", live, "live").await;
    let host_of = async |job| {
        assert_eq!(fleet.end_of(job, SOON).await, EndState::Succeeded);
        let report = fleet.details(job).await.report().expect("it has run").clone();
        report
            .sandbox
            .expect("in a sandbox")
            .host
            .expect("on a host that was looked at")
    };
    let before = host_of(fleet.submit("print('before')", json!({})).await).await;
    assert_eq!(before.posture, mayfly_core::host::Posture::Production);
    assert_eq!(before.missed, missed);
    assert_eq!(before.runtime_version, None);

    // It comes back with a runtime of its own that is below its floor, which nobody has accepted.
    configure(&engine, "runc");
    engine.kill();
    engine.restart();
    let unfit = executor_named(&operator, "executor-2", "a host that is not fit", "unfit").await;
    let failure = &unfit["session"]["self_test"]["failures"][0];
    assert_eq!(failure["runtime"], "host", "{unfit:#}");
    assert_eq!(failure["probe"], "engine.versions.runc", "{unfit:#}");
    let waiting = fleet.submit("print('after')", json!({})).await;
    assert_eq!(fleet.details(waiting).await.job.state.end(), None);

    // It need not be away for that: it reads its configuration.
    configure(&engine, "other");
    engine.signal("HUP");
    let after = host_of(waiting).await;
    assert_eq!(after.missed, missed);
    assert!(after.checked_at > before.checked_at, "{before:?}, then {after:?}");
    let tests = on_record(&fleet, &operator);
    assert!(
        tests
            .iter()
            .any(|test| test["failures"][0]["probe"] == "engine.versions.runc"),
        "{tests:#?}"
    );
    fleet.no_container_is_left().await;
}

/// An executor, once it is in this state.
async fn executor_named(api: &Api, name: &str, what: &str, state: &str) -> Value {
    wait_for(TESTED, what, async || {
        let list: Value = api.get("/v1/executors").await.json().await.ok()?;
        let mut found = list["executors"].as_array()?.iter();
        found
            .find(|executor| executor["name"] == name && executor["state"] == state)
            .cloned()
    })
    .await
}
