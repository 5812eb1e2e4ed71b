use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD, Engine as _};

use super::*;

fn has(value: &str, form: &str) -> bool {
    of(value.as_bytes()).iter().any(|made| made == form.as_bytes())
}

#[test]
fn base64_is_found_whatever_stands_before_and_after() {
    let value = b"a?b>c~\xff\xfe secret";
    for before in 0..6 {
        for after in 0..4 {
            for engine in [&BASE64_STANDARD_NO_PAD, &BASE64_URL_SAFE_NO_PAD] {
                let text = [&b"012345"[..before], value, &b"xyzw"[..after]].concat();
                let encoded = engine.encode(&text);
                let form = of(value).into_iter().find(|form| {
                    form.len() >= value.len()
                        && encoded
                            .as_bytes()
                            .windows(form.len())
                            .any(|window| window == form)
                });
                let form = form.unwrap_or_else(|| panic!("{before} before and {after} after"));
                assert!(
                    form.len() * 6 > value.len() * 8 - 12,
                    "all but the characters at the edges"
                );
            }
        }
    }
}

#[test]
fn urls_json_and_source_text_are_as_programs_write_them() {
    let value = "p\"s/s w\\rd<\u{e9}>'\n+";
    for form in [
        "p%22s%2Fs%20w%5Crd%3C%C3%A9%3E%27%0A%2B",   // RFC 3986
        "p%22s/s%20w%5Crd%3C%C3%A9%3E%27%0A%2B",     // Python's quote
        "p%22s%2Fs%20w%5Crd%3C%C3%A9%3E'%0A%2B",     // encodeURIComponent
        "p%22s/s%20w%5Crd%3C%C3%A9%3E'%0A+",         // encodeURI
        "p%22s%2Fs+w%5Crd%3C%C3%A9%3E%27%0A%2B",     // a form
        "p%22s%2fs%20w%5crd%3c%c3%a9%3e%27%0a%2b",   // lower case
        "p\\\"s/s w\\\\rd<\u{e9}>'\\n+",             // JSON
        "p\\\"s/s w\\\\rd<\\u00e9>'\\n+",            // Python's JSON
        "p\\\"s\\/s w\\\\rd<\\u00e9>'\\n+",          // PHP's
        "p\\\"s/s w\\\\rd\\u003c\u{e9}\\u003e'\\n+", // Go's
        "p\\\\\\\"s/s w\\\\\\\\rd<\u{e9}>'\\\\n+",   // JSON in JSON
        "p\"s/s w\\\\rd<\u{e9}>\\'\\n+",             // Python's repr
        "p\"s/s w\\\\rd<\\xc3\\xa9>'\\n+",           // the same of bytes
        "p\"s/s w\\rd<\u{e9}>'\\''\n+",              // a shell
    ] {
        assert!(has(value, form), "{form}");
    }
    assert!(has("\u{1f600}", "\\ud83d\\ude00"), "a surrogate pair");
    assert!(has("k\u{1}y", "k\\u0001y") && has("k\u{1}y", "k\\x01y"));
    assert!(has("Key", "4b6579") && has("K\u{e9}y", "4BC3A979"));
}
