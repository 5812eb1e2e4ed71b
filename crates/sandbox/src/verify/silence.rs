//! Every way to leave one thing out of a document.

use serde_json::Value;

use super::lies::{Lie, key};

/// All documents that say nothing about one thing that this one tells: its field is not there, or null.
pub(super) fn withheld(document: &Value) -> Vec<Lie> {
    silent("", document)
}

fn silent(place: &str, value: &Value) -> Vec<Lie> {
    let mut lies = Vec::new();
    match value {
        Value::Object(map) => {
            for (name, inner) in map {
                let place = if place.is_empty() {
                    name.clone()
                } else {
                    format!("{place}.{name}")
                };
                let with = |document: Option<Value>| {
                    let mut map = map.clone();
                    match document {
                        Some(document) => map.insert(name.clone(), document),
                        None => map.remove(name),
                    };
                    Value::Object(map)
                };
                for (what, document) in [("absent", None), ("null", Some(Value::Null))] {
                    lies.push(Lie {
                        place: place.clone(),
                        what: what.to_owned(),
                        document: with(document),
                    });
                }
                let inside = silent(&place, inner).into_iter();
                lies.extend(inside.map(|lie| Lie {
                    document: with(Some(lie.document)),
                    ..lie
                }));
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let place = key(item).map_or_else(|| place.to_owned(), |key| format!("{place}[{key}]"));
                lies.extend(silent(&place, item).into_iter().map(|lie| {
                    let mut items = items.clone();
                    items[index] = lie.document;
                    Lie {
                        document: items.into(),
                        ..lie
                    }
                }));
            }
        }
        _ => {}
    }
    lies
}
