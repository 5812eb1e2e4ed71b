//! All findings of one examination, for people and for programs.

use std::{collections::BTreeMap, fmt::Write as _};

use comfy_table::{ContentArrangement, Table, presets::NOTHING};
use mayfly_sandbox::probes::{ProbeResult, Verdict};
use serde::Serialize;

use super::finding::{Finding, Status};
use crate::terminal::shown;

/// The version of the JSON document: raised when a field goes or changes its meaning.
const SCHEMA: u32 = 1;

/// Columns of the table of probes, on a terminal or in a file.
const WIDTH: u16 = 120;

/// What became of a runtime's probes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct RuntimeProbes {
    pub(crate) runtime: String,
    pub(crate) verdicts: Vec<Verdict>,
}

/// The whole report; its fields are the JSON document's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Report {
    schema: u32,
    mayfly: &'static str,
    /// No finding is a problem.
    healthy: bool,
    /// How many findings of each status.
    counts: BTreeMap<&'static str, usize>,
    findings: Vec<Finding>,
    /// Empty without `--probe`.
    probes: Vec<RuntimeProbes>,
}

impl Report {
    pub(crate) fn new(findings: Vec<Finding>, probes: Vec<RuntimeProbes>) -> Self {
        let count = |status| findings.iter().filter(|finding| finding.status == status).count();
        Self {
            schema: SCHEMA,
            mayfly: env!("CARGO_PKG_VERSION"),
            healthy: count(Status::Problem) == 0,
            counts: Status::ALL.map(|status| (status.word(), count(status))).into(),
            findings,
            probes,
        }
    }

    pub(crate) const fn is_healthy(&self) -> bool {
        self.healthy
    }

    pub(crate) fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("text and numbers are JSON");
        text.push('\n');
        text
    }

    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        let mut area = "";
        for finding in &self.findings {
            if finding.area() != area {
                area = finding.area();
                if !text.is_empty() {
                    text.push('\n');
                }
                push(&mut text, format_args!("{area}"));
            }
            let Finding {
                id,
                status,
                found,
                means,
                mend,
            } = finding;
            push(
                &mut text,
                format_args!("  {:<8} {id}: {}", status.word(), shown(found)),
            );
            if *status == Status::Ok {
                continue;
            }
            for (name, line) in [("means", means), ("mend", mend)] {
                if !line.is_empty() {
                    push(&mut text, format_args!("           {name}: {}", shown(line)));
                }
            }
        }
        for probes in &self.probes {
            push(
                &mut text,
                format_args!("\nhostile programs on {}", probes.runtime),
            );
            push(&mut text, format_args!("{}", table(&probes.verdicts)));
        }
        let counts: Vec<String> = Status::ALL
            .iter()
            .map(|status| format!("{} {}", self.counts[status.word()], status.word()))
            .collect();
        push(&mut text, format_args!("\n{}", counts.join(", ")));
        text
    }
}

fn push(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a string takes any text");
}

fn table(verdicts: &[Verdict]) -> String {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH)
        .set_header(["RESULT", "PROBE", "TRIES TO", "EXPECTED", "MS"]);
    for verdict in verdicts {
        let result = match verdict.result {
            ProbeResult::Held => "held",
            ProbeResult::Broken => "BROKEN",
            ProbeResult::NotRun => "not run",
        };
        table.add_row([
            result,
            &verdict.id,
            &verdict.tries,
            &verdict.expected,
            &verdict.took_ms.to_string(),
        ]);
    }
    let rows = table.to_string();
    let whys = verdicts
        .iter()
        .filter(|verdict| !verdict.why.is_empty())
        .map(|verdict| format!("\n {}: {}", verdict.id, shown(&verdict.why.join("; "))));
    format!("{rows}{}", whys.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Report {
        let findings = vec![
            Finding::ok("engine.reached", "Docker Engine 29.9.0").means("sandboxes can be made"),
            Finding::warning("engine.lsm", "neither AppArmor nor SELinux")
                .means("one layer less")
                .mend("install apparmor"),
            Finding::problem("runtime.runsc", "it\u{1b}[2J does not start")
                .means("jobs for it are refused")
                .mend("look at its log"),
            Finding::note("image.python", "50 days old"),
            Finding::skipped("host", "the engine is on another host"),
        ];
        let verdict = |id: &str, result, why: &[&str]| Verdict {
            id: id.to_owned(),
            tries: "have more".to_owned(),
            expected: "nothing is had".to_owned(),
            result,
            why: why.iter().map(|why| (*why).to_owned()).collect(),
            took_ms: 400,
        };
        let probes = RuntimeProbes {
            runtime: "runc".to_owned(),
            verdicts: vec![
                verdict("fork_bomb", ProbeResult::Held, &[]),
                verdict("memory", ProbeResult::Broken, &["it ended otherwise"]),
            ],
        };
        Report::new(findings, vec![probes])
    }

    #[test]
    fn the_document_for_programs_changes_in_review_only() {
        let version = format!("\"mayfly\": \"{}\"", env!("CARGO_PKG_VERSION"));
        let json = sample().to_json();
        assert!(json.contains(&version), "{json}");
        insta::assert_snapshot!(json.replace(&version, "\"mayfly\": \"(version)\""));
    }

    #[test]
    fn for_people_what_is_well_takes_a_line_and_what_is_not_says_how_to_mend_it() {
        insta::assert_snapshot!(sample().to_text());
    }

    #[test]
    fn one_problem_is_enough_and_a_warning_is_none() {
        assert!(!sample().is_healthy());
        assert!(Report::new(vec![Finding::warning("a.b", "c")], Vec::new()).is_healthy());
    }
}
