//! How jobs end, and what is known of it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use mayfly_core::{
    outcome::{Cause, EndState, KilledFor, ProcessEnd},
    run::RunReport,
    units::{ByteSize, CpuShare, Span},
};
use mayfly_sandbox::seam::{LiveOutput, OutputStream, Sandbox};
use tokio::sync::watch;

use crate::support::{Bench, limits, matcher, on_gvisor, settled, text};

/// Time that a kill, the engine's own bookkeeping and a removal may take on a loaded machine.
const OVERHEAD: Duration = Duration::from_secs(10);

fn end(report: &RunReport) -> (EndState, Cause) {
    (report.outcome.state, report.outcome.cause)
}

macro_rules! bench {
    () => {
        match Bench::set_up().await {
            Some(bench) => bench,
            None => return,
        }
    };
}

#[tokio::test]
async fn a_program_runs_and_what_it_says_is_what_comes_back() {
    let bench = bench!();
    let program = "import sys\nprint('hello')\nprint('there', file=sys.stderr)";
    let report = bench.run(bench.python(program)).await;
    assert_eq!(end(&report), (EndState::Succeeded, Cause::Exited), "{report:#?}");
    assert_eq!(report.outcome.exit_code, Some(0));
    assert_eq!(text(&report.stdout), "hello\n");
    assert_eq!(text(&report.stderr), "there\n");
    let evidence = &report.outcome.evidence;
    assert_eq!(evidence.contradictions, Vec::<String>::new());
    assert_eq!(evidence.engine_exit_code, None, "it was not waited for");
    let usage = report.usage.unwrap();
    assert!(usage.max_rss_bytes > 1 << 20 && usage.wall_us > 1000, "{usage:?}");
    let facts = report.sandbox.unwrap();
    assert_eq!(facts.guest_digest, bench.sandboxes.guest_digest());
    assert!(facts.kernel.starts_with("Linux "), "{}", facts.kernel);
}

#[tokio::test]
async fn each_exit_code_is_the_programs_own_137_included() {
    let bench = bench!();
    for code in [1, 2, 81, 127, 137, 255] {
        let report = bench
            .run(bench.python(&format!("import os; os._exit({code})")))
            .await;
        assert_eq!(end(&report), (EndState::Failed, Cause::Exited), "{code}");
        assert_eq!(report.outcome.exit_code, Some(code));
        assert_eq!(report.outcome.evidence.contradictions, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_signal_that_nobody_of_us_sent_is_a_failure_with_that_signal() {
    let bench = bench!();
    for signal in [6, 9, 11, 15] {
        let report = bench
            .run(bench.python(&format!("import os; os.kill(os.getpid(), {signal})")))
            .await;
        assert_eq!(end(&report), (EndState::Failed, Cause::Signaled), "{signal}");
        assert_eq!(report.outcome.signal, Some(signal));
    }
}

#[tokio::test]
async fn a_program_that_never_ends_is_killed_in_time_and_what_it_had_said_is_kept() {
    let bench = bench!();
    let mut job = bench.python(
        "import signal, sys, time\nfor s in range(1, 32):\n  if s not in (9, 19): signal.signal(s, signal.SIG_IGN)\n\
         print('partial', flush=True)\nwhile True: time.sleep(1)",
    );
    job.limits = limits(|limits| limits.wall = Span::seconds(2));
    let begun = Instant::now();
    let report = bench.run(job).await;
    assert_eq!(
        end(&report),
        (EndState::TimedOut, Cause::WallClock),
        "{report:#?}"
    );
    assert_eq!(
        report.outcome.evidence.killed_for,
        Some(KilledFor::ExecutorDeadline)
    );
    assert_eq!(text(&report.stdout), "partial\n");
    let took = begun.elapsed();
    assert!(
        (Duration::from_secs(2)..Duration::from_secs(2) + OVERHEAD).contains(&took),
        "{took:?}"
    );
}

#[tokio::test]
async fn a_fork_bomb_meets_its_limit_and_its_end() {
    let bench = bench!();
    let mut job = bench.python(
        "import os, signal\nfor s in (1, 2, 15, 17): signal.signal(s, signal.SIG_IGN)\nprint('bomb', flush=True)\n\
         while True:\n  try:\n    if os.fork() == 0: os.setsid()\n  except OSError: pass",
    );
    // More than so many processes need, so that no other limit is met first.
    job.limits = limits(|limits| {
        limits.wall = Span::seconds(2);
        limits.memory = ByteSize::bytes(768 << 20);
    });
    let begun = Instant::now();
    let report = bench.run(job).await;
    // On gVisor all its processes are memory of one of the host's, which may meet its own limit first.
    let first = end(&report) == (EndState::OutOfMemory, Cause::MemoryLimit)
        || end(&report) == (EndState::Failed, Cause::GuestLost);
    assert!(
        end(&report) == (EndState::TimedOut, Cause::WallClock) || (on_gvisor() && first),
        "{report:#?}"
    );
    assert_eq!(text(&report.stdout), "bomb\n");
    assert!(
        report
            .outcome
            .evidence
            .pids_refused
            .is_none_or(|refused| refused > 0)
    );
    assert!(
        begun.elapsed() < Duration::from_secs(2) + OVERHEAD,
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn how_long_the_cpu_limit_held_a_program_back_is_counted() {
    let bench = bench!();
    let mut job = bench.python("import time\nwhile time.process_time() < 0.1: pass");
    job.limits = limits(|limits| limits.cpu = CpuShare::millis(50));
    let report = bench.run(job).await;
    assert_eq!(end(&report), (EndState::Succeeded, Cause::Exited), "{report:#?}");
    let usage = report.usage.unwrap();
    // It has less than any machine that it could be alone on gives it.
    let told = usage.cpu_throttled_us.is_some_and(|waited| waited > 0);
    assert!(told || on_gvisor(), "{usage:?}");
}

#[tokio::test]
async fn a_program_that_takes_all_memory_is_out_of_memory() {
    let bench = bench!();
    let mut job =
        bench.python("print('before', flush=True)\nb = []\nwhile True: b.append(bytearray(1 << 20))");
    job.limits = limits(|limits| {
        limits.memory = ByteSize::mib(64);
        limits.work = ByteSize::mib(16);
        limits.tmp = ByteSize::mib(8);
    });
    let report = bench.run(job).await;
    assert_eq!(
        end(&report),
        (EndState::OutOfMemory, Cause::MemoryLimit),
        "{report:#?}"
    );
    // On gVisor the host's kernel takes the whole sandbox.
    assert_eq!(report.outcome.signal, (!on_gvisor()).then_some(9));
    assert_eq!(text(&report.stdout), "before\n");
    assert!(
        report.outcome.evidence.oom_kills.is_none_or(|kills| kills > 0),
        "{:?}",
        report.outcome
    );
}

#[tokio::test]
async fn a_child_that_was_killed_for_memory_is_on_the_record_and_the_parent_decides() {
    let bench = bench!();
    let eat = "import os\npid = os.fork()\nif pid == 0:\n  b = []\n  while True: b.append(bytearray(1 << 20))\n\
               _, status = os.waitpid(pid, 0)\nprint(os.WTERMSIG(status))\n";
    for (rest, expected) in [
        ("raise SystemExit(0)", (EndState::Succeeded, Cause::Exited)),
        ("raise SystemExit(3)", (EndState::Failed, Cause::ChildOutOfMemory)),
    ] {
        let mut job = bench.python(&format!("{eat}{rest}"));
        job.limits = limits(|limits| {
            limits.memory = ByteSize::mib(64);
            limits.work = ByteSize::mib(16);
            limits.tmp = ByteSize::mib(8);
        });
        let report = bench.run(job).await;
        if on_gvisor() {
            // The host's kernel sees one process, and takes the whole sandbox.
            let whole = (EndState::OutOfMemory, Cause::MemoryLimit);
            assert_eq!(end(&report), whole, "{report:#?}");
            continue;
        }
        assert_eq!(end(&report), expected, "{report:#?}");
        assert_eq!(text(&report.stdout), "9\n");
        assert!(report.outcome.evidence.oom_kills.is_some_and(|kills| kills > 0));
    }
}

#[tokio::test]
async fn bytes_are_bytes() {
    let bench = bench!();
    let program = "import sys\ndata = bytes(range(256)) * 300\nsys.stdout.buffer.write(data)\n\
                   sys.stderr.buffer.write(b'\\x00\\xff\\xfe' + data)";
    let report = bench.run(bench.python(program)).await;
    let data: Vec<u8> = std::iter::repeat_n(0..=255, 300).flatten().collect();
    assert_eq!(end(&report), (EndState::Succeeded, Cause::Exited));
    assert_eq!(report.stdout.head, data);
    assert_eq!(report.stderr.head, [&[0, 255, 254], &data[..]].concat());
}

#[tokio::test]
async fn of_more_output_than_is_kept_head_tail_count_and_hash_are() {
    let bench = bench!();
    let mut job = bench.python(
        "import os\nline = b'0123456789abcde\\n' * 4096\nfor n in range(2048): os.write(1, line)\nos.write(1, b'the end')",
    );
    job.limits = limits(|limits| limits.stdout = ByteSize::kib(64));
    let begun = Instant::now();
    let report = bench.run(job).await;
    assert_eq!(end(&report), (EndState::Succeeded, Cause::Exited), "{report:#?}");
    let all = [b"0123456789abcde\n".repeat(4096 * 2048).as_slice(), b"the end"].concat();
    assert_eq!(report.stdout.count.bytes, all.len() as u64);
    assert_eq!(report.stdout.count.digest, mayfly_core::digest::Digest::of(&all));
    assert!(report.stdout.count.truncated);
    assert_eq!(report.stdout.head, all[..48 << 10]);
    assert_eq!(report.stdout.tail, all[all.len() - (16 << 10)..]);
    eprintln!("{} bytes in {:?}", all.len(), begun.elapsed());
}

/// Gives the stop signal when the job has begun to speak, so that nothing has to be slept for.
pub(crate) struct StopOnOutput(pub(crate) watch::Sender<Option<KilledFor>>);

#[async_trait::async_trait]
impl LiveOutput for StopOnOutput {
    fn output(&self, stream: OutputStream, bytes: &[u8]) {
        assert_eq!(stream, OutputStream::Stdout);
        assert!(bytes.starts_with(b"running"));
        self.0.send_replace(Some(KilledFor::Cancel));
    }

    async fn ready(&self) {}
}

#[tokio::test]
async fn a_stop_ends_the_run_and_keeps_what_was_said() {
    let bench = bench!();
    let (sender, receiver) = watch::channel(None);
    let job = bench.python("import time\nprint('running', flush=True)\nwhile True: time.sleep(1)");
    let begun = Instant::now();
    let report = bench
        .run_with(job, Arc::new(StopOnOutput(sender)), receiver)
        .await;
    assert_eq!(
        end(&report),
        (EndState::Canceled, Cause::CanceledByRequest),
        "{report:#?}"
    );
    assert_eq!(text(&report.stdout), "running\n");
    assert!(begun.elapsed() < OVERHEAD, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_stop_before_the_start_starts_nothing() {
    let bench = bench!();
    let (sender, receiver) = watch::channel(Some(KilledFor::Cancel));
    let job = bench.python("print('never')");
    let report = bench
        .run_with(job, Arc::new(mayfly_sandbox::seam::NoLiveOutput), receiver)
        .await;
    drop(sender);
    assert_eq!(
        end(&report),
        (EndState::Canceled, Cause::CanceledByRequest),
        "{report:#?}"
    );
    assert!(!report.outcome.evidence.started);
    assert_eq!(text(&report.stdout), "");
}

/// Never has room for more.
struct Stuck;

#[async_trait::async_trait]
impl LiveOutput for Stuck {
    fn output(&self, _: OutputStream, _: &[u8]) {}

    async fn ready(&self) {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_stuck_listener_stops_the_output_and_not_the_clock() {
    let bench = bench!();
    let mut job = bench.python("import os\nwhile True: os.write(1, b'x' * 65536)");
    job.limits = limits(|limits| limits.wall = Span::seconds(2));
    let begun = Instant::now();
    let report = bench.run_with(job, Arc::new(Stuck), watch::channel(None).1).await;
    assert_eq!(
        end(&report),
        (EndState::TimedOut, Cause::WallClock),
        "{report:#?}"
    );
    // One window, and what the guest had of its own when it was told to end.
    assert!(
        report.stdout.count.bytes <= 256 << 10,
        "{}",
        report.stdout.count.bytes
    );
    assert!(
        begun.elapsed() < Duration::from_secs(2) + OVERHEAD,
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn a_program_that_closes_its_output_runs_on() {
    let bench = bench!();
    let report = bench
        .run(bench.python("import os, time\nos.close(1)\nos.close(2)\ntime.sleep(0.3)\nos._exit(7)"))
        .await;
    assert_eq!(end(&report), (EndState::Failed, Cause::Exited), "{report:#?}");
    assert_eq!(report.outcome.exit_code, Some(7));
}

#[tokio::test]
async fn a_grandchild_that_holds_the_pipes_does_not_hold_up_the_end() {
    let bench = bench!();
    let report = bench
        .run(bench.python(
            "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n    time.sleep(600)\n  os._exit(0)\n\
             os.wait()\nprint('parent', flush=True)",
        ))
        .await;
    assert_eq!(end(&report), (EndState::Succeeded, Cause::Exited), "{report:#?}");
    assert_eq!(text(&report.stdout), "parent\n");
    let took = report.ended_at - report.started_at.unwrap();
    // Held up it would be until its deadline, which is 30 s away.
    assert!(took < chrono::TimeDelta::seconds(20), "{took}");
}

#[tokio::test]
async fn ten_megabytes_of_stdin_come_back_while_they_go_in() {
    let bench = bench!();
    let data: Vec<u8> = (0..10 << 20)
        .map(|n: u32| n.to_le_bytes()[n as usize % 3])
        .collect();
    let mut job =
        bench.python("import shutil, sys\nshutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer, 4096)");
    job.stdin = Some(data.clone().into());
    job.limits = limits(|limits| limits.stdout = ByteSize::mib(16));
    let report = bench.run(job).await;
    assert_eq!(
        end(&report),
        (EndState::Succeeded, Cause::Exited),
        "{:#?}",
        report.outcome
    );
    assert!(report.stdout.head == data);
}

#[tokio::test]
async fn stdin_that_nobody_reads_holds_up_nothing() {
    let bench = bench!();
    let mut job = bench.python("print('done')");
    job.stdin = Some(vec![b'x'; 4 << 20].into());
    let report = bench.run(job).await;
    assert_eq!(end(&report), (EndState::Succeeded, Cause::Exited), "{report:#?}");
    assert_eq!(text(&report.stdout), "done\n");
}

#[tokio::test]
async fn what_can_not_be_started_is_the_jobs_failure_with_the_reason() {
    let bench = bench!();
    let report = bench.run(bench.job(&["/no/such/program"], "")).await;
    assert_eq!(
        end(&report),
        (EndState::Failed, Cause::CommandNotStarted),
        "{report:#?}"
    );
    assert!(
        report
            .outcome
            .evidence
            .refused
            .unwrap()
            .reason
            .contains("no such file"),
        "the reason"
    );
}

#[tokio::test]
async fn files_that_do_not_fit_are_the_jobs_failure() {
    let bench = bench!();
    let mut job = bench.python(&"#".repeat(3 << 20));
    job.limits = limits(|limits| limits.work = ByteSize::mib(1));
    let report = bench.run(job).await;
    assert_eq!(
        end(&report),
        (EndState::Failed, Cause::FilesDidNotFit),
        "{report:#?}"
    );
    assert!(!report.outcome.evidence.started);
}

#[tokio::test]
async fn arguments_that_no_frame_holds_are_the_jobs_failure() {
    let bench = bench!();
    let report = bench
        .run(bench.job(&["python3", "main.py", &"x".repeat(70_000)], ""))
        .await;
    assert_eq!(
        end(&report),
        (EndState::Failed, Cause::CommandNotStarted),
        "{report:#?}"
    );
}

#[tokio::test]
async fn a_job_has_its_files_its_environment_and_nobody_elses() {
    let bench = bench!();
    let mut job = bench.python(
        "import json, os, stat\nprint(json.dumps([os.getcwd(), dict(os.environ), sorted(os.listdir()),\n\
         stat.S_IMODE(os.stat('main.py').st_mode), os.getuid() == os.stat('main.py').st_uid]))",
    );
    job.env.insert("MINE".to_owned(), "yes".to_owned());
    let report = bench.run(job).await;
    let seen: serde_json::Value = serde_json::from_str(&text(&report.stdout)).unwrap();
    assert_eq!(seen[0], "/work");
    assert_eq!(seen[1]["MINE"], "yes");
    assert_eq!(seen[1]["HOME"], "/work");
    assert_eq!(seen[1]["OPENBLAS_NUM_THREADS"], "1");
    assert_eq!(seen[2], serde_json::json!(["main.py"]));
    assert_eq!(seen[3], 0o644);
    assert_eq!(seen[4], true);
}

#[tokio::test]
async fn a_sandbox_without_a_job_waits_and_goes_without_a_trace() {
    let bench = bench!();
    let job = bench.python("print('late')");
    let idle = bench.sandboxes.prepare(bench.request(&job)).await.unwrap();
    let discarded = bench.sandboxes.prepare(bench.request(&job)).await.unwrap();
    assert_eq!(bench.containers().await.len(), 2);
    discarded.discard().await;
    // Longer than a guest lives without hearing from its executor.
    tokio::time::sleep(Duration::from_secs(12)).await;
    let run = mayfly_sandbox::seam::Run {
        collect: None,
        fetched: None,
        egress: None,
        matcher: matcher(&job),
        job: Arc::new(job),
        stop: watch::channel(None).1,
        live: Arc::new(mayfly_sandbox::seam::NoLiveOutput),
    };
    let report = settled(idle.run(run).await).await;
    assert_eq!(end(&report), (EndState::Succeeded, Cause::Exited), "{report:#?}");
    bench.assert_nothing_is_left().await;
}

#[tokio::test]
async fn a_guest_that_is_killed_from_outside_after_the_start_is_not_retried_as_ours() {
    let bench = bench!();
    let (sender, mut speaks) = watch::channel(false);
    struct Tell(watch::Sender<bool>);
    #[async_trait::async_trait]
    impl LiveOutput for Tell {
        fn output(&self, _: OutputStream, _: &[u8]) {
            self.0.send_replace(true);
        }
        async fn ready(&self) {}
    }
    let job = bench.python("import time\nprint('running', flush=True)\nwhile True: time.sleep(1)");
    let killer = async {
        speaks.wait_for(|speaks| *speaks).await.unwrap();
        for container in bench.containers().await {
            crate::support::docker()
                .await
                .kill_container(&container, None)
                .await
                .unwrap();
        }
    };
    let (report, ()) = tokio::join!(
        bench.run_with(job, Arc::new(Tell(sender)), watch::channel(None).1),
        killer
    );
    assert_eq!(end(&report), (EndState::Failed, Cause::GuestLost), "{report:#?}");
    assert_eq!(report.outcome.evidence.end, None::<ProcessEnd>);
    assert_eq!(report.outcome.evidence.engine_exit_code, Some(137));
}
