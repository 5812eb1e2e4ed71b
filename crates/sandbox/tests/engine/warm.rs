//! The warm command on a real engine: a program says the same after it as after a cold start, and whatever fails on the
//! way leaves a cold start.

use std::{sync::Arc, time::Instant};

use bollard::{
    models::{ContainerConfig, ContainerCreateBody},
    query_parameters as query,
};
use mayfly_core::{
    job::{InputFile, ResolvedJob},
    outcome::{Cause, EndState, ProcessEnd},
    run::{RunReport, WarmFacts},
    units::{ByteSize, Span},
};
use mayfly_sandbox::{
    WarmCommand,
    images::Images,
    seam::{NoLiveOutput, ReadySandbox, Run, Sandbox},
};
use tokio::sync::watch;

use crate::{
    alike::{PROGRAMS, Program, without_addresses},
    support::{Bench, blob, docker, limits, matcher, runtime, settled, skipped, text},
};

macro_rules! bench {
    () => {
        match Bench::set_up().await {
            Some(bench) => bench,
            None => return,
        }
    };
}

fn importing(imports: &[&str]) -> WarmCommand {
    WarmCommand::python(imports.iter().map(|&name| name.to_owned()).collect()).unwrap()
}

/// A sandbox for a job like this, with a process that waits for it.
async fn prepare(bench: &Bench, job: &ResolvedJob, imports: &[&str]) -> Box<dyn ReadySandbox> {
    let mut request = bench.request(job);
    request.warm = Some(importing(imports));
    bench.sandboxes.prepare(request).await.unwrap()
}

async fn run_in(sandbox: Box<dyn ReadySandbox>, job: ResolvedJob) -> RunReport {
    let run = Run {
        collect: None,
        fetched: None,
        egress: None,
        matcher: matcher(&job),
        job: Arc::new(job),
        stop: watch::channel(None).1,
        live: Arc::new(NoLiveOutput),
    };
    settled(sandbox.run(run).await).await
}

async fn run(bench: &Bench, job: ResolvedJob, imports: &[&str]) -> RunReport {
    let sandbox = prepare(bench, &job, imports).await;
    run_in(sandbox, job).await
}

fn warm(report: &RunReport) -> &WarmFacts {
    report.sandbox.as_ref().unwrap().warm.as_ref().unwrap()
}

/// A source, as a submission makes it.
fn source(bench: &Bench, text: &str, args: &[&str]) -> ResolvedJob {
    bench.job(&[&["python3", "/work/main.py"], args].concat(), text)
}

fn of_program(bench: &Bench, program: &Program) -> ResolvedJob {
    let mut job = source(bench, program.text, program.args);
    job.env.insert("NAME".to_owned(), "m\u{e9}yfly=x".to_owned());
    job.stdin = program.stdin.map(|stdin| blob(stdin.as_bytes()));
    // The programs start a few processes, each with a few threads.
    job.limits = limits(|limits| limits.pids = 64);
    job
}

/// What there is to compare of a run.
fn said(report: &RunReport) -> (String, String, Option<ProcessEnd>, EndState) {
    let stream = |stream: &mayfly_core::outcome::CapturedStream| {
        without_addresses(&String::from_utf8_lossy(&stream.head))
    };
    let outcome = &report.outcome;
    (
        stream(&report.stdout),
        stream(&report.stderr),
        outcome.evidence.end,
        outcome.state,
    )
}

#[tokio::test]
async fn a_program_says_the_same_of_itself_after_a_warm_start_as_after_a_cold_one() {
    let bench = bench!();
    let mut different = Vec::new();
    for program in PROGRAMS {
        let (cold, warmed) = tokio::join!(
            bench.run_keeping_others(of_program(&bench, program)),
            run(&bench, of_program(&bench, program), &[])
        );
        assert_eq!(cold.sandbox.as_ref().unwrap().warm, None);
        assert!(warm(&warmed).used, "{}: {:?}", program.name, warm(&warmed));
        let (cold, warmed) = (said(&cold), said(&warmed));
        if cold != warmed {
            eprintln!("{}:\ncold: {cold:#?}\nwarm: {warmed:#?}", program.name);
            different.push(program.name);
        }
    }
    assert_eq!(different, Vec::<&str>::new());
    bench.assert_nothing_is_left().await;
}

#[tokio::test]
async fn a_job_that_does_not_fit_runs_cold_in_the_same_sandbox_and_the_record_says_why() {
    let bench = bench!();
    let other_command = bench.job(&["python3", "-X", "utf8", "main.py"], "print('ran')");
    let mut variable = source(&bench, "import random; print('ran')", &[]);
    variable.env.insert("PYTHONHASHSEED".to_owned(), "0".to_owned());
    let mut hidden = source(&bench, "print('ran')", &[]);
    hidden.files.push(InputFile {
        path: ".local/lib/x.pth".to_owned(),
        content: blob(b""),
        executable: false,
        mode: None,
    });
    for (job, why) in [
        (other_command, "another command"),
        (variable, "PYTHONHASHSEED"),
        (hidden, ".local/lib/x.pth"),
    ] {
        let report = run(&bench, job, &[]).await;
        assert_eq!(text(&report.stdout), "ran\n", "{}", text(&report.stderr));
        assert_cold(&report, why);
        assert!(warm(&report).boot_us.is_some());
    }
    bench.assert_nothing_is_left().await;
}

fn assert_cold(report: &RunReport, why: &str) {
    let warm = warm(report);
    assert!(!warm.used);
    let said = warm.why_cold.as_deref().unwrap_or_default();
    assert!(said.contains(why), "{said}");
    assert_eq!(report.outcome.state, EndState::Succeeded, "{report:#?}");
    assert_eq!(report.outcome.evidence.contradictions, Vec::<String>::new());
}

#[tokio::test]
async fn imports_are_there_and_what_the_job_brings_goes_before_them() {
    let bench = bench!();
    let program = "import sys; print('decimal' in sys.modules, 'csv' in sys.modules); import json; print(json.__file__)";
    let report = run(&bench, source(&bench, program, &[]), &["json", "decimal"]).await;
    assert!(warm(&report).used, "{:?}", warm(&report));
    assert_eq!(warm(&report).imports, ["json", "decimal"]);
    assert_eq!(
        text(&report.stdout),
        "True False\n/usr/lib/python3.11/json/__init__.py\n"
    );

    let mut shadows = source(&bench, "import json; print(json.__file__)", &[]);
    shadows.files.push(InputFile {
        path: "json.py".to_owned(),
        content: blob(b""),
        executable: false,
        mode: None,
    });
    let report = run(&bench, shadows, &["json"]).await;
    assert_eq!(text(&report.stdout), "/work/json.py\n");
    assert_cold(&report, "a module of a name that was imported");
    bench.assert_nothing_is_left().await;
}

#[tokio::test]
async fn imports_that_fail_or_write_something_leave_a_cold_start() {
    let bench = bench!();
    for (imports, program, output, why) in [
        (
            ["nosuchmodule"],
            "print('ran')",
            "ran\n",
            "No module named 'nosuchmodule'",
        ),
        (["this"], "import this", "The Zen of Python", "it wrote something"),
    ] {
        let job = source(&bench, program, &[]);
        let sandbox = prepare(&bench, &job, &imports).await;
        let facts = sandbox.facts().warm.clone().unwrap();
        assert!(facts.why_cold.unwrap().contains(why));
        assert_eq!(facts.boot_us, None);
        let report = run_in(sandbox, job).await;
        assert!(
            text(&report.stdout).starts_with(output),
            "{}",
            text(&report.stdout)
        );
        assert_cold(&report, why);
    }
    bench.assert_nothing_is_left().await;
}

#[tokio::test]
async fn imports_that_need_more_memory_than_there_is_leave_a_cold_start() {
    let mut bench = bench!();
    if runtime() != "runc" {
        return skipped("gVisor counts no kills for memory inside");
    }
    let image = with_module(&bench, "hungry", "x = bytearray(500 << 20)").await;
    bench.image = Images::new(bench.sandboxes.engine().clone())
        .pin(&image)
        .await
        .unwrap();
    let mut job = source(&bench, "print('ran')", &[]);
    job.limits = limits(|limits| limits.memory = ByteSize::mib(64));
    let report = run(&bench, job, &["hungry"]).await;
    docker()
        .await
        .remove_image(&image, None::<query::RemoveImageOptions>, None)
        .await
        .unwrap();
    assert_eq!(text(&report.stdout), "ran\n", "{report:#?}");
    // The engine's word, that something was killed for memory, is not about the job; `run` has heard it.
    assert_cold(&report, "more memory than the sandbox has");
    assert_eq!(report.outcome.evidence.oom_kills, Some(0));
    bench.assert_nothing_is_left().await;
}

/// Our image with one more module: the id of an image that the caller removes.
async fn with_module(bench: &Bench, name: &str, text: &str) -> String {
    let docker = docker().await;
    let body = ContainerCreateBody {
        image: Some(bench.image.config_digest.to_string()),
        labels: Some([("mayfly.deployment".to_owned(), bench.deployment.clone())].into()),
        ..Default::default()
    };
    let holder = docker.create_container(None, body).await.unwrap().id;
    let mut header = tar::Header::new_ustar();
    header.set_size(text.len() as u64);
    header.set_mode(0o644);
    let mut archive = tar::Builder::new(Vec::new());
    archive
        .append_data(&mut header, format!("{name}.py"), text.as_bytes())
        .unwrap();
    let options = query::UploadToContainerOptions {
        path: "/usr/lib/python3.11".to_owned(),
        ..Default::default()
    };
    let archive = bollard::body_full(archive.into_inner().unwrap().into());
    docker
        .upload_to_container(&holder, Some(options), archive)
        .await
        .unwrap();
    let options = query::CommitContainerOptions {
        container: Some(holder.clone()),
        ..Default::default()
    };
    let made = docker
        .commit_container(options, ContainerConfig::default())
        .await
        .unwrap();
    docker.remove_container(&holder, None).await.unwrap();
    made.id
}

#[tokio::test]
async fn a_process_that_ended_or_froze_while_it_waited_costs_a_cold_start() {
    let bench = bench!();
    if runtime() != "runc" {
        return skipped("gVisor's processes are none of the host's");
    }
    for (signal, why) in [("-KILL", "had ended"), ("-STOP", "did not take the job in time")] {
        let job = source(&bench, "print('ran')", &[]);
        let sandbox = prepare(&bench, &job, &[]).await;
        let pid = waiting_pid(&sandbox.facts().container_id).await;
        let sent = std::process::Command::new("kill").args([signal, &pid]).output();
        if !sent.unwrap().status.success() {
            sandbox.discard().await;
            return skipped("the processes of the engine are not this machine's, or not ours to signal");
        }
        let report = run_in(sandbox, job).await;
        assert_eq!(text(&report.stdout), "ran\n");
        assert_cold(&report, why);
    }
    bench.assert_nothing_is_left().await;
}

/// The host's pid of the process that waits in a container.
async fn waiting_pid(container: &str) -> String {
    let options = query::TopOptions {
        ps_args: "-o pid,args".to_owned(),
    };
    let top = docker()
        .await
        .top_processes(container, Some(options))
        .await
        .unwrap();
    let processes = top.processes.unwrap();
    let waiting = processes
        .iter()
        .find(|process| process[1].contains("/work/main.py"));
    waiting.unwrap()[0].clone()
}

#[tokio::test]
async fn limits_bind_a_job_that_was_handed_over() {
    let bench = bench!();
    let mut hungry = source(&bench, "x = bytearray(500 << 20)", &[]);
    hungry.limits = limits(|limits| limits.memory = ByteSize::mib(64));
    let report = run(&bench, hungry, &[]).await;
    assert!(warm(&report).used);
    if runtime() == "runc" {
        assert_eq!(report.outcome.cause, Cause::MemoryLimit, "{report:#?}");
    }
    let mut endless = source(&bench, "while True: pass", &[]);
    endless.limits = limits(|limits| limits.wall = Span::millis(500));
    let report = run(&bench, endless, &[]).await;
    assert!(warm(&report).used);
    assert_eq!(report.outcome.cause, Cause::WallClock, "{report:#?}");
    bench.assert_nothing_is_left().await;
}

/// Prints what a warm start saves. The numbers are the machine's, and nothing is asserted of them.
#[tokio::test]
async fn what_a_warm_start_saves() {
    const ROUNDS: usize = 5;
    let bench = bench!();
    let programs = [
        ("print('ok')", &[][..]),
        (
            "import json, decimal, random, unittest; print('ok')",
            &["json", "decimal", "random", "unittest"],
        ),
    ];
    for (program, imports) in programs {
        let (mut cold, mut warmed) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let job = source(&bench, program, &[]);
            for (is_warm, times) in [(false, &mut cold), (true, &mut warmed)] {
                let sandbox = if is_warm {
                    prepare(&bench, &job, imports).await
                } else {
                    bench.sandboxes.prepare(bench.request(&job)).await.unwrap()
                };
                let begun = Instant::now();
                let end = sandbox
                    .run(Run {
                        collect: None,
                        fetched: None,
                        egress: None,
                        matcher: matcher(&job),
                        job: Arc::new(job.clone()),
                        stop: watch::channel(None).1,
                        live: Arc::new(NoLiveOutput),
                    })
                    .await;
                let took = begun.elapsed();
                let report = settled(end).await;
                assert_eq!(text(&report.stdout), "ok\n");
                let facts = report.sandbox.unwrap().warm;
                assert_eq!(facts.is_some_and(|warm| warm.used), is_warm);
                times.push((took, report.usage.unwrap().wall_us));
            }
        }
        for (name, times) in [("cold", &mut cold), ("warm", &mut warmed)] {
            times.sort();
            let (took, _) = times[ROUNDS / 2];
            times.sort_by_key(|(_, wall_us)| *wall_us);
            let (_, wall_us) = times[ROUNDS / 2];
            eprintln!("{name} `{program}`: median {took:?} to the report, {wall_us} us from start to exit");
        }
    }
    bench.assert_nothing_is_left().await;
}
