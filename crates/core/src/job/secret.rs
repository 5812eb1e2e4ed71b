//! A value that is shown nowhere, or the name by which a server keeps one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};

/// A secret of a job. It is written where the job itself is: into its row and into its orders. `Debug` and errors of reading
/// show nothing of it.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = String, format = "password"))]
#[serde(transparent)]
pub struct SecretText(String);

impl SecretText {
    /// The value, for the job and for what looks for it in output.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for SecretText {
    fn from(value: String) -> Self {
        Self(value)
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // What serde says of a wrong type has the value in it.
        String::deserialize(deserializer)
            .map(Self)
            .map_err(|_| de::Error::custom("the value of a secret is a text"))
    }
}

/// Longest name of a secret, in bytes.
pub const MAX_SECRET_NAME_BYTES: usize = 63;

/// What a secret is called that the server keeps for a tenant: 1 to [`MAX_SECRET_NAME_BYTES`] letters and digits of ASCII, `_`,
/// `-` and `.`, the first a letter or digit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = String, min_length = 1, max_length = 63, pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]*$"))]
#[serde(transparent)]
pub struct SecretName(String);

/// Not what a secret may be called. It shows nothing of it: a value may have been given in place of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of a secret has 1 to {MAX_SECRET_NAME_BYTES} letters, digits, `_`, `-` and `.`, and begins with a letter or \
     digit"
)]
pub struct SecretNameError;

impl SecretName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SecretName {
    type Err = SecretNameError;

    fn from_str(name: &str) -> Result<Self, SecretNameError> {
        let begins_well = name
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric());
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        let fits = begins_well && name.len() <= MAX_SECRET_NAME_BYTES && name.bytes().all(is_plain);
        fits.then(|| Self(name.to_owned())).ok_or(SecretNameError)
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SecretName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)
            .ok()
            .and_then(|name| name.parse().ok())
            .ok_or_else(|| de::Error::custom(SecretNameError))
    }
}

/// A secret as a job gives it: the value itself, or the name under which the server keeps one for the job's tenant. The value
/// of a named one is neither in the job's row nor in its orders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum SecretValue {
    /// The value.
    Text(SecretText),
    /// The name of one.
    Named(NamedSecret),
}

/// A secret that the server keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NamedSecret {
    /// Its name.
    pub named: SecretName,
}

impl From<String> for SecretValue {
    fn from(value: String) -> Self {
        Self::Text(value.into())
    }
}

impl From<SecretText> for SecretValue {
    fn from(value: SecretText) -> Self {
        Self::Text(value)
    }
}

impl From<SecretName> for SecretValue {
    fn from(named: SecretName) -> Self {
        Self::Named(NamedSecret { named })
    }
}

impl<'de> Deserialize<'de> for SecretValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str =
            "a secret is a text, or the name of one that the server keeps: {\"named\": \"NAME\"}";
        struct Value;

        impl<'de> Visitor<'de> for Value {
            type Value = SecretValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or the name of a secret")
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Self::Value, E> {
                Ok(value.to_owned().into())
            }

            fn visit_string<E: de::Error>(self, value: String) -> Result<Self::Value, E> {
                Ok(value.into())
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                // What serde says of a field that is unknown, or of a wrong type, has a part of the value in it.
                NamedSecret::deserialize(MapAccessDeserializer::new(map))
                    .map(SecretValue::Named)
                    .map_err(|_| de::Error::custom(EXPECTED))
            }
        }

        deserializer
            .deserialize_any(Value)
            .map_err(|_| de::Error::custom(EXPECTED))
    }
}

/// Which named secrets a job is to have, and where. Nothing of them is known here but their names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedSecrets {
    /// By the environment variable that each is for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, SecretName>,
    /// By the path of the file below `/work` that each is for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, SecretName>,
}

impl NamedSecrets {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.env.is_empty() && self.files.is_empty()
    }

    /// Their names, each once.
    #[must_use]
    pub fn names(&self) -> BTreeSet<&SecretName> {
        self.env.values().chain(self.files.values()).collect()
    }
}

/// The values of a job's secrets, as they travel to its executor beside its order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretValues {
    /// By environment variable.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, SecretText>,
    /// By path below `/work`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, SecretText>,
}

impl SecretValues {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.env.is_empty() && self.files.is_empty()
    }

    /// The bytes that an executor fetches: JSON, with every value in clear.
    ///
    /// # Panics
    /// Never: it is texts by texts.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts by texts can be written")
    }

    /// Reads bytes that were fetched.
    ///
    /// # Errors
    /// [`SecretValuesError`], where they are something else.
    pub fn decode(bytes: &[u8]) -> Result<Self, SecretValuesError> {
        serde_json::from_slice(bytes).map_err(|_| SecretValuesError)
    }
}

/// Bytes that are no secrets of a job. It shows nothing of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("these are no secrets of a job")]
pub struct SecretValuesError;

/// Parts the values from the names.
pub(super) fn part(
    given: BTreeMap<String, SecretValue>,
) -> (BTreeMap<String, SecretText>, BTreeMap<String, SecretName>) {
    let (mut texts, mut names) = (BTreeMap::new(), BTreeMap::new());
    for (place, value) in given {
        match value {
            SecretValue::Text(text) => drop(texts.insert(place, text)),
            SecretValue::Named(secret) => drop(names.insert(place, secret.named)),
        }
    }
    (texts, names)
}

/// Reads secrets by their places. What is written in place of an object may be one, and no error shows it either.
pub(super) fn map<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, SecretValue>, D::Error> {
    struct Secrets;

    impl<'de> Visitor<'de> for Secrets {
        type Value = BTreeMap<String, SecretValue>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object: the secrets by their names")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            BTreeMap::deserialize(MapAccessDeserializer::new(map))
        }

        fn visit_str<E: de::Error>(self, _: &str) -> Result<Self::Value, E> {
            Err(E::custom("expected an object: the secrets by their names"))
        }
    }

    // Asked for a map, a reader of JSON says by itself what stands there instead.
    deserializer.deserialize_any(Secrets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_its_own_writing_shows_it() {
        let secret = SecretText::from("correct-horse".to_owned());
        assert_eq!(format!("{secret:?}"), "SecretText(…)");
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"correct-horse\"");
        let spec = r#"{"image": "python", "secrets": "correct-horse"}"#;
        let error = serde_json::from_str::<crate::job::JobSpec>(spec).unwrap_err();
        assert!(!error.to_string().contains("horse"), "{error}");
        for wrong in ["12345678", "[\"correct-horse\"]", "true"] {
            let error = serde_json::from_str::<SecretText>(wrong).unwrap_err().to_string();
            assert!(
                !error.contains("12345678") && !error.contains("correct-horse"),
                "{error}"
            );
        }
        for wrong in [
            "12345678",
            "[\"correct-horse\"]",
            "{\"correct-horse\": 1}",
            "{\"named\": 12345678}",
            "{\"named\": \"correct-horse battery\"}",
            "{\"named\": \"a\", \"correct-horse\": 1}",
        ] {
            let error = serde_json::from_str::<SecretValue>(wrong)
                .unwrap_err()
                .to_string();
            assert!(error.starts_with("a secret is a text, or the name"), "{error}");
            assert!(
                !error.contains("12345678") && !error.contains("correct-horse"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_secret_is_a_text_or_the_name_of_one() {
        let text: SecretValue = serde_json::from_str(r#""correct-horse""#).unwrap();
        assert_eq!(text, "correct-horse".to_owned().into());
        let named: SecretValue = serde_json::from_str(r#"{"named": "KEY_1.old-one"}"#).unwrap();
        assert_eq!(named, "KEY_1.old-one".parse::<SecretName>().unwrap().into());
        assert_eq!(
            serde_json::to_string(&named).unwrap(),
            r#"{"named":"KEY_1.old-one"}"#
        );
        assert_eq!(serde_json::to_string(&text).unwrap(), r#""correct-horse""#);
    }

    #[test]
    fn a_name_is_short_and_plain() {
        for name in ["a", "0", "OPENAI_API_KEY", "db.password-2", &"a".repeat(63)] {
            assert_eq!(name.parse::<SecretName>().unwrap().as_str(), name);
        }
        for name in ["", "_a", "-a", ".a", "a b", "a/b", "ä", "a\n", &"a".repeat(64)] {
            assert_eq!(name.parse::<SecretName>(), Err(SecretNameError), "{name}");
        }
    }
}
