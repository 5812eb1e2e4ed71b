//! A battery that can fail: a sandbox that is weaker in one field, for each field. A proxy puts the weak value into the
//! request that makes the container; then the read-backs must name that field, and where programs of the hostile battery
//! would be harmed by it, they must see it too, with both read-backs blinded.
//!
//! Where the engine refuses the weak request, or nothing comes up in it, no read-back has seen anything: that is listed by itself
//! and counts for nothing.
//!
//! `make test` takes those that programs see, and each path that is to be hidden; `MAYFLY_TEST_HOSTILE=all` takes all, and writes
//! what saw them to `MAYFLY_TEST_HOSTILE_RESULT`.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use mayfly_core::outcome::MismatchSource;
use mayfly_protocol::ReadyReport;
use mayfly_sandbox::{
    error::chain,
    images::Images,
    seam::{NoLiveOutput, PrepareError, Run, Sandbox},
};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    images::archive,
    lies::{carry_over, liar},
    mutants::list::{Mutant, NOT_COUNTED},
    proxy::{Change, Lie, Proxy, Seen},
    result,
    support::{Bench, matcher, on_gvisor, settled, skipped, text},
    table::{self, Runtime, Text},
};

mod list;

#[tokio::test]
async fn a_sandbox_that_is_weaker_in_one_field_is_seen() {
    if on_gvisor() {
        return skipped("weak sandboxes: programs see them on runc");
    }
    let Some((bench, proxy, honest)) = liar().await else {
        return;
    };
    let report: ReadyReport = serde_json::from_value(honest.ready.clone()).unwrap();
    let all = list::all(&report.present, &another_image(&bench).await);
    assert_eq!(
        fields_without_a_mutant(&honest.create, &all),
        Vec::<String>::new()
    );
    let whole = result::is_whole();
    // What a program says in an honest sandbox it has to say, or it would see every mutant.
    let programs: BTreeSet<_> = all.iter().flat_map(|mutant| mutant.programs).collect();
    for id in programs {
        assert_eq!(wrong_answer(&bench, &proxy, Lie::None, id).await, None, "{id}");
    }
    let (mut found, mut alive) = (Vec::new(), Vec::new());
    for mutant in all.iter().filter(|mutant| whole || mutant.always) {
        let Sighting {
            killed_by,
            impossible,
            unseen,
        } = see(&bench, &proxy, &honest, mutant).await;
        let (field, to) = (mutant.field, &mutant.to);
        eprintln!(
            "{field} → {to}: {}",
            [&killed_by[..], &impossible].concat().join("; ")
        );
        if !unseen.is_empty() {
            alive.push(format!("{field} → {to}: {}", unseen.join("; ")));
        }
        found.push(json!({"field": field, "to": to, "killed_by": killed_by, "impossible": impossible}));
    }
    for (field, to, why) in NOT_COUNTED {
        found.push(json!({"field": field, "to": to, "not_counted": why}));
    }
    if whole {
        result::record("mutants", &found);
    }
    assert!(alive.is_empty(), "not seen by all that should: {alive:#?}");
    bench.assert_nothing_is_left().await;
}

/// An image with nothing in it, by its digest.
async fn another_image(bench: &Bench) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image.tar");
    let id = archive(&file, "mayfly-test/another:1", &json!({}));
    let images = Images::new(bench.sandboxes.engine().clone());
    images.load(&file).await.unwrap();
    id.to_string()
}

/// Fields that we ask for and that no mutant weakens.
fn fields_without_a_mutant(create: &Value, all: &[Mutant]) -> Vec<String> {
    let names = |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    let mut fields = [names(create), names(&create["HostConfig"])].concat();
    fields.retain(|name| {
        let weakened = all
            .iter()
            .any(|mutant| mutant.field.split(' ').next() == Some(name));
        let not_counted = NOT_COUNTED.iter().any(|(field, ..)| field == name);
        name != "HostConfig" && !weakened && !not_counted
    });
    fields
}

/// What became of one mutant.
#[derive(Default)]
struct Sighting {
    /// Fields that a read-back named, and programs that were answered something else.
    killed_by: Vec<String>,
    /// By whom nothing could be seen, since the sandbox could not be made, and why.
    impossible: Vec<String>,
    /// Who should have seen it and has not.
    unseen: Vec<String>,
}

async fn see(bench: &Bench, proxy: &Proxy, honest: &Seen, mutant: &Mutant) -> Sighting {
    let mut sighting = Sighting::default();
    let inspected = read_back(bench, proxy, weak(mutant, None, false)).await;
    let is_named = |field: &str| mutant.is_named_by_inspect(field);
    sighting.note("inspect", inspected, MismatchSource::Inspect, &is_named, true);
    if let Some(inside) = &mutant.inside {
        let reported = read_back(bench, proxy, weak(mutant, None, true)).await;
        let is_named = |field: &str| mutant.is_named_inside(field);
        sighting.note(
            "guest",
            reported,
            MismatchSource::Guest,
            &is_named,
            !inside.is_empty(),
        );
    }
    for id in mutant.programs {
        let blinded = weak(mutant, Some(honest.clone()), true);
        match wrong_answer(bench, proxy, blinded, id).await {
            Some(line) => sighting.killed_by.push(format!("{id} (`{line}`)")),
            None => sighting
                .unseen
                .push(format!("{id} is answered as in an honest one")),
        }
    }
    sighting
}

impl Sighting {
    /// Notes what a read-back has said. Fields that it names beside the weak one are no sighting.
    fn note(
        &mut self,
        by: &str,
        said: Result<Vec<(MismatchSource, String)>, String>,
        source: MismatchSource,
        is_named: &dyn Fn(&str) -> bool,
        has_to: bool,
    ) {
        let said = match said {
            Ok(said) => said,
            Err(why) => return self.impossible.push(format!("{by}: {why}")),
        };
        let named: Vec<_> = said
            .iter()
            .filter(|(found, field)| *found == source && is_named(field))
            .map(|(_, field)| format!("{by} `{field}`"))
            .take(2)
            .collect();
        if named.is_empty() && (has_to || !said.is_empty()) {
            self.unseen.push(format!("{by} names {said:?}"));
        }
        self.killed_by.extend(named);
    }
}

/// What a program of the battery prints in this sandbox and not in an honest one.
async fn wrong_answer(bench: &Bench, proxy: &Proxy, lie: Lie, id: &str) -> Option<String> {
    proxy.tell(lie);
    let program = table::all()
        .into_iter()
        .find(|program| program.id == id)
        .expect("a program of the table");
    let job = bench.python(&program.text());
    let sandbox = bench
        .sandboxes
        .prepare(bench.request(&job))
        .await
        .unwrap_or_else(|error| panic!("{id}: both read-backs are blinded: {error:?}"));
    let run = Run {
        collect: None,
        fetched: None,
        egress: None,
        matcher: matcher(&job),
        job: Arc::new(job),
        stop: watch::channel(None).1,
        live: Arc::new(NoLiveOutput),
    };
    let report = settled(sandbox.run(run).await).await;
    let Text::Is(expected) = program.out(Runtime::Runc) else {
        panic!("{id} says nothing that could differ");
    };
    let said = text(&report.stdout);
    if said.as_bytes() == expected {
        return None;
    }
    let expected = String::from_utf8_lossy(expected);
    let differs = said.lines().find(|line| !expected.contains(line));
    Some(differs.unwrap_or("less").to_owned())
}

/// All fields that either read-back names; none where the sandbox was taken for what it should be.
///
/// # Errors
/// Why it could not be made at all.
async fn read_back(bench: &Bench, proxy: &Proxy, lie: Lie) -> Result<Vec<(MismatchSource, String)>, String> {
    proxy.tell(lie);
    let job = bench.python("raise SystemExit('this must not run')");
    let prepared = bench.sandboxes.prepare(bench.request(&job)).await;
    assert_eq!(proxy.frames_to_guests(), Vec::<&str>::new());
    match prepared {
        Ok(sandbox) => {
            sandbox.discard().await;
            Ok(Vec::new())
        }
        Err(PrepareError::Mismatch(mismatches)) => Ok(mismatches
            .into_iter()
            .map(|mismatch| (mismatch.source, mismatch.field))
            .collect()),
        Err(error) => Err(chain(&error)),
    }
}

/// The weak request. `hidden`: the engine says that it has made what was asked for; with an honest sandbox's truth, the
/// guest says that it is in one like that.
fn weak(mutant: &Mutant, honest: Option<Seen>, hidden: bool) -> Lie {
    let requests = Arc::new(Mutex::new((Value::Null, Value::Null)));
    let (told, change) = (Arc::clone(&requests), Arc::clone(&mutant.change));
    let create: Change = Arc::new(move |create: &mut Value| {
        let asked = create.clone();
        change(create);
        *told.lock().unwrap() = (asked, create.clone());
    });
    let seen = Arc::clone(&requests);
    let inspect: Change = Arc::new(move |inspect: &mut Value| {
        let (asked, made) = seen.lock().unwrap().clone();
        carry_over(
            &made["HostConfig"],
            &asked["HostConfig"],
            &mut inspect["HostConfig"],
        );
        let config = |request: &Value| {
            let mut config = request.clone();
            config.as_object_mut().unwrap().remove("HostConfig");
            config
        };
        carry_over(&config(&made), &config(&asked), &mut inspect["Config"]);
        if made["HostConfig"]["NetworkMode"] != asked["HostConfig"]["NetworkMode"] {
            inspect["NetworkSettings"]["Networks"] = json!({"none": {}});
        }
        if made["HostConfig"]["Binds"].is_array() {
            inspect["Mounts"]
                .as_array_mut()
                .unwrap()
                .retain(|mount| mount["Type"] != "bind");
        }
        if let Some(mount) = inspect["Mounts"].get_mut(0)
            && asked["HostConfig"]["Mounts"] != made["HostConfig"]["Mounts"]
        {
            mount["RW"] = false.into();
            mount["Mode"] = "z".into();
        }
    });
    let ready = honest.map(|honest| -> Change {
        Arc::new(move |ready: &mut Value| {
            let (asked, _) = requests.lock().unwrap().clone();
            *ready = as_of(&honest.ready, &uids(&honest.create), &uids(&asked));
        })
    });
    Lie::Weak {
        create,
        inspect: hidden.then_some(inspect),
        ready,
    }
}

/// The uids of a sandbox, as they stand in the guest's arguments.
fn uids(create: &Value) -> [u64; 2] {
    let arguments = create["Entrypoint"].as_array().unwrap();
    [2, 4].map(|at| arguments[at].as_str().unwrap().parse().unwrap())
}

/// A report with other uids.
fn as_of(report: &Value, before: &[u64; 2], after: &[u64; 2]) -> Value {
    match report {
        Value::Number(number) => match before.iter().position(|uid| number.as_u64() == Some(*uid)) {
            Some(at) => after[at].into(),
            None => report.clone(),
        },
        Value::String(text) => {
            let mut text = text.clone();
            for (before, after) in before.iter().zip(after) {
                text = text.replace(&before.to_string(), &after.to_string());
            }
            text.into()
        }
        Value::Array(items) => items.iter().map(|item| as_of(item, before, after)).collect(),
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(name, value)| (name.clone(), as_of(value, before, after)))
                .collect(),
        ),
        other => other.clone(),
    }
}
