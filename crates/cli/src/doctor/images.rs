//! The catalog's images: on the engine, still the pinned ones, how old.

use chrono::{DateTime, TimeDelta, Utc};
use mayfly_core::{chain::Chain, image::ImagePin};
use mayfly_sandbox::images::{ImageLook, Images};
use mayfly_store::{records::ImageEntry, seam::Store};

use super::{
    Examined,
    finding::{Finding, Status},
};
use crate::catalog;

/// From this age on an image lacks fixes that its base has by now.
const OLD: TimeDelta = TimeDelta::days(90);

/// The image that runtimes are tested with, where it is on the engine.
pub(crate) async fn check(
    examined: &Examined,
    store: Option<&dyn Store>,
) -> (Option<ImagePin>, Vec<Finding>) {
    let Some(store) = store else {
        return (
            None,
            vec![Finding::skipped(
                "image",
                "there is no catalog without a database",
            )],
        );
    };
    let entries = match store.list_images().await {
        Ok(entries) => entries,
        Err(error) => return (None, vec![unreadable(&Chain(&error).to_string())]),
    };
    let default = &examined.settings.image.default;
    let mut findings = Vec::new();
    if !entries.iter().any(|entry| entry.name == *default) {
        findings.push(not_pinned(default));
    }
    let Some(engine) = &examined.engine else {
        findings.extend(
            entries
                .iter()
                .map(|entry| Finding::skipped(format!("image.{}", entry.name), "no engine answers")),
        );
        return (None, findings);
    };
    let images = Images::new(engine.clone());
    let (mut tested, now) = (None, examined.clock.now());
    for entry in &entries {
        let looked = images.look(&entry.pin).await;
        if matches!(&looked, Ok(Some(look)) if look.is_the_pinned_one) && entry.name == *default {
            tested = Some(entry.pin.clone());
        }
        findings.push(match looked {
            Ok(look) => judge(entry, look, now),
            Err(error) => Finding::problem(format!("image.{}", entry.name), Chain(&error))
                .means("whether jobs can use it is not known")
                .mend("see what the engine says: docker image inspect"),
        });
    }
    (tested, findings)
}

fn unreadable(why: &str) -> Finding {
    Finding::problem("image.catalog", why)
        .means("no name of an image can be looked up")
        .mend("see database.intact")
}

fn not_pinned(name: &str) -> Finding {
    if name == "python" {
        return Finding::note("image.default", "`python` is not pinned yet")
            .means("the first run finds, pulls or builds it")
            .mend("mayfly image ensure python");
    }
    Finding::problem(
        "image.default",
        format!("`{name}` (setting `image.default`) is not in the catalog"),
    )
    .means("a job that names no image is refused")
    .mend(format!("mayfly image pin {name} REFERENCE"))
}

fn judge(entry: &ImageEntry, look: Option<ImageLook>, now: DateTime<Utc>) -> Finding {
    let id = format!("image.{}", entry.name);
    let pin = &entry.pin;
    let again = catalog::again(&entry.name, pin);
    let look = match look {
        Some(look) if look.is_the_pinned_one => look,
        Some(_) => {
            return Finding::problem(
                id,
                format!("the engine has another image under the id {}", pin.config_digest),
            )
            .means("jobs for it are refused, since what runs must be what was pinned")
            .mend(again);
        }
        None => {
            return Finding::warning(id, format!("{} is not on this engine", pin.digest))
                .means("jobs for it are refused until it is there again")
                .mend(again);
        }
    };
    // What is built reproducibly has a fixed date, which says nothing of its age.
    let created = look.created.filter(|created| created.timestamp() > 86_400);
    let age = created.map(|created| now.signed_duration_since(created));
    let digest = if look.keeps_its_digest {
        ""
    } else {
        "; the engine knows its registry's digest no more"
    };
    match age {
        Some(age) if age > OLD => Finding::note(id, format!("{}, {} days old{digest}", pin.digest, age.num_days()))
            .means("fixes of its packages since then are missing; a sandbox holds them in, and a job's own code meets them")
            .mend("build or pull it anew and pin the name again: mayfly image build, mayfly image pin"),
        Some(age) => Finding::ok(id, format!("{}, {} days old{digest}", pin.digest, age.num_days()))
            .means("it is the image that was pinned"),
        None => Finding::new(id, Status::Ok, format!("{}, of unknown age{digest}", pin.digest))
            .means("it is the image that was pinned; one that is built reproducibly has no date of its own"),
    }
}

#[cfg(test)]
mod tests {
    use mayfly_core::digest::Digest;

    use super::*;

    fn entry() -> ImageEntry {
        let digest = Digest::of(b"image");
        ImageEntry {
            name: "tools".to_owned(),
            pin: ImagePin {
                reference: "tools:1".to_owned(),
                digest,
                config_digest: digest,
                platform: "linux/amd64".to_owned(),
            },
            pinned_at: DateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn an_image_is_judged_by_its_id_and_its_age() {
        let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let look = |is_the_pinned_one, created| {
            Some(ImageLook {
                is_the_pinned_one,
                keeps_its_digest: true,
                created,
            })
        };
        let days = |days| Some(now - TimeDelta::days(days));
        for (looked, status, word) in [
            (look(true, days(89)), Status::Ok, "89 days"),
            (look(true, days(91)), Status::Note, "91 days"),
            (look(true, None), Status::Ok, "unknown age"),
            (look(true, Some(DateTime::UNIX_EPOCH)), Status::Ok, "unknown age"),
            (look(false, days(1)), Status::Problem, "another image"),
            (None, Status::Warning, "not on this engine"),
        ] {
            let found = judge(&entry(), looked, now);
            assert_eq!(found.status, status, "{word}");
            assert!(found.found.contains(word), "{}", found.found);
            assert_eq!(found.id, "image.tools");
        }
    }

    #[test]
    fn a_default_that_nobody_pinned_is_a_problem_unless_it_comes_by_itself() {
        assert_eq!(not_pinned("python").status, Status::Note);
        assert_eq!(not_pinned("tools").status, Status::Problem);
    }
}
