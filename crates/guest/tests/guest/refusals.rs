use mayfly_protocol::{
    Ended, FileHeader, FromGuest, GuestExit, JobRlimit, Refused, Resource, Stage, ToGuest,
};

use crate::guest;
use crate::harness::{Told, job, shell};

fn assert_refused(told: &Told, stage: Stage, errno: i32, detail: &str) {
    let expected = Refused {
        stage,
        errno: Some(errno),
        detail: detail.to_owned(),
    };
    assert_eq!(told.refused(), &expected);
}

#[test]
fn a_program_that_is_not_there_or_may_not_run_is_told_apart() {
    let guest = guest!();
    assert_refused(
        &guest.run(job(&["no-such"], 0), &[]),
        Stage::Exec,
        libc::ENOENT,
        "no-such",
    );
    assert_eq!(guest.exit_code(), Some(i32::from(GuestExit::Done.code())));

    let guest = guest!();
    let told = guest.run(job(&["./f"], 1), &[("f", 0o644, b"#!/bin/sh\n")]);
    assert_refused(&told, Stage::Exec, libc::EACCES, "./f");

    let guest = guest!();
    let told = guest.run(job(&["./f"], 1), &[("f", 0o755, b"no program\n")]);
    assert_refused(&told, Stage::Exec, libc::ENOEXEC, "./f");
}

#[test]
fn a_directory_that_is_not_there_is_refused() {
    let guest = guest!();
    let mut job = shell("true");
    job.cwd = "/no/such".to_owned();
    assert_refused(&guest.run(job, &[]), Stage::Cwd, libc::ENOENT, "/no/such");
}

#[test]
fn a_text_with_a_nul_is_refused() {
    let guest = guest!();
    let told = guest.run(job(&["echo", "a\0b"], 0), &[]);
    assert_eq!(told.refused().stage, Stage::Job);
}

#[test]
fn files_that_do_not_fit_are_refused_by_size_and_by_number() {
    let guest = guest!();
    let big = vec![1; 9 << 20];
    let told = guest.run(job(&["true"], 1), &[("big", 0o644, &big)]);
    assert_refused(&told, Stage::File, libc::ENOSPC, "big");

    let guest = guest!();
    let names: Vec<_> = (0..70).map(|i| format!("f{i}")).collect();
    let files: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), 0o644, [].as_slice()))
        .collect();
    let told = guest.run(job(&["true"], 70), &files);
    assert_eq!(told.refused().stage, Stage::File);
    assert_eq!(told.refused().errno, Some(libc::ENOSPC));
}

#[test]
fn two_files_of_one_name_and_a_file_for_a_directory_are_refused() {
    let guest = guest!();
    let told = guest.run(job(&["true"], 2), &[("f", 0o644, b""), ("f", 0o644, b"")]);
    assert_refused(&told, Stage::File, libc::EEXIST, "f");

    let guest = guest!();
    let told = guest.run(job(&["true"], 2), &[("f", 0o644, b""), ("f/g", 0o644, b"")]);
    assert_refused(&told, Stage::File, libc::ENOTDIR, "f/g");
}

#[test]
fn a_path_that_leaves_the_work_directory_is_a_protocol_error() {
    for path in ["../f", "/etc/f", "a/../../f", "a//f", "", "."] {
        let guest = guest!();
        let mut bytes = Vec::new();
        ToGuest::Job(job(&["true"], 1)).encode(&mut bytes).unwrap();
        let header = FileHeader {
            path: path.to_owned(),
            mode: 0o644,
            size: 0,
        };
        ToGuest::File(header).encode(&mut bytes).unwrap();
        guest.send_raw(&bytes);
        let code = guest.exit_code();
        assert_eq!(code, Some(i32::from(GuestExit::ProtocolError.code())), "{path:?}");
    }
}

#[test]
fn a_kill_before_the_start_cancels() {
    let guest = guest!();
    guest.send(&ToGuest::Job(job(&["true"], 1)));
    guest.send(&ToGuest::Kill);
    let FromGuest::Refused(refused) = guest.next() else {
        panic!("refused")
    };
    assert_eq!(refused.stage, Stage::Canceled);
    assert_eq!(guest.exit_code(), Some(i32::from(GuestExit::Done.code())));
}

#[test]
fn limits_of_the_job_bind_the_job() {
    let guest = guest!();
    let mut job = shell("ulimit -n; ulimit -f; head -c 9000 /dev/zero > f");
    job.rlimits = vec![
        JobRlimit {
            resource: Resource::Nofile,
            limit: Some(77),
        },
        JobRlimit {
            resource: Resource::Fsize,
            limit: Some(4096),
        },
    ];
    let told = guest.run(job, &[]);
    // `ulimit -f` counts blocks of 512 bytes.
    assert_eq!(told.out(), "77\n8\n");
    assert_ne!(told.exit().how, Ended::Code(0));

    let guest = guest!();
    let mut job = shell("true");
    job.rlimits = vec![JobRlimit {
        resource: Resource::Nofile,
        limit: Some(1 << 40),
    }];
    assert_refused(&guest.run(job, &[]), Stage::Rlimit, libc::EPERM, "Nofile");
}
