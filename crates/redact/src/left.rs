//! What stands to the left of a token: whether the token begins there, or is the inside of a longer word.

use crate::bytes::ByteSet;

/// How far back is looked, in bytes.
pub(crate) const LOOK_BEHIND: usize = 16;

/// Whether what comes next is the inside of a word that began earlier. The last byte of an escape (`\n`, `%20`,
/// `\u003d`, the end of a colour) is not: in `"text\nghp_…"` no word goes on.
pub(crate) fn word_goes_on(behind: &[u8], word: &ByteSet) -> bool {
    behind.last().is_some_and(|last| word.contains(*last)) && !ends_an_escape(behind)
}

fn ends_an_escape(behind: &[u8]) -> bool {
    let behind = &behind[behind.len().saturating_sub(LOOK_BEHIND)..];
    match behind {
        [.., b'\\', b'n' | b'r' | b't' | b'b' | b'f' | b'v' | b'0'] => true,
        [.., b'%', high, low] | [.., b'\\', b'x', high, low] => {
            [high, low].iter().all(|digit| digit.is_ascii_hexdigit())
        }
        [.., b'\\', b'u', a, b, c, d] => [a, b, c, d].iter().all(|digit| digit.is_ascii_hexdigit()),
        _ => ends_a_colour(behind),
    }
}

/// `ESC [ … m` and its like, where the escape may itself be written as `\x1b`, `\u001b`, `\033` or `\e`.
fn ends_a_colour(behind: &[u8]) -> bool {
    let Some((last, rest)) = behind.split_last() else {
        return false;
    };
    if !last.is_ascii_alphabetic() {
        return false;
    }
    let parameters = rest
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_digit() || **byte == b';')
        .count();
    matches!(
        &rest[..rest.len() - parameters],
        [.., 0x1b | b'b' | b'B' | b'3' | b'e', b'[']
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escape_ends_a_word_and_a_letter_does_not() {
        let word = ByteSet::word();
        for (behind, goes_on) in [
            ("", false),
            (" ", false),
            ("=", false),
            ("-", false),
            ("x", true),
            ("_", true),
            ("n", true),
            ("\\n", false),
            ("\\q", true),
            ("%20", false),
            ("%2g", true),
            ("20", true),
            ("\\x3d", false),
            ("\\u003d", false),
            ("u003d", true),
            ("\u{1b}[31m", false),
            ("\u{1b}[38;5;196m", false),
            ("\\u001b[0m", false),
            ("\\e[0;1m", false),
            ("a[0m", true),
        ] {
            assert_eq!(word_goes_on(behind.as_bytes(), &word), goes_on, "{behind:?}");
        }
    }
}
