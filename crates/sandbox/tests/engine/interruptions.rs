//! What breaks off while a sandbox is made or a job runs.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use mayfly_core::{
    outcome::{Cause, EndState, TroubleKind},
    units::Span,
};
use mayfly_sandbox::{
    error::EngineError,
    seam::{LiveOutput, OutputStream, PrepareError, Run, Sandbox},
};
use tokio::sync::watch;

use crate::{
    lies::liar,
    proxy::{Lie, Proxy},
    support::{Bench, docker, limits, matcher, on_gvisor, settled, text},
};

/// A program that says something and then waits for its end.
const WAITS: &str = "import time\nprint('running', flush=True)\nwhile True: time.sleep(1)";

/// Tells when the job speaks.
struct Tell(watch::Sender<bool>);

#[async_trait::async_trait]
impl LiveOutput for Tell {
    fn output(&self, _: OutputStream, _: &[u8]) {
        self.0.send_replace(true);
    }

    async fn ready(&self) {}
}

#[tokio::test]
async fn a_guest_that_does_not_speak_is_given_up_in_time() {
    let Some((bench, proxy, _)) = liar().await else {
        return;
    };
    proxy.tell(Lie::Silence);
    let begun = Instant::now();
    let job = bench.python("");
    let error = bench
        .sandboxes
        .prepare(bench.request(&job))
        .await
        .map(drop)
        .unwrap_err();
    let PrepareError::Engine(EngineError::Guest(what)) = error else {
        panic!("{error:?}");
    };
    assert!(what.contains("within 10 s"), "{what}");
    let took = begun.elapsed();
    assert!(
        (Duration::from_secs(10)..Duration::from_secs(20)).contains(&took),
        "{took:?}"
    );
    bench.assert_nothing_is_left().await;
}

/// Cuts the stream when the job speaks.
struct Cut(Arc<Proxy>);

#[async_trait::async_trait]
impl LiveOutput for Cut {
    fn output(&self, _: OutputStream, _: &[u8]) {
        self.0.cut();
    }

    async fn ready(&self) {}
}

#[tokio::test]
async fn a_stream_that_is_cut_ends_the_run_as_trouble_of_ours() {
    let Some((bench, proxy, _)) = liar().await else {
        return;
    };
    let proxy = Arc::new(proxy);
    proxy.tell(Lie::None);
    let report = bench
        .run_with(
            bench.python(WAITS),
            Arc::new(Cut(Arc::clone(&proxy))),
            watch::channel(None).1,
        )
        .await;
    assert_eq!(
        (report.outcome.state, report.outcome.cause),
        (EndState::Error, Cause::EngineFailure),
        "{report:#?}"
    );
    let trouble = report.outcome.evidence.trouble.unwrap();
    assert_eq!(trouble.kind, TroubleKind::Engine, "{trouble:?}");
    assert_eq!(text(&report.stdout), "running\n");
}

#[tokio::test]
async fn a_guest_that_can_not_obey_is_killed_by_the_engine() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let (sender, mut speaks) = watch::channel(false);
    let mut job = bench.python(WAITS);
    job.limits = limits(|limits| limits.wall = Span::seconds(2));
    let sandbox = bench.sandboxes.prepare(bench.request(&job)).await.unwrap();
    let container = sandbox.facts().container_id.clone();
    let begun = Instant::now();
    let running = sandbox.run(Run {
        collect: None,
        fetched: None,
        egress: None,
        matcher: matcher(&job),
        job: Arc::new(job),
        stop: watch::channel(None).1,
        live: Arc::new(Tell(sender)),
    });
    let freeze = async {
        speaks.wait_for(|speaks| *speaks).await.unwrap();
        docker().await.pause_container(&container).await.unwrap();
    };
    let (ended, ()) = tokio::join!(running, freeze);
    let report = settled(ended).await;
    if on_gvisor() {
        // A paused gVisor can't be killed: nobody knows what becomes of the program, and nobody says so.
        assert_eq!(
            (report.outcome.state, report.outcome.cause),
            (EndState::Error, Cause::EngineFailure),
            "{report:#?}"
        );
        bench.assert_nothing_is_left().await;
        return;
    }
    assert_eq!(
        (report.outcome.state, report.outcome.cause),
        (EndState::TimedOut, Cause::WallClock),
        "{report:#?}"
    );
    assert_eq!(report.outcome.evidence.end, None);
    assert_eq!(report.outcome.evidence.engine_exit_code, Some(137));
    // The wall limit, the grace, the wait for a guest that may end by itself, and the kill.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    bench.assert_nothing_is_left().await;
}
