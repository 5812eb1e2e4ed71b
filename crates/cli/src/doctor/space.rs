//! Room on the disks: for the database, and for the engine's images and containers where its host is this one.

use std::path::Path;

use rustix::fs::{StatVfs, statvfs};

use super::{Examined, Locality, bounded, finding::Finding};

/// Below this much room the engine may fail to make a container or to pull an image.
const ENGINE: Levels = Levels {
    problem: 512 << 20,
    warning: 5 << 30,
};
/// Below this much room a job's record may not fit: it holds a few MiB of output at most.
const DATABASE: Levels = Levels {
    problem: 64 << 20,
    warning: 1 << 30,
};
/// Inodes below which files can't be made.
const INODES: Levels = Levels {
    problem: 1_000,
    warning: 20_000,
};

/// Where warning and problem begin.
#[derive(Debug, Clone, Copy)]
struct Levels {
    problem: u64,
    warning: u64,
}

pub(crate) async fn check(examined: &Examined) -> Vec<Finding> {
    let database = examined.settings.store.path.clone();
    let engine = examined
        .engine
        .as_ref()
        .map(|engine| engine.facts().details.data_folder.clone());
    let local = examined.local.clone();
    bounded("space", move || {
        let database = database.ancestors().skip(1).find(|folder| folder.is_dir());
        let mut findings = look(
            "space.database",
            "the database",
            database.unwrap_or(Path::new(".")),
            DATABASE,
        );
        match (local, engine) {
            (Locality::SameKernel, _) => findings.push(Finding::skipped(
                "space.engine",
                "this process is in a container, and does not see the engine's folder",
            )),
            (Locality::Elsewhere(why), _) => findings.push(Finding::skipped("space.engine", why)),
            (Locality::Local, Some(folder)) if !folder.is_empty() => {
                findings.extend(look(
                    "space.engine",
                    "the engine's data",
                    Path::new(&folder),
                    ENGINE,
                ));
            }
            (Locality::Local, _) => {
                findings.push(Finding::skipped(
                    "space.engine",
                    "the engine does not say where its data is",
                ));
            }
        }
        findings
    })
    .await
}

fn look(id: &str, what: &str, folder: &Path, levels: Levels) -> Vec<Finding> {
    match statvfs(folder) {
        Ok(found) => judge(id, what, folder, levels, &found),
        Err(error) => vec![Finding::skipped(
            id,
            format!(
                "{} can't be looked at: {}",
                folder.display(),
                std::io::Error::from(error)
            ),
        )],
    }
}

fn judge(id: &str, what: &str, folder: &Path, levels: Levels, found: &StatVfs) -> Vec<Finding> {
    let bytes = found.f_bavail.saturating_mul(found.f_frsize);
    let room = Finding::new(
        id,
        levels.status(bytes),
        format!("{} MiB free in {} for {what}", bytes >> 20, folder.display()),
    )
    .means("a full disk refuses jobs, and can end those that run as trouble of ours")
    .mend("free some room; images that nobody uses go with `docker image prune`");
    // Some file systems make inodes as they are needed, and count none.
    if found.f_files == 0 {
        return vec![room];
    }
    let inodes = Finding::new(
        format!("{id}_inodes"),
        INODES.status(found.f_favail),
        format!("{} inodes free in {}", found.f_favail, folder.display()),
    )
    .means("without an inode no file can be made, whatever room there is")
    .mend("remove files that nobody needs: `df -i` shows where they are");
    vec![room, inodes]
}

impl Levels {
    const fn status(self, found: u64) -> super::finding::Status {
        use super::finding::Status;
        if found < self.problem {
            Status::Problem
        } else if found < self.warning {
            Status::Warning
        } else {
            Status::Ok
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Status;

    #[test]
    fn little_room_is_a_warning_and_less_is_a_problem() {
        let mut found = statvfs("/").unwrap();
        found.f_frsize = 4096;
        for (blocks, files, room, inodes) in [
            (10 << 20, 1_000_000, Status::Ok, Status::Ok),
            (1 << 20, 19_999, Status::Warning, Status::Warning),
            (1000, 999, Status::Problem, Status::Problem),
        ] {
            (found.f_bavail, found.f_favail, found.f_files) = (blocks, files, 1);
            let statuses: Vec<_> = judge("space.engine", "images", Path::new("/"), ENGINE, &found)
                .into_iter()
                .map(|finding| finding.status)
                .collect();
            assert_eq!(statuses, [room, inodes], "{blocks} {files}");
        }
        found.f_files = 0;
        assert_eq!(
            judge("space.engine", "images", Path::new("/"), ENGINE, &found).len(),
            1
        );
    }

    #[test]
    fn a_folder_that_is_not_there_is_skipped() {
        assert_eq!(
            look("space.engine", "x", Path::new("/nowhere"), ENGINE)[0].status,
            Status::Skipped
        );
    }
}
