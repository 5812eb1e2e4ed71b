use mayfly_protocol::{
    Answer, Capabilities, Identity, Ids, MARKER_ERRNO, Mount, Probe, VERSION, guarded_paths,
};

use crate::guest;
use crate::harness::{Guest, STARTED, WORK};

fn all(id: u32) -> Ids {
    Ids {
        real: id,
        effective: id,
        saved: id,
        fs: id,
    }
}

fn answer(guest: &Guest, probe: Probe) -> Answer {
    guest
        .report
        .probes
        .iter()
        .find(|result| result.probe == probe)
        .unwrap()
        .answer
}

#[test]
fn the_guest_keeps_three_capabilities_and_the_job_none() {
    let guest = guest!();
    let report = &guest.report;
    assert_eq!((report.version, report.pid), (VERSION, 1));
    let three = (1 << 5) | (1 << 6) | (1 << 7);
    let caps = |held| Capabilities {
        inheritable: 0,
        permitted: held,
        effective: held,
        bounding: 0,
        ambient: Some(0),
    };
    let identity = |id, held, oom_score_adj, of: &Identity| Identity {
        uid: all(id),
        gid: all(id),
        groups: vec![],
        caps: caps(held),
        no_new_privs: Some(true),
        dumpable: of.dumpable,
        oom_score_adj: Some(oom_score_adj),
        seccomp_mode: of.seccomp_mode,
        seccomp_filters: of.seccomp_filters,
    };
    // The job's is what the host gives a process that changed its user, and its program is dumpable.
    assert_eq!(report.guest.dumpable, 0);
    assert_eq!(report.guest, identity(guest.guest_id, three, 0, &report.guest));
    assert_eq!(report.job, identity(guest.job_id, 0, 1000, &report.job));
}

#[test]
fn the_guest_stays_opaque_to_the_host_after_it_has_acted_for_the_job() {
    use std::os::unix::fs::MetadataExt;
    let guest = guest!();
    let told = guest.run(crate::harness::job(&["true"], 1), &[("f", 0o600, b"x")]);
    told.exit();
    // Nothing to look at any more; the state during a run is what counts.
    let guest = guest!();
    guest.submit(crate::harness::job(&["sleep", "60"], 1), &[("f", 0o600, b"x")]);
    assert_eq!(guest.next(), STARTED);
    let [pid] = guest.processes_of(guest.guest_id)[..] else {
        panic!("one guest")
    };
    // The files of a process belong to its user only while it is dumpable.
    assert_eq!(std::fs::metadata(format!("/proc/{pid}/fd")).unwrap().uid(), 0);
}

#[test]
fn the_work_directory_is_reported_with_its_size_and_inodes() {
    let guest = guest!();
    let mounts = &guest.report.mounts;
    let work: &Mount = mounts.iter().rfind(|mount| mount.mount_point == WORK).unwrap();
    assert_eq!(work.fstype, "tmpfs");
    for option in ["rw", "nosuid", "nodev"] {
        assert!(work.options.iter().any(|o| o == option), "{option} in {work:?}");
    }
    for option in ["size=8192k", "nr_inodes=64", "mode=700"] {
        assert!(
            work.super_options.iter().any(|o| o == option),
            "{option} in {work:?}"
        );
    }
    let vfs = guest
        .report
        .filesystems
        .iter()
        .find(|fs| fs.path == WORK)
        .unwrap();
    assert_eq!((vfs.bytes, vfs.inodes, vfs.free_inodes), (8 << 20, 64, 63));
    assert!(!vfs.read_only);
}

#[test]
fn the_paths_that_there_are_to_hide_are_reported() {
    let guest = guest!();
    // The kernel is the same, and nothing hides any of them.
    let there: Vec<_> = guarded_paths()
        .filter(|path| std::fs::symlink_metadata(path).is_ok())
        .collect();
    assert_eq!(guest.report.present, there);
    assert!(there.len() > 5, "{there:?}");
}

#[test]
fn a_namespace_without_a_network_shows_loopback_alone() {
    let guest = guest!();
    assert_eq!(guest.report.interfaces, Some(vec!["lo".to_owned()]));
    assert_eq!(guest.report.rlimits.len(), 16);
    assert_eq!(guest.report.kernel.sysname, "Linux");
}

#[test]
fn without_the_profile_the_marker_is_not_answered_with_its_errno() {
    let guest = guest!();
    assert_ne!(guest.report.marker, Answer::Errno(MARKER_ERRNO));
    assert_ne!(guest.report.marker, Answer::NotTried);
}

#[test]
fn every_probe_is_made_and_those_on_pid_1_are_refused() {
    let guest = guest!();
    let made: Vec<_> = guest.report.probes.iter().map(|result| result.probe).collect();
    assert_eq!(made, Probe::ALL);
    for probe in Probe::ALL {
        let needs_inet = matches!(probe, Probe::TcpUlp | Probe::TcpUlpBit32);
        assert!(
            needs_inet || answer(&guest, probe) != Answer::NotTried,
            "{probe:?}"
        );
    }
    for probe in [
        Probe::KillInit,
        Probe::PrlimitInit,
        Probe::PtraceInit,
        Probe::ProcessVmReadvInit,
    ] {
        assert_eq!(answer(&guest, probe), Answer::Errno(libc::EPERM), "{probe:?}");
    }
    for probe in [Probe::OpenInitStdin, Probe::OpenInitStdout] {
        assert_eq!(answer(&guest, probe), Answer::Errno(libc::EACCES), "{probe:?}");
    }
    assert_eq!(answer(&guest, Probe::MknodFifo), Answer::Returned(0));
    assert_eq!(answer(&guest, Probe::MknodDevice), Answer::Errno(libc::EPERM));
}

#[test]
fn probes_leave_nothing_behind() {
    let guest = guest!();
    let told = guest.run(crate::harness::shell("ls -A; cat /proc/self/personality"), &[]);
    assert_eq!(told.out(), "00000000\n", "{}", told.err());
    assert_eq!(told.exit().left_processes, 0);
}
