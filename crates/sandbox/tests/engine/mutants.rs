//! A battery that can fail: a sandbox that is weaker in one field, for each field. A proxy puts the weak value into the
//! request that makes the container; then one of the two read-backs must name the field, and where programs of the hostile battery
//! would be harmed by it, they must see it too, with both read-backs blinded.
//!
//! `make test` takes those that programs see; `MAYFLY_TEST_HOSTILE=all` takes all, and writes what saw them to
//! `MAYFLY_TEST_HOSTILE_RESULT`.

use std::sync::{Arc, Mutex};

use mayfly_core::outcome::MismatchSource;
use mayfly_sandbox::seam::{NoLiveOutput, PrepareError, Run, Sandbox};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    lies::{carry_over, liar},
    mutants::list::{ALL, Danger, Mutant, NOT_COUNTED},
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
    let whole = result::is_whole();
    let (mut found, mut alive) = (Vec::new(), Vec::new());
    for mutant in ALL.iter().filter(|mutant| whole || !mutant.programs.is_empty()) {
        let killers = killers(&bench, &proxy, &honest, mutant).await;
        eprintln!("{} → {}: {}", mutant.field, mutant.to, killers.join("; "));
        let by_programs = killers.iter().filter(|killer| killer.starts_with("H-")).count();
        if killers.is_empty() || by_programs < mutant.programs.len() {
            alive.push(format!("{} → {}: {killers:?}", mutant.field, mutant.to));
        }
        found.push(json!({"field": mutant.field, "to": mutant.to, "killed_by": killers}));
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

/// What sees it: fields that a read-back names, and programs that are answered something else.
async fn killers(bench: &Bench, proxy: &Proxy, honest: &Seen, mutant: &Mutant) -> Vec<String> {
    let mut killers = read_back(bench, proxy, weak(mutant, None, false), MismatchSource::Inspect).await;
    if mutant.danger == Danger::Never {
        return killers;
    }
    killers.extend(read_back(bench, proxy, weak(mutant, None, true), MismatchSource::Guest).await);
    for id in mutant.programs {
        proxy.tell(weak(mutant, Some(honest.clone()), true));
        let program = table::all()
            .into_iter()
            .find(|program| program.id == *id)
            .expect("a program of the table");
        let job = bench.python(&program.text());
        let sandbox = bench
            .sandboxes
            .prepare(bench.request(&job))
            .await
            .unwrap_or_else(|error| panic!("{}: both read-backs are blinded: {error:?}", mutant.field));
        let run = Run {
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
        if said.as_bytes() != expected {
            let differs = said
                .lines()
                .find(|line| !String::from_utf8_lossy(expected).contains(line));
            killers.push(format!("{id} (`{}`)", differs.unwrap_or("less")));
        }
    }
    killers
}

/// The fields that this read-back names; none where the sandbox was taken for what it should be.
async fn read_back(bench: &Bench, proxy: &Proxy, lie: Lie, source: MismatchSource) -> Vec<String> {
    proxy.tell(lie);
    let job = bench.python("raise SystemExit('this must not run')");
    let prepared = bench.sandboxes.prepare(bench.request(&job)).await;
    assert_eq!(proxy.frames_to_guests(), Vec::<&str>::new());
    let by = match source {
        MismatchSource::Inspect => "inspect",
        MismatchSource::Guest => "guest",
    };
    match prepared {
        Ok(sandbox) => {
            sandbox.discard().await;
            Vec::new()
        }
        Err(PrepareError::Mismatch(mismatches)) => {
            let named = mismatches
                .into_iter()
                .filter(|mismatch| mismatch.source == source);
            named
                .map(|mismatch| format!("{by} `{}`", mismatch.field))
                .take(2)
                .collect()
        }
        Err(error) => vec![format!("{by}: not made at all ({error})")],
    }
}

/// The weak request. `hidden`: the engine says that it has made what was asked for; with an honest sandbox's truth, the
/// guest says that it is in one like that.
fn weak(mutant: &Mutant, honest: Option<Seen>, hidden: bool) -> Lie {
    let requests = Arc::new(Mutex::new((Value::Null, Value::Null)));
    let (told, change) = (Arc::clone(&requests), mutant.change);
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
