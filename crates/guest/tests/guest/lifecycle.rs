use mayfly_protocol::{Ended, FromGuest, GuestExit, StreamId, ToGuest};

use crate::guest;
use crate::harness::{Options, STARTED, WORK, job, python, shell};

pub(crate) fn code(exit: GuestExit) -> Option<i32> {
    Some(i32::from(exit.code()))
}

#[test]
fn a_job_runs_with_its_files_environment_and_directory() {
    let guest = guest!();
    let script = b"import os, sys; print('hello', sys.argv[1], os.environ['NAME'], os.getcwd(), os.getuid(), os.getgid(), os.getgroups())";
    let mut job = job(&["/usr/bin/python3", "main.py", "world"], 1);
    job.env.push(("NAME".to_owned(), "mayfly".to_owned()));
    let told = guest.run(job, &[("main.py", 0o644, script)]);
    let id = guest.job_id;
    assert_eq!(
        told.out(),
        format!("hello world mayfly {WORK} {id} {id} []\n"),
        "{}",
        told.err()
    );
    assert_eq!(told.exit().how, Ended::Code(0));
    assert!(told.exit().usage.maxrss_bytes > 1 << 20);
    assert!(told.exit().wall_us > 0);
    assert_eq!(guest.exit_code(), code(GuestExit::Done));
}

#[test]
fn files_belong_to_the_job_and_have_the_mode_asked_for() {
    let guest = guest!();
    let big = vec![7; 200_000];
    let script = "stat -c '%n %u %g %a %s' a/b/run empty a a/b; umask; ls /proc/self/fd | wc -l";
    let mut job = shell(script);
    job.files = 2;
    let told = guest.run(job, &[("a/b/run", 0o750, &big), ("empty", 0o600, b"")]);
    let id = guest.job_id;
    let lines: Vec<_> = told.out().lines().map(str::to_owned).collect();
    assert_eq!(lines[0], format!("a/b/run {id} {id} 750 200000"));
    assert_eq!(lines[1], format!("empty {id} {id} 600 0"));
    assert!(lines[2].starts_with(&format!("a {id} {id} 755 ")), "{}", lines[2]);
    assert!(
        lines[3].starts_with(&format!("a/b {id} {id} 755 ")),
        "{}",
        lines[3]
    );
    // 0, 1, 2 and the directory that `ls` reads.
    assert_eq!(lines[4..], ["0022", "4"]);
}

#[test]
fn a_descriptor_that_the_guest_was_started_with_does_not_reach_the_job() {
    let prelude = "exec 9</proc/version".to_owned();
    let guest = guest!(Options {
        prelude,
        ..Options::plain()
    });
    let told = guest.run(shell("cat <&9"), &[]);
    assert_eq!(
        (told.out().as_str(), told.exit().how),
        ("", Ended::Code(2)),
        "{}",
        told.err()
    );
}

#[test]
fn the_end_is_told_as_it_was() {
    for (script, how) in [
        ("exit 0", Ended::Code(0)),
        ("exit 3", Ended::Code(3)),
        ("exit 137", Ended::Code(137)),
        ("kill -KILL $$", Ended::Signal(9)),
        ("kill -SEGV $$", Ended::Signal(11)),
        ("kill -PIPE $$", Ended::Signal(13)),
    ] {
        let guest = guest!();
        let told = guest.run(shell(script), &[]);
        let exit = told.exit();
        assert_eq!(exit.how, how, "{script}");
        assert!(!exit.deadline_fired && !exit.killed_by_request);
    }
}

#[test]
fn a_grandchild_in_its_own_session_that_holds_the_pipes_delays_nothing() {
    let guest = guest!();
    let told = guest.run(shell("setsid sleep 600 & setsid sleep 600 & echo done"), &[]);
    assert_eq!(told.out(), "done\n");
    assert_eq!(told.exit().how, Ended::Code(0));
    assert_eq!(told.exit().left_processes, 2);
    assert_eq!(guest.exit_code(), code(GuestExit::Done));
}

#[test]
fn orphans_are_reaped_while_the_job_runs() {
    let guest = guest!();
    let script = "import os, sys, time
for _ in range(50):
    if os.fork() == 0:
        if os.fork() == 0: os._exit(0)
        os._exit(0)
    os.wait()
# Pid 1 and this process.
while sum(map(str.isdigit, os.listdir('/proc'))) > 2: time.sleep(0.001)
print('clean')";
    let told = guest.run(python(script), &[]);
    assert_eq!(told.out(), "clean\n", "{}", told.err());
    assert_eq!(told.exit().left_processes, 0);
}

#[test]
fn a_kill_ends_the_whole_tree_and_says_so() {
    let guest = guest!();
    guest.submit(shell("trap '' TERM; setsid sleep 600 & echo up; sleep 600"), &[]);
    guest.grant(StreamId::STDOUT, 1000);
    assert_eq!(guest.next(), STARTED);
    assert_eq!(guest.next(), FromGuest::Stdout(b"up\n".to_vec()));
    guest.send(&ToGuest::Kill);
    let FromGuest::Exit(exit) = guest.next() else {
        panic!("exit")
    };
    assert_eq!(exit.how, Ended::Signal(9));
    assert!(exit.killed_by_request && !exit.deadline_fired);
    assert_eq!(guest.exit_code(), code(GuestExit::Done));
}

#[test]
fn the_deadline_ends_the_whole_tree_and_says_so() {
    let guest = guest!();
    let mut job = shell("setsid sleep 600 & sleep 600");
    job.deadline_ms = 300;
    let told = guest.run(job, &[]);
    assert_eq!(told.exit().how, Ended::Signal(9));
    assert!(told.exit().deadline_fired && !told.exit().killed_by_request);
    assert!((300_000..5_000_000).contains(&told.exit().wall_us));
}

#[test]
fn a_guest_without_a_job_goes_when_told() {
    let guest = guest!();
    guest.send(&ToGuest::Kill);
    assert_eq!(guest.exit_code(), code(GuestExit::Done));
}

#[test]
fn an_executor_that_dies_takes_everything_with_it() {
    let guest = guest!();
    guest.submit(shell("setsid sleep 600 & sleep 600"), &[]);
    assert_eq!(guest.next(), STARTED);
    guest.wait_for_processes(true);
    guest.hang_up();
    assert_eq!(guest.exit_code(), code(GuestExit::StdinClosed));

    let idle = guest!();
    idle.hang_up();
    assert_eq!(idle.exit_code(), code(GuestExit::StdinClosed));
}

#[test]
fn an_executor_that_freezes_takes_everything_with_it() {
    let silent = || Options {
        send_alive: false,
        alive_limit_ms: 400,
        ..Options::plain()
    };
    let guest = guest!(silent());
    guest.submit(shell("setsid sleep 600 & sleep 600"), &[]);
    assert_eq!(guest.next(), STARTED);
    assert_eq!(guest.exit_code(), code(GuestExit::AliveMissing));

    let idle = guest!(silent());
    assert_eq!(idle.exit_code(), code(GuestExit::AliveMissing));
}

#[test]
fn frames_other_than_alive_do_not_count_as_life() {
    let guest = guest!(Options {
        send_alive: false,
        alive_limit_ms: 600,
        ..Options::plain()
    });
    guest.submit(shell("while :; do echo x; done"), &[]);
    guest.feed_until_gone();
    assert_eq!(guest.exit_code(), code(GuestExit::AliveMissing));
}

#[test]
fn bytes_that_are_no_frames_end_the_guest_and_its_job() {
    let guest = guest!();
    guest.submit(shell("sleep 600"), &[]);
    assert_eq!(guest.next(), STARTED);
    guest.send_raw(b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(guest.exit_code(), code(GuestExit::ProtocolError));

    let idle = guest!();
    idle.send_raw(&[0x7f; 7]);
    assert!(idle.is_silent(), "a part of a header is not yet wrong");
    idle.send_raw(&[0x01, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(idle.exit_code(), code(GuestExit::ProtocolError));
}

#[test]
fn a_second_job_is_a_protocol_error() {
    let guest = guest!();
    let mut bytes = Vec::new();
    for _ in 0..2 {
        ToGuest::Job(job(&["true"], 1)).encode(&mut bytes).unwrap();
    }
    guest.send_raw(&bytes);
    assert_eq!(guest.exit_code(), code(GuestExit::ProtocolError));
}
