//! Two users in one container: the guest's and the job's.
//!
//! One user for both is no boundary: a job of the guest's own user could write into its descriptors,
//! limit it and kill it. So the container starts as root with four capabilities, and everything else
//! follows from them here, once.

use std::fs;

use mayfly_protocol::{Capabilities, IdRange, Identity, Ids};

use crate::sys::{self, Caps, Errno};

/// Capabilities of `linux/capability.h` that the guest keeps: to end the job, and to become it.
const KILL: u64 = 1 << 5;
const SETGID: u64 = 1 << 6;
const SETUID: u64 = 1 << 7;

const NO_CAPS: Caps = Caps {
    effective: 0,
    permitted: 0,
    inheritable: 0,
};

/// Makes this process the guest: user `id`, three capabilities, nothing to inherit, opaque.
pub(crate) fn become_guest(id: u32) -> sys::Result<()> {
    sys::drop_ambient()?;
    sys::drop_bounding()?;
    sys::clear_groups()?;
    sys::keep_caps(true)?;
    sys::set_ids(id)?;
    let kept = KILL | SETGID | SETUID;
    sys::set_caps(Caps {
        effective: kept,
        permitted: kept,
        inheritable: 0,
    })?;
    sys::keep_caps(false)?;
    sys::set_dumpable(false)
}

/// Makes a forked child the job's user: no capabilities and no way to get any.
///
/// The kernel takes the job for a memory victim before the guest: with a full tmpfs and nothing
/// else to kill it would otherwise end pid 1.
pub(crate) fn become_job(id: u32) -> sys::Result<()> {
    // The file belongs to root while the process is opaque.
    sys::set_dumpable(true)?;
    fs::write("/proc/self/oom_score_adj", "1000")?;
    sys::clear_groups()?;
    sys::set_ids(id)?;
    sys::set_caps(NO_CAPS)?;
    sys::set_no_new_privs()?;
    let (uid, gid) = sys::ids()?;
    let all = Ids {
        real: id,
        effective: id,
        saved: id,
        fs: id,
    };
    if sys::caps()? != NO_CAPS || uid != all || gid != all {
        return Err(Errno(libc::EPERM));
    }
    Ok(())
}

/// Runs `work` with the job's ids for file access: what it makes belongs to the job and counts
/// against the job's quotas.
pub(crate) fn as_job_files<T>(
    guest_id: u32,
    job_id: u32,
    work: impl FnOnce() -> sys::Result<T>,
) -> sys::Result<T> {
    sys::set_fs_ids(job_id)?;
    let done = work();
    sys::set_fs_ids(guest_id)?;
    // Each change of these ids sets dumpability to the host's fs.suid_dumpable, which may be 1.
    sys::set_dumpable(false)?;
    done
}

/// What the kernel says of this process.
pub(crate) fn read() -> sys::Result<Identity> {
    let status = Status(fs::read_to_string("/proc/self/status")?);
    let (uid, gid) = sys::ids()?;
    let caps = sys::caps()?;
    let hex = |name| {
        status
            .field(name)
            .and_then(|value| u64::from_str_radix(value, 16).ok())
    };
    let number = |name| status.field(name).and_then(|value| value.parse::<u32>().ok());
    let oom_score_adj = fs::read_to_string("/proc/self/oom_score_adj").ok();
    Ok(Identity {
        uid: status.ids("Uid").unwrap_or(uid),
        gid: status.ids("Gid").unwrap_or(gid),
        groups: status
            .field("Groups")
            .map(|groups| {
                groups
                    .split_whitespace()
                    .filter_map(|id| id.parse().ok())
                    .collect()
            })
            .unwrap_or_default(),
        caps: Capabilities {
            inheritable: hex("CapInh").unwrap_or(caps.inheritable),
            permitted: hex("CapPrm").unwrap_or(caps.permitted),
            effective: hex("CapEff").unwrap_or(caps.effective),
            // Not known is reported as everything, so that it can't pass for empty.
            bounding: hex("CapBnd").unwrap_or(u64::MAX),
            ambient: hex("CapAmb"),
        },
        no_new_privs: number("NoNewPrivs").map(|value| value == 1),
        seccomp_mode: number("Seccomp"),
        seccomp_filters: number("Seccomp_filters"),
        dumpable: sys::dumpable()?,
        oom_score_adj: oom_score_adj.and_then(|text| text.trim().parse().ok()),
    })
}

/// A map of ids of this process, `uid_map` or `gid_map`. Empty, which no map is, where it can't be read.
pub(crate) fn id_map(name: &str) -> Vec<IdRange> {
    let text = fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    ranges(&text).unwrap_or_default()
}

/// Nothing where a line is not what user_namespaces(7) says: half a map would be another one.
fn ranges(text: &str) -> Option<Vec<IdRange>> {
    text.lines()
        .map(|line| {
            let mut numbers = line.split_whitespace().map(str::parse);
            let mut next = || numbers.next()?.ok();
            let range = IdRange {
                inside: next()?,
                outside: next()?,
                count: next()?,
            };
            numbers.next().is_none().then_some(range)
        })
        .collect()
}

/// The text of `/proc/self/status`.
struct Status(String);

impl Status {
    fn field(&self, name: &str) -> Option<&str> {
        self.0
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
    }

    /// A line of real, effective, saved and file system id.
    fn ids(&self, name: &str) -> Option<Ids> {
        let mut ids = self.field(name)?.split_whitespace().map(str::parse);
        let mut next = || ids.next()?.ok();
        Some(Ids {
            real: next()?,
            effective: next()?,
            saved: next()?,
            fs: next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_of_ids_is_read_as_a_whole_or_not_at_all() {
        let range = |inside, outside, count| IdRange {
            inside,
            outside,
            count,
        };
        assert_eq!(
            ranges("         0          0 4294967295\n"),
            Some(vec![range(0, 0, u32::MAX)])
        );
        assert_eq!(
            ranges("0 1000 1\n1 100000 65536\n"),
            Some(vec![range(0, 1000, 1), range(1, 100_000, 65_536)])
        );
        for odd in [
            "0 0\n",
            "0 0 1 1\n",
            "0 0 4294967296\n",
            "0 0 1\nroot 0 1\n",
            "0 0 1\n\n",
        ] {
            assert_eq!(ranges(odd), None, "{odd:?}");
        }
        let own = id_map("uid_map");
        assert!(!own.is_empty());
        assert!(id_map("no_map").is_empty());
    }

    #[test]
    fn the_lines_of_a_status_are_told_apart_by_their_whole_name() {
        let status = Status("Uid:\t1\t2\t3\t4\nSeccomp_filters:\t2\nSeccomp:\t1\n".to_owned());
        assert_eq!(
            status.ids("Uid"),
            Some(Ids {
                real: 1,
                effective: 2,
                saved: 3,
                fs: 4
            })
        );
        assert_eq!(status.field("Seccomp"), Some("1"));
        assert_eq!(status.field("Seccomp_filters"), Some("2"));
        assert_eq!(status.field("CapBnd"), None);
    }
}
