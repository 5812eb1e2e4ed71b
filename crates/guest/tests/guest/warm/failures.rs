//! What happens when the process that waits fails, or the executor, or the job's time is over.

use mayfly_protocol::{Ended, FromGuest, GuestExit, Job, JobRlimit, Resource, Stage, ToGuest, WarmUse};

use super::{
    assert_cold, environment, job_for, order, python_job, python_order, run_main, run_script, script_order,
    signal_the_one_that_waits, warm_up, with_hook,
};
use crate::guest;
use crate::harness::{Options, TestCgroup, shell};

#[test]
fn a_process_that_never_is_ready_is_told_of_and_nothing_of_it_is_left() {
    let mut missing = order(&["/usr/bin/nosuchprogram"], environment());
    let mut slow = script_order("time.sleep(600)");
    slow.limit_ms = 200;
    let mut no_folder = script_order("");
    no_folder.cwd = "/nosuchfolder".to_owned();
    missing.argv.push("x".to_owned());
    for (order, named) in [
        (
            missing,
            "/usr/bin/nosuchprogram could not be started: No such file",
        ),
        (no_folder, "/nosuchfolder could not be started: No such file"),
        (order(&[], environment()), "there is no program"),
        (slow, "it was not ready after 2"),
        (
            script_order("sys.exit(7)"),
            "it ended before it was ready; it ended with code 7",
        ),
        (
            script_order("os.abort()"),
            "it ended before it was ready; it ended by signal 6",
        ),
        (script_order("os.write(4, b'what?')"), "it said something else"),
        (script_order("os.write(4, b'RT')"), "it said something else"),
        (
            script_order("os.write(4, b'Fbecause'); time.sleep(600)"),
            "because",
        ),
        (
            script_order("os.fork() or time.sleep(600); sys.exit(1)"),
            "it ended before it was ready",
        ),
    ] {
        let guest = guest!();
        let why = warm_up(&guest, &order).unwrap_err();
        assert!(why.starts_with(named), "{why}");
        assert_eq!(guest.processes_of(guest.job_id), [0; 0], "{why}");
        let told = guest.run(
            Job {
                warm: true,
                ..shell("echo cold")
            },
            &[],
        );
        assert_cold(&told, WarmUse::Gone);
    }
}

#[test]
fn a_process_that_needs_more_memory_than_there_is_leaves_a_sandbox_that_works() {
    let Some(cgroup) = TestCgroup::make(
        "memory",
        &[("memory.limit_in_bytes", "67108864"), ("memory.swappiness", "0")],
        &[("memory.max", "67108864"), ("memory.swap.max", "0")],
    ) else {
        return eprintln!("SKIPPED, nothing shown: no cgroup of memory can be made here");
    };
    let mut options = with_hook(&[("hungry", "x = bytearray(500 << 20)")]);
    options.prelude += &cgroup.prelude();
    let guest = guest!(options);
    guest.send(&ToGuest::Warm(python_order("hungry")));
    let FromGuest::WarmFailed(failed) = guest.next() else {
        panic!("there is not that much memory")
    };
    assert!(failed.out_of_memory, "{}", failed.reason);
    assert!(failed.reason.contains("needed more memory"), "{}", failed.reason);
    let told = run_main(&guest, "print('ran')");
    let exit = told.exit();
    assert_eq!((told.warm, told.out().as_str()), (Some(WarmUse::Gone), "ran\n"));
    assert_eq!(exit.cgroup.oom_kills, Some(0));
    assert!(exit.oom_kills_before.is_some_and(|kills| kills > 0), "{exit:?}");
    assert!(exit.usage.maxrss_bytes < 40 << 20, "{exit:?}");
}

#[test]
fn a_process_that_ended_or_froze_while_it_waited_costs_a_cold_start_and_nothing_else() {
    for (signal, why) in [("-KILL", WarmUse::Gone), ("-STOP", WarmUse::Silent)] {
        let guest = guest!(with_hook(&[]));
        warm_up(&guest, &python_order("")).unwrap();
        signal_the_one_that_waits(&guest, signal);
        if signal == "-KILL" {
            guest.wait_for_processes(false);
        }
        let told = run_main(
            &guest,
            "import os; print(sum(map(str.isdigit, os.listdir('/proc'))))",
        );
        // Pid 1 and the program itself.
        assert_eq!((told.warm, told.out().as_str()), (Some(why), "2\n"));
        assert_eq!(told.exit().left_processes, 0);
        assert_eq!(guest.exit_code(), Some(i32::from(GuestExit::Done.code())));
    }
}

#[test]
fn a_process_that_does_not_do_as_it_should_costs_a_cold_start() {
    for (script, why) in [
        ("os.write(4, b'R'); take(); os.write(4, b'D')", WarmUse::Declined),
        (
            "os.write(4, b'R'); take(); os.write(4, b'Fno'); time.sleep(600)",
            WarmUse::Declined,
        ),
        (
            "os.write(4, b'R'); take(); os.write(4, b'TT'); time.sleep(600)",
            WarmUse::Declined,
        ),
        ("os.write(4, b'R'); take(); sys.exit()", WarmUse::Gone),
        (
            "os.write(4, b'R'); take(); os.kill(os.getpid(), 9)",
            WarmUse::Gone,
        ),
        ("os.write(4, b'R'); take(); time.sleep(600)", WarmUse::Silent),
        (
            "os.write(4, b'R'); take(); os.write(1, b'x'); go(); print('wrong')",
            WarmUse::Wrote,
        ),
        ("os.close(3); os.write(4, b'R'); time.sleep(600)", WarmUse::Gone),
        // Something that it started holds its pipes.
        (
            "if os.fork() == 0: time.sleep(600)\nos.write(4, b'R'); take(); sys.exit()",
            WarmUse::Gone,
        ),
    ] {
        let guest = guest!();
        let order = script_order(script);
        warm_up(&guest, &order).unwrap();
        assert_cold(&run_script(&guest, &order), why);
    }
}

#[test]
fn nothing_of_the_job_happens_before_the_guest_gives_the_word() {
    // The word comes after the job is said to be taken, and a process that goes on without it is not the job's.
    let guest = guest!();
    let order = script_order("os.write(4, b'R'); take(); go(); print(os.read(3, 1)); sys.exit(5)");
    warm_up(&guest, &order).unwrap();
    let told = run_script(&guest, &order);
    assert_eq!(told.warm, Some(WarmUse::Used), "{}", told.err());
    assert_eq!((told.out().as_str(), told.exit().how), ("b''\n", Ended::Code(5)));
}

#[test]
fn what_is_handed_over_arrives_whole() {
    let guest = guest!(with_hook(&[]));
    warm_up(&guest, &python_order("")).unwrap();
    let mut job = python_job(&["x".repeat(20_000).as_str(), ""]);
    for n in 0..900 {
        job.env.push((format!("V{n}"), format!("\n{n}=\u{e9}")));
    }
    let main = "import os, sys; print(len(sys.argv[1]), sys.argv[2:], all(os.environ[f'V{n}'] == f'\\n{n}=\u{e9}' for n in range(900)), len(os.environ))";
    let told = guest.run(job, &[("main.py", 0o644, main.as_bytes())]);
    assert_eq!(told.warm, Some(WarmUse::Used));
    assert_eq!(told.out(), "20000 [''] True 905\n", "{}", told.err());
}

#[test]
fn a_job_that_does_not_want_the_process_or_does_not_fit_it_starts_cold_and_alone() {
    let count = "import os; print(sum(map(str.isdigit, os.listdir('/proc'))))";
    let unwilling = |job: &mut Job| job.warm = false;
    let elsewhere = |job: &mut Job| job.cwd = "/".to_owned();
    let limited = |job: &mut Job| {
        job.rlimits.push(JobRlimit {
            resource: Resource::Nofile,
            limit: Some(64),
        });
    };
    let other = |job: &mut Job| job.argv.insert(1, "-B".to_owned());
    for (change, why) in [
        (unwilling as fn(&mut Job), WarmUse::NotAsked),
        (elsewhere, WarmUse::Unfit),
        (limited, WarmUse::Unfit),
        (other, WarmUse::Unfit),
    ] {
        // With something that an import has started and left.
        let guest = guest!(with_hook(&[(
            "starts",
            "import subprocess; subprocess.Popen(['setsid', 'sleep', '600'])"
        )]));
        warm_up(&guest, &python_order("starts")).unwrap();
        let mut job = python_job(&[]);
        change(&mut job);
        let told = guest.run(job, &[("main.py", 0o644, count.as_bytes())]);
        assert_eq!(
            (told.warm, told.out().as_str()),
            (Some(why), "2\n"),
            "{}",
            told.err()
        );
        assert_eq!(told.exit().left_processes, 0);
    }
}

#[test]
fn what_the_process_used_before_is_not_the_jobs() {
    let busy = "import time
while time.process_time() < 1.5: pass
x = bytearray(100 << 20)";
    let options = || with_hook(&[("busy", busy)]);
    let guest = guest!(options());
    warm_up(&guest, &python_order("busy")).unwrap();
    let told = run_main(&guest, "print('ran')");
    let usage = told.exit().usage;
    assert_eq!(told.warm, Some(WarmUse::Used));
    assert!(usage.utime_us + usage.stime_us < 1_000_000, "{usage:?}");
    // Its memory is what it holds.
    assert!(usage.maxrss_bytes > 100 << 20, "{usage:?}");

    let guest = guest!(options());
    warm_up(&guest, &python_order("busy")).unwrap();
    let told = guest.run(shell("echo cold"), &[]);
    let usage = told.exit().usage;
    assert_eq!(told.warm, Some(WarmUse::NotAsked));
    assert!(usage.utime_us + usage.stime_us < 1_000_000, "{usage:?}");
    assert!(usage.maxrss_bytes < 50 << 20, "{usage:?}");
}

#[test]
fn the_deadline_and_a_kill_end_a_job_that_was_handed_over() {
    let guest = guest!(with_hook(&[]));
    warm_up(&guest, &python_order("")).unwrap();
    let mut job = python_job(&[]);
    job.deadline_ms = 300;
    let told = guest.run(job, &[("main.py", 0o644, b"import time; time.sleep(600)")]);
    assert_eq!(
        (told.warm, told.exit().how),
        (Some(WarmUse::Used), Ended::Signal(9))
    );
    assert!(told.exit().deadline_fired);

    let guest = guest!(with_hook(&[]));
    warm_up(&guest, &python_order("")).unwrap();
    guest.submit(
        python_job(&[]),
        &[("main.py", 0o644, b"import time; time.sleep(600)")],
    );
    assert!(matches!(guest.next(), FromGuest::Started(started) if started.warm == WarmUse::Used));
    guest.send(&ToGuest::Kill);
    let told = guest.collect();
    assert!(told.exit().killed_by_request && !told.exit().deadline_fired);
    assert_eq!(guest.exit_code(), Some(i32::from(GuestExit::Done.code())));
}

#[test]
fn a_kill_before_the_word_is_a_job_that_never_started() {
    let guest = guest!();
    let order = script_order("os.write(4, b'R'); take(); time.sleep(600)");
    warm_up(&guest, &order).unwrap();
    guest.submit(job_for(&order), &[]);
    guest.send(&ToGuest::Kill);
    let told = guest.collect();
    assert_eq!(told.refused().stage, Stage::Canceled);
    assert_eq!(guest.exit_code(), Some(i32::from(GuestExit::Done.code())));
}

#[test]
fn an_executor_that_goes_takes_the_process_with_it_at_any_time() {
    let slow = script_order("time.sleep(600)");
    let waits = script_order("os.write(4, b'R'); time.sleep(600)");
    for (order, is_ready) in [(&slow, false), (&waits, true)] {
        let guest = guest!();
        guest.send(&ToGuest::Warm(order.clone()));
        if is_ready {
            assert!(matches!(guest.next(), FromGuest::Warmed(_)));
        }
        guest.wait_for_processes(true);
        guest.hang_up();
        assert_eq!(guest.exit_code(), Some(i32::from(GuestExit::StdinClosed.code())));

        let guest = guest!();
        guest.send(&ToGuest::Warm(order.clone()));
        guest.wait_for_processes(true);
        guest.send(&ToGuest::Kill);
        assert_eq!(guest.exit_code(), Some(i32::from(GuestExit::Done.code())));

        let guest = guest!(Options {
            send_alive: false,
            alive_limit_ms: 400,
            ..Options::plain()
        });
        guest.send(&ToGuest::Warm(order.clone()));
        assert_eq!(guest.exit_code(), Some(i32::from(GuestExit::AliveMissing.code())));
    }
}

#[test]
fn a_job_before_the_answer_is_a_protocol_error() {
    let guest = guest!();
    let order = script_order("time.sleep(600)");
    let mut bytes = Vec::new();
    ToGuest::Warm(order.clone()).encode(&mut bytes).unwrap();
    ToGuest::Job(job_for(&order)).encode(&mut bytes).unwrap();
    guest.send_raw(&bytes);
    assert_eq!(
        guest.exit_code(),
        Some(i32::from(GuestExit::ProtocolError.code()))
    );
}
