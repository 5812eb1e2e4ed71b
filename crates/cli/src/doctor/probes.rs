//! `--probe`: the hostile self-test on one runtime, and one finding of it.

use mayfly_core::{
    id::{ExecutorId, SessionId},
    image::ImagePin,
};
use mayfly_sandbox::{
    DockerSandbox,
    probes::{self, Probe, ProbeResult, Subject, Verdict},
};
use tokio_util::sync::CancellationToken;

use super::{finding::Finding, report::RuntimeProbes};
use crate::progress::Step;

/// All programs on one runtime, one after the other; `before` is called before each. None if it was asked to stop before
/// it was through.
pub(crate) async fn verdicts<T>(
    sandbox: &DockerSandbox,
    image: &ImagePin,
    runtime: &str,
    stop: &CancellationToken,
    before: impl Fn(&Probe) -> T,
) -> Option<Vec<Verdict>> {
    let subject = Subject {
        sandbox,
        census: sandbox.engine(),
        image: image.clone(),
        runtime: runtime.to_owned(),
        executor: ExecutorId::new(),
        session: SessionId::new(),
    };
    let mut verdicts = Vec::new();
    for probe in probes::ALL {
        if stop.is_cancelled() {
            return None;
        }
        let _until_it_is_over = before(probe);
        verdicts.push(probes::run(&subject, probe).await);
    }
    verdicts.push(probes::nothing_is_left(&subject).await);
    Some(verdicts)
}

pub(crate) async fn check(
    sandbox: &DockerSandbox,
    image: &ImagePin,
    runtime: &str,
    quiet: bool,
) -> (Finding, RuntimeProbes) {
    let show = |probe: &Probe| {
        (!quiet).then(|| Step::begin(format!("{runtime}: a program tries to {}", probe.tries)))
    };
    let verdicts = verdicts(sandbox, image, runtime, &CancellationToken::new(), show).await;
    let verdicts = verdicts.expect("nobody asks it to stop");
    let finding = judge(runtime, &verdicts);
    let probes = RuntimeProbes {
        runtime: runtime.to_owned(),
        verdicts,
    };
    (finding, probes)
}

fn judge(runtime: &str, verdicts: &[Verdict]) -> Finding {
    let id = format!("probe.{runtime}");
    let named = |result| {
        let found = verdicts.iter().filter(|verdict| verdict.result == result);
        let found: Vec<String> = found
            .map(|verdict| format!("{} ({})", verdict.id, verdict.why.join("; ")))
            .collect();
        found.join(", ")
    };
    let (broken, not_run) = (named(ProbeResult::Broken), named(ProbeResult::NotRun));
    if !broken.is_empty() {
        return Finding::problem(id, format!("did not hold: {broken}"))
            .means("a hostile program gets what a sandbox on this runtime must refuse; don't run the code of strangers on it")
            .mend("see the table for what was got, then what of host, engine or runtime allows it; run again when it is mended");
    }
    if !not_run.is_empty() {
        return Finding::problem(id, format!("could not be tried: {not_run}"))
            .means("whether a sandbox on this runtime holds is not known")
            .mend("mend what is named, and run again");
    }
    Finding::ok(
        id,
        format!("{} hostile programs, and all were held", verdicts.len()),
    )
    .means("sandboxes on this runtime held against each; docs/doctor.md lists them")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Status;

    #[test]
    fn one_probe_that_is_broken_or_was_not_run_is_a_problem() {
        let verdict = |result| Verdict {
            id: "memory".to_owned(),
            tries: String::new(),
            expected: String::new(),
            result,
            why: vec!["it ended otherwise".to_owned()],
            took_ms: 1,
        };
        let found = |results: &[ProbeResult]| {
            let verdicts: Vec<_> = results.iter().map(|result| verdict(*result)).collect();
            judge("runc", &verdicts)
        };
        assert_eq!(found(&[ProbeResult::Held]).status, Status::Ok);
        let broken = found(&[ProbeResult::Held, ProbeResult::Broken, ProbeResult::NotRun]);
        assert_eq!(broken.status, Status::Problem);
        assert!(
            broken.found.starts_with("did not hold: memory"),
            "{}",
            broken.found
        );
        assert!(
            found(&[ProbeResult::NotRun])
                .found
                .starts_with("could not be tried")
        );
    }
}
