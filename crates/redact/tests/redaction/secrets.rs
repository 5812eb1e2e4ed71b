//! A job's own secrets, in every form, at every place.

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE, Engine as _};
use mayfly_redact::{
    LEAST_SECRET_BYTES, MOST_SECRET_BYTES, MOST_SECRETS, Matcher, Redactor, Rules, Secrets, SecretsError,
};
use proptest::{collection::vec, prelude::*};

use crate::{in_chunks, matcher};

fn redacted(secrets: &[&str], text: &str) -> String {
    let secrets: Vec<_> = secrets.iter().map(|secret| secret.as_bytes()).collect();
    let (out, _) = in_chunks(&matcher(&secrets), text.as_bytes(), &[3]);
    String::from_utf8(out).unwrap()
}

#[test]
fn the_longest_of_several_secrets_leaves_nothing_of_the_shorter_ones() {
    for secrets in [["token-abc", "token-abcdef"], ["token-abcdef", "token-abc"]] {
        assert_eq!(redacted(&secrets, "<token-abcdef>"), "<[redacted:secret]>");
        assert_eq!(redacted(&secrets, "<token-abcde>"), "<[redacted:secret]de>");
    }
    assert_eq!(
        redacted(&["abcdef", "defghi"], "<abcdefghi>"),
        "<[redacted:secret]>",
        "overlapping"
    );
    assert_eq!(
        redacted(&["bcde", "abcdefg"], "<abcdefg> <abcdex>"),
        "<[redacted:secret]> <a[redacted:secret]x>",
        "inside"
    );
    assert_eq!(
        redacted(&["abab"], "xabababx"),
        "x[redacted:secret]x",
        "over itself"
    );
    assert_eq!(
        redacted(&["abcd"], "abcdabcd"),
        "[redacted:secret][redacted:secret]"
    );
}

#[test]
fn a_secret_beside_a_token_is_one_redaction_and_named_by_what_comes_first() {
    let token = ["gh", "p_", &"a1B2".repeat(9)].concat();
    assert_eq!(
        redacted(&["a1B2a1B2zz"], &format!("={token}zz=")),
        "=[redacted:github_token]="
    );
    assert_eq!(
        redacted(&[&format!("key={token}")], &format!("key={token}")),
        "[redacted:secret]"
    );
    assert_eq!(
        redacted(&[&token], &token),
        "[redacted:secret]",
        "a secret's name before a rule's"
    );
}

#[test]
fn secrets_of_any_bytes_and_lengths_are_found_or_refused() {
    let odd: [&[u8]; 6] = [
        b"a.*b(c)+",
        b"line one\nline two",
        b"nul\0nul\0",
        b"\xff\xfe\xfd\xfc",
        b"abcd",
        b"password",
    ];
    for secret in odd {
        let text = [&b"<"[..], secret, b">"].concat();
        assert_eq!(
            matcher(&[secret]).redact(&text).0,
            b"<[redacted:secret]>",
            "{secret:?}"
        );
    }
    let short = Secrets::new(["", "a", "ab", "abc", " abc\n"]).unwrap();
    assert_eq!(short.too_short(), 5);
    let text = b"a ab abc".to_vec();
    assert_eq!(Matcher::new(&Rules::all(), &short).redact(&text).0, text);
    assert_eq!(
        Secrets::new(vec!["abcd"; MOST_SECRETS + 1]).unwrap_err(),
        SecretsError::TooMany
    );
    assert_eq!(
        Secrets::new(["x".repeat(MOST_SECRET_BYTES + 1)]).unwrap_err(),
        SecretsError::TooLong
    );
    assert!(Secrets::new(["x".repeat(MOST_SECRET_BYTES)]).is_ok());
    assert_eq!(
        Secrets::new(["\u{1}\u{2}\u{3}".repeat(4000)]).unwrap_err(),
        SecretsError::TooManyForms
    );
    assert_eq!(LEAST_SECRET_BYTES, 4);
}

#[test]
fn a_value_from_a_file_is_found_without_its_last_line_break_and_line_by_line() {
    assert_eq!(
        redacted(&["from-a-file\n"], "<from-a-file>"),
        "<[redacted:secret]>"
    );
    let lines = "first line of the secret\r\nsecond line of the secret\n";
    assert_eq!(
        redacted(
            &[lines],
            "log: first line of the secret\nlog: second line of the secret\n"
        ),
        "log: [redacted:secret]\nlog: [redacted:secret]\n"
    );
}

#[test]
fn nothing_shows_a_secret_when_it_is_printed_for_debugging() {
    let secrets = Secrets::new(["correct-horse"]).unwrap();
    let matcher = Matcher::new(&Rules::all(), &secrets);
    let mut redactor = Redactor::new(&matcher);
    redactor.push(b"correct-hor", &mut Vec::new());
    for shown in [
        format!("{secrets:?}"),
        format!("{matcher:?}"),
        format!("{redactor:?}"),
    ] {
        assert!(
            !shown.contains("correct") && !shown.contains("99, 111"),
            "{shown}"
        );
    }
}

/// The end of a stream may have come in the midst of a secret: killed, out of time, out of memory.
#[test]
fn a_stream_that_ends_within_a_secret_shows_none_of_it() {
    let secret = "correct-horse-battery";
    for length in 8..secret.len() {
        assert_eq!(
            redacted(&[secret], &format!("it is {}", &secret[..length])),
            "it is [redacted:secret]",
            "{length}"
        );
    }
    assert_eq!(
        redacted(&[secret], "it is correct"),
        "it is correct",
        "a word is let out"
    );
}

/// What is held is not let out because nothing comes.
#[test]
fn what_may_become_a_secret_waits_for_as_long_as_it_takes() {
    let matcher = Matcher::new(&Rules::none(), &Secrets::new(["correct-horse-battery"]).unwrap());
    let (mut redactor, mut out) = (Redactor::new(&matcher), Vec::new());
    redactor.push(b"it is correct-horse-batter", &mut out);
    for _ in 0..1000 {
        redactor.push(b"", &mut out);
    }
    assert_eq!((&*out, redactor.held_bytes()), (&b"it is "[..], 20));
    redactor.push(b"y", &mut out);
    assert_eq!(
        (&*out, redactor.held_bytes()),
        (&b"it is [redacted:secret]"[..], 0)
    );
}

/// How a program writes what it did not mean to hide.
fn written(secret: &[u8], way: usize, before: &[u8], after: &[u8]) -> Vec<u8> {
    let around = [before, secret, after].concat();
    let percent = |keep: fn(u8) -> bool| -> Vec<u8> {
        secret
            .iter()
            .flat_map(|byte| {
                if keep(*byte) {
                    vec![*byte]
                } else {
                    format!("%{byte:02X}").into_bytes()
                }
            })
            .collect()
    };
    match way {
        0 => around,
        1 => BASE64_STANDARD.encode(around).into_bytes(),
        2 => BASE64_URL_SAFE.encode(around).into_bytes(),
        3 => around
            .iter()
            .flat_map(|byte| format!("{byte:02x}").into_bytes())
            .collect(),
        4 => around
            .iter()
            .flat_map(|byte| format!("{byte:02X}").into_bytes())
            .collect(),
        5 => percent(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)),
        6 => percent(|byte| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte)),
        _ => String::from_utf8_lossy(secret)
            .escape_default()
            .to_string()
            .into_bytes(),
    }
}

/// What of a written secret shows it, at the edges of base64 less what is shared with a neighbour.
fn core(secret: &[u8], way: usize, before: &[u8]) -> Vec<u8> {
    let whole = written(secret, way, before, b"");
    match way {
        1 | 2 => {
            let start = (before.len() * 8).div_ceil(6);
            let end = (before.len() + secret.len()) * 8 / 6;
            whole[start..end].to_vec()
        }
        0 => secret.to_vec(),
        3 | 4 => whole[before.len() * 2..].to_vec(),
        _ => whole,
    }
}

proptest! {
    #[test]
    fn a_secret_is_gone_in_every_form(
        secret in prop_oneof!["[A-Z0-9~!#$^&*()/?+= '\"<>\\\\]{8,40}", "[A-Z]{6}[0-9]{2}[!-~]{0,30}"],
        way in 0usize..7,
        before in vec(any::<u8>(), 0..7),
        after in vec(any::<u8>(), 0..7),
        lengths in vec(1usize..9, 1..5),
    ) {
        let secret = secret.trim_ascii();
        prop_assume!(secret.len() >= 8);
        let text = written(secret.as_bytes(), way, &before, &after);
        let (out, counts) = in_chunks(&matcher(&[secret.as_bytes()]), &text, &lengths);
        let core = core(secret.as_bytes(), way, &before);
        prop_assert!(counts.of("secret") >= 1, "{}", String::from_utf8_lossy(&text));
        prop_assert!(!out.windows(core.len()).any(|window| window == core), "{}", String::from_utf8_lossy(&out));
    }
}

/// As other programs write JSON, source text and forms, byte for byte.
#[test]
fn a_secret_is_gone_in_json_and_source_text() {
    let secret = "p\"s/s w\\rd<\u{e9}>'x";
    for text in [
        r#"{"a": "p\"s/s w\\rd<é>'x"}"#,
        r#"{"a": "p\"s/s w\\rd<\u00e9>'x"}"#,
        r#"{"a": "p\"s\/s w\\rd<\u00e9>'x"}"#,
        r#"{"a": "p\"s/s w\\rd\u003cé\u003e'x"}"#,
        r#"{\"a\": \"p\\\"s/s w\\\\rd<é>'x\"}"#,
        r#"['p"s/s w\\rd<é>\'x']"#,
        r#"a=p%22s%2Fs+w%5Crd%3C%C3%A9%3E%27x"#,
    ] {
        let out = redacted(&[secret], text);
        assert!(out.contains("[redacted:secret]") && !out.contains("s w"), "{out}");
        assert!(out.len() < 40, "{out}");
    }
}

#[test]
fn what_is_encoded_in_another_way_is_not_found() {
    let secret = "correct-horse-battery";
    for text in [
        secret.chars().rev().collect::<String>(),
        secret.to_uppercase(),
        secret.replace('-', "_"),
        "c-o-r-r-e-c-t".into(),
    ] {
        assert_eq!(redacted(&[secret], &text), text, "docs/redaction.md says so");
    }
}
