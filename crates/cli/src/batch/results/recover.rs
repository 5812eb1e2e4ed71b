//! What a file of results has, whatever became of the process that wrote it.

use std::{
    collections::HashSet,
    io::{self, BufRead as _, BufReader, Read},
};

use mayfly_core::id::{BatchId, JobId};
use serde::Deserialize;

use crate::{exit, failure::Failure};

/// Longest line. Both outputs of a job at the policy's ceiling are less than half of it.
const MAX_LINE: u64 = 256 << 20;

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Up to the end of the last whole line.
    pub(super) whole_bytes: u64,
    /// The jobs that these lines are of.
    pub(super) jobs: HashSet<JobId>,
}

/// What must stand in each line.
#[derive(Deserialize)]
struct Key {
    batch: BatchId,
    job: JobId,
}

/// Reads what there is. A last line without its end was cut by the end of its writer, and is left out; whatever else is
/// no result of this batch refuses the file, which may be something that nobody wants to lose.
pub(super) fn recover(from: &mut impl Read, batch: BatchId) -> Result<Found, Failure> {
    let unreadable = |error: io::Error| Failure::new(exit::NO_OUTPUT, error);
    let mut reader = BufReader::with_capacity(256 << 10, from);
    let (mut found, mut line, mut number) = (Found::default(), Vec::new(), 0u64);
    loop {
        line.clear();
        number += 1;
        let count = reader
            .by_ref()
            .take(MAX_LINE)
            .read_until(b'\n', &mut line)
            .map_err(unreadable)? as u64;
        if count == 0 {
            return Ok(found);
        }
        if !line.ends_with(b"\n") {
            let is_ours = found.whole_bytes > 0 || is_beginning(&line, batch);
            return if is_ours && count < MAX_LINE {
                Ok(found)
            } else {
                Err(foreign(number, batch))
            };
        }
        match serde_json::from_slice::<Key>(&line) {
            Ok(key) if key.batch == batch => {
                found.jobs.insert(key.job);
            }
            _ => return Err(foreign(number, batch)),
        }
        found.whole_bytes += count;
    }
}

/// Whether these bytes are the beginning of a line of ours, or such a beginning those.
fn is_beginning(bytes: &[u8], batch: BatchId) -> bool {
    let ours = format!("{{\"batch\":\"{batch}\",");
    let both = bytes.len().min(ours.len());
    bytes[..both] == ours.as_bytes()[..both]
}

fn foreign(line: u64, batch: BatchId) -> Failure {
    Failure::usage(format!(
        "line {line} is no result of batch {batch}, and nothing of it is overwritten; name a file that is not there yet"
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::batch::results::line;

    /// The lines of so many jobs, with outputs that have everything which could be taken for a border.
    fn lines(batch: BatchId, outputs: &[String]) -> Vec<(JobId, Vec<u8>)> {
        outputs
            .iter()
            .map(|output| {
                let job = JobId::new();
                (
                    job,
                    line(batch, output, json!({"job": job, "stdout": {"text": output}})),
                )
            })
            .collect()
    }

    fn found(bytes: &[u8], batch: BatchId) -> Found {
        recover(&mut &bytes[..], batch).unwrap()
    }

    proptest! {
        /// Killed in mid-line, again and again: in the end each job has one whole line.
        #[test]
        fn a_file_that_is_cut_anywhere_is_made_whole_with_each_line_once(
            outputs in prop::collection::vec(".{0,40}", 1..12),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let batch = BatchId::new();
            let all = lines(batch, &outputs);
            let mut file = Vec::new();
            for cut in cuts.iter().map(Some).chain([None]) {
                // What a resume does: keep the whole lines, then write what is missing.
                let found = found(&file, batch);
                file.truncate(usize::try_from(found.whole_bytes).unwrap());
                for (job, line) in &all {
                    if !found.jobs.contains(job) {
                        file.extend_from_slice(line);
                    }
                }
                if let Some(cut) = cut {
                    file.truncate(cut.index(file.len() + 1));
                }
            }
            let mut expected: Vec<&[u8]> = all.iter().map(|(_, line)| &line[..]).collect();
            let mut there: Vec<&[u8]> = file.split_inclusive(|byte| *byte == b'\n').collect();
            expected.sort_unstable();
            there.sort_unstable();
            prop_assert_eq!(there, expected);
        }

        /// Whatever a file is, it is kept or refused: no bytes of another's are dropped.
        #[test]
        fn bytes_that_are_no_results_are_refused(bytes in prop::collection::vec(any::<u8>(), 1..200)) {
            let batch = BatchId::new();
            prop_assume!(!is_beginning(&bytes, batch));
            prop_assert!(recover(&mut &bytes[..], batch).is_err());
        }
    }

    #[test]
    fn another_batchs_results_are_refused() {
        let theirs = lines(BatchId::new(), &["x".to_owned()]);
        assert!(recover(&mut &theirs[0].1[..], BatchId::new()).is_err());
        let cut = &theirs[0].1[..47];
        assert!(recover(&mut &cut[..], BatchId::new()).is_err());
    }

    #[test]
    fn a_hole_that_a_power_cut_left_is_told_rather_than_skipped() {
        let batch = BatchId::new();
        let all = lines(batch, &["a".to_owned(), "b".to_owned()]);
        let mut file = [&all[0].1[..], &all[1].1[..]].concat();
        file[5..20].fill(0);
        assert!(recover(&mut &file[..], batch).is_err());
        // At the end it is a line that was cut.
        let mut file = all[0].1.clone();
        file.extend([0; 100]);
        assert_eq!(found(&file, batch).whole_bytes, all[0].1.len() as u64);
    }

    #[test]
    fn nothing_is_a_beginning() {
        assert_eq!(found(b"", BatchId::new()), Found::default());
    }
}
