//! Jobs that attack their guest or their neighbours: the outcome stays the true one, and nobody else notices.

use std::sync::Arc;

use mayfly_core::{
    outcome::{Cause, EndState, ProcessEnd},
    run::RunReport,
    units::{ByteSize, Span},
};
use mayfly_sandbox::seam::{LiveOutput, NoLiveOutput, OutputStream, Run, Sandbox};
use tokio::sync::watch;

use crate::support::{Bench, limits, matcher, on_gvisor, settled, skipped, text};

fn end(report: &RunReport) -> (EndState, Cause) {
    (report.outcome.state, report.outcome.cause)
}

#[tokio::test]
async fn output_that_looks_like_the_guests_own_frames_is_output() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let program = r#"
import json, os
exit_frame = json.dumps({"how": {"code": 0}, "deadline_fired": False, "killed_by_request": False, "wall_us": 1,
    "usage": {"utime_us": 0, "stime_us": 0, "maxrss_bytes": 0, "minflt": 0, "majflt": 0, "inblock": 0, "oublock": 0},
    "left_processes": 0, "stdout_bytes": 0, "stderr_bytes": 0,
    "cgroup": {"oom_kills": None, "pids_max_events": None, "cpu_throttled_us": None, "memory_peak_bytes": None}}).encode()
frame = bytes([0x85, 0, 0, 0]) + len(exit_frame).to_bytes(4, 'big') + exit_frame
for header in (b'', bytes([1, 0, 0, 0]) + len(frame).to_bytes(4, 'big')):
    os.write(1, header + frame)
    os.write(2, header + frame)
os._exit(9)
"#;
    let report = bench.run(bench.python(program)).await;
    assert_eq!(end(&report), (EndState::Failed, Cause::Exited), "{report:#?}");
    assert_eq!(report.outcome.exit_code, Some(9));
    assert_eq!(report.stdout.count, report.stderr.count);
    assert_eq!(report.stdout.head[0], 0x85);
}

#[tokio::test]
async fn every_attack_on_pid_1_fails_and_the_true_end_is_reported() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let program = r#"
import ctypes, os, resource, signal
for number in range(1, 65):
    try:
        os.kill(1, number)
        print('signal', number, 'was taken')
    except (PermissionError, OSError):
        pass
for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE):
    try:
        resource.prlimit(1, limit, (0, 0))
        print('limit', limit, 'was taken')
    except PermissionError:
        pass
for path in ('fd/0', 'fd/1', 'fd/2', 'mem', 'environ', 'root/work', 'cwd', 'oom_score_adj', 'clear_refs'):
    for flags in (os.O_RDONLY, os.O_WRONLY):
        try:
            os.close(os.open(f'/proc/1/{path}', flags))
            if not (path == 'oom_score_adj' and flags == os.O_RDONLY):
                print(path, flags, 'was opened')
        except OSError:
            pass
try:
    os.setpriority(os.PRIO_PROCESS, 1, 19)
    print('priority was taken')
except PermissionError:
    pass
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        signal.pause()
    children.append(child)
os.kill(-1, signal.SIGKILL)
for child in children:
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == 9
print('still here')
raise SystemExit(33)
"#;
    let report = bench.run(bench.python(program)).await;
    // gVisor's kernel lets every user read an environment and set a priority. The guest's holds nothing of ours, and a
    // priority counts among the threads of its own sandbox alone.
    let got_through = if on_gvisor() {
        "environ 0 was opened\npriority was taken\n"
    } else {
        ""
    };
    assert_eq!(
        text(&report.stdout),
        format!("{got_through}still here\n"),
        "{report:#?}"
    );
    assert_eq!(report.outcome.exit_code, Some(33), "{report:#?}");
    assert_eq!(report.outcome.evidence.contradictions, Vec::<String>::new());
}

#[tokio::test]
async fn a_job_that_fills_all_it_may_write_to_does_not_take_its_guest_with_it() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let program = r#"
import os
for folder in ('/work', '/tmp', '/dev/shm'):
    with open(folder + '/fill', 'wb', buffering=0) as file:
        try:
            while True: file.write(b'x' * 65536)
        except OSError as error:
            print(folder, error.errno, flush=True)
names = 0
try:
    while True:
        os.close(os.open(f'/tmp/{names}', os.O_CREAT | os.O_WRONLY))
        names += 1
except OSError as error:
    print('files', error.errno, flush=True)
eaten = []
while True: eaten.append(bytearray(1 << 20))
"#;
    let mut job = bench.python(program);
    job.limits = limits(|limits| {
        limits.memory = ByteSize::mib(64);
        limits.work = ByteSize::mib(32);
        limits.tmp = ByteSize::mib(8);
        limits.shm = ByteSize::mib(1);
    });
    let report = bench.run(job).await;
    // ENOSPC each time, and then the kernel takes the job and not the guest. On gVisor all of it, names included, is
    // memory of the one process that the host's kernel takes.
    let full = "/work 28\n/tmp 28\n/dev/shm 28\n";
    let files = if on_gvisor() { "" } else { "files 28\n" };
    assert_eq!(text(&report.stdout), format!("{full}{files}"), "{report:#?}");
    assert_eq!(
        end(&report),
        (EndState::OutOfMemory, Cause::MemoryLimit),
        "{report:#?}"
    );
    let end = (!on_gvisor()).then_some(ProcessEnd::Signal(9));
    assert_eq!(report.outcome.evidence.end, end);
}

/// What the kernel counts by user, taken to the last.
const HOG: &str = r#"
import ctypes, fcntl, os, time
libc = ctypes.CDLL(None, use_errno=True)
def until_refused(take):
    taken = 0
    while taken < 100000 and take(taken) >= 0: taken += 1
    return taken
def pipe(n):
    try:
        fcntl.fcntl(os.pipe()[1], 1031, 1 << 20)
        return 0
    except OSError:
        return -1
def process(n):
    try:
        if os.fork() == 0: time.sleep(600)
        return 0
    except OSError:
        return -1
def counted():
    return [
        until_refused(lambda n: libc.inotify_init1(0)),
        until_refused(pipe),
        until_refused(process),
    ]
"#;

/// Tells when the other job speaks.
struct Tell(watch::Sender<bool>);

#[async_trait::async_trait]
impl LiveOutput for Tell {
    fn output(&self, _: OutputStream, _: &[u8]) {
        self.0.send_replace(true);
    }

    async fn ready(&self) {}
}

#[tokio::test]
async fn what_a_neighbour_has_used_up_is_there_for_the_next_job() {
    if on_gvisor() {
        skipped("on gVisor each sandbox has a kernel of its own that counts for it alone");
        return;
    }
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let (sender, mut speaks) = watch::channel(false);
    let (stop, stopped) = watch::channel(None);
    let mut hog = bench.python(&format!("{HOG}\nprint(counted(), flush=True)\ntime.sleep(600)"));
    hog.limits = limits(|limits| limits.wall = Span::seconds(60));
    let honest = bench.python(&format!("{HOG}\nprint(counted(), flush=True)\nos._exit(0)"));
    let hogging = bench.sandboxes.prepare(bench.request(&hog)).await.unwrap();
    let hogging = hogging.run(Run {
        collect: None,
        fetched: None,
        egress: None,
        matcher: matcher(&hog),
        job: Arc::new(hog),
        stop: stopped,
        live: Arc::new(Tell(sender)),
    });
    let neighbour = async {
        speaks.wait_for(|speaks| *speaks).await.unwrap();
        let sandbox = bench.sandboxes.prepare(bench.request(&honest)).await.unwrap();
        let run = Run {
            collect: None,
            fetched: None,
            egress: None,
            matcher: matcher(&honest),
            job: Arc::new(honest),
            stop: watch::channel(None).1,
            live: Arc::new(NoLiveOutput),
        };
        let report = settled(sandbox.run(run).await).await;
        stop.send_replace(Some(mayfly_core::outcome::KilledFor::Cancel));
        report
    };
    let (hog, honest) = tokio::join!(hogging, neighbour);
    let hog = settled(hog).await;
    assert_eq!(end(&hog), (EndState::Canceled, Cause::CanceledByRequest));
    assert_eq!(end(&honest), (EndState::Succeeded, Cause::Exited), "{honest:#?}");
    // The same, down to the number: nothing of it is shared.
    assert_eq!(text(&honest.stdout), text(&hog.stdout));
    assert_ne!(text(&honest.stdout), "[0, 0, 0]\n");
    eprintln!(
        "inotify instances, 1 MiB pipes, processes: {}",
        text(&honest.stdout)
    );
    bench.assert_nothing_is_left().await;
}
