use mayfly_protocol::{Ended, FromGuest, GuestExit, STDIN_WINDOW, StreamId, ToGuest};

use crate::guest;
use crate::harness::{Guest, STARTED, job, python, shell};

/// Sends all of `data` as stdin, within the credit, and takes what the job echoes.
fn echo(guest: &Guest, data: &[u8]) -> Vec<u8> {
    for stream in [StreamId::STDOUT, StreamId::STDERR] {
        guest.grant(stream, 128 * 1024);
    }
    let (mut sent, mut echoed) = (0, Vec::new());
    let mut is_closed = false;
    loop {
        while sent < data.len() && guest.stdin_credit() > 0 {
            let chunk = (data.len() - sent).min(guest.stdin_credit()).min(10_000);
            guest.send(&ToGuest::Stdin(data[sent..sent + chunk].to_vec()));
            sent += chunk;
        }
        if sent == data.len() && !is_closed {
            guest.send(&ToGuest::StdinClose);
            is_closed = true;
        }
        match guest.next() {
            FromGuest::Stdout(data) => {
                guest.grant(StreamId::STDOUT, data.len().try_into().unwrap());
                echoed.extend(data);
            }
            FromGuest::Exit(exit) => {
                assert_eq!(exit.how, Ended::Code(0));
                return echoed;
            }
            FromGuest::Started(_) | FromGuest::Credit { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn stdin_comes_back_byte_for_byte() {
    let guest = guest!();
    let data: Vec<u8> = (0..1_500_000_u32)
        .map(|i| (i.wrapping_mul(i) >> 7).to_le_bytes()[0])
        .collect();
    let mut job = job(&["cat"], 0);
    job.stdin = true;
    guest.submit(job, &[]);
    assert!(echo(&guest, &data) == data);
}

#[test]
fn a_job_without_stdin_reads_its_end_at_once() {
    let guest = guest!();
    let told = guest.run(shell("cat; echo end"), &[]);
    assert_eq!(told.out(), "end\n");
}

#[test]
fn a_job_that_closes_its_stdin_early_is_not_hurt_by_more_of_it() {
    let guest = guest!();
    let mut job = shell("exec 0<&-; echo closed; read line <&1 || true; exit 4");
    job.stdin = true;
    guest.submit(job, &[]);
    assert_eq!(guest.next(), STARTED);
    for _ in 0..4 {
        guest.send(&ToGuest::Stdin(vec![1; STDIN_WINDOW as usize / 4]));
    }
    let told = guest.collect();
    assert_eq!(
        (told.out().as_str(), told.exit().how),
        ("closed\n", Ended::Code(4))
    );
}

#[test]
fn a_job_that_never_reads_its_stdin_gets_no_more_of_it_and_ends_as_it_likes() {
    let guest = guest!();
    let mut job = shell("echo up; sleep 0.3; exit 5");
    job.stdin = true;
    guest.submit(job, &[]);
    // All the credit at once: 64 KiB fill the pipe, and nothing is granted for what lies in it
    // beyond that.
    for _ in 0..4 {
        guest.send(&ToGuest::Stdin(vec![1; STDIN_WINDOW as usize / 4]));
    }
    let told = guest.collect();
    assert_eq!(told.exit().how, Ended::Code(5));
    assert!(guest.stdin_credit() <= STDIN_WINDOW as usize);
}

#[test]
fn the_two_outputs_stay_apart_and_whole() {
    let guest = guest!();
    let script = "import os, sys
for i in range(20000):
    os.write(1 + i % 2, bytes([i % 256, 0, 255]) * 17)";
    let told = guest.run(python(script), &[]);
    let expected = |odd: usize| -> Vec<u8> {
        let of_stream = (0..20_000).filter(|i| i % 2 == odd);
        of_stream
            .flat_map(|i| [i.to_le_bytes()[0], 0, 255].repeat(17))
            .collect()
    };
    assert!(told.stdout == expected(0));
    assert!(told.stderr == expected(1));
    assert_eq!(told.exit().stdout_bytes, 510_000);
}

#[test]
fn no_byte_is_sent_beyond_the_credit() {
    let guest = guest!();
    guest.submit(shell("head -c 10000000 /dev/zero; exit 6"), &[]);
    assert_eq!(guest.next(), STARTED);
    assert!(guest.is_silent());
    guest.grant(StreamId::STDOUT, 1000);
    assert_eq!(guest.next(), FromGuest::Stdout(vec![0; 1000]));
    assert!(guest.is_silent());
    let told = guest.collect();
    assert_eq!(told.stdout.len(), 10_000_000 - 1000);
    assert_eq!(told.exit().how, Ended::Code(6));
}

#[test]
fn a_kill_works_while_nobody_takes_the_output() {
    let guest = guest!();
    // Credit for far more than the guest's queue and the pipe hold, and nothing is read.
    guest.send(&ToGuest::Job(job(&["cat", "/dev/zero"], 0)));
    guest.grant(StreamId::STDOUT, 700 * 1024);
    guest.send(&ToGuest::Start);
    assert_eq!(guest.next(), STARTED);
    guest.wait_until_blocked();
    guest.send(&ToGuest::Kill);
    guest.wait_for_processes(false);
    let told = guest.collect();
    assert_eq!(told.exit().how, Ended::Signal(9));
    assert!(told.exit().killed_by_request);
    assert_eq!(guest.exit_code(), Some(i32::from(GuestExit::Done.code())));
}

#[test]
fn an_executor_that_dies_while_it_takes_no_output_is_noticed() {
    let guest = guest!();
    guest.send(&ToGuest::Job(job(&["cat", "/dev/zero"], 0)));
    guest.grant(StreamId::STDOUT, 700 * 1024);
    guest.send(&ToGuest::Start);
    assert_eq!(guest.next(), STARTED);
    guest.wait_until_blocked();
    guest.hang_up();
    assert_eq!(guest.exit_code(), Some(i32::from(GuestExit::StdinClosed.code())));
}

#[test]
fn a_job_may_open_its_outputs_by_name() {
    let guest = guest!();
    let told = guest.run(shell("echo a > /dev/stdout; echo b > /proc/self/fd/2"), &[]);
    assert_eq!((told.out().as_str(), told.err().as_str()), ("a\n", "b\n"));
}

#[test]
fn a_pipe_end_in_a_message_that_nobody_takes_does_not_hold_the_end_back() {
    let guest = guest!();
    // Two sockets that carry each other, and stdout: no process holds them, only the kernel.
    let script = "import array, os, socket
a, b = socket.socketpair(socket.AF_UNIX)
fds = array.array('i', [1, a.fileno(), b.fileno()])
for s in (a, b):
    s.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
os.write(1, b'sent')
os._exit(0)";
    let told = guest.run(python(script), &[]);
    assert_eq!(
        (told.out().as_str(), told.exit().how),
        ("sent", Ended::Code(0)),
        "{}",
        told.err()
    );
}
