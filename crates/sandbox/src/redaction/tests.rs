use serde_json::{Value, json};

use super::*;

const TOKEN: &str = concat!("AKIA", "IOSFODNN7EXAMPLE");

fn job(secrets: Value, redaction: Value) -> ResolvedJob {
    ResolvedJob {
        redaction: serde_json::from_value(redaction).unwrap(),
        ..mayfly_testkit::job(&["true"], json!({"secrets": secrets}))
    }
}

fn left(matchers: &Matchers, job: &ResolvedJob) -> String {
    let mut text = format!("hunter22 {TOKEN}");
    clean(&matchers.of(job).unwrap(), &mut text);
    text
}

/// One after the other from one place, so that a matcher that is kept serves no other policy and no other job.
#[test]
fn a_jobs_own_secrets_go_whatever_the_rules_are_and_never_another_jobs() {
    let matchers = Matchers::default();
    let (one, none) = (json!({"A": "hunter22"}), json!({}));
    let (all, without, off) = (
        json!({}),
        json!({"without": ["aws_access_key_id"]}),
        json!({"rules": "none"}),
    );
    let (secret, token) = ("[redacted:secret]", "[redacted:aws_access_key_id]");
    for _ in 0..2 {
        for (secrets, redaction, expected) in [
            (&none, &all, ["hunter22", token]),
            (&one, &all, [secret, token]),
            (&none, &without, ["hunter22", TOKEN]),
            (&one, &without, [secret, TOKEN]),
            (&none, &off, ["hunter22", TOKEN]),
            (&one, &off, [secret, TOKEN]),
        ] {
            let job = job(secrets.clone(), redaction.clone());
            assert_eq!(left(&matchers, &job), expected.join(" "), "{redaction} {secrets}");
        }
    }
}

#[test]
fn what_is_counted_is_what_stands_in_the_text() {
    let matcher = Matchers::default()
        .of(&job(json!({"A": "hunter22"}), json!({})))
        .unwrap();
    let text = format!("hunter22 {TOKEN} hunter22\n");
    let (clean, counts) = matcher.redact(text.as_bytes());
    let redacted = redacted(&counts);
    assert_eq!(redacted.total(), 3);
    assert_eq!(redacted.bytes, 8 + 8 + TOKEN.len() as u64);
    let left = text.len() as u64 - redacted.bytes;
    assert_eq!(left + redacted.mark_bytes, clean.len() as u64);
}
