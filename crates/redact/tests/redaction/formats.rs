//! Every published format, and what is one byte short of it.

use std::collections::BTreeSet;

use mayfly_redact::{Matcher, Rules, Secrets, UnknownRule};

use crate::{in_chunks, matcher, only, samples};

fn marker(rule: &str) -> Vec<u8> {
    format!("[redacted:{rule}]").into_bytes()
}

#[test]
fn there_are_more_than_forty_formats_with_names_and_sources() {
    let names: BTreeSet<_> = Rules::known().map(|rule| rule.name).collect();
    assert_eq!(names.len(), Rules::known().count(), "no name twice");
    assert!(names.len() >= 80, "{}", names.len());
    for rule in Rules::known() {
        assert!(
            rule.name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        );
        assert!(
            rule.source.len() > 8 && !rule.patterns().is_empty(),
            "{}",
            rule.name
        );
    }
}

#[test]
fn a_token_of_each_format_is_taken_out_wherever_it_stands() {
    let all = matcher(&[]);
    for rule in Rules::known() {
        let alone = Matcher::new(&only(rule.name), &Secrets::default());
        for pattern in rule.patterns() {
            for (n, sample) in samples::some(&pattern, 6).into_iter().enumerate() {
                for (before, after) in [
                    ("", ""),
                    ("", "\n"),
                    ("TOKEN=", "\nnext line"),
                    ("{\"token\": \"", "\"}"),
                    ("text\\n", "\\n"),
                    ("a%20", "\"&b=c"),
                    ("\u{1b}[1;32m", "\u{1b}[0m"),
                    ("(", ")"),
                ] {
                    let text = [before.as_bytes(), &sample.text(), after.as_bytes()].concat();
                    let (out, counts) = in_chunks(&alone, &text, &[1 + n * 7]);
                    // What follows may be of a token's own bytes: then it is part of it.
                    let expected = [
                        before.as_bytes(),
                        &sample.kept,
                        &marker(rule.name),
                        sample.then.as_bytes(),
                    ]
                    .concat();
                    assert!(
                        out.starts_with(&expected),
                        "{} in {before:?}: {} of {:?}",
                        rule.name,
                        String::from_utf8_lossy(&out),
                        String::from_utf8_lossy(&text),
                    );
                    assert!(counts.of(rule.name) >= 1);
                    let (out, counts) = all.redact(&text);
                    assert!(
                        counts.total() >= 1 && !contains(&out, &sample.secret),
                        "{}",
                        rule.name
                    );
                }
            }
        }
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// The shortest beginning of a sample that is a token, less one byte.
#[test]
fn what_is_one_byte_short_of_a_format_passes() {
    for rule in Rules::known().filter(|rule| rule.name != "url_password") {
        let alone = Matcher::new(&only(rule.name), &Secrets::default());
        for pattern in rule.patterns() {
            for sample in samples::some(&pattern, 4) {
                let text = sample.text();
                let hit = |length: &usize| !alone.redact(&text[..*length]).1.is_empty();
                let least = (0..=text.len()).find(hit).expect("a sample is taken out");
                assert!(least > 10, "{}: {least} bytes are no token", rule.name);
                let short = [&text[..least - 1], b"| and more"].concat();
                assert_eq!(alone.redact(&short).0, short, "{}", rule.name);
            }
        }
    }
}

/// Where a format has a length, the same bytes as part of something longer are none.
#[test]
fn a_word_that_goes_on_is_no_token() {
    for rule in Rules::known() {
        let alone = Matcher::new(&only(rule.name), &Secrets::default());
        for pattern in rule.patterns() {
            for sample in samples::some(&pattern, 4) {
                if pattern.starts_with("(?<!") {
                    let text = [&b"x"[..], &sample.text()].concat();
                    assert!(alone.redact(&text).0.starts_with(b"x"), "{}", rule.name);
                    let inside = alone.redact(&text).1;
                    assert!(
                        inside.is_empty() || ["jwt", "slack_token"].contains(&rule.name),
                        "{}: {pattern}",
                        rule.name
                    );
                }
                if pattern.contains("(?!") {
                    let text = [&*sample.text(), b"0x0x0x0x0x0x0x0x0x0x"].concat();
                    assert_eq!(alone.redact(&text).0, text, "{}: {pattern}", rule.name);
                }
            }
        }
    }
}

#[test]
fn a_marker_is_text_matches_no_rule_and_is_no_count() {
    let all = matcher(&[b"the job's own secret"]);
    for name in Rules::known()
        .map(|rule| rule.name)
        .chain([mayfly_redact::SECRET])
    {
        for around in [
            "",
            "://user:",
            "Authorization: Bearer ",
            "aws_secret_access_key=",
            "ghp_",
        ] {
            let text = format!("{around}[redacted:{name}]@").into_bytes();
            let (out, counts) = all.redact(&text);
            assert_eq!(out, text, "{name}");
            assert!(counts.is_empty(), "what a program prints is not counted");
        }
    }
}

#[test]
fn rules_are_chosen_by_name_and_told_apart_by_digest() {
    let (all, none) = (Rules::all(), Rules::none());
    let some = Rules::without(&["jwt"]).unwrap();
    assert_eq!(all.names().len(), some.names().len() + 1);
    assert!(none.names().is_empty());
    let digests: BTreeSet<_> = [&all, &none, &some].map(Rules::digest).into();
    assert_eq!(digests.len(), 3);
    assert!(
        digests
            .iter()
            .all(|digest| digest.starts_with("sha256:") && digest.len() == 71)
    );
    assert_eq!(all.digest(), Rules::without(&[]).unwrap().digest());
    assert_eq!(
        Rules::without(&["jtw"]).unwrap_err(),
        UnknownRule {
            name: "jtw".to_owned()
        }
    );
    let sample = samples::some(
        &Rules::known().find(|rule| rule.name == "jwt").unwrap().patterns()[0],
        1,
    )
    .remove(0);
    let text = [&b" "[..], &sample.text()].concat();
    assert_eq!(Matcher::new(&some, &Secrets::default()).redact(&text).0, text);
}

/// A token that is longer than any bound is taken out to its end, and nothing of it is held once it is certain.
#[test]
fn a_token_without_an_end_is_not_held() {
    for (rule, begin, unit) in [
        ("jwt", ["ey", "JhbGciOiJIUzI1NiJ9.ey", "J"].concat(), "Zm9v"),
        ("private_key", ["BEGIN PRIVATE", " KEY-----\n"].concat(), "MIIE"),
        ("github_token", ["gh", "p_"].concat(), "aB3d"),
    ] {
        let alone = Matcher::new(&only(rule), &Secrets::default());
        let (mut redactor, mut out) = (mayfly_redact::Redactor::new(&alone), Vec::new());
        redactor.push(begin.as_bytes(), &mut out);
        for n in 0..7000 {
            redactor.push(unit.as_bytes(), &mut out);
            assert!(
                n < 40 || redactor.held_bytes() == 0,
                "{rule}: {}",
                redactor.held_bytes()
            );
        }
        redactor.push(b"\n-----END PRIVATE KEY-----\nafter", &mut out);
        assert_eq!(redactor.finish(&mut out).of(rule), 1);
        assert!(
            out.starts_with(&marker(rule)) && out.ends_with(b"\nafter"),
            "{rule}"
        );
        assert!(out.len() < 64, "{rule}");
    }
}
