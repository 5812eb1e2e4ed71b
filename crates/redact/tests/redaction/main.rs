//! Redaction against an implementation that is obviously right, on samples of every rule, on what must pass, and under
//! every division into chunks.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

#[path = "../../../../fuzz/properties/redact.rs"]
mod redact;

mod bounds;
mod document;
mod formats;
mod fuzzed;
mod oracle;
mod ordinary;
mod properties;
mod published;
mod samples;
mod secrets;

use mayfly_redact::{Counts, Matcher, Redactor, Rules, Secrets};

/// All rules, and these secrets.
fn matcher(secrets: &[&[u8]]) -> Matcher {
    Matcher::new(&Rules::all(), &Secrets::new(secrets).unwrap())
}

/// One rule alone, or none.
fn only(name: &str) -> Rules {
    let others: Vec<_> = Rules::known()
        .map(|rule| rule.name)
        .filter(|other| *other != name)
        .collect();
    Rules::without(&others).unwrap()
}

/// What comes out where the stream comes in chunks of these lengths, over and over.
fn in_chunks(matcher: &Matcher, mut text: &[u8], lengths: &[usize]) -> (Vec<u8>, Counts) {
    let (mut redactor, mut out) = (Redactor::new(matcher), Vec::new());
    for length in lengths.iter().cycle() {
        let (chunk, rest) = text.split_at((*length).min(text.len()));
        redactor.push(chunk, &mut out);
        assert!(redactor.held_bytes() <= matcher.most_held_bytes());
        text = rest;
        if text.is_empty() {
            break;
        }
    }
    let counts = redactor.finish(&mut out);
    (out, counts)
}
