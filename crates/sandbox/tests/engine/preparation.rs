//! What keeps a sandbox from being made, and what is left of it then.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use bollard::{
    models::{ContainerCreateBody, HostConfig, VolumeCreateRequest},
    query_parameters as query,
};
use mayfly_core::{
    digest::Digest,
    id::{ExecutorId, SandboxId},
    outcome::{Cause, EndState, TroubleKind},
    units::{CpuShare, Span},
};
use mayfly_sandbox::{
    baseline_digest,
    error::EngineError,
    seam::{LiveOutput, NoLiveOutput, OutputStream, PrepareError, Run, Sandbox, SandboxRequest},
};
use tokio::sync::watch;

use crate::support::{Bench, docker, limits, matcher, on_gvisor, settled, skipped, text};

#[tokio::test]
async fn an_image_that_is_not_there_is_not_run() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let mut job = bench.python("");
    job.pin.config_digest = Digest::of(b"no image");
    let error = bench
        .sandboxes
        .prepare(bench.request(&job))
        .await
        .map(drop)
        .unwrap_err();
    assert!(matches!(error, PrepareError::ImageUnavailable(_)), "{error:?}");
    bench.assert_nothing_is_left().await;
}

#[tokio::test]
async fn a_runtime_that_is_not_there_is_not_replaced_by_another() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let mut job = bench.python("");
    job.runtime = "no-such-runtime".to_owned();
    let error = bench
        .sandboxes
        .prepare(bench.request(&job))
        .await
        .map(drop)
        .unwrap_err();
    assert!(matches!(error, PrepareError::RuntimeUnavailable(_)), "{error:?}");
    bench.assert_nothing_is_left().await;
}

#[tokio::test]
async fn more_cpus_than_the_host_has_are_refused_by_name() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let mut job = bench.python("");
    let more = bench.sandboxes.engine().facts().cpus * 1000 + 1;
    job.limits = limits(|limits| limits.cpu = CpuShare::millis(more));
    let error = bench
        .sandboxes
        .prepare(bench.request(&job))
        .await
        .map(drop)
        .unwrap_err();
    let PrepareError::Mismatch(mismatches) = error else {
        panic!("{error:?}");
    };
    assert_eq!(mismatches[0].field, "HostConfig.NanoCpus");
}

#[tokio::test]
async fn uids_run_out_and_come_back_with_the_end_of_a_sandbox() {
    let Some(bench) = Bench::with_uids(4).await else {
        return;
    };
    let job = bench.python("print('ok')");
    let first = bench.sandboxes.prepare(bench.request(&job)).await.unwrap();
    let second = bench.sandboxes.prepare(bench.request(&job)).await.unwrap();
    let none = bench
        .sandboxes
        .prepare(bench.request(&job))
        .await
        .map(drop)
        .unwrap_err();
    assert!(
        matches!(none, PrepareError::Engine(EngineError::NoUid(2))),
        "{none:?}"
    );
    first.discard().await;
    assert_eq!(text(&bench.run_keeping_others(job).await.stdout), "ok\n");
    second.discard().await;
    bench.assert_nothing_is_left().await;
}

/// The guest of this build with bytes after its end: it runs the same and is another one.
fn another_guest(folder: &Path) -> PathBuf {
    let mut guest = std::fs::read(env!("MAYFLY_GUEST_BINARY")).unwrap();
    guest.extend(folder.to_string_lossy().bytes());
    let path = folder.join("guest");
    std::fs::write(&path, guest).unwrap();
    path
}

/// The volumes that hold this guest.
async fn volumes_of(guest: &Digest) -> Vec<String> {
    let found = docker()
        .await
        .list_volumes(None::<query::ListVolumesOptions>)
        .await
        .unwrap();
    let found = found
        .volumes
        .unwrap_or_default()
        .into_iter()
        .map(|volume| volume.name);
    found
        .filter(|name| name.contains(&guest.to_hex()[..16]))
        .collect()
}

#[tokio::test]
async fn executors_that_fill_the_guests_volume_at_once_make_one_and_do_not_disturb_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let guest = another_guest(folder.path());
    let benches = futures_util::future::join_all((0..6).map(|_| Bench::with_guest(guest.clone()))).await;
    let benches: Vec<_> = benches.into_iter().flatten().collect();
    let Some(bench) = benches.first() else {
        return;
    };
    let digest = bench.sandboxes.guest_digest();
    assert_eq!(volumes_of(&digest).await, Vec::<String>::new());
    let runs = benches.iter().map(|bench| async move {
        let job = bench.python("print('ok')");
        text(&bench.run(job).await.stdout)
    });
    assert_eq!(futures_util::future::join_all(runs).await, vec!["ok\n"; 6]);
    let volumes = volumes_of(&digest).await;
    assert_eq!(volumes.len(), 1, "{volumes:?}");
    remove_volumes(&volumes).await;
}

#[tokio::test]
async fn a_volume_with_other_content_is_not_used_and_one_that_was_pruned_is_filled_again() {
    let folder = tempfile::tempdir().unwrap();
    let guest = another_guest(folder.path());
    let Some(bench) = Bench::with_guest(guest.clone()).await else {
        return;
    };
    let digest = bench.sandboxes.guest_digest();
    let short = &digest.to_hex()[..16];
    let architecture = &bench.sandboxes.engine().facts().architecture;
    let name = format!("mayfly-guest-{architecture}-{short}-1");
    fill(&name, &bench, b"#!/bin/sh\nexec sh\n").await;
    let job = bench.python("print('ok')");
    assert_eq!(text(&bench.run(job.clone()).await.stdout), "ok\n");
    let mut volumes = volumes_of(&digest).await;
    volumes.sort();
    assert_eq!(volumes.len(), 2, "{volumes:?}");
    // An engine makes a volume that is named and not there, empty: the start fails, and the next one works.
    remove_volumes(&volumes).await;
    let error = bench
        .sandboxes
        .prepare(bench.request(&job))
        .await
        .map(drop)
        .unwrap_err();
    assert!(matches!(error, PrepareError::Engine(_)), "{error:?}");
    bench.assert_nothing_is_left().await;
    assert_eq!(text(&bench.run(job).await.stdout), "ok\n");
    remove_volumes(&volumes_of(&digest).await).await;
}

/// Makes a volume that holds this as the guest, as an attacker on the engine's host could.
async fn fill(name: &str, bench: &Bench, guest: &[u8]) {
    let docker = docker().await;
    let request = VolumeCreateRequest {
        name: Some(name.to_owned()),
        ..Default::default()
    };
    docker.create_volume(request).await.unwrap();
    let body = ContainerCreateBody {
        image: Some(bench.image.config_digest.to_string()),
        labels: Some(HashMap::from([(
            "mayfly.deployment".to_owned(),
            bench.deployment.clone(),
        )])),
        host_config: Some(HostConfig {
            binds: Some(vec![format!("{name}:/guest")]),
            ..Default::default()
        }),
        ..Default::default()
    };
    let holder = docker.create_container(None, body).await.unwrap().id;
    let mut header = tar::Header::new_ustar();
    header.set_size(guest.len() as u64);
    header.set_mode(0o500);
    let mut archive = tar::Builder::new(Vec::new());
    archive.append_data(&mut header, "mayfly-guest", guest).unwrap();
    let options = query::UploadToContainerOptions {
        path: "/guest".to_owned(),
        ..Default::default()
    };
    let archive = bollard::body_full(archive.into_inner().unwrap().into());
    docker
        .upload_to_container(&holder, Some(options), archive)
        .await
        .unwrap();
    docker.remove_container(&holder, None).await.unwrap();
}

async fn remove_volumes(volumes: &[String]) {
    for volume in volumes {
        docker()
            .await
            .remove_volume(volume, None::<query::RemoveVolumeOptions>)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_job_does_not_see_the_guest_and_can_not_reach_it() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let program = r#"
import os
for attempt in ('open("/guest/mayfly-guest", "rb")', 'open("/proc/1/fd/1", "wb")', 'os.kill(1, 9)',
                'open("/proc/1/environ").read()', 'os.listdir("/proc/1/fd")'):
    try:
        print(attempt, eval(attempt))
    except PermissionError:
        print('refused')
"#;
    let report = bench.run(bench.python(program)).await;
    // gVisor's kernel shows every user the environment of a process, which holds nothing of ours, and the numbers of its
    // descriptors, of which it gives none away.
    let (refused, shown) = if on_gvisor() { (3, 2) } else { (5, 0) };
    let said = text(&report.stdout);
    let shown_lines: Vec<&str> = said.lines().skip(refused).collect();
    assert_eq!(
        said.lines()
            .take(refused)
            .filter(|line| *line == "refused")
            .count(),
        refused,
        "{report:#?}"
    );
    assert_eq!(shown_lines.len(), shown, "{report:#?}");
    if let [environment, descriptors] = shown_lines[..] {
        assert!(
            environment.ends_with(".read() HOSTNAME=sandbox\0HOME=/root\0"),
            "{environment}"
        );
        assert!(descriptors.contains("['0', '1', '2'"), "{descriptors}");
    }
}

#[tokio::test]
async fn the_baselines_digest_is_one_of_this_build() {
    assert_eq!(baseline_digest(), baseline_digest());
}

/// An engine of this test's own, that may be frozen.
struct SecondEngine {
    folder: tempfile::TempDir,
}

impl SecondEngine {
    fn script(folder: &Path, action: &str) -> Command {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/second-engine");
        let mut command = Command::new(script);
        command.arg(action).arg(folder.join("e")).stderr(Stdio::null());
        command
    }

    /// Starts one and gives it our image; `None` where that can't be done.
    async fn start() -> Option<(Self, String)> {
        let folder = tempfile::Builder::new().prefix("mf").tempdir_in("/tmp").unwrap();
        let output = Self::script(folder.path(), "start").output().ok()?;
        if !output.status.success() {
            return None;
        }
        let engine = Self { folder };
        let address = format!("unix://{}", String::from_utf8(output.stdout).ok()?.trim());
        let save = Command::new("docker")
            .args(["save", &Bench::image_name().await?])
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let load = Command::new("docker")
            .args(["-H", &address, "load"])
            .stdin(save.stdout?)
            .stdout(Stdio::null())
            .status();
        load.ok()?.success().then_some((engine, address))
    }

    fn signal(&self, signal: &str) {
        let pid = std::fs::read_to_string(self.folder.path().join("e/dockerd.pid")).unwrap();
        let sent = Command::new("kill").args([signal, pid.trim()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for SecondEngine {
    fn drop(&mut self) {
        Self::script(self.folder.path(), "stop").status().ok();
    }
}

/// Freezes the engine when the job speaks.
struct Freeze(Arc<SecondEngine>);

#[async_trait::async_trait]
impl LiveOutput for Freeze {
    fn output(&self, _: OutputStream, _: &[u8]) {
        self.0.signal("-STOP");
    }

    async fn ready(&self) {}
}

#[tokio::test]
async fn a_run_comes_back_from_an_engine_that_freezes_and_the_trouble_is_not_the_jobs() {
    let Some((engine, address)) = SecondEngine::start().await else {
        skipped("no second engine: it needs root, dockerd, containerd and an image");
        return;
    };
    let engine = Arc::new(engine);
    let Some(bench) = Bench::at(Some(address), 8, None).await else {
        return;
    };
    let mut job = bench.python("import time\nprint('running', flush=True)\nwhile True: time.sleep(1)");
    job.limits = limits(|limits| limits.wall = Span::seconds(2));
    let sandbox = bench.sandboxes.prepare(bench.request(&job)).await.unwrap();
    let begun = Instant::now();
    let run = Run {
        collect: None,
        fetched: None,
        egress: None,
        matcher: matcher(&job),
        job: Arc::new(job.clone()),
        stop: watch::channel(None).1,
        live: Arc::new(Freeze(Arc::clone(&engine))),
    };
    let report = settled(sandbox.run(run).await).await;
    // The wall limit, the grace, and the bounds of waiting, killing, looking and removing.
    assert!(begun.elapsed() < Duration::from_secs(75), "{:?}", begun.elapsed());
    assert_eq!(
        (report.outcome.state, report.outcome.cause),
        (EndState::Error, Cause::EngineFailure),
        "{report:#?}"
    );
    assert_eq!(text(&report.stdout), "running\n");
    let frozen = bench
        .sandboxes
        .prepare(bench.request(&job))
        .await
        .map(drop)
        .unwrap_err();
    let evidence = frozen.evidence();
    assert_eq!(
        evidence.trouble.map(|trouble| trouble.kind),
        Some(TroubleKind::Engine),
        "{frozen:?}"
    );
    engine.signal("-CONT");
    // It works again, and what could not be removed meanwhile has died by itself.
    let mut job = bench.python("print('again')");
    job.limits = limits(|limits| limits.wall = Span::seconds(20));
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
    let report = settled(sandbox.run(run).await).await;
    assert_eq!(text(&report.stdout), "again\n");
}

#[tokio::test]
async fn a_container_is_labelled_from_its_creation() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let job = bench.python("");
    let request = bench.request(&job);
    let (sandbox_id, executor) = (request.sandbox_id, request.executor);
    let sandbox = bench.sandboxes.prepare(request).await.unwrap();
    let container = &sandbox.facts().container_id;
    let inspect = docker().await.inspect_container(container, None).await.unwrap();
    let labels = inspect.config.unwrap().labels.unwrap();
    assert_eq!(labels["mayfly.sandbox"], sandbox_id.to_string());
    assert_eq!(labels["mayfly.executor"], executor.to_string());
    assert_eq!(labels["mayfly.deployment"], bench.deployment);
    let expires: i64 = labels["mayfly.expires"].parse().unwrap();
    let now = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap();
    // The longest idle time of the bench, the wall limit, and some.
    assert!(
        (now + 90..now + 90 + 600).contains(&expires),
        "{expires} at {now}"
    );
    sandbox.discard().await;
    bench.assert_nothing_is_left().await;
}

#[tokio::test]
async fn a_sweep_takes_what_is_past_its_end_and_leaves_the_living_and_other_deployments_alone() {
    let (Some(bench), Some(other)) = (Bench::set_up().await, Bench::set_up().await) else {
        return;
    };
    let job = bench.python("print('ok')");
    let living = bench.sandboxes.prepare(bench.request(&job)).await.unwrap();
    let make = async |deployment: &str, expires: i64| {
        let labels = [
            ("mayfly.deployment", deployment.to_owned()),
            ("mayfly.expires", expires.to_string()),
        ];
        let body = ContainerCreateBody {
            image: Some(bench.image.config_digest.to_string()),
            labels: Some(labels.map(|(name, value)| (name.to_owned(), value)).into()),
            ..Default::default()
        };
        docker().await.create_container(None, body).await.unwrap().id
    };
    let now = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap();
    let past = make(&bench.deployment, now - 5).await;
    let young = make(&bench.deployment, now + 600).await;
    let foreign = make(&other.deployment, now - 5).await;
    let swept = bench.sandboxes.sweep().await.unwrap();
    assert_eq!((swept.removed, swept.failed), (1, 0));
    let left = bench.containers().await;
    assert!(!left.contains(&past) && left.contains(&young), "{left:?}");
    assert!(left.contains(&living.facts().container_id), "{left:?}");
    assert_eq!(other.containers().await, [foreign]);
    assert_eq!(other.sandboxes.sweep().await.unwrap().removed, 1);
    docker().await.remove_container(&young, None).await.unwrap();
    living.discard().await;
    bench.assert_nothing_is_left().await;
    other.assert_nothing_is_left().await;
}

#[tokio::test]
async fn of_a_dead_executor_all_is_removed_and_of_others_and_of_our_own_nothing() {
    let (Some(bench), Some(foreign)) = (Bench::set_up().await, Bench::set_up().await) else {
        return;
    };
    let job = bench.python("print('ok')");
    let request = bench.request(&job);
    let dead = request.executor;
    let of_the_dead = bench.sandboxes.prepare(request.clone()).await.unwrap();
    let other = SandboxRequest {
        sandbox_id: SandboxId::new(),
        executor: ExecutorId::new(),
        ..request
    };
    let of_another = bench.sandboxes.prepare(other.clone()).await.unwrap();
    let elsewhere = foreign.request(&job);
    let elsewhere = SandboxRequest {
        executor: dead,
        ..elsewhere
    };
    let of_another_deployment = foreign.sandboxes.prepare(elsewhere).await.unwrap();
    // The process that made them holds them; what it asks for is about lives before its own.
    let own = bench.sandboxes.remove_all_of(dead).await.unwrap();
    assert_eq!((own.removed, own.failed), (0, 0));
    let survivor = bench.another_process().await;
    let never = survivor.remove_all_of(ExecutorId::new()).await.unwrap();
    assert_eq!((never.removed, never.failed), (0, 0));
    assert_eq!(bench.containers().await.len(), 2);
    // It is young, it runs, and its guest hears from its executor every second: all of that is no matter.
    let swept = survivor.remove_all_of(dead).await.unwrap();
    assert_eq!((swept.removed, swept.failed), (1, 0));
    let left = bench.containers().await;
    assert_eq!(left, [of_another.facts().container_id.clone()]);
    let left = foreign.containers().await;
    assert_eq!(left, [of_another_deployment.facts().container_id.clone()]);
    let again = survivor.remove_all_of(dead).await.unwrap();
    assert_eq!((again.removed, again.failed), (0, 0));
    for sandbox in [of_the_dead, of_another, of_another_deployment] {
        sandbox.discard().await;
    }
    bench.assert_nothing_is_left().await;
    foreign.assert_nothing_is_left().await;
    // What was held and is gone is nobody's any more.
    let gone = bench.sandboxes.remove_all_of(other.executor).await.unwrap();
    assert_eq!((gone.removed, gone.failed), (0, 0));
}
