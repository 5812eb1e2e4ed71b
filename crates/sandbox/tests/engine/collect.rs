//! Files that leave a sandbox when its job is over, on the real engine.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use mayfly_core::{
    artifact::{Artifact, Artifacts, KeepAfter, LeftOutWhy},
    digest::Digest,
    job::{ResolvedJob, SecretText},
    outcome::{EndState, KilledFor},
    run::RunReport,
    units::Span,
};
use mayfly_sandbox::{
    collect::{ArtifactSink, Collect, CollectBounds, SinkError},
    seam::{LiveOutput, NoLiveOutput, Run, Sandbox as _},
};
use tokio::sync::watch;

use crate::outcomes::StopOnOutput;
use crate::support::{Bench, limits, matcher, settled, text};

/// Keeps files in memory.
#[derive(Default)]
struct Kept {
    files: Vec<(Artifact, Vec<u8>)>,
    dropped: usize,
}

struct Keeper {
    kept: Arc<Mutex<Kept>>,
    open: Vec<u8>,
    begun: u32,
}

#[async_trait]
impl ArtifactSink for Keeper {
    async fn begin(&mut self) -> Result<u32, SinkError> {
        self.open.clear();
        self.begun += 1;
        Ok(self.begun - 1)
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        self.open.extend_from_slice(bytes);
        Ok(())
    }

    async fn keep(&mut self, file: &Artifact) -> Result<(), SinkError> {
        let content = std::mem::take(&mut self.open);
        self.kept.lock().unwrap().files.push((file.clone(), content));
        Ok(())
    }

    async fn drop_it(&mut self) {
        self.open.clear();
        self.kept.lock().unwrap().dropped += 1;
    }
}

fn collect(globs: &[&str], sink: Box<dyn ArtifactSink>) -> Collect {
    Collect {
        globs: globs.iter().map(|&glob| glob.to_owned()).collect(),
        after: KeepAfter::AnyEnd,
        bounds: CollectBounds {
            files: 100,
            file_bytes: 64 << 20,
            bytes: 64 << 20,
            entries: 10_000,
            named: 100,
            time: Duration::from_secs(30),
        },
        sink,
    }
}

/// Runs a job whose files are wanted. Nothing of it is left then, and nobody contradicts anybody.
async fn run(
    bench: &Bench,
    job: ResolvedJob,
    collect: Collect,
    stop: watch::Receiver<Option<KilledFor>>,
    live: Arc<dyn LiveOutput>,
) -> (RunReport, Option<Artifacts>) {
    let sandbox = bench.sandboxes.prepare(bench.request(&job)).await.unwrap();
    let run = Run {
        matcher: matcher(&job),
        job: Arc::new(job),
        stop,
        live,
        collect: Some(collect),
        fetched: None,
        egress: None,
    };
    let mut report = settled(sandbox.run(run).await).await;
    bench.assert_nothing_is_left().await;
    let collected = report.artifacts.take();
    (report, collected)
}

/// The same with the usual collector, which nobody stops.
async fn run_and_keep(
    bench: &Bench,
    job: ResolvedJob,
    change: impl FnOnce(&mut Collect),
) -> (RunReport, Option<Artifacts>, Kept) {
    let kept = Arc::new(Mutex::new(Kept::default()));
    let keeper = Keeper {
        kept: Arc::clone(&kept),
        open: Vec::new(),
        begun: 0,
    };
    let mut collect = collect(&["out/**"], Box::new(keeper));
    change(&mut collect);
    let (report, collection) = run(
        bench,
        job,
        collect,
        watch::channel(None).1,
        Arc::new(NoLiveOutput),
    )
    .await;
    let kept = std::mem::take(&mut *kept.lock().unwrap());
    (report, collection, kept)
}

const WRITES: &str = "import hashlib, os
os.makedirs('out/deep')
large = os.urandom(1 << 20) * 20
for name, content in {'out/a.txt': b'hello\\n', 'out/deep/large.bin': large, 'out/empty': b'', 'kept': b'not wanted'}.items():
    open(name, 'wb').write(content)
os.symlink('/etc/passwd', 'out/link')
print(hashlib.sha256(large).hexdigest())
";

#[tokio::test]
async fn files_come_out_as_the_job_left_them() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let (report, collection, kept) = run_and_keep(&bench, bench.python(WRITES), |_| {}).await;
    assert_eq!(report.outcome.state, EndState::Succeeded);
    let collection = collection.unwrap();
    let names: Vec<_> = collection
        .files
        .iter()
        .map(|file| file.name.as_bytes().escape_ascii().to_string())
        .collect();
    assert_eq!(names, ["out/a.txt", "out/deep/large.bin", "out/empty"]);
    assert_eq!(collection.incomplete, None);
    let [missing] = &collection.left_out[..] else {
        panic!("{collection:?}")
    };
    assert_eq!(
        (missing.name.as_bytes(), missing.why),
        (&b"out/link"[..], LeftOutWhy::Link)
    );
    assert_eq!(collection.files[1].digest.to_hex(), text(&report.stdout).trim());
    for ((file, content), listed) in kept.files.iter().zip(&collection.files) {
        assert_eq!(file, listed);
        assert_eq!(
            (file.bytes, file.digest),
            (content.len() as u64, Digest::of(content))
        );
        assert!(file.redacted.counts.is_empty());
    }
    assert_eq!(kept.files.len(), 3);
    assert_eq!(kept.files[0].1, b"hello\n");
}

#[tokio::test]
async fn a_secret_leaves_in_no_file_and_in_no_name() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let program = "import base64, os
s = os.environ['TOKEN']
os.mkdir('out')
open('out/text', 'w').write('x' * 40000 + s + '\\n' + base64.b64encode(s.encode()).decode() + ' AKIA' + 'IOSFODNN7EXAMPLE')
open('out/binary', 'wb').write(b'\\0' * 40000 + s.encode())
open('out/' + s, 'w').write('named')
open('out/key', 'wb').write(b'\\0 AKIA' + b'IOSFODNN7EXAMPLE ')
";
    let mut job = bench.python(program);
    job.secrets.insert(
        "TOKEN".to_owned(),
        SecretText::from("correct-horse-battery".to_owned()),
    );
    let (report, collection, kept) = run_and_keep(&bench, job, |_| {}).await;
    assert_eq!(report.outcome.state, EndState::Succeeded, "{report:?}");
    let collection = collection.unwrap();
    for (file, content) in &kept.files {
        assert_eq!(
            (file.bytes, file.digest),
            (content.len() as u64, Digest::of(content))
        );
        let (name, content) = (
            file.name.as_bytes().escape_ascii().to_string(),
            content.escape_ascii().to_string(),
        );
        assert!(!name.contains("horse") && !content.contains("horse"), "{name}");
    }
    let of = |name: &[u8]| collection.files.iter().find(|file| file.name.as_bytes() == name);
    let text = of(b"out/text").unwrap();
    assert_eq!(
        (
            text.redacted.counts["secret"],
            text.redacted.counts["aws_access_key_id"]
        ),
        (2, 1)
    );
    assert!(of(b"out/[redacted:secret]").is_some(), "{collection:?}");
    // In what is no text a token is found and left: only the job's own secret keeps it from leaving.
    let key = of(b"out/key").unwrap();
    assert_eq!(
        (key.is_text, key.redacted.counts["aws_access_key_id"]),
        (false, 1)
    );
    let [missing] = &collection.left_out[..] else {
        panic!("{collection:?}")
    };
    assert_eq!(
        (missing.name.as_bytes(), missing.why),
        (&b"out/binary"[..], LeftOutWhy::HoldsSecret)
    );
    assert_eq!(kept.dropped, 1);
}

#[tokio::test]
async fn the_end_says_whether_files_are_wanted() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let fails = "import os, sys\nos.mkdir('out'); open('out/a', 'w').write('a'); sys.exit(3)";
    let (report, collection, _) = run_and_keep(&bench, bench.python(fails), |collect| {
        collect.after = KeepAfter::Success
    })
    .await;
    assert_eq!((report.outcome.state, collection), (EndState::Failed, None));
    let (report, _, kept) = run_and_keep(&bench, bench.python(fails), |_| {}).await;
    assert_eq!((report.outcome.state, kept.files.len()), (EndState::Failed, 1));
    let mut late =
        bench.python("import os, time\nos.mkdir('out'); open('out/a', 'w').write('a'); time.sleep(60)");
    late.limits = limits(|limits| limits.wall = Span::seconds(2));
    let (report, _, kept) = run_and_keep(&bench, late, |_| {}).await;
    assert_eq!((report.outcome.state, kept.files.len()), (EndState::TimedOut, 1));
    // A job that never began has no files.
    let (report, collection, _) = run_and_keep(&bench, bench.job(&["no-such-program"], ""), |_| {}).await;
    assert_eq!((report.outcome.state, collection), (EndState::Failed, None));
}

#[tokio::test]
async fn a_job_that_nobody_wants_any_more_leaves_no_files() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let kept = Arc::new(Mutex::new(Kept::default()));
    let keeper = Keeper {
        kept: Arc::clone(&kept),
        open: Vec::new(),
        begun: 0,
    };
    let (stop, stopped) = watch::channel(None);
    // It has written its files by then.
    let waits = format!("{WRITES}\nimport time; print('running', flush=True); time.sleep(60)")
        .replace("print(hashlib", "(hashlib");
    let (report, collection) = run(
        &bench,
        bench.python(&waits),
        collect(&["**"], Box::new(keeper)),
        stopped,
        Arc::new(StopOnOutput(stop)),
    )
    .await;
    assert!(text(&report.stdout).starts_with("running"));
    assert_eq!((report.outcome.state, collection), (EndState::Canceled, None));
}

/// Says when it was given something, and never takes it.
struct Never(watch::Sender<bool>);

#[async_trait]
impl ArtifactSink for Never {
    async fn begin(&mut self) -> Result<u32, SinkError> {
        Ok(0)
    }

    async fn write(&mut self, _: &[u8]) -> Result<(), SinkError> {
        self.0.send_replace(true);
        std::future::pending().await
    }

    async fn keep(&mut self, _: &Artifact) -> Result<(), SinkError> {
        Ok(())
    }

    async fn drop_it(&mut self) {}
}

#[tokio::test]
async fn nobody_waits_for_a_sink_that_takes_nothing() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let mut wanted = collect(&["out/**"], Box::new(Never(watch::channel(false).0)));
    wanted.bounds.time = Duration::from_secs(1);
    let (report, collection) = run(
        &bench,
        bench.python(WRITES),
        wanted,
        watch::channel(None).1,
        Arc::new(NoLiveOutput),
    )
    .await;
    assert_eq!(report.outcome.state, EndState::Succeeded);
    assert_eq!(
        collection.unwrap().incomplete.as_deref(),
        Some("the time for it was over")
    );

    let (given, mut told) = watch::channel(false);
    let (stop, stopped) = watch::channel(None);
    let ending = async {
        told.wait_for(|given| *given).await.unwrap();
        stop.send_replace(Some(KilledFor::Abandoned));
    };
    let wanted = collect(&["out/**"], Box::new(Never(given)));
    let ((report, collection), ()) = tokio::join!(
        run(
            &bench,
            bench.python(WRITES),
            wanted,
            stopped,
            Arc::new(NoLiveOutput)
        ),
        ending
    );
    assert_eq!(report.outcome.state, EndState::Succeeded, "it had ended before");
    assert_eq!(
        collection.unwrap().incomplete.as_deref(),
        Some("the run was stopped")
    );
}

/// Fails at once.
struct Full;

#[async_trait]
impl ArtifactSink for Full {
    async fn begin(&mut self) -> Result<u32, SinkError> {
        Err(SinkError("no room".to_owned()))
    }

    async fn write(&mut self, _: &[u8]) -> Result<(), SinkError> {
        Ok(())
    }

    async fn keep(&mut self, _: &Artifact) -> Result<(), SinkError> {
        Ok(())
    }

    async fn drop_it(&mut self) {}
}

#[tokio::test]
async fn what_can_not_be_kept_is_said_and_is_not_the_jobs_fault() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let wanted = collect(&["out/**"], Box::new(Full));
    let (report, collection) = run(
        &bench,
        bench.python(WRITES),
        wanted,
        watch::channel(None).1,
        Arc::new(NoLiveOutput),
    )
    .await;
    assert_eq!(report.outcome.state, EndState::Succeeded);
    let collection = collection.unwrap();
    assert_eq!(
        collection.incomplete.as_deref(),
        Some("they could not be kept: no room")
    );
    assert_eq!(collection.files, []);
}

#[tokio::test]
async fn a_workspace_that_is_full_to_the_last_byte_still_gives_its_files() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let program = "import os
os.mkdir('out'); open('out/first', 'w').write('first')
try:
    for n in range(100000): open(f'out/x{n:06}', 'wb').write(b'x' * 65536)
except OSError as error: print(error.strerror)
";
    let (report, collection, kept) =
        run_and_keep(&bench, bench.python(program), |collect| collect.bounds.files = 5).await;
    assert_eq!(
        text(&report.stdout).trim(),
        "No space left on device",
        "{report:?}"
    );
    let collection = collection.unwrap();
    assert_eq!((kept.files.len(), collection.incomplete.as_deref()), (5, None));
    assert_eq!(kept.files[0].1, b"first");
    assert_eq!(collection.left_out[0].why, LeftOutWhy::TooManyFiles);
}
