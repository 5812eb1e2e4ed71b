//! Lists and texts that are bounded while they are parsed, so that a small hostile payload can't
//! become a large structure.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

struct List<T, const MAX: usize>(Vec<T>);

struct Items<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Items<T, MAX> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX} items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            if items.len() == MAX {
                return Err(A::Error::invalid_length(MAX + 1, &self));
            }
            items.push(item);
        }
        Ok(items)
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for List<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_seq(Items::<T, MAX>(PhantomData))
            .map(List)
    }
}

/// Parses a list of at most `MAX` items, or `null`.
pub(crate) fn optional_list<'de, D, T, const MAX: usize>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::<List<T, MAX>>::deserialize(deserializer)?.map(|list| list.0))
}

/// Parses a list of at most `MAX` items.
pub(crate) fn list<'de, D, T, const MAX: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    List::<T, MAX>::deserialize(deserializer).map(|list| list.0)
}

/// Cuts a text to at most `max` bytes at a character's border.
pub(crate) fn cut(text: &mut String, max: usize) {
    text.truncate(text.floor_char_boundary(max));
}
