use std::sync::{
    Arc, Barrier,
    atomic::{AtomicUsize, Ordering},
};

use super::*;

fn processes() -> (tempfile::TempDir, Processes) {
    let folder = tempfile::tempdir().unwrap();
    let processes = Processes::in_folder(folder.path().join("data/processes"));
    (folder, processes)
}

fn free(taken: Taken) -> (ProcessLock, Option<String>) {
    match taken {
        Taken::Free { lock, containers_at } => (lock, containers_at),
        Taken::Held => panic!("nobody holds it"),
    }
}

#[test]
fn a_process_that_lives_keeps_its_lock_and_one_that_is_gone_has_left_its_word() {
    let (_folder, processes) = processes();
    let id = ExecutorId::new();
    let lock = processes.begin(id, "unix:///engine.sock\ndeployment a").unwrap();
    assert!(matches!(processes.take(id).unwrap(), Taken::Held));
    assert_eq!(processes.all().unwrap(), [id]);
    drop(lock);
    let (taken, containers_at) = free(processes.take(id).unwrap());
    assert_eq!(
        containers_at.as_deref(),
        Some("unix:///engine.sock\ndeployment a")
    );
    assert!(
        matches!(processes.take(id).unwrap(), Taken::Held),
        "one sees to it"
    );
    taken.remove().unwrap();
    drop(taken);
    assert_eq!(processes.all().unwrap(), []);
}

#[test]
fn a_file_that_is_missing_can_be_held_and_says_so_also_after_its_holder_died_halfway() {
    let (_folder, processes) = processes();
    let id = ExecutorId::new();
    for _ in 0..2 {
        let (lock, containers_at) = free(processes.take(id).unwrap());
        assert_eq!(containers_at, None);
        assert!(matches!(processes.take(id).unwrap(), Taken::Held));
        drop(lock);
    }
}

/// The file that was opened is removed by its holder before it is locked: whoever locked it has nothing.
#[test]
fn a_lock_on_a_file_that_was_removed_is_no_lock() {
    let (_folder, processes) = processes();
    let id = ExecutorId::new();
    let (first, _) = free(processes.take(id).unwrap());
    let (late, _) = open(&processes.path(id)).unwrap().unwrap();
    first.remove().unwrap();
    drop(first);
    late.lock().unwrap();
    assert!(!is_there(&late, &processes.path(id)).unwrap());
    let (second, _) = free(processes.take(id).unwrap());
    assert!(
        !is_there(&late, &processes.path(id)).unwrap(),
        "it is another file"
    );
    drop(second);
}

/// As at the start of several processes at once, each of which sees to what it can get.
#[test]
fn however_many_try_at_once_never_two_hold_it() {
    let (_folder, processes) = processes();
    let id = ExecutorId::new();
    drop(processes.begin(id, "here").unwrap());
    let (holders, times) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let together = Arc::new(Barrier::new(8));
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (processes, holders, times, together) = (
                processes.clone(),
                Arc::clone(&holders),
                Arc::clone(&times),
                Arc::clone(&together),
            );
            std::thread::spawn(move || {
                together.wait();
                for _ in 0..300 {
                    if let Taken::Free { lock, .. } = processes.take(id).unwrap() {
                        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                        times.fetch_add(1, Ordering::SeqCst);
                        holders.fetch_sub(1, Ordering::SeqCst);
                        lock.remove().unwrap();
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.join().unwrap();
    }
    assert!(times.load(Ordering::SeqCst) > 8);
}

#[test]
fn a_file_that_is_none_of_ours_is_not_looked_at() {
    let (_folder, processes) = processes();
    assert_eq!(processes.all().unwrap(), [], "there is no folder yet");
    let id = ExecutorId::new();
    let _lock = processes.begin(id, "here").unwrap();
    for name in ["notes.txt", "x.lock", &format!("{}.new", ExecutorId::new())] {
        fs::write(processes.folder.join(name), "").unwrap();
    }
    assert_eq!(processes.all().unwrap(), [id]);
}
