//! The runtimes: a sandbox on each, made and read back twice as for a job.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use mayfly_core::{
    chain::Chain,
    id::{ExecutorId, SessionId},
    image::ImagePin,
    job::JobSpec,
    run::SandboxFacts,
};
use mayfly_sandbox::{
    DockerSandbox,
    error::EngineError,
    seam::{PrepareError, Sandbox as _, SandboxRequest},
};
use mayfly_settings::Posture;
use serde_json::json;

use super::{Examined, address, finding::Finding, leftovers, preflight, probes, report::RuntimeProbes};
use crate::{args::DoctorArgs, context, progress::Step, uids};

/// How long a test start may take in all; each call within it has its own bound.
const START_LIMIT: Duration = Duration::from_secs(90);
/// How long the sandbox may wait for the job that never comes.
const IDLE: Duration = Duration::from_secs(30);

/// What the tests of runtimes gave.
#[derive(Debug, Default)]
pub(crate) struct Tested {
    pub(crate) findings: Vec<Finding>,
    pub(crate) probes: Vec<RuntimeProbes>,
}

pub(crate) async fn check(examined: &Examined, image: Option<&ImagePin>, args: &DoctorArgs) -> Tested {
    let mut tested = Tested::default();
    let processes = leftovers::processes(examined).await;
    let Some(engine) = &examined.engine else {
        let why = "no engine answers";
        tested
            .findings
            .push(Finding::skipped("leftovers.containers", why));
        tested.findings.push(Finding::skipped("runtime", why));
        return tested;
    };
    let lock = match uids::take(examined.settings.sandbox.first_uid) {
        Ok(lock) => lock,
        Err(failure) => {
            tested.findings.push(
                Finding::problem("guest.uids", failure.text())
                    .means("a sandbox needs two uids that nobody else has, and there are none")
                    .mend("end other mayfly processes, or set `sandbox.first_uid`"),
            );
            tested.findings.extend(processes);
            return tested;
        }
    };
    let settings = &examined.settings.sandbox;
    let check = preflight::host_check(settings, Posture::Development, &[]);
    let config = context::sandbox_config(settings, &lock, check);
    let sandbox = match DockerSandbox::connect(config, Arc::clone(&examined.clock)).await {
        Ok(sandbox) => sandbox,
        Err(error) => {
            tested.findings.push(no_guest(&error));
            tested.findings.extend(processes);
            return tested;
        }
    };
    tested.findings.push(
        Finding::ok(
            "guest.binary",
            format!("{} for {}", sandbox.guest_digest(), engine.facts().architecture),
        )
        .means("the program that is process 1 of each sandbox fits this engine"),
    );
    tested.findings.extend(processes);
    tested
        .findings
        .push(leftovers::containers(examined, &sandbox).await);
    let policy = &examined.settings.policy.runtimes;
    tested.findings.extend(unlike(policy, &engine.facts().runtimes));
    let known = policy
        .iter()
        .filter(|runtime| engine.facts().runtimes.contains(*runtime));
    let wanted = known.filter(|runtime| args.runtime.is_empty() || args.runtime.contains(runtime));
    for runtime in wanted {
        let Some(image) = image else {
            tested.findings.push(
                Finding::skipped(format!("runtime.{runtime}"), "there is no image to start it with")
                    .mend("mayfly image ensure python"),
            );
            continue;
        };
        let step = (!args.json).then(|| Step::begin(format!("starting a sandbox on {runtime}")));
        let (starts, findings) = start(examined, &sandbox, image, runtime).await;
        drop(step);
        tested.findings.extend(findings);
        if args.probe && starts {
            let (finding, verdicts) = probes::check(&sandbox, image, runtime, args.json).await;
            tested.findings.push(finding);
            tested.probes.push(verdicts);
        }
    }
    for asked in args
        .runtime
        .iter()
        .filter(|asked| !policy.contains(asked) || !engine.facts().runtimes.contains(*asked))
    {
        tested.findings.push(
            Finding::problem(
                format!("runtime.{asked}"),
                "it is not tested: engine and policy don't both have it",
            )
            .means("no job can ask for it")
            .mend(format!(
                "docker info shows the runtimes of {}; policy.runtimes those of jobs",
                address(&examined.settings)
            )),
        );
    }
    // What the tests began is over before the process ends.
    tokio::time::timeout(START_LIMIT, sandbox.drained()).await.ok();
    tested
}

fn no_guest(error: &EngineError) -> Finding {
    Finding::problem("guest.binary", Chain(error))
        .means("no sandbox can be made on this engine")
        .mend("see what it says; docs/settings.md, `sandbox.guest`")
}

/// Runtimes that only one side knows.
fn unlike(policy: &[String], engine: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, runtime) in policy
        .iter()
        .enumerate()
        .filter(|(_, runtime)| !engine.contains(*runtime))
    {
        let id = format!("runtime.{runtime}");
        findings.push(if index == 0 {
            Finding::problem(id, "the engine has no such runtime, and jobs get it that ask for none")
                .means("jobs that name no runtime are refused")
                .mend("install it and name it in the engine's configuration, or put another one first in `policy.runtimes`")
        } else {
            Finding::note(id, "the engine has no such runtime")
                .means("jobs that ask for it are refused; nothing is put in its place")
                .mend("install it and name it in the engine's configuration (`runtimes` of daemon.json)")
        });
    }
    findings.extend(
        engine
            .iter()
            .filter(|runtime| !policy.contains(runtime))
            .map(|runtime| {
                Finding::skipped(
                    format!("runtime.{runtime}"),
                    "no job may ask for it (setting `policy.runtimes`), so that it is not tested",
                )
            }),
    );
    findings
}

/// One sandbox, as a job of the defaults would get it.
async fn start(
    examined: &Examined,
    sandbox: &DockerSandbox,
    image: &ImagePin,
    runtime: &str,
) -> (bool, Vec<Finding>) {
    let id = format!("runtime.{runtime}");
    let request = match request(examined, image, runtime) {
        Ok(request) => request,
        Err(why) => {
            return (
                false,
                vec![Finding::problem(id, why).means("a job of the defaults is refused")],
            );
        }
    };
    let begun = Instant::now();
    match tokio::time::timeout(START_LIMIT, sandbox.prepare(request)).await {
        Ok(Ok(ready)) => {
            let took = begun.elapsed();
            let facts = ready.facts().clone();
            ready.discard().await;
            (true, started(runtime, &facts, took))
        }
        Ok(Err(error)) => (false, vec![refused(runtime, &error)]),
        Err(_) => {
            let why = format!("no sandbox was ready within {} s", START_LIMIT.as_secs());
            let finding = Finding::problem(id, why)
                .means("jobs on this runtime end as trouble of ours; other runtimes are not concerned")
                .mend("see the engine's log: journalctl -u docker");
            (false, vec![finding])
        }
    }
}

fn request(examined: &Examined, image: &ImagePin, runtime: &str) -> Result<SandboxRequest, String> {
    let spec: JobSpec = serde_json::from_value(json!({
        "image": "doctor", "command": ["/never/started"], "runtime": runtime,
    }))
    .map_err(|error| error.to_string())?;
    let job = spec
        .resolve(
            &examined.settings.policy,
            image.clone(),
            &mayfly_sandbox::baseline_digest(),
        )
        .map_err(|faults| faults.to_string())?;
    Ok(SandboxRequest::for_job(
        &job,
        ExecutorId::new(),
        SessionId::new(),
        IDLE,
    ))
}

fn started(runtime: &str, facts: &SandboxFacts, took: Duration) -> Vec<Finding> {
    let id = format!("runtime.{runtime}");
    let users = facts.user_namespace.map_or_else(String::new, |users| {
        format!(
            ", and that its root is user {} of the host, in a namespace of {} ids",
            users.first_uid, users.count
        )
    });
    let found = format!(
        "a sandbox was ready in {} ms; its kernel says {}{users}",
        took.as_millis(),
        facts.kernel
    );
    let mut findings = vec![if is_gvisor(runtime) {
        // The read-back has refused any other kernel under this name.
        Finding::ok(&id, found).means("every setting was read back twice; by its kernel it is really gVisor")
    } else {
        Finding::ok(&id, found).means("every setting was read back twice, from the engine and from inside")
    }];
    if !facts.not_enforceable.is_empty() {
        let lines: Vec<String> = facts
            .not_enforceable
            .iter()
            .map(|(what, why)| format!("{what} ({why})"))
            .collect();
        findings.push(
            Finding::note(format!("{id}_not_enforced"), lines.join("; "))
                .means("this runtime, kernel or engine can't do it; each run's record says so"),
        );
    }
    findings
}

fn is_gvisor(runtime: &str) -> bool {
    runtime.starts_with("runsc")
}

fn refused(runtime: &str, error: &PrepareError) -> Finding {
    let id = format!("runtime.{runtime}");
    let finding = |means: &str| Finding::problem(&id, Chain(error)).means(means);
    match error {
        PrepareError::Mismatch(mismatches) => {
            let lines: Vec<String> = mismatches
                .iter()
                .map(|mismatch| format!("{} is {}, not {}", mismatch.field, mismatch.found, mismatch.asked))
                .collect();
            Finding::problem(&id, format!("a sandbox is not as it was asked for: {}", lines.join("; ")))
                .means("jobs on this runtime are refused, since what protects the host is not in force; other runtimes are not concerned")
                .mend("see that engine, runtime and kernel can do what is named, and that the runtime is what it is called")
        }
        PrepareError::ImageUnavailable(_) => {
            finding("the image went away while it was looked at").mend("mayfly image ensure python")
        }
        PrepareError::RuntimeUnavailable(_) => {
            finding("jobs that ask for it are refused").mend("install it and name it in the engine's configuration")
        }
        PrepareError::Engine(_) => finding("jobs on this runtime end as trouble of ours; other runtimes are not concerned")
            .mend(format!("see that the program behind `{runtime}` runs (docker info, daemon.json), and the engine's log: journalctl -u docker")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Status;

    #[test]
    fn runtimes_that_only_one_side_knows_are_told_apart() {
        let policy = ["runc", "runsc"].map(str::to_owned);
        let found = |engine: &[&str]| {
            let engine = engine.iter().map(|name| (*name).to_owned()).collect();
            let found = unlike(&policy, &engine);
            found
                .into_iter()
                .map(|finding| (finding.id, finding.status))
                .collect::<Vec<_>>()
        };
        assert_eq!(found(&["runc", "runsc"]), []);
        assert_eq!(found(&["runc"]), [("runtime.runsc".to_owned(), Status::Note)]);
        assert_eq!(
            found(&["runsc", "kata"]),
            [
                ("runtime.runc".to_owned(), Status::Problem),
                ("runtime.kata".to_owned(), Status::Skipped)
            ]
        );
    }
}
