//! The tables of docs/outcomes.md under "Which evidence wins", against every combination of evidence: the first line whose
//! facts are all there says how the job ended. What a fact means is read from the evidence as JSON, as it is on record, so
//! that nothing here repeats the order that the function has.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::*;

/// A line of the first table.
#[derive(Debug)]
struct Line {
    facts: Vec<Fact>,
    end: (String, String),
}

/// What has to stand in the evidence, as the docs write it.
#[derive(Debug, PartialEq, Eq)]
enum Fact {
    /// `no FIELD`
    Absent(String),
    /// `FIELD`
    Present(String),
    /// `FIELD = VALUE`
    Is(String, String),
    /// `FIELD > 0`
    Positive(String),
}

impl Fact {
    fn parse(text: &str) -> Self {
        if let Some(field) = text.strip_prefix("no ") {
            Self::Absent(field.to_owned())
        } else if let Some((field, value)) = text.split_once(" = ") {
            Self::Is(field.to_owned(), value.to_owned())
        } else if let Some(field) = text.strip_suffix(" > 0") {
            Self::Positive(field.to_owned())
        } else {
            assert!(!text.contains(' '), "a fact that is not understood: {text}");
            Self::Present(text.to_owned())
        }
    }

    /// The field of [`Evidence`] that it is about.
    fn field(&self) -> &str {
        let (Self::Absent(path) | Self::Present(path) | Self::Is(path, _) | Self::Positive(path)) = self;
        path.split('.').next().expect("a path has a first part")
    }

    fn holds(&self, evidence: &Value) -> bool {
        let at = |path: &str| path.split('.').try_fold(evidence, |value, part| value.get(part));
        match self {
            Self::Absent(path) => at(path).is_none(),
            Self::Present(path) => at(path).is_some(),
            Self::Is(path, wanted) => at(path).is_some_and(|found| {
                let found = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
                found == *wanted
            }),
            Self::Positive(path) => at(path).and_then(Value::as_u64).is_some_and(|found| found > 0),
        }
    }
}

/// The cells of the table behind this heading or sentence, its own head left out.
fn table(after: &str) -> Vec<Vec<String>> {
    let text = include_str!("../../../../../docs/outcomes.md");
    let (_, rest) = text.split_once(after).expect("the docs have this part");
    rest.lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| {
            let cells = line.trim_matches('|').split('|');
            cells.map(|cell| cell.trim().to_owned()).collect()
        })
        .collect()
}

/// What stands between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn lines() -> Vec<Line> {
    table("## Which evidence wins")
        .into_iter()
        .map(|cells| {
            let [_, _, evidence, state, cause] = cells.try_into().expect("five columns");
            let facts: Vec<_> = quoted(&evidence).map(Fact::parse).collect();
            assert!(!facts.is_empty(), "a line without evidence: {evidence}");
            Line {
                facts,
                end: (state, cause),
            }
        })
        .collect()
}

fn name(value: impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap();
    value.as_str().expect("a name").to_owned()
}

/// Every value of one field beside every value of the others.
fn each_with<T: Clone>(all: Vec<Evidence>, values: &[T], set: impl Fn(&mut Evidence, T)) -> Vec<Evidence> {
    let with = |evidence: &Evidence, value: &T| {
        let mut evidence = evidence.clone();
        set(&mut evidence, value.clone());
        evidence
    };
    all.iter()
        .flat_map(|evidence| {
            values
                .iter()
                .map(|value| with(evidence, value))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Every combination of evidence that can decide; of numbers those that differ in what they mean.
fn every_combination() -> Vec<Evidence> {
    let kinds = [
        TroubleKind::Engine,
        TroubleKind::Image,
        TroubleKind::Runtime,
        TroubleKind::Guest,
        TroubleKind::Content,
        TroubleKind::Abandoned,
    ];
    let stages = [RefusalStage::Files, RefusalStage::Exec, RefusalStage::Setup];
    let kills = [
        KilledFor::ExecutorDeadline,
        KilledFor::GuestDeadline,
        KilledFor::Cancel,
        KilledFor::OutputLimit,
        KilledFor::Abandoned,
    ];
    let codes = [0, 1, 137, 255].map(ProcessEnd::Code);
    let signals = [6, 9, 11, 15].map(ProcessEnd::Signal);
    let all = vec![Evidence::default()];
    let all = each_with(all, &[vec![], vec![super::mismatch()]], |e, v| e.mismatches = v);
    let all = each_with(all, &or_none(&kinds), |evidence, kind| {
        evidence.trouble = kind.map(|kind| Trouble {
            kind,
            message: "what we were doing".to_owned(),
        });
    });
    let all = each_with(all, &or_none(&stages), |evidence, stage| {
        evidence.refused = stage.map(|stage| Refusal {
            stage,
            reason: "no space left".to_owned(),
            subject: None,
        });
    });
    let all = each_with(all, &or_none(&kills), |e, v| e.killed_for = v);
    let all = each_with(all, &or_none(&[codes, signals].concat()), |e, v| e.end = v);
    let all = each_with(all, &or_none(&[0, 1]), |e, v| e.oom_kills = v);
    each_with(all, &or_none(&[false, true]), |e, v| e.engine_oom_killed = v)
}

fn or_none<T: Clone>(values: &[T]) -> Vec<Option<T>> {
    let some = values.iter().cloned().map(Some);
    std::iter::once(None).chain(some).collect()
}

#[test]
fn of_all_evidence_at_once_the_line_that_stands_highest_in_the_docs_decides() {
    let lines = lines();
    let mut pairs = BTreeSet::new();
    let mut decided = BTreeSet::new();
    for evidence in every_combination() {
        let json = serde_json::to_value(&evidence).unwrap();
        let there = |line: &Line| line.facts.iter().all(|fact| fact.holds(&json));
        let mut present = (0..lines.len()).filter(|number| there(&lines[*number]));
        let first = present
            .next()
            .expect("some line of the docs holds for any evidence");
        let outcome = evidence.judge();
        assert_eq!(
            (name(outcome.state), name(outcome.cause)),
            lines[first].end,
            "line {} of the docs: {:?}, and {json}",
            first + 1,
            lines[first].facts
        );
        decided.insert(first);
        pairs.extend(present.map(|second| (first, second)));
    }
    let all: BTreeSet<_> = (0..lines.len()).collect();
    assert_eq!(decided, all, "each line decides somewhere");
    // Two that were never there together can't be: they are about the same field, of which there is one value.
    for first in 0..lines.len() {
        for second in first + 1..lines.len() {
            let exclude = lines[first].facts.iter().any(|fact| {
                lines[second]
                    .facts
                    .iter()
                    .any(|other| fact != other && fact.field() == other.field())
            });
            assert!(
                pairs.contains(&(first, second)) || exclude,
                "lines {} and {} of the docs were never tried together",
                first + 1,
                second + 1
            );
        }
    }
    assert!(pairs.len() > 100, "{}", pairs.len());
}

#[test]
fn what_the_docs_say_decides_nothing_changes_no_outcome() {
    let full = Evidence {
        started: true,
        pids_refused: Some(7),
        engine_exit_code: Some(137),
        contradictions: vec!["the guest gave its account and was done".to_owned()],
        ..Evidence::default()
    };
    for bare in every_combination() {
        let all = Evidence {
            mismatches: bare.mismatches.clone(),
            trouble: bare.trouble.clone(),
            refused: bare.refused.clone(),
            killed_for: bare.killed_for,
            end: bare.end,
            oom_kills: bare.oom_kills,
            engine_oom_killed: bare.engine_oom_killed,
            ..full.clone()
        };
        let (bare, all) = (bare.judge(), all.judge());
        assert_eq!((bare.state, bare.cause), (all.state, all.cause), "{all:?}");
    }
}

#[test]
fn the_docs_name_every_field_of_the_evidence_and_every_cause_that_a_run_can_have() {
    let mut named: BTreeSet<String> = lines()
        .iter()
        .flat_map(|line| line.facts.iter().map(|fact| fact.field().to_owned()))
        .collect();
    let silent = table("What is observed and decides nothing by itself");
    let silent = silent
        .iter()
        .flat_map(|cells| quoted(&cells[0]))
        .map(str::to_owned);
    for field in silent {
        assert!(named.insert(field.clone()), "{field} decides, and does not");
    }
    // A value for each field, so that none is left out of the JSON. A new field does not compile here.
    let full = Evidence {
        started: true,
        end: Some(ProcessEnd::Code(0)),
        killed_for: Some(KilledFor::Cancel),
        oom_kills: Some(0),
        pids_refused: Some(0),
        engine_exit_code: Some(0),
        engine_oom_killed: Some(false),
        refused: Some(Refusal {
            stage: RefusalStage::Exec,
            reason: String::new(),
            subject: None,
        }),
        mismatches: vec![super::mismatch()],
        trouble: Some(Trouble {
            kind: TroubleKind::Engine,
            message: String::new(),
        }),
        contradictions: vec![String::new()],
    };
    let full: BTreeMap<String, Value> = serde_json::from_value(serde_json::to_value(full).unwrap()).unwrap();
    assert_eq!(named, full.into_keys().collect());
    let in_docs: BTreeSet<String> = lines().into_iter().map(|line| line.end.1).collect();
    let judged: BTreeSet<String> = every_combination()
        .into_iter()
        .map(|evidence| name(evidence.judge().cause))
        .collect();
    assert_eq!(in_docs, judged);
}
