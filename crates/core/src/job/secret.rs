//! A value that is shown nowhere.

use std::{collections::BTreeMap, fmt};

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

/// Reads secrets by their names. What is written in place of an object may be one, and no error shows it either.
pub(super) fn map<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, SecretText>, D::Error> {
    struct Secrets;

    impl<'de> Visitor<'de> for Secrets {
        type Value = BTreeMap<String, SecretText>;

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
    }
}
