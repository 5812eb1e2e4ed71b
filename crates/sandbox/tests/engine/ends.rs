//! How a job ends when something else ends it at the same moment: programs that end each in its own way, beside faults.
//! Each cell of the matrix says what can be true of it. Where the program and a fault race, either may have been first, and
//! there is never a third; which of the two it was decides what the rest of the report has to say.

use std::{sync::Arc, time::Duration};

use bollard::{Docker, errors::Error, query_parameters as query};
use futures_util::{StreamExt, stream};
use mayfly_core::{
    outcome::{CapturedStream, KilledFor},
    run::RunReport,
};
use mayfly_sandbox::seam::{LiveOutput, OutputStream, Run, Sandbox};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tokio::sync::watch;

use crate::{
    proxy::Proxy,
    support::{Bench, docker, matcher, skipped},
};
use consistent::faults_of;
use table::{End, Fault, Program, true_ends};

mod consistent;
mod table;

/// Cells that are tried at once: most of the time each waits for the engine or for a moment.
const SIDE_BY_SIDE: usize = 5;

/// How long a removal that is under way may take.
const GONE_LIMIT: Duration = Duration::from_secs(20);

/// Tells when the job speaks.
struct Tell(watch::Sender<bool>);

#[async_trait::async_trait]
impl LiveOutput for Tell {
    fn output(&self, _: OutputStream, _: &[u8]) {
        self.0.send_replace(true);
    }

    async fn ready(&self) {}
}

/// What strikes a sandbox, once its job has spoken.
enum Strike {
    Nothing,
    Stop(watch::Sender<Option<KilledFor>>),
    Kill(Docker),
    Remove(Docker),
    Signal(Pid),
    Cut(Arc<Proxy>),
}

impl Strike {
    /// Whether a fault hits is the race that the cell is about: one that comes too late finds nothing.
    async fn hit(self, container: &str, mut spoken: watch::Receiver<bool>) {
        if spoken.wait_for(|spoken| *spoken).await.is_err() {
            return;
        }
        match self {
            Self::Nothing => {}
            Self::Stop(stop) => {
                stop.send_replace(Some(KilledFor::Cancel));
            }
            Self::Kill(docker) => unless_gone(docker.kill_container(container, None).await),
            Self::Remove(docker) => {
                let options = query::RemoveContainerOptions {
                    force: true,
                    ..Default::default()
                };
                unless_gone(docker.remove_container(container, Some(options)).await);
            }
            Self::Signal(guest) => {
                kill_process(guest, Signal::KILL).ok();
            }
            Self::Cut(proxy) => proxy.cut(),
        }
    }
}

/// 404: gone. 409: ended, or being removed.
fn unless_gone(done: Result<(), Error>) {
    match done {
        Ok(())
        | Err(Error::DockerResponseServerError {
            status_code: 404 | 409,
            ..
        }) => {}
        Err(error) => panic!("{error}"),
    }
}

/// All programs beside one fault.
async fn row(fault: Fault) {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    if fault == Fault::GuestKilled && !geteuid().is_root() {
        return skipped("a guest that is killed from outside: that needs root");
    }
    let cells: Vec<_> = stream::iter(Program::ALL)
        .map(|program| cell(&bench, program, fault))
        .buffer_unordered(SIDE_BY_SIDE)
        .collect()
        .await;
    let wrong: Vec<String> = cells.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    bench.assert_nothing_is_left().await;
}

/// One program beside one fault: what is wrong about it.
async fn cell(bench: &Bench, program: Program, fault: Fault) -> Vec<String> {
    // A proxy cuts all that goes through it: each cell has its own.
    let proxy = Arc::new(Proxy::start().await);
    let behind_proxy = match fault {
        Fault::StreamCut => Bench::at(Some(proxy.address.clone()), 8, None).await,
        _ => None,
    };
    let bench = behind_proxy.as_ref().unwrap_or(bench);
    let job = program.job(bench, fault);
    let sandbox = bench.sandboxes.prepare(bench.request(&job)).await.unwrap();
    let container = sandbox.facts().container_id.clone();
    let (stop, stopped) = watch::channel(None);
    let strike = match fault {
        Fault::None | Fault::WallClock => Strike::Nothing,
        Fault::Cancel => Strike::Stop(stop),
        Fault::ContainerKilled => Strike::Kill(docker().await),
        Fault::ContainerRemoved => Strike::Remove(docker().await),
        Fault::GuestKilled => Strike::Signal(process_of(&container).await),
        Fault::StreamCut => Strike::Cut(Arc::clone(&proxy)),
    };
    let (speaks, spoken) = watch::channel(false);
    let run = Run {
        collect: None,
        fetched: None,
        egress: None,
        matcher: matcher(&job),
        job: Arc::new(job.clone()),
        stop: stopped,
        live: Arc::new(Tell(speaks)),
    };
    let (end, ()) = tokio::join!(sandbox.run(run), strike.hit(&container, spoken));
    let (report, contradictions) = end.settled().await;
    gone(&container).await;
    let ended = End::of(&report);
    println!("{program:?} beside {fault:?}: {ended}");
    let mut wrong = faults_of(&job, program, fault, &report, &contradictions);
    let allowed = true_ends(program, fault);
    if !allowed.contains(&ended) {
        wrong.insert(0, format!("it ended as {ended}, and can only as {allowed:?}"));
    }
    if wrong.is_empty() {
        return wrong;
    }
    let what = wrong.join("; ");
    vec![format!(
        "{program:?} beside {fault:?}: {what}: {:#?} {contradictions:?}",
        bare(report)
    )]
}

/// A report that can be read: what was printed without end is left out.
fn bare(report: RunReport) -> RunReport {
    let shorter = |stream: CapturedStream| stream.without_bytes();
    RunReport {
        stdout: shorter(report.stdout),
        stderr: shorter(report.stderr),
        sandbox: None,
        ..report
    }
}

/// The process of the host that is process 1 of the container, or on gVisor its whole sandbox.
async fn process_of(container: &str) -> Pid {
    let found = docker().await.inspect_container(container, None).await.unwrap();
    let pid = found.state.and_then(|state| state.pid).unwrap();
    Pid::from_raw(i32::try_from(pid).unwrap()).expect("it runs")
}

/// Waits until the container is gone.
async fn gone(container: &str) {
    let docker = docker().await;
    let gone = async {
        while !matches!(
            docker.inspect_container(container, None).await,
            Err(Error::DockerResponseServerError { status_code: 404, .. })
        ) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let gone = tokio::time::timeout(GONE_LIMIT, gone).await;
    gone.unwrap_or_else(|_| panic!("container {container} is still there"));
}

#[tokio::test]
async fn each_program_ends_in_its_own_way_where_nothing_strikes_it() {
    row(Fault::None).await;
}

#[tokio::test]
async fn beside_the_wall_clock_a_program_has_its_own_end_or_is_timed_out() {
    row(Fault::WallClock).await;
}

#[tokio::test]
async fn beside_a_cancel_a_program_has_its_own_end_or_is_canceled() {
    row(Fault::Cancel).await;
}

#[tokio::test]
async fn beside_a_kill_of_its_container_a_program_has_its_own_end_or_its_guest_is_lost() {
    row(Fault::ContainerKilled).await;
}

#[tokio::test]
async fn beside_a_removal_of_its_container_a_program_has_its_own_end_or_the_trouble_is_ours() {
    row(Fault::ContainerRemoved).await;
}

#[tokio::test]
async fn beside_a_kill_of_its_guest_a_program_has_its_own_end_or_its_guest_is_lost() {
    row(Fault::GuestKilled).await;
}

#[tokio::test]
async fn beside_a_cut_stream_a_program_has_its_own_end_or_the_trouble_is_ours() {
    row(Fault::StreamCut).await;
}
