//! Canonical JSON (RFC 8785): the bytes that are hashed, stored and later verified.
//!
//! For nearly all that is written so, serde_json's own compact form is the canonical one already, and takes a fraction of the
//! time: each job has five audit events. Where it may not be, the library of the standard writes it.

use serde::Serialize;
use serde_json::Value;

/// The largest whole number that the standard writes digit by digit: beyond it numbers are those of a double (RFC 8785
/// section 3.2.2.3, RFC 7493 section 2.2).
const LARGEST_EXACT: u64 = (1 << 53) - 1;

/// The canonical JSON of a value (RFC 8785).
///
/// # Panics
/// Where the value can't be JSON: a map with keys that are not text. Our own types have none; nor have they fractions.
#[must_use]
pub fn canonical_json(value: &impl Serialize) -> Vec<u8> {
    let value = serde_json::to_value(value).expect("our own types have text keys");
    let written = if is_plain(&value) {
        serde_json::to_vec(&value)
    } else {
        serde_json_canonicalizer::to_vec(&value)
    };
    written.expect("a JSON value can be written")
}

/// Whether its compact form is the canonical one. Both escape strings alike, and leave no space. The standard orders keys
/// by their UTF-16 units, which for ASCII is the order of a map here, unless some part of the program has it keep another
/// (serde_json's `preserve_order`): so the order is looked at. Of numbers, whole ones within a double's are alike.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => true,
        Value::Number(number) => {
            let whole = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
            whole.is_some_and(|size| size <= LARGEST_EXACT)
        }
        Value::Array(list) => list.iter().all(is_plain),
        Value::Object(map) => {
            map.keys().all(|key| key.is_ascii()) && map.keys().is_sorted() && map.values().all(is_plain)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn by_the_library(value: &Value) -> Vec<u8> {
        serde_json_canonicalizer::to_vec(value).unwrap()
    }

    fn numbers() -> impl Strategy<Value = Value> {
        let edge = LARGEST_EXACT - 2..=LARGEST_EXACT + 3;
        prop_oneof![
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            (-1000_i64..1000).prop_map(Value::from),
            edge.clone().prop_map(Value::from),
            edge.prop_map(|number| Value::from(-i64::try_from(number).unwrap())),
            (-1e30..1e30).prop_map(|number: f64| json!(number)),
        ]
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            numbers(),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            let key = prop_oneof!["[a-z_]{1,3}", "[ -~]{0,4}", any::<String>()];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(key, inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn whichever_way_it_is_written_it_is_what_the_standard_says(value in values()) {
            prop_assert_eq!(canonical_json(&value), by_the_library(&value));
        }
    }

    #[test]
    fn every_character_is_escaped_as_the_standard_says() {
        for code in (0..0x3000).filter_map(char::from_u32) {
            let value = json!({ "text": format!("a{code}b") });
            assert!(is_plain(&value));
            assert_eq!(
                canonical_json(&value),
                by_the_library(&value),
                "U+{:04X}",
                u32::from(code)
            );
        }
    }

    #[test]
    fn what_the_two_ways_write_differently_is_left_to_the_library() {
        // Sorted by UTF-16 units U+1F600 stands before U+FB33, by bytes behind it: the standard's own example.
        let keys = json!({ "\u{fb33}": 1, "\u{1f600}": 2 });
        assert_eq!(
            canonical_json(&keys),
            "{\"\u{1f600}\":2,\"\u{fb33}\":1}".as_bytes()
        );
        assert_eq!(
            canonical_json(&json!([1.0, LARGEST_EXACT + 2])),
            b"[1,9007199254740992]"
        );
        for value in [keys, json!(1.0), json!(LARGEST_EXACT + 1), json!({ "é": 1 })] {
            assert!(!is_plain(&value), "{value}");
        }
        assert!(is_plain(
            &json!({ "a": [null, true, -7, LARGEST_EXACT, "\u{1f600}"] })
        ));
    }
}
