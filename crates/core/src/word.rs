//! Words of a list, read so that a wrong one is answered with the list.

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, IntoDeserializer as _, value::StringDeserializer},
};

/// Reads one word. Some readers of settings answer an unknown one with the name of a Rust type; this way it is serde
/// that answers, with all the words there are.
///
/// # Errors
/// Anything but a text, and a word that is not of the list.
pub fn word<'de, T: DeserializeOwned, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let text: StringDeserializer<D::Error> = String::deserialize(deserializer)?.into_deserializer();
    T::deserialize(text)
}

/// Reads a list of words.
///
/// # Errors
/// As for [`word`].
pub fn words<'de, T: DeserializeOwned, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Vec::<String>::deserialize(deserializer)?
        .into_iter()
        .map(|text| {
            let text: StringDeserializer<D::Error> = text.into_deserializer();
            T::deserialize(text)
        })
        .collect()
}
