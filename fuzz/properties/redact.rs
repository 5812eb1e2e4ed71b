//! What holds of every stream, whatever the job's secret is and however the stream is cut.

use mayfly_redact::{Counts, LEAST_SECRET_BYTES, Matcher, Redactor, Rules, Secrets};

/// The input is the length of a secret, the secret, what chunks there are, and the stream. Panics if it does not hold;
/// else says how many redactions there were.
pub(crate) fn check(input: &[u8]) -> u64 {
    let Some((length, rest)) = input.split_first() else {
        return 0;
    };
    let (secret, rest) = rest.split_at(usize::from(length % 64).min(rest.len()));
    let (seed, text) = rest.split_first().unwrap_or((&0, &[]));
    let secrets = Secrets::new([secret]).expect("one secret, and short");
    let matcher = Matcher::new(&Rules::all(), &secrets);

    let (whole, counts) = matcher.redact(text);
    let (in_chunks, counts_in_chunks) = chunked(&matcher, *seed, text);
    assert!(whole == in_chunks, "any chunks give the same bytes");
    assert_eq!(counts, counts_in_chunks, "and counts");
    assert_eq!(counts.is_empty(), counts.bytes() == 0);
    assert!(
        !counts.is_empty() || whole == text,
        "without a redaction nothing changes"
    );

    let secret = secret.trim_ascii();
    let in_marker = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_:[]".contains(byte);
    let in_no_marker = !secret.iter().all(in_marker) && !secret.iter().any(|byte| b"[]".contains(byte));
    if secret.len() >= LEAST_SECRET_BYTES && in_no_marker {
        assert!(
            !whole.windows(secret.len()).any(|window| window == secret),
            "the secret is gone"
        );
    }
    counts.total()
}

fn chunked(matcher: &Matcher, seed: u8, mut text: &[u8]) -> (Vec<u8>, Counts) {
    let (mut redactor, mut out, mut length) = (Redactor::new(matcher), Vec::new(), usize::from(seed));
    while !text.is_empty() {
        length = (length * 29 + 7) % 61;
        let (chunk, rest) = text.split_at(length.min(text.len()));
        redactor.push(chunk, &mut out);
        assert!(
            redactor.held_bytes() <= matcher.most_held_bytes(),
            "held within the bound"
        );
        text = rest;
    }
    let counts = redactor.finish(&mut out);
    (out, counts)
}
