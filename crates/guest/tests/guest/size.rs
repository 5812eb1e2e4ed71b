//! What a guest may cost. Time and memory are printed, since both depend on the machine and on the
//! build; the size of the binary that sandboxes use is checked by who builds it.

use std::fs;
use std::time::Instant;

use crate::guest;

/// Most resident memory of a guest that waits for its job, in KiB.
const MEMORY_BUDGET_KIB: u64 = 4 * 1024;

#[test]
fn a_waiting_guest_is_small() {
    let begun = Instant::now();
    let guest = guest!();
    eprintln!(
        "ready after {:?}, unshare, mounts and setpriv included",
        begun.elapsed()
    );
    let [pid] = guest.processes_of(guest.guest_id)[..] else {
        panic!("one guest")
    };
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let anonymous = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .unwrap();
    let kib: u64 = anonymous.trim().trim_end_matches(" kB").parse().unwrap();
    eprintln!("{kib} KiB of memory of its own");
    assert!(kib < MEMORY_BUDGET_KIB, "{status}");
}
