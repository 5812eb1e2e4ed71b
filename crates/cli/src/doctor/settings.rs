//! Settings: where they come from, and variables that look like some and are none.

use std::collections::HashMap;

use mayfly_core::chain::Chain;
use mayfly_settings::{Settings, Sources, Surroundings};

use super::finding::Finding;
use crate::{args::Common, context};

/// The settings of this process. Where they can't be read the rest is looked at by the defaults.
pub(crate) fn check(common: &Common) -> (Settings, Vec<Finding>) {
    let surroundings = context::surroundings(common);
    let mut findings = sources(&Settings::sources(&surroundings));
    let settings = match Settings::load(&surroundings) {
        Ok(settings) => settings,
        Err(error) => {
            findings.insert(
                0,
                Finding::problem("settings.read", Chain(&error))
                    .means("no command runs with these settings; what follows was looked at by the defaults")
                    .mend("correct what is named; docs/settings.md lists every key"),
            );
            return (defaults(&surroundings), findings);
        }
    };
    (settings, findings)
}

fn sources(sources: &Sources) -> Vec<Finding> {
    let file = sources
        .file
        .as_ref()
        .map_or_else(|| "no file".to_owned(), |file| file.display().to_string());
    let variables = if sources.variables.is_empty() {
        "no variables".to_owned()
    } else {
        sources.variables.join(", ")
    };
    let mut findings = vec![
        Finding::ok("settings.sources", format!("{file}; {variables}"))
            .means("later ones win: defaults, file, variables, flags"),
    ];
    findings.extend(sources.strangers.iter().map(|stranger| {
        let mend = stranger.meant.as_ref().map_or_else(
            || format!("take {} away, or write it as MAYFLY_SECTION__KEY", stranger.name),
            |meant| format!("write {meant}"),
        );
        Finding::warning("settings.ignored", &stranger.name)
            .means("it begins like a setting and is none, since a section and its key are parted by two underscores")
            .mend(mend)
    }));
    findings
}

/// Of a home at least, so that there is a place for a database to look at.
fn defaults(surroundings: &Surroundings) -> Settings {
    let home = |variables: HashMap<String, String>| Surroundings {
        variables,
        ..Surroundings::default()
    };
    let kept: HashMap<String, String> = ["HOME", "XDG_DATA_HOME"]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), surroundings.variables.get(name)?.clone())))
        .collect();
    let homeless = || Settings::load(&home([("HOME".to_owned(), "/".to_owned())].into())).ok();
    let settings = Settings::load(&home(kept)).ok().or_else(homeless);
    settings.expect("the defaults are settings wherever there is a home")
}

#[cfg(test)]
mod tests {
    use mayfly_settings::Stranger;

    use super::*;
    use crate::doctor::finding::Status;

    #[test]
    fn a_variable_without_effect_is_a_warning_that_names_the_right_one() {
        let found = sources(&Sources {
            file: None,
            variables: vec!["MAYFLY_LOG__FILTER".to_owned()],
            strangers: vec![
                Stranger {
                    name: "MAYFLY_SANDBOX_ENGINE".to_owned(),
                    meant: Some("MAYFLY_SANDBOX__ENGINE".to_owned()),
                },
                Stranger {
                    name: "MAYFLY_LOG".to_owned(),
                    meant: None,
                },
            ],
        });
        assert_eq!(found[0].found, "no file; MAYFLY_LOG__FILTER");
        assert!(found[1..].iter().all(|finding| finding.status == Status::Warning));
        assert_eq!(found[1].mend, "write MAYFLY_SANDBOX__ENGINE");
        assert!(found[2].mend.contains("MAYFLY_SECTION__KEY"), "{}", found[2].mend);
    }

    #[test]
    fn without_any_home_there_are_defaults_to_look_by() {
        let settings = defaults(&Surroundings::default());
        assert!(settings.store.path.is_absolute());
    }
}
