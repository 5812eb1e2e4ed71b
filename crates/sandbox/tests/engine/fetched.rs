//! Files that come from elsewhere while they go into the sandbox.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use mayfly_core::{
    digest::Digest,
    job::{FetchedFile, FileMode, ResolvedJob},
    outcome::{Cause, EndState, KilledFor},
    run::RunReport,
    units::ByteSize,
};
use mayfly_sandbox::{
    fetched::{FetchError, Incoming, Sender},
    seam::{NoLiveOutput, Run, Sandbox as _},
};
use tokio::sync::watch;

use crate::support::{Bench, matcher, settled};

const MIB: usize = 1 << 20;

fn file(path: &str, mode: u32, content: &[u8]) -> FetchedFile {
    FetchedFile {
        path: path.to_owned(),
        mode: FileMode::new(mode).unwrap(),
        digest: Digest::of(content),
        bytes: content.len() as u64,
    }
}

/// Runs a job whose files come from `send`.
async fn run(
    bench: &Bench,
    job: ResolvedJob,
    stop: watch::Receiver<Option<KilledFor>>,
    incoming: Option<Incoming>,
) -> RunReport {
    let sandbox = bench.sandboxes.prepare(bench.request(&job)).await.unwrap();
    let run = Run {
        matcher: matcher(&job),
        job: Arc::new(job),
        stop,
        live: Arc::new(NoLiveOutput),
        collect: None,
        fetched: incoming,
        egress: None,
    };
    let report = settled(sandbox.run(run).await).await;
    bench.assert_nothing_is_left().await;
    report
}

fn going_on() -> watch::Receiver<Option<KilledFor>> {
    watch::channel(None).1
}

async fn send(sender: Sender, files: [Vec<u8>; 2]) {
    for piece in files.iter().flat_map(|content| content.chunks(MIB)) {
        sender.send(Ok(Bytes::copy_from_slice(piece))).await.unwrap();
    }
}

fn ended(report: &RunReport) -> (EndState, Cause) {
    (report.outcome.state, report.outcome.cause)
}

#[tokio::test]
async fn files_that_come_meanwhile_are_there_when_the_program_starts() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let large: Vec<u8> = (0..=250).cycle().take(20 * MIB + 5).collect();
    let program = "import hashlib, os
for name in ['in/large.bin', 'in/empty', 'tool']:
    content = open(name, 'rb').read()
    print(name, oct(os.stat(name).st_mode & 0o777), len(content), hashlib.sha256(content).hexdigest())
";
    let mut job = bench.python(program);
    job.fetched = vec![
        file("in/large.bin", 0o640, &large),
        file("in/empty", 0o644, b""),
        file("tool", 0o755, b"#!"),
    ];
    let (sender, incoming) = Incoming::new();
    let sending = tokio::spawn(send(sender, [large.clone(), b"#!".to_vec()]));
    let report = run(&bench, job, going_on(), Some(incoming)).await;
    sending.await.unwrap();
    let hex = |content: &[u8]| Digest::of(content).to_string().replace("sha256:", "");
    let expected = format!(
        "in/large.bin 0o640 {} {}\nin/empty 0o644 0 {}\ntool 0o755 2 {}\n",
        large.len(),
        hex(&large),
        hex(b""),
        hex(b"#!")
    );
    assert_eq!(String::from_utf8_lossy(&report.stdout.head), expected);
    assert_eq!(ended(&report), (EndState::Succeeded, Cause::Exited));
}

#[tokio::test]
async fn without_all_of_its_files_no_program_starts() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let job = || {
        let mut job = bench.python("print('started')");
        job.fetched = vec![file("a", 0o644, &[7; 3 * MIB])];
        job
    };
    let not_started = |report: &RunReport| {
        assert_eq!(ended(report), (EndState::Error, Cause::ContentUnavailable));
        assert!(!report.outcome.evidence.started && report.stdout.head.is_empty());
        report.outcome.evidence.trouble.clone().unwrap().message
    };
    // It breaks off with an error, in silence, with too much, and with nobody who fetches.
    let (sender, incoming) = Incoming::new();
    let sending = tokio::spawn(async move {
        sender.send(Ok(Bytes::from(vec![7; MIB]))).await.unwrap();
        let error = FetchError("the server is away".to_owned());
        sender.send(Err(error)).await.unwrap();
    });
    let report = run(&bench, job(), going_on(), Some(incoming)).await;
    assert_eq!(not_started(&report), "the server is away");
    sending.await.unwrap();

    let (sender, incoming) = Incoming::new();
    drop(sender);
    let report = run(&bench, job(), going_on(), Some(incoming)).await;
    assert_eq!(
        not_started(&report),
        "whoever fetches the job's files has given up"
    );

    let (sender, incoming) = Incoming::new();
    let sending = tokio::spawn(async move { sender.send(Ok(Bytes::from(vec![7; 3 * MIB + 1]))).await });
    let report = run(&bench, job(), going_on(), Some(incoming)).await;
    assert!(not_started(&report).contains("not as long"), "{report:?}");
    sending.await.unwrap().unwrap();

    let report = run(&bench, job(), going_on(), None).await;
    assert_eq!(not_started(&report), "nobody fetches the job's files");
}

#[tokio::test]
async fn a_job_is_stopped_while_its_files_are_awaited() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let mut job = bench.python("print('started')");
    job.fetched = vec![file("a", 0o644, &[7; 2 * MIB])];
    let (sender, incoming) = Incoming::new();
    let (stop, stopped) = watch::channel(None);
    let stopping = tokio::spawn(async move {
        sender.send(Ok(Bytes::from(vec![7; MIB]))).await.unwrap();
        // The first is taken in once there is room for a second: from then on the rest is awaited.
        let second = sender.reserve().await.unwrap();
        stop.send_replace(Some(KilledFor::Cancel));
        (second.send(Ok(Bytes::new())), stop)
    });
    let report = tokio::time::timeout(Duration::from_secs(60), run(&bench, job, stopped, Some(incoming)));
    let report = report
        .await
        .expect("nobody waits for files of a job that is stopped");
    assert!(!report.outcome.evidence.started);
    assert_eq!(report.outcome.state, EndState::Canceled, "{report:?}");
    drop(stopping);
}

#[tokio::test]
async fn files_that_do_not_fit_are_the_jobs_own_trouble() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let mut job = bench.python("print('started')");
    job.limits.work = ByteSize::mib(4);
    let content = vec![7; 8 * MIB];
    job.fetched = vec![file("a", 0o644, &content)];
    let (sender, incoming) = Incoming::new();
    let sending = tokio::spawn(async move {
        for piece in content.chunks(MIB) {
            // The run is over before all of it is wanted.
            if sender.send(Ok(Bytes::copy_from_slice(piece))).await.is_err() {
                return;
            }
        }
    });
    let report = run(&bench, job, going_on(), Some(incoming)).await;
    assert_eq!(ended(&report), (EndState::Failed, Cause::FilesDidNotFit));
    sending.await.unwrap();
}
