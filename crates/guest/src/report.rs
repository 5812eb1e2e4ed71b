//! The report of `Ready`.

use std::ffi::CString;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};

use mayfly_protocol::{
    Answer, Filesystem, Identity, Kernel, Probe, ProbeResult, ReadyReport, Resource, VERSION, guarded_paths,
};

use crate::args::Args;
use crate::cgroup::Cgroup;
use crate::sys::{self, Errno, Forked};
use crate::{identity, mounts};

/// Which build this is, where the build says it.
const BUILD: &str = match option_env!("MAYFLY_GUEST_BUILD") {
    Some(build) => build,
    None => "",
};

/// Collects what the kernel says of this sandbox, before a job is taken.
pub(crate) fn collect(args: &Args) -> sys::Result<(ReadyReport, Cgroup)> {
    let probed = probe_as_job(args)?;
    let mounts = mounts::parse(&fs::read_to_string("/proc/self/mountinfo")?);
    let cgroup = Cgroup::find(&mounts);
    let uname = sys::uname()?;
    let rlimits = Resource::ALL
        .into_iter()
        .filter_map(|resource| sys::rlimit(resource).ok());
    let mut report = ReadyReport {
        version: VERSION,
        build: BUILD.to_owned(),
        pid: i32::try_from(std::process::id()).unwrap_or(-1),
        guest: identity::read()?,
        job: probed.job,
        uid_map: identity::id_map("uid_map"),
        gid_map: identity::id_map("gid_map"),
        marker: probed.marker,
        probes: probed.probes,
        root_read_only: sys::statvfs(c"/").ok().map(|vfs| vfs.read_only),
        filesystems: filesystems(&args.work),
        interfaces: fs::read_to_string("/proc/net/dev")
            .ok()
            .map(|text| interfaces(&text)),
        devices: devices(),
        rlimits: rlimits.collect(),
        cgroup: cgroup.limits(),
        lsm_label: lsm_label(),
        kernel: Kernel {
            sysname: uname.sysname,
            release: uname.release,
            version: uname.version,
            machine: uname.machine,
            nodename: uname.nodename,
        },
        mounts,
        present: present(),
        truncated: false,
    };
    report.fit();
    Ok((report, cgroup))
}

struct Probed {
    job: Identity,
    marker: Answer,
    probes: Vec<ProbeResult>,
}

/// Makes the probes in a child that becomes the job's user just as the job will.
///
/// The child tells each answer as it has it, so that a filter that kills it on one call shows as
/// "not tried" from that call on, and the executor's comparison names it.
fn probe_as_job(args: &Args) -> sys::Result<Probed> {
    let scratch = CString::new(format!("{}/.mayfly-probe", args.work)).map_err(|_| Errno(libc::EINVAL))?;
    let (from_child, to_parent) = sys::pipe()?;
    let child = match sys::fork()? {
        Forked::Child => {
            let told = identity::become_job(args.job_id)
                .and_then(|()| tell_probes(fs::File::from(to_parent), &scratch));
            sys::exit_now(told.map_or_else(|errno| errno.0, |()| 0));
        }
        Forked::Parent { child } => {
            drop(to_parent);
            child
        }
    };
    let mut lines = BufReader::new(fs::File::from(from_child)).lines();
    let mut next = || lines.next()?.ok();
    let job = next().and_then(|line| serde_json::from_str(&line).ok());
    let marker = next().and_then(|line| serde_json::from_str(&line).ok());
    let probes = Probe::ALL.map(|probe| {
        let answer = next().and_then(|line| serde_json::from_str(&line).ok());
        ProbeResult {
            probe,
            answer: answer.unwrap_or(Answer::NotTried),
        }
    });
    // All is told, so the child is ending; its usage must not count as the job's.
    sys::reap(child)?;
    Ok(Probed {
        job: job.ok_or(Errno(libc::EPERM))?,
        marker: marker.unwrap_or(Answer::NotTried),
        probes: probes.to_vec(),
    })
}

fn tell_probes(mut to_parent: fs::File, scratch: &CString) -> sys::Result<()> {
    let mut tell = |line: serde_json::Result<String>| -> sys::Result<()> {
        let line = line.map_err(|_| Errno(libc::EINVAL))?;
        Ok(writeln!(to_parent, "{line}")?)
    };
    tell(serde_json::to_string(&identity::read()?))?;
    tell(serde_json::to_string(&sys::marker()))?;
    for probe in Probe::ALL {
        tell(serde_json::to_string(&sys::probe(probe, scratch)))?;
    }
    Ok(())
}

/// A path that can't be looked at counts as one that is there: its mount, or the want of one, then decides.
fn present() -> Vec<String> {
    guarded_paths()
        .filter(|path| {
            let found = fs::symlink_metadata(path);
            !found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
        })
        .map(str::to_owned)
        .collect()
}

fn filesystems(work: &str) -> Vec<Filesystem> {
    [work, "/tmp", "/dev/shm", "/dev/mqueue"]
        .into_iter()
        .filter_map(|path| {
            let vfs = sys::statvfs(&CString::new(path).ok()?).ok()?;
            Some(Filesystem {
                path: path.to_owned(),
                bytes: vfs.bytes,
                free_bytes: vfs.free_bytes,
                inodes: vfs.inodes,
                free_inodes: vfs.free_inodes,
                read_only: vfs.read_only,
            })
        })
        .collect()
}

/// Names before the colon, after two lines of headings.
fn interfaces(text: &str) -> Vec<String> {
    text.lines()
        .skip(2)
        .filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()))
        .collect()
}

fn devices() -> Option<Vec<String>> {
    let mut names: Vec<_> = fs::read_dir("/dev")
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .collect();
    names.sort();
    Some(names)
}

fn lsm_label() -> Option<String> {
    let label = fs::read_to_string("/proc/self/attr/current").ok()?;
    let label = label.trim_end_matches(['\n', '\0']);
    (!label.is_empty()).then(|| label.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_named_without_their_counters() {
        let text = "Inter-| Receive\n face |bytes\n    lo: 0 0 0\n  eth0:12 0\n";
        assert_eq!(interfaces(text), ["lo", "eth0"]);
    }
}
