//! Which characters a terminal never gets as they are.
//!
//! By property, not by name: controls (Cc), format characters (Cf), what is drawn as nothing (fillers, joiners, tags,
//! selectors: `Default_Ignorable_Code_Point`), and the separators of lines and paragraphs (Zl, Zp). All bidirectional
//! controls are format characters. Some of these have a use, such as the joiner in an emoji of a family: they are shown as
//! escapes too, since what they hide there they hide elsewhere.

use std::{borrow::Cow, cmp::Ordering, fmt::Write as _, ops::RangeInclusive};

/// Those that are no controls (Unicode 16), in order. The test makes the same list out of the properties.
const ACTING: [RangeInclusive<char>; 25] = [
    '\u{ad}'..='\u{ad}',
    '\u{34f}'..='\u{34f}',
    '\u{600}'..='\u{605}',
    '\u{61c}'..='\u{61c}',
    '\u{6dd}'..='\u{6dd}',
    '\u{70f}'..='\u{70f}',
    '\u{890}'..='\u{891}',
    '\u{8e2}'..='\u{8e2}',
    '\u{115f}'..='\u{1160}',
    '\u{17b4}'..='\u{17b5}',
    '\u{180b}'..='\u{180f}',
    '\u{200b}'..='\u{200f}',
    '\u{2028}'..='\u{202e}',
    '\u{2060}'..='\u{206f}',
    '\u{3164}'..='\u{3164}',
    '\u{fe00}'..='\u{fe0f}',
    '\u{feff}'..='\u{feff}',
    '\u{ffa0}'..='\u{ffa0}',
    '\u{fff0}'..='\u{fffb}',
    '\u{110bd}'..='\u{110bd}',
    '\u{110cd}'..='\u{110cd}',
    '\u{13430}'..='\u{1343f}',
    '\u{1bca0}'..='\u{1bca3}',
    '\u{1d173}'..='\u{1d17a}',
    '\u{e0000}'..='\u{e0fff}',
];

/// Whether it moves, reorders or hides something, instead of being seen.
pub(super) fn acts(c: char) -> bool {
    let place = |range: &RangeInclusive<char>| {
        if *range.end() < c {
            Ordering::Less
        } else if *range.start() > c {
            Ordering::Greater
        } else {
            Ordering::Equal
        }
    };
    c.is_control() || (!c.is_ascii() && ACTING.binary_search_by(place).is_ok())
}

/// Lines of ours without any character that acts, line feeds and tabs apart. JSON says the same afterwards: each is
/// escaped as JSON does it, and none can stand outside of its strings.
pub(crate) fn harmless(lines: &str) -> Cow<'_, str> {
    let is_left = |c: char| matches!(c, '\n' | '\t') || !acts(c);
    if lines.chars().all(is_left) {
        return Cow::Borrowed(lines);
    }
    let mut escaped = String::with_capacity(lines.len() + 64);
    for c in lines.chars() {
        if is_left(c) {
            escaped.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            write!(escaped, "\\u{unit:04x}").expect("a string takes what it is given");
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    const PROPERTIES: &str = r"^[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\p{Bidi_Control}]$";

    #[test]
    fn those_act_that_have_one_of_the_properties() {
        let properties = Regex::new(PROPERTIES).unwrap();
        let wrong: Vec<_> = ('\0'..=char::MAX)
            .filter(|c| properties.is_match(c.encode_utf8(&mut [0; 4])) != acts(*c))
            .map(|c| format!("{:x}", u32::from(c)))
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn a_character_above_the_first_plane_is_a_pair() {
        assert_eq!(
            harmless("\"a\u{e0041}\u{9b}é😀\"\n"),
            "\"a\\udb40\\udc41\\u009bé😀\"\n"
        );
        assert!(matches!(harmless("\"é\tb\"\n"), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn json_says_the_same_and_nothing_in_it_acts(
            text in prop::collection::vec(
                prop_oneof![any::<char>(), (0u32..0x3000).prop_filter_map("a surrogate", char::from_u32),
                    prop::sample::select(&ACTING[..]).prop_map(|range| *range.start())],
                0..64,
            )
        ) {
            let text: String = text.into_iter().collect();
            let value = serde_json::json!({ text.clone(): [&text] });
            for json in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                let escaped = harmless(&json);
                prop_assert!(escaped.chars().all(|c| c == '\n' || !acts(c)), "{escaped:?}");
                prop_assert_eq!(&serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), &value);
            }
        }
    }
}
