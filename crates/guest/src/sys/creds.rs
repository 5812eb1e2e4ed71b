//! Ids, groups and capabilities of the calling process.

use mayfly_protocol::Ids;

use super::{Errno, Result, check, check_long};

/// The three capability sets of a process, bit n for capability n.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caps {
    pub(crate) effective: u64,
    pub(crate) permitted: u64,
    pub(crate) inheritable: u64,
}

/// `_LINUX_CAPABILITY_VERSION_3` of `linux/capability.h`: 64 capabilities in two halves.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: libc::c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapHalf {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

pub(crate) fn caps() -> Result<Caps> {
    let mut header = CapHeader {
        version: CAPABILITY_VERSION,
        pid: 0,
    };
    let mut halves = [CapHalf::default(); 2];
    // SAFETY: the kernel reads one header and, for version 3, writes two halves; both outlive the call.
    check_long(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, halves.as_mut_ptr()) })?;
    let [low, high] = halves;
    let join = |low: u32, high: u32| u64::from(low) | (u64::from(high) << 32);
    Ok(Caps {
        effective: join(low.effective, high.effective),
        permitted: join(low.permitted, high.permitted),
        inheritable: join(low.inheritable, high.inheritable),
    })
}

pub(crate) fn set_caps(caps: Caps) -> Result<()> {
    let mut header = CapHeader {
        version: CAPABILITY_VERSION,
        pid: 0,
    };
    let half = |shift: u32| {
        let part = |set: u64| u32::try_from((set >> shift) & 0xffff_ffff).unwrap_or(0);
        CapHalf {
            effective: part(caps.effective),
            permitted: part(caps.permitted),
            inheritable: part(caps.inheritable),
        }
    };
    let halves = [half(0), half(32)];
    // SAFETY: the kernel reads one header and, for version 3, two halves; both outlive the call.
    check_long(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, halves.as_ptr()) })?;
    Ok(())
}

fn prctl(option: libc::c_int, argument: libc::c_ulong) -> Result<libc::c_int> {
    let zero: libc::c_ulong = 0;
    // SAFETY: the options used in this file take integers only and touch no memory of ours.
    check(unsafe { libc::prctl(option, argument, zero, zero, zero) })
}

/// Drops every capability that the kernel knows from the bounding set.
pub(crate) fn drop_bounding() -> Result<()> {
    for capability in 0..64 {
        match prctl(libc::PR_CAPBSET_DROP, capability) {
            Ok(_) => {}
            // The kernel knows no capability of this number, nor of a higher one.
            Err(Errno(libc::EINVAL)) if capability > 0 => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Empties the ambient set.
pub(crate) fn drop_ambient() -> Result<()> {
    let operation = libc::c_ulong::try_from(libc::PR_CAP_AMBIENT_CLEAR_ALL).unwrap_or(0);
    match prctl(libc::PR_CAP_AMBIENT, operation) {
        // A kernel without ambient capabilities (gVisor has none) has nothing to empty.
        Ok(_) | Err(Errno(libc::EINVAL)) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Whether the permitted set survives a change of user ids.
pub(crate) fn keep_caps(keep: bool) -> Result<()> {
    prctl(libc::PR_SET_KEEPCAPS, libc::c_ulong::from(keep)).map(drop)
}

pub(crate) fn set_no_new_privs() -> Result<()> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1).map(drop)
}

pub(crate) fn dumpable() -> Result<i32> {
    prctl(libc::PR_GET_DUMPABLE, 0)
}

pub(crate) fn set_dumpable(dumpable: bool) -> Result<()> {
    prctl(libc::PR_SET_DUMPABLE, libc::c_ulong::from(dumpable)).map(drop)
}

pub(crate) fn clear_groups() -> Result<()> {
    // SAFETY: with a count of 0 the pointer isn't read.
    check(unsafe { libc::setgroups(0, std::ptr::null()) }).map(drop)
}

/// Makes all user and group ids `id`.
pub(crate) fn set_ids(id: u32) -> Result<()> {
    // SAFETY: both calls take integers only.
    check(unsafe { libc::setresgid(id, id, id) })?;
    // SAFETY: as above.
    check(unsafe { libc::setresuid(id, id, id) })?;
    Ok(())
}

/// Real, effective and saved user and group ids; `fs` is asked for too.
pub(crate) fn ids() -> Result<(Ids, Ids)> {
    let (mut real, mut effective, mut saved) = (0, 0, 0);
    // SAFETY: the kernel writes one id through each pointer.
    check(unsafe { libc::getresuid(&raw mut real, &raw mut effective, &raw mut saved) })?;
    let uid = Ids {
        real,
        effective,
        saved,
        fs: fs_uid(INVALID_ID).unwrap_or(effective),
    };
    // SAFETY: as above.
    check(unsafe { libc::getresgid(&raw mut real, &raw mut effective, &raw mut saved) })?;
    Ok((
        uid,
        Ids {
            real,
            effective,
            saved,
            fs: fs_gid(INVALID_ID).unwrap_or(effective),
        },
    ))
}

/// An id that no process has: setting it fails, and the call answers with the id in force.
const INVALID_ID: u32 = u32::MAX;

/// Makes the ids for file access `id`.
///
/// These calls report no error, so the ids are read back. In a kernel without them (gVisor 20221219) the effective
/// ids take their place, which no other process is judged by that would signal or limit this one.
pub(crate) fn set_fs_ids(id: u32) -> Result<()> {
    if fs_uid(INVALID_ID).is_none() {
        return set_effective_ids(id);
    }
    fs_gid(id);
    fs_uid(id);
    if fs_uid(INVALID_ID) == Some(id) && fs_gid(INVALID_ID) == Some(id) {
        Ok(())
    } else {
        Err(Errno(libc::EPERM))
    }
}

fn set_effective_ids(id: u32) -> Result<()> {
    let unchanged = u32::MAX;
    // SAFETY: both calls take integers only.
    check(unsafe { libc::setresgid(unchanged, id, unchanged) })?;
    // SAFETY: as above.
    check(unsafe { libc::setresuid(unchanged, id, unchanged) })?;
    Ok(())
}

/// Sets the user id for file access and returns the previous one; none if the kernel has no such id.
fn fs_uid(id: u32) -> Option<u32> {
    // SAFETY: the call takes an integer only.
    previous(unsafe { libc::setfsuid(id) })
}

/// Sets the group id for file access and returns the previous one; none if the kernel has no such id.
fn fs_gid(id: u32) -> Option<u32> {
    // SAFETY: the call takes an integer only.
    previous(unsafe { libc::setfsgid(id) })
}

/// What setfsuid(2) and setfsgid(2) answered. Only "no such call" means that there is no such id: a filter that
/// refuses the call leaves it in force, and unknown.
fn previous(answer: libc::c_int) -> Option<u32> {
    match check(answer) {
        Err(Errno(libc::ENOSYS)) => None,
        _ => Some(answer.cast_unsigned()),
    }
}
