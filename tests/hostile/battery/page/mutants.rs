//! The part of the page on sandboxes that are weaker in one field.

use std::fmt::Write as _;

use serde_json::Value;

use super::line;

/// Adds what became of each weak sandbox.
pub(super) fn add(page: &mut String, mutants: &Value) {
    let Some(all) = mutants.as_array() else { return };
    let items = |mutant: &Value, name: &str| -> Vec<String> {
        let items = mutant[name].as_array().into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    // What could not be made and was seen by nobody has not been tried.
    let counted: Vec<&Value> = all
        .iter()
        .filter(|mutant| mutant["killed_by"].is_array())
        .filter(|mutant| items(mutant, "impossible").is_empty() || !items(mutant, "killed_by").is_empty())
        .collect();
    let by = |who: &str| {
        let killed = |mutant: &&&Value| items(mutant, "killed_by").iter().any(|by| by.starts_with(who));
        counted.iter().filter(killed).count()
    };
    *page += MUTANTS;
    writeln!(
        page,
        "{} of {} mutants were killed: in {} inspect named the field, in {} the guest, and {} were seen by programs.\n",
        by(""),
        counted.len(),
        by("inspect"),
        by("guest"),
        by("H-"),
    )
    .expect("a text takes what is written");
    *page += "| weakened | to | seen by |\n| --- | --- | --- |\n";
    let text = |value: &Value| value.as_str().unwrap_or_default().replace('|', "\\|");
    for mutant in all {
        let killers = items(mutant, "killed_by");
        let seen = match mutant["not_counted"].as_str() {
            Some(why) => format!("not counted: {why}"),
            None if !killers.is_empty() => killers.join("; "),
            None if !items(mutant, "impossible").is_empty() => "not made at all".to_owned(),
            None => "**nothing**".to_owned(),
        };
        line(page, &[&text(&mutant["field"]), &text(&mutant["to"]), &seen]);
    }
    *page += "\n";
    let impossible = all
        .iter()
        .filter(|mutant| !items(mutant, "impossible").is_empty());
    if impossible.clone().next().is_some() {
        *page += IMPOSSIBLE;
        for mutant in impossible {
            let why = items(mutant, "impossible").join("; ");
            writeln!(
                page,
                "- {} → {}: {why}",
                text(&mutant["field"]),
                text(&mutant["to"])
            )
            .expect("a text takes what is written");
        }
        *page += "\n";
    }
}

const MUTANTS: &str = "\
## A battery that can fail

Each row is a sandbox that is weaker in one field: a proxy in front of the engine puts the weak value into the request that makes
the container. *inspect* and *guest* are the two read-backs, and what is behind them is the field that they named, which has to
be the one that is weak: no program runs then. The guest is asked where it may start in such a sandbox, with the weakness hidden
from inspect. For programs, the proxy hides it from both: the program runs, and the battery has to see it.

";

const IMPOSSIBLE: &str = "\
For these the engine refused the weak value here, or nothing came up with it, when the read-back that is named was asked. It has
seen no weak sandbox, and that counts for nothing.

";

#[test]
fn what_could_not_be_made_counts_for_nothing_and_stands_by_itself() {
    let found = serde_json::json!([
        {"field": "A", "to": "more", "killed_by": ["inspect `A`", "guest `a`"], "impossible": []},
        {"field": "B", "to": "more", "killed_by": ["inspect `B`"], "impossible": ["guest: refused"]},
        {"field": "C", "to": "more", "killed_by": [], "impossible": ["inspect: refused"]},
        {"field": "D", "to": "more", "killed_by": [], "impossible": []},
        {"field": "E", "to": "more", "not_counted": "why"},
    ]);
    let mut page = String::new();
    add(&mut page, &found);
    assert!(
        page.contains(
            "2 of 3 mutants were killed: in 2 inspect named the field, in 1 the guest, and 0 were seen"
        ),
        "{page}"
    );
    let impossible = page.split_once(IMPOSSIBLE).unwrap().1;
    assert_eq!(
        impossible,
        "- B → more: guest: refused\n- C → more: inspect: refused\n\n"
    );
}
