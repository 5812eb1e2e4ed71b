//! The embedded database: there, writable, of a schema that this program knows, intact.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use mayfly_core::chain::Chain;
use mayfly_settings::Settings;
use mayfly_store::{error::StoreError, seam::Store};
use mayfly_store_sqlite::{Examined, SqliteStore, examine};
use rustix::fs::{Access, access};

use super::finding::Finding;

/// How long the file may take to be checked from end to end.
const EXAMINE_LIMIT: Duration = Duration::from_secs(10);
/// How long it may take to be opened; another process may hold its lock.
const OPEN_LIMIT: Duration = Duration::from_secs(25);

/// The database, where there is one that can be used.
pub(crate) async fn check(settings: &Settings) -> (Option<Arc<dyn Store>>, Vec<Finding>) {
    let path = &settings.store.path;
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return (None, vec![absent(path)]),
        Err(error) => return (None, vec![unusable(path, &error.to_string())]),
        Ok(found) if !found.is_file() => return (None, vec![unusable(path, "it is no file")]),
        Ok(_) => {}
    }
    let mut findings = vec![writable(path)];
    match tokio::time::timeout(EXAMINE_LIMIT, examine(path)).await {
        Ok(Ok(found)) => findings.extend(judge(path, &found)),
        Ok(Err(error)) => {
            findings.push(refused(path, &error));
            return (None, findings);
        }
        Err(_) => findings.push(Finding::skipped(
            "database.intact",
            format!(
                "{} was not checked from end to end within {} s",
                path.display(),
                EXAMINE_LIMIT.as_secs()
            ),
        )),
    }
    match tokio::time::timeout(OPEN_LIMIT, SqliteStore::open(path)).await {
        Ok(Ok(store)) => (Some(Arc::new(store)), findings),
        Ok(Err(error)) => {
            findings.push(refused(path, &error));
            (None, findings)
        }
        Err(_) => {
            findings.push(
                Finding::problem(
                    "database.opens",
                    format!(
                        "{} was not opened within {} s",
                        path.display(),
                        OPEN_LIMIT.as_secs()
                    ),
                )
                .means("another process holds its lock, and no job can be accepted")
                .mend(format!("see who has it open: fuser {}", path.display())),
            );
            (None, findings)
        }
    }
}

/// No run has made it yet; whether one could is what counts.
fn absent(path: &Path) -> Finding {
    let folder = nearest_folder(path);
    if access(&folder, Access::WRITE_OK | Access::EXEC_OK).is_ok() {
        return Finding::note("database.file", format!("{} is not there", path.display()))
            .means("the first command that needs it makes it");
    }
    Finding::problem(
        "database.file",
        format!(
            "{} is not there, and {} is not writable",
            path.display(),
            folder.display()
        ),
    )
    .means("no job can be accepted, since it would not be kept")
    .mend("make that folder writable for this user, or name another file in the setting `store.path`")
}

/// The deepest folder of a path that is there.
fn nearest_folder(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute
        .ancestors()
        .skip(1)
        .find(|folder| folder.is_dir())
        .unwrap_or(Path::new("/"))
        .to_owned()
}

/// SQLite writes beside the file too.
fn writable(path: &Path) -> Finding {
    let folder = nearest_folder(path);
    for (place, wanted) in [
        (path, Access::READ_OK | Access::WRITE_OK),
        (&folder, Access::WRITE_OK | Access::EXEC_OK),
    ] {
        if let Err(error) = access(place, wanted) {
            return Finding::problem(
                "database.file",
                format!(
                    "{} is not writable: {}",
                    place.display(),
                    std::io::Error::from(error)
                ),
            )
            .means("no job can be accepted, since it would not be kept")
            .mend(
                "give this user the file and its folder, or name another file in the setting `store.path`",
            );
        }
    }
    Finding::ok("database.file", path.display()).means("jobs, results and the audit log are kept there")
}

fn unusable(path: &Path, why: &str) -> Finding {
    Finding::problem(
        "database.file",
        format!("{} can't be used: {why}", path.display()),
    )
    .means("no job can be accepted, since it would not be kept")
    .mend("name another file in the setting `store.path`")
}

fn refused(path: &Path, error: &StoreError) -> Finding {
    let finding = Finding::problem("database.opens", Chain(error));
    if let StoreError::NewerSchema { .. } = error {
        return finding
            .means("a newer mayfly has written it, and this one would not understand what it reads")
            .mend("use the newer mayfly, or another file (setting `store.path`)");
    }
    finding
        .means("no job can be accepted, and none that is in it can be shown")
        .mend(format!(
            "move it aside (mv {0} {0}.damaged) and restore a copy; without one the next command makes an empty one",
            path.display()
        ))
}

fn judge(path: &Path, found: &Examined) -> Vec<Finding> {
    let Examined {
        migrations,
        known_migrations,
        faults,
    } = found;
    let schema = Finding::ok(
        "database.schema",
        format!("{migrations} steps of the schema, and this mayfly knows {known_migrations}"),
    )
    .means("missing steps are made when the database is opened; further ones are of a newer mayfly that lets this one work");
    let intact = if faults.is_empty() {
        Finding::ok("database.intact", "SQLite finds no damage").means("every page of the file was looked at")
    } else {
        Finding::problem(
            "database.intact",
            format!("SQLite finds damage: {}", faults.join("; ")),
        )
        .means("jobs and audit events may be lost or wrong")
        .mend(format!(
            "stop every mayfly, keep a copy, and restore: sqlite3 {0} .recover | sqlite3 {0}.recovered",
            path.display()
        ))
    };
    vec![schema, intact]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Status;

    fn settings(path: &Path) -> Settings {
        use std::collections::HashMap;
        Settings::load(&mayfly_settings::Surroundings {
            variables: HashMap::from([
                ("HOME".to_owned(), "/nowhere".to_owned()),
                ("MAYFLY_STORE__PATH".to_owned(), path.display().to_string()),
            ]),
            ..mayfly_settings::Surroundings::default()
        })
        .unwrap()
    }

    async fn statuses(path: &Path) -> (bool, Vec<(String, Status)>) {
        let (store, findings) = check(&settings(path)).await;
        let statuses = findings
            .into_iter()
            .map(|finding| (finding.id, finding.status))
            .collect();
        (store.is_some(), statuses)
    }

    #[tokio::test]
    async fn a_database_that_is_not_there_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/mayfly.db");
        let (opened, found) = statuses(&path).await;
        assert!(!opened);
        assert_eq!(found, [("database.file".to_owned(), Status::Note)]);
        assert!(!folder.path().join("deep").exists());
    }

    #[tokio::test]
    async fn one_that_is_there_is_opened_and_found_intact() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mayfly.db");
        drop(SqliteStore::open(&path).await.unwrap());
        let (opened, found) = statuses(&path).await;
        assert!(opened);
        assert!(found.iter().all(|(_, status)| *status == Status::Ok), "{found:?}");
        assert_eq!(found.len(), 3);
    }

    #[tokio::test]
    async fn what_is_no_database_is_a_problem_and_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mayfly.db");
        std::fs::write(&path, "a letter to somebody").unwrap();
        let (opened, found) = statuses(&path).await;
        assert!(!opened);
        assert_eq!(
            found.last().unwrap(),
            &("database.opens".to_owned(), Status::Problem)
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"a letter to somebody");
        assert_eq!(
            statuses(Path::new("/dev/null")).await.1,
            [("database.file".to_owned(), Status::Problem)]
        );
        let (_, below) = statuses(Path::new("/dev/null/mayfly.db")).await;
        assert_eq!(below, [("database.file".to_owned(), Status::Problem)]);
    }

    #[test]
    fn damage_is_a_problem() {
        let found = Examined {
            migrations: 1,
            known_migrations: 1,
            faults: vec!["page 3 is never used".to_owned()],
        };
        let findings = judge(Path::new("x"), &found);
        assert_eq!(findings[1].status, Status::Problem);
        assert!(findings[1].found.contains("page 3"));
    }
}
