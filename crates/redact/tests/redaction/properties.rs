//! The stream against the oracle, on texts made of what could confuse it, in any chunks.

use std::sync::LazyLock;

use mayfly_redact::{Matcher, Rules, Secrets};
use proptest::{collection::vec, prelude::*, strategy::Union};

use crate::{in_chunks, oracle::Oracle, samples};

static ORACLE: LazyLock<Oracle> = LazyLock::new(Oracle::new);

/// Secrets that overlap, begin one another, repeat, and look like anchors.
const SECRETS: [&str; 8] = [
    "hunter2!",
    "hunter2!hunter3!",
    "aaaaaaaa",
    "abababab",
    "ghp_abc",
    "pass word+/",
    "r2!hunter3!x",
    "-----END X",
];

/// The texts below have secrets only as they are: other forms have tests of their own.
fn forms() -> Vec<Vec<u8>> {
    SECRETS.map(|secret| secret.as_bytes().to_vec()).into()
}

static MATCHER: LazyLock<Matcher> =
    LazyLock::new(|| Matcher::new(&Rules::all(), &Secrets::new(SECRETS).unwrap()));

fn sample() -> impl Strategy<Value = Vec<u8>> {
    let patterns: Vec<String> = Rules::known().flat_map(|rule| rule.patterns()).collect();
    Union::new(patterns.iter().map(|pattern| samples::of(pattern).boxed())).prop_map(|sample| sample.text())
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    const WORDS: [&str; 34] = [
        "",
        " ",
        "\n",
        "\\n",
        "=",
        "\"",
        "-",
        "_",
        ".",
        "/",
        "x",
        "@",
        ":",
        "://",
        "user:",
        "%20",
        "\u{1b}[0m",
        "eyJ",
        "eyJhbGciOi",
        "gh",
        "p_",
        "sk-",
        "sk-ant-",
        "AKIA",
        ":AA",
        "-----",
        "-----BEGIN ",
        "-----END X-----",
        "Authorization: Bearer ",
        "[redacted:jwt]",
        "hunter2",
        "aaa",
        "bab",
        "the quick brown fox",
    ];
    prop_oneof![
        6 => prop::sample::select(&WORDS[..]).prop_map(|word| word.as_bytes().to_vec()),
        3 => prop::sample::select(&SECRETS[..]).prop_map(|secret| secret.as_bytes().to_vec()),
        3 => sample(),
        2 => (sample(), any::<prop::sample::Index>()).prop_map(|(text, cut)| text[..cut.index(text.len() + 1)].to_vec()),
        2 => (sample(), any::<prop::sample::Index>()).prop_map(|(text, cut)| text[cut.index(text.len() + 1)..].to_vec()),
        1 => vec(any::<u8>(), 0..12),
        1 => (prop::sample::select(&b"aA0-_.=/ \\"[..]), 1usize..1200).prop_map(|(byte, count)| vec![byte; count]),
    ]
}

proptest! {
    #[test]
    fn any_chunks_give_what_the_oracle_gives(
        pieces in vec(piece(), 0..14),
        lengths in vec(prop_oneof![4 => 1usize..9, 2 => 9usize..200, 1 => 200usize..40_000], 1..8),
    ) {
        let text = pieces.concat();
        let (expected, counts) = ORACLE.redact(&text, &forms());
        let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        for lengths in [&*lengths, &[1], &[usize::MAX]] {
            let (out, made) = in_chunks(&MATCHER, &text, lengths);
            prop_assert_eq!(show(&out), show(&expected), "of {}", show(&text));
            prop_assert!(out == expected);
            prop_assert_eq!(made.iter().collect::<Vec<_>>(), counts.clone().into_iter().collect::<Vec<_>>());
            let markers: usize = made.iter().map(|(name, count)| (name.len() + 11) * usize::try_from(count).unwrap()).sum();
            prop_assert_eq!(u64::try_from(text.len() + markers - out.len()).unwrap(), made.bytes());
        }
    }

    #[test]
    fn a_text_without_a_match_is_the_same_bytes(pieces in vec(piece(), 0..6), lengths in vec(1usize..40, 1..6)) {
        let text = pieces.concat();
        let (expected, counts) = ORACLE.redact(&text, &forms());
        prop_assume!(counts.is_empty());
        prop_assert!(expected == text);
        prop_assert!(in_chunks(&MATCHER, &text, &lengths).0 == text);
    }
}
