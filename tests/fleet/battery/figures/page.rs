//! The page that is made of the result file.

use std::fmt::Write as _;

use super::{Figures, OfKind};
use crate::battery::variable;

impl Figures {
    /// `docs/reliability.md`.
    fn page(&self) -> String {
        let mut page = HEAD.to_owned();
        let sum = |of: fn(&OfKind) -> usize| self.kinds.iter().map(of).sum::<usize>();
        let (least, most) = self.kinds.iter().fold((usize::MAX, 0), |(least, most), of| {
            (least.min(of.rounds), most.max(of.rounds))
        });
        let rounds = if least == most {
            format!("{most} of each")
        } else {
            format!("{least} to {most} of each")
        };
        let hours = self.kinds.iter().map(|of| of.seconds).sum::<f64>() / 3600.0;
        write!(
            page,
            "{}, commit {}, {}. {} kinds, rounds: {rounds}, {hours:.1} hours; {} jobs, {} faults, of which {} hit a running job. Leases \
             and all other times of the protocol were the standard ones divided by {}.\n\n\
             | kind of fault | promise | rounds | jobs | faults | that hit a running job | lost | double | resurrected | phantom | orphan | wrong |\n\
             | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
            self.at,
            self.commit,
            self.machine,
            self.kinds.len(),
            sum(|of| of.jobs),
            sum(|of| of.faults),
            sum(|of| of.faults_that_hit_a_running_job),
            self.times_divided_by,
        )
        .expect("a text takes what is written");
        for of in &self.kinds {
            writeln!(
                page,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                of.kind,
                of.promise,
                of.rounds,
                of.jobs,
                of.faults,
                of.faults_that_hit_a_running_job,
                of.lost,
                of.double,
                of.resurrected,
                of.phantom,
                of.orphan,
                of.wrong,
            )
            .expect("a text takes what is written");
        }
        page
    }
}

const HEAD: &str = "\
# Reliability

Made by `scripts/reliability` out of [reliability.json](reliability.json), which the battery of `tests/fleet/battery.rs` has
written; not written by hand. `make test` goes through one kind in three, `make test-long` through all of them twenty times.

    scripts/reliability 20     # measure, and make this page; about seven minutes a round

One server and two executors are processes of their own, on a RabbitMQ, a PostgreSQL and a container engine that are there for
this alone; a few such fleets go through the kinds side by side. While jobs are under way one thing is broken, and put right where it does not come right by itself; then every job
is waited for. What came of them is not asked of mayfly alone: each program draws a number and says it, with its job's mark,
on its output, and a listener of the test hears that through the engine (`tests/fleet/history.rs`). A result must have the number
of a start that was heard and that the audit log knows.

| | each must be 0 |
| --- | --- |
| lost | accepted (answered with 2xx), and without a result |
| double | second results of a job, and starts beyond those that were granted |
| resurrected | programs that ran on after their job's result had been read |
| phantom | results and starts that no submission, and results that no start, stands behind |
| orphan | containers in which something still runs when all is over |
| wrong | jobs that did not end as their programs did: trouble of ours that was blamed on the code, and, where the promise is that no running job is harmed, any job that needed a second attempt |

A round in which fewer than half of the jobs are done, or in which no fault came while a job ran, is a failure. What stays
here is what was measured, also where it is not 0.

";

/// `MAYFLY_TEST_BATTERY_RENDER=1` makes the page anew.
#[test]
fn the_page_is_made_of_the_figures() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reliability");
    let figures = std::fs::read_to_string(format!("{docs}.json")).expect("the figures are there");
    let figures: Figures = serde_json::from_str(&figures).expect("the figures can be read");
    let page = figures.page();
    if variable("MAYFLY_TEST_BATTERY_RENDER").is_some() {
        std::fs::write(format!("{docs}.md"), &page).expect("the page can be written");
    }
    let there = std::fs::read_to_string(format!("{docs}.md")).expect("the page is there");
    assert!(
        there == page,
        "docs/reliability.md is made anew by scripts/reliability --render"
    );
}
