//! Where settings come from, for `mayfly doctor`, and variables that look like settings and are none.

use std::{collections::HashMap, path::PathBuf};

use crate::{Settings, Surroundings};

/// Where the settings of a process come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// The file that was read, if there is one.
    pub file: Option<PathBuf>,
    /// Variables that are settings, by name.
    pub variables: Vec<String>,
    /// Variables that begin like settings and are none, by name.
    pub strangers: Vec<Stranger>,
}

/// A variable `MAYFLY_…` that is no setting, so that it has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stranger {
    /// Its name.
    pub name: String,
    /// The variable that it may have been meant for.
    pub meant: Option<String>,
}

/// Variables that are ours and no settings: the file's name, and those of tests and builds.
const NO_SETTINGS: [&str; 12] = [
    "MAYFLY_CONFIG",
    "MAYFLY_GUEST_ARCHITECTURE",
    "MAYFLY_GUEST_BINARY",
    "MAYFLY_GUEST_BUILD",
    "MAYFLY_GUEST_TARGET",
    "MAYFLY_HUMANEVAL",
    "MAYFLY_MODEL_CASES",
    "MAYFLY_POSTGRES_PORT",
    "MAYFLY_RABBITMQ_PORT",
    "MAYFLY_SKIP_LOG",
    "MAYFLY_TEST_",
    "MAYFLY_UPDATE",
];

impl Settings {
    /// Where the settings of this process come from, whether they can be read or not.
    #[must_use]
    pub fn sources(surroundings: &Surroundings) -> Sources {
        let mut variables: Vec<String> = surroundings
            .variables
            .keys()
            .filter(|name| is_setting(name))
            .cloned()
            .collect();
        variables.sort();
        let known = known_variables(&surroundings.variables);
        let strange = |name: &&String| {
            name.starts_with("MAYFLY_")
                && !is_setting(name)
                && !NO_SETTINGS.iter().any(|no| name.starts_with(no))
        };
        let mut strangers: Vec<Stranger> = surroundings
            .variables
            .keys()
            .filter(strange)
            .map(|name| Stranger {
                meant: known
                    .iter()
                    .find(|known| known.replace("__", "_") == **name)
                    .cloned(),
                name: name.clone(),
            })
            .collect();
        strangers.sort_by(|one, other| one.name.cmp(&other.name));
        Sources {
            file: Self::file(surroundings).unwrap_or_default(),
            variables,
            strangers,
        }
    }
}

/// Only names with `__` are settings.
pub(crate) fn is_setting(name: &str) -> bool {
    name.strip_prefix("MAYFLY_")
        .is_some_and(|rest| rest.contains("__"))
}

/// The variables of all settings that have a default, which is all of them.
fn known_variables(variables: &HashMap<String, String>) -> Vec<String> {
    let mut known = Vec::new();
    let defaults = Settings::defaults(variables, false).ok();
    if let Some(Ok(serde_json::Value::Object(sections))) = defaults.map(serde_json::to_value) {
        for (section, value) in sections {
            names(&section, &value, &mut known);
        }
    }
    known
        .into_iter()
        .map(|path| format!("MAYFLY_{}", path.to_uppercase()))
        .collect()
}

fn names(path: &str, value: &serde_json::Value, known: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(keys) => {
            for (key, value) in keys {
                names(&format!("{path}__{key}"), value, known);
            }
        }
        _ => known.push(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(variables: &[&str]) -> Sources {
        let home = [("HOME".to_owned(), "/nowhere".to_owned())];
        Settings::sources(&Surroundings {
            variables: variables
                .iter()
                .map(|name| ((*name).to_owned(), "x".to_owned()))
                .chain(home)
                .collect(),
            ..Surroundings::default()
        })
    }

    #[test]
    fn a_variable_that_looks_like_a_setting_and_is_none_is_found_with_what_was_meant() {
        let found = sources(&[
            "MAYFLY_LOG",
            "MAYFLY_SANDBOX_ENGINE",
            "MAYFLY_POLICY_LIMITS_DEFAULTS_MEMORY",
            "MAYFLY_LOG__FILTER",
            "MAYFLY_CONFIG",
            "MAYFLY_SKIP_LOG",
            "MAYFLY_TEST_DATABASE",
            "PATH",
        ]);
        assert_eq!(found.variables, ["MAYFLY_LOG__FILTER"]);
        let strangers: Vec<_> = found
            .strangers
            .iter()
            .map(|stranger| (stranger.name.as_str(), stranger.meant.as_deref()))
            .collect();
        assert_eq!(
            strangers,
            [
                ("MAYFLY_LOG", None),
                (
                    "MAYFLY_POLICY_LIMITS_DEFAULTS_MEMORY",
                    Some("MAYFLY_POLICY__LIMITS__DEFAULTS__MEMORY")
                ),
                ("MAYFLY_SANDBOX_ENGINE", Some("MAYFLY_SANDBOX__ENGINE")),
            ]
        );
    }

    #[test]
    fn a_surrounding_without_any_has_none() {
        assert_eq!(sources(&[]), Sources::default());
    }
}
