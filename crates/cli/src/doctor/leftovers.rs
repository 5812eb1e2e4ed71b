//! What processes that were killed have left: containers on the engine, lock files beside the database.

use std::path::Path;

use mayfly_core::chain::Chain;
use mayfly_sandbox::{DockerSandbox, Leftovers};

use super::{
    Examined, bounded,
    finding::{Finding, Status},
};

/// The containers of this deployment, and what the next sweep would remove of them.
pub(crate) async fn containers(examined: &Examined, sandbox: &DockerSandbox) -> Finding {
    match sandbox.leftovers().await {
        Ok(found) => judge(&examined.settings.sandbox.deployment, found),
        Err(error) => Finding::skipped("leftovers.containers", Chain(&error)),
    }
}

fn judge(deployment: &str, found: Leftovers) -> Finding {
    let Leftovers {
        containers,
        left_behind,
    } = found;
    let text =
        format!("{containers} containers of deployment `{deployment}`, {left_behind} of them left behind");
    if left_behind == 0 {
        return Finding::ok("leftovers.containers", text)
            .means("those that are not left behind belong to processes that live, or end soon");
    }
    Finding::note("leftovers.containers", text)
        .means("a process that was killed could not remove them; their guests have ended by themselves")
        .mend("the next `mayfly run` removes them; nothing has to be done")
}

/// Each process holds a lock file beside the database while it lives.
pub(crate) async fn processes(examined: &Examined) -> Vec<Finding> {
    let folder = crate::context::beside(&examined.settings.store.path, "processes");
    bounded("leftovers.processes", move || vec![count_processes(&folder)]).await
}

fn count_processes(folder: &Path) -> Finding {
    let id = "leftovers.processes";
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Finding::ok(id, "no process has left anything");
        }
        Err(error) => return Finding::skipped(id, format!("{}: {error}", folder.display())),
    };
    let (mut living, mut dead) = (0_usize, 0_usize);
    let locks = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "lock"));
    for path in locks {
        match is_dead(&path) {
            Some(true) => dead += 1,
            Some(false) => living += 1,
            None => {}
        }
    }
    let status = if dead == 0 { Status::Ok } else { Status::Note };
    Finding::new(
        id,
        status,
        format!("{living} processes live, {dead} have died and are not tidied up after"),
    )
    .means("jobs of a process that died are ended, and its containers removed, by the next one that starts")
    .mend(if dead == 0 {
        ""
    } else {
        "the next `mayfly run` does it; nothing has to be done"
    })
}

/// `None` where it can't be told. A lock is taken before its file can be seen; ours is given back at once, and who finds
/// it held meanwhile leaves that process to another.
fn is_dead(path: &Path) -> Option<bool> {
    match std::fs::File::open(path).ok()?.try_lock_shared() {
        Ok(()) => Some(true),
        Err(std::fs::TryLockError::WouldBlock) => Some(false),
        Err(std::fs::TryLockError::Error(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_behind_is_a_note() {
        let found = |left_behind| {
            judge(
                "local",
                Leftovers {
                    containers: 3,
                    left_behind,
                },
            )
        };
        assert_eq!(found(0).status, Status::Ok);
        assert_eq!(found(2).status, Status::Note);
    }

    #[test]
    fn a_lock_that_is_held_is_a_living_process_and_one_that_can_be_had_a_dead_one() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(count_processes(&folder.path().join("none")).status, Status::Ok);
        for name in ["a.lock", "b.lock", "c.txt"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let held = std::fs::File::open(folder.path().join("a.lock")).unwrap();
        held.lock().unwrap();
        let found = count_processes(folder.path());
        assert_eq!(found.status, Status::Note);
        assert!(
            found.found.starts_with("1 processes live, 1 have died"),
            "{}",
            found.found
        );
    }
}
