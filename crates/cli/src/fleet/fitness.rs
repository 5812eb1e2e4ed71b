//! Whether a host may run the code of strangers: the floors of its posture, and hostile programs in real sandboxes, when
//! an executor begins and again and again. One that is not fit takes no work.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use mayfly_core::{
    clock::Clock,
    image::ImagePin,
    self_test::{SelfTest, SelfTestFailure, SelfTestResult},
};
use mayfly_executor::{HostTest, Repetition, SelfTests};
use mayfly_failpoints::self_tests_divided_by;
use mayfly_sandbox::{
    DockerSandbox,
    probes::{ProbeResult, Verdict},
};
use mayfly_settings::{Posture, Settings};
use tokio_util::sync::CancellationToken;

use crate::{
    doctor::{self, FLOORS, Finding},
    exit,
    failure::Failure,
};

/// The name by which the self-test is left out. Then it proves nothing.
const SELF_TEST: &str = "self_test";

/// The shortest wait for the next self-test after one that failed.
const RETRY_FIRST: Duration = Duration::from_secs(60);

/// What a host is tried with.
pub(crate) struct Fitness {
    sandbox: Arc<DockerSandbox>,
    clock: Arc<dyn Clock>,
    /// Programs of the self-test are written in Python.
    image: ImagePin,
    /// None where it is left out.
    runtimes: Option<Vec<String>>,
    /// Floors that the host misses and that are accepted.
    accepted: Vec<String>,
}

impl Fitness {
    /// Looks at the floors, and for the runtimes that jobs may ask for.
    ///
    /// # Errors
    /// What is not as it must be, all of it in one text.
    pub(crate) fn of(
        settings: &Settings,
        sandbox: &Arc<DockerSandbox>,
        clock: &Arc<dyn Clock>,
        images: &BTreeMap<String, ImagePin>,
    ) -> Result<Self, Failure> {
        let accept = &settings.executor.accept;
        for name in accept {
            if name != SELF_TEST && !FLOORS.contains(&name.as_str()) {
                return Err(Failure::usage(format!(
                    "setting `executor.accept`: `{name}` is no floor: there are {} and {SELF_TEST}",
                    FLOORS.join(", ")
                )));
            }
        }
        let facts = sandbox.engine().facts();
        let missed = doctor::missed_floors(facts);
        let names: Vec<String> = missed.iter().map(|finding| finding.id.clone()).collect();
        refuse(judge(settings.executor.posture, accept, missed))?;
        let image = images.get("python").or_else(|| images.values().next());
        let wanted = settings.policy.runtimes.iter();
        let runtimes: Vec<String> = wanted
            .filter(|runtime| facts.runtimes.contains(*runtime))
            .cloned()
            .collect();
        let left_out = accept.iter().any(|name| name == SELF_TEST);
        if left_out {
            tracing::warn!(
                "the self-test is left out, by `executor.accept`: whether sandboxes hold here is not known"
            );
        } else if runtimes.is_empty() {
            return Err(Failure::new(
                exit::UNFIT,
                anyhow::anyhow!(
                    "the engine has none of the runtimes that jobs may ask for (`policy.runtimes`)"
                ),
            ));
        }
        Ok(Self {
            sandbox: Arc::clone(sandbox),
            clock: Arc::clone(clock),
            image: image.expect("an executor has at least one image").clone(),
            runtimes: (!left_out).then_some(runtimes),
            accepted: names,
        })
    }

    /// Makes the first self-test, after which others follow. One that fails keeps the executor from its work until one has
    /// passed, and not from saying so.
    pub(crate) async fn begin(self, settings: &Settings) -> SelfTests {
        // Whoever asks for the process's end meanwhile ends it.
        let first = self.run(&CancellationToken::new()).await;
        let first = first.expect("nobody asks it to stop");
        let divisor = self_tests_divided_by();
        let again = self.runtimes.is_some().then(|| Repetition {
            every: settings.executor.self_test_every.as_duration() / divisor,
            retry_first: RETRY_FIRST / divisor,
            host: Arc::new(self),
        });
        SelfTests { first, again }
    }

    fn outcome(&self, result: SelfTestResult, programs: usize, failures: Vec<SelfTestFailure>) -> SelfTest {
        SelfTest {
            at: self.clock.now(),
            result,
            runtimes: self.runtimes.clone().unwrap_or_default(),
            programs: u32::try_from(programs).unwrap_or(u32::MAX),
            failures,
            accepted: self.accepted.clone(),
        }
    }
}

#[async_trait]
impl HostTest for Fitness {
    async fn run(&self, stop: &CancellationToken) -> Option<SelfTest> {
        let Some(runtimes) = &self.runtimes else {
            return Some(self.outcome(SelfTestResult::LeftOut, 0, Vec::new()));
        };
        let (mut programs, mut failures) = (0, Vec::new());
        for runtime in runtimes {
            tracing::info!(
                runtime,
                "the self-test: hostile programs in sandboxes of their own"
            );
            let verdicts = doctor::verdicts(&self.sandbox, &self.image, runtime, stop, |_| ()).await?;
            programs += verdicts.len();
            failures.extend(
                verdicts
                    .into_iter()
                    .filter_map(|verdict| failure(runtime, verdict)),
            );
        }
        let result = if failures.is_empty() {
            SelfTestResult::Passed
        } else {
            SelfTestResult::Failed
        };
        Some(self.outcome(result, programs, failures))
    }
}

fn failure(runtime: &str, verdict: Verdict) -> Option<SelfTestFailure> {
    let what = match verdict.result {
        ProbeResult::Held => return None,
        ProbeResult::Broken => "did not hold",
        ProbeResult::NotRun => "could not be tried",
    };
    Some(SelfTestFailure {
        runtime: runtime.to_owned(),
        probe: verdict.id,
        why: format!("{what}: {}", verdict.why.join("; ")),
    })
}

/// Which of the missed floors refuse work; of the others it is said that they are missed.
fn judge(posture: Posture, accepted: &[String], missed: Vec<Finding>) -> Vec<Finding> {
    let mut refused = Vec::new();
    for finding in missed {
        let is_accepted = accepted.contains(&finding.id);
        if posture == Posture::Production && !is_accepted {
            refused.push(finding);
        } else {
            let by = if is_accepted {
                "executor.accept"
            } else {
                "executor.posture"
            };
            tracing::warn!(
                floor = finding.id,
                found = finding.found,
                by,
                "this host misses a floor"
            );
        }
    }
    refused
}

fn refuse(findings: Vec<Finding>) -> Result<(), Failure> {
    if findings.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = findings
        .iter()
        .map(|finding| {
            format!(
                "{}: {} ({}; {})",
                finding.id, finding.found, finding.means, finding.mend
            )
        })
        .collect();
    let error = anyhow::anyhow!("{}", lines.join("; ")).context(
        "this host is not fit for the code of strangers, and takes none (docs/fleet.md, `executor.accept`)",
    );
    Err(Failure::new(exit::UNFIT, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missed() -> Vec<Finding> {
        vec![
            Finding::warning("engine.versions", "old"),
            Finding::warning("engine.lsm", "none"),
        ]
    }

    fn refused(posture: Posture, accepted: &[&str]) -> Vec<String> {
        let accepted: Vec<String> = accepted.iter().map(|name| (*name).to_owned()).collect();
        let refused = judge(posture, &accepted, missed());
        refused.into_iter().map(|finding| finding.id).collect()
    }

    #[test]
    fn production_refuses_for_each_floor_that_nobody_has_accepted() {
        assert_eq!(
            refused(Posture::Production, &[]),
            ["engine.versions", "engine.lsm"]
        );
        assert_eq!(refused(Posture::Production, &["engine.versions"]), ["engine.lsm"]);
        assert!(refused(Posture::Production, &["engine.versions", "engine.lsm"]).is_empty());
        assert!(refused(Posture::Development, &[]).is_empty());
    }

    #[test]
    fn a_refusal_names_everything_at_once_and_the_way_out() {
        assert!(refuse(Vec::new()).is_ok());
        let text = refuse(missed()).unwrap_err().text();
        for part in ["engine.versions", "engine.lsm", "executor.accept"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_program_that_did_not_hold_is_told_from_one_that_could_not_be_tried() {
        let found = |result| {
            let verdict = Verdict {
                id: "memory".to_owned(),
                tries: String::new(),
                expected: String::new(),
                result,
                why: vec!["one".to_owned(), "two".to_owned()],
                took_ms: 1,
            };
            failure("runc", verdict).map(|failure| failure.to_string())
        };
        assert_eq!(found(ProbeResult::Held), None);
        let broken = found(ProbeResult::Broken).unwrap();
        assert_eq!(broken, "memory on runc: did not hold: one; two");
        assert!(found(ProbeResult::NotRun).unwrap().contains("could not be tried"));
    }
}
