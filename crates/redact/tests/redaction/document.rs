//! docs/redaction.md has every rule.

use std::{fmt::Write as _, fs};

use mayfly_redact::Rules;

const BEGIN: &str = "<!-- rules: made by the tests -->\n";
const END: &str = "<!-- end of rules -->";

fn table() -> String {
    let mut table = "| name | what is taken out | published by |\n| --- | --- | --- |\n".to_owned();
    for rule in Rules::known() {
        let patterns: Vec<_> = rule
            .patterns()
            .iter()
            .map(|pattern| format!("`{}`", pattern.replace('|', "\\|")))
            .collect();
        writeln!(
            table,
            "| `{}` | {} | {} |",
            rule.name,
            patterns.join("<br>"),
            rule.source
        )
        .unwrap();
    }
    table
}

/// `MAYFLY_TEST_WRITE_DOCS=1` writes it anew.
#[test]
fn the_document_has_the_rules_as_they_are() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/redaction.md");
    let page = fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("where the rules begin");
    let (_, after) = rest.split_once(END).expect("where the rules end");
    let current = format!("{before}{BEGIN}{}{END}{after}", table());
    if std::env::var_os("MAYFLY_TEST_WRITE_DOCS").is_some() {
        fs::write(path, &current).unwrap();
    }
    assert!(
        fs::read_to_string(path).unwrap() == current,
        "not current: `MAYFLY_TEST_WRITE_DOCS=1 cargo nextest run -p mayfly-redact document` writes it"
    );
}
