//! Every way to change one value of a document: the lies that a read-back has to notice.

use serde_json::Value;

/// A document with one value changed.
pub(super) struct Lie {
    /// Where, as the read-back names it: `HostConfig.Memory`, `mounts[/tmp].options`.
    pub(super) place: String,
    /// What was done.
    pub(super) what: String,
    pub(super) document: Value,
}

/// All documents that differ from this one in one value.
pub(super) fn about(document: &Value) -> Vec<Lie> {
    changed("", document)
}

fn changed(place: &str, value: &Value) -> Vec<Lie> {
    let lie = |what: &str, document: Value| Lie {
        place: place.to_owned(),
        what: what.to_owned(),
        document,
    };
    match value {
        Value::Object(map) => map
            .iter()
            .flat_map(|(name, inner)| {
                let place = if place.is_empty() {
                    name.clone()
                } else {
                    format!("{place}.{name}")
                };
                let inside = |document: Value| {
                    let mut map = map.clone();
                    map.insert(name.clone(), document);
                    Value::Object(map)
                };
                changed(&place, inner)
                    .into_iter()
                    .map(move |lie| Lie {
                        document: inside(lie.document),
                        ..lie
                    })
                    .collect::<Vec<_>>()
            })
            .collect(),
        Value::Array(items) => {
            let mut lies = Vec::new();
            for (index, item) in items.iter().enumerate() {
                let place = key(item).map_or_else(|| place.to_owned(), |key| format!("{place}[{key}]"));
                let mut fewer = items.clone();
                fewer.remove(index);
                lies.push(Lie {
                    place: place.clone(),
                    what: format!("without {item}"),
                    document: fewer.into(),
                });
                let mut more = items.clone();
                more.push(item.clone());
                if key(item).is_some() {
                    lies.push(Lie {
                        place: place.clone(),
                        what: format!("twice {item}"),
                        document: more.into(),
                    });
                }
                lies.extend(changed(&place, item).into_iter().map(|lie| {
                    let mut items = items.clone();
                    items[index] = lie.document;
                    Lie {
                        document: items.into(),
                        ..lie
                    }
                }));
            }
            if items.iter().all(|item| key(item).is_none()) {
                let more = match items.first() {
                    Some(Value::Number(_)) => Value::from(7),
                    None if place.ends_with("groups") => Value::from(7),
                    _ => Value::from("lie"),
                };
                lies.push(lie("one more", [items.as_slice(), &[more]].concat().into()));
            }
            lies
        }
        Value::Bool(truth) => vec![lie("the opposite", (!truth).into())],
        Value::Number(number) => {
            let other = number.as_i64().map_or(7, |number| number + 1);
            vec![lie("one more", other.into())]
        }
        Value::String(text) => vec![lie("other text", other_text(text).into())],
        Value::Null => vec![lie("a number", 7.into()), lie("a text", "lie".into())],
    }
}

/// Another word of the same list where only some words are read at all.
fn other_text(text: &str) -> String {
    match text {
        "private" => "host".to_owned(),
        "no" => "always".to_owned(),
        "volume" => "bind".to_owned(),
        text => format!("{text}lie"),
    }
}

/// The name that a list's item goes by, where its items have names.
pub(super) fn key(item: &Value) -> Option<&str> {
    ["mount_point", "probe", "path", "resource"]
        .iter()
        .find_map(|name| item[name].as_str())
}
