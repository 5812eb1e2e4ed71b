//! What is held is bounded whatever comes, and the bound is the one that is told.

use mayfly_redact::{Matcher, Redactor, Rules, Secrets};

use crate::{matcher, only, samples};

/// Most that is held, byte by byte.
fn most_held(matcher: &Matcher, text: &[u8]) -> usize {
    let (mut redactor, mut out, mut most) = (Redactor::new(matcher), Vec::new(), 0);
    for byte in text {
        redactor.push(&[*byte], &mut out);
        most = most.max(redactor.held_bytes());
        assert!(
            redactor.held_bytes() <= matcher.most_held_bytes(),
            "{} bytes",
            redactor.held_bytes()
        );
    }
    most
}

#[test]
fn each_rule_holds_no_more_than_it_says() {
    for rule in Rules::known() {
        let alone = Matcher::new(&only(rule.name), &Secrets::default());
        for pattern in rule.patterns() {
            for sample in samples::some(&pattern, 6) {
                most_held(&alone, &[&*sample.text(), b" ", &*sample.text()].concat());
            }
        }
    }
}

/// The figure in docs/redaction.md, and that it is reached.
#[test]
fn the_most_that_rules_hold_is_what_the_document_says() {
    let matcher = matcher(&[]);
    assert_eq!(matcher.most_held_bytes(), 1075);
    let page = include_str!("../../../../docs/redaction.md");
    assert!(page.contains("at most 1,075 bytes"), "the document says so");
    let header = format!("{}JhbGciOi{}", "ey", "a".repeat(1023));
    let text = format!("{header}.{}", "a".repeat(60));
    assert_eq!(most_held(&matcher, text.as_bytes()), 1073);
}

#[test]
fn a_secret_holds_no_more_than_its_longest_form() {
    let secret = "\u{1}".repeat(1000);
    let matcher = Matcher::new(&Rules::none(), &Secrets::new([&secret]).unwrap());
    // JSON in JSON, `\\u0001`, seven bytes for one.
    assert_eq!(matcher.most_held_bytes(), 7000);
    assert_eq!(most_held(&matcher, "\\\\u0001".repeat(1000).as_bytes()), 6999);
}

/// Nothing piles up: neither bytes nor what is under way, whatever repeats.
#[test]
fn whatever_repeats_is_held_within_the_bound() {
    let matcher = matcher(&[b"aaaaaaaaaaaaaaaaaaaaaaaab", b"abababababababac"]);
    let pem = ["-----BEGIN PRIVATE", " KEY-----"].concat();
    for unit in [
        "a",
        "ab",
        "-",
        "eyJ",
        " eyJ",
        "\\neyJ",
        "ghp_",
        " ghp_a",
        "sk-ant-",
        "://a:",
        "://:",
        "Authorization: Bearer ",
        &*pem,
        "AKIA ",
        "x",
    ] {
        most_held(&matcher, unit.repeat(30_000 / unit.len()).as_bytes());
    }
}
