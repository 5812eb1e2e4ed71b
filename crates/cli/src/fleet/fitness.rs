//! Whether a host may run the code of strangers: what its posture demands, and hostile programs in real sandboxes, when
//! an executor begins, again and again, and when its engine is back as another one. One that is not fit takes no work.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use mayfly_core::{
    chain::Chain,
    clock::Clock,
    image::ImagePin,
    self_test::{SelfTest, SelfTestFailure, SelfTestResult},
};
use mayfly_executor::{HostTest, Repetition, SelfTests};
use mayfly_failpoints::self_tests_divided_by;
use mayfly_sandbox::{
    DockerSandbox, FoundHost, HostCheck, Refused,
    probes::{ProbeResult, Verdict},
};
use mayfly_settings::Settings;
use tokio_util::sync::CancellationToken;

use crate::{doctor, exit, failure::Failure};

/// The name by which the self-test is left out. Then it proves nothing.
const SELF_TEST: &str = "self_test";

/// What stands in the place of a runtime where the host itself is not fit.
const HOST: &str = "host";

/// The shortest wait for the next self-test after one that failed.
const RETRY_FIRST: Duration = Duration::from_secs(60);

/// What a host is tried with.
pub(crate) struct Fitness {
    sandbox: Arc<DockerSandbox>,
    clock: Arc<dyn Clock>,
    /// Programs of the self-test are written in Python.
    image: ImagePin,
    /// Runtimes that jobs may ask for. None where the self-test is left out.
    runtimes: Option<Vec<String>>,
    /// What it was when it was last tried.
    tried: Mutex<Arc<FoundHost>>,
}

/// How the host is judged.
///
/// # Errors
/// A name in `executor.accept` that nothing has.
pub(crate) fn host_check(settings: &Settings) -> Result<HostCheck, Failure> {
    let (accept, names) = (&settings.executor.accept, doctor::preflight_names());
    for name in accept {
        if name != SELF_TEST && !names.contains(name) {
            return Err(Failure::usage(format!(
                "setting `executor.accept`: `{name}` is nothing that can be accepted: there are {} and {SELF_TEST}",
                names.join(", ")
            )));
        }
    }
    Ok(doctor::host_check(
        &settings.sandbox,
        settings.executor.posture,
        accept,
    ))
}

impl Fitness {
    /// Looks at what the host misses, and for the runtimes that jobs may ask for.
    ///
    /// # Errors
    /// What is not as it must be, all of it in one text.
    pub(crate) async fn of(
        settings: &Settings,
        sandbox: &Arc<DockerSandbox>,
        clock: &Arc<dyn Clock>,
        images: &BTreeMap<String, ImagePin>,
    ) -> Result<Self, Failure> {
        let host = sandbox.host().await?;
        refuse(host.refused())?;
        say_missed(&host);
        let image = images.get("python").or_else(|| images.values().next());
        let left_out = settings.executor.accept.iter().any(|name| name == SELF_TEST);
        let wanted = settings.policy.runtimes.clone();
        if left_out {
            tracing::warn!(
                "the self-test is left out, by `executor.accept`: whether sandboxes hold here is not known"
            );
        } else if there(&wanted, &host).is_empty() {
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
            runtimes: (!left_out).then_some(wanted),
            tried: Mutex::new(host),
        })
    }

    /// Makes the first self-test, after which others follow. One that fails keeps the executor from its work until one has
    /// passed, and not from saying so.
    pub(crate) async fn begin(self, settings: &Settings) -> SelfTests {
        // Whoever asks for the process's end meanwhile ends it.
        let first = self.run(&CancellationToken::new()).await;
        let first = first.expect("nobody asks it to stop");
        let divisor = self_tests_divided_by();
        let again = Some(Repetition {
            every: settings.executor.self_test_every.as_duration() / divisor,
            retry_first: RETRY_FIRST / divisor,
            host: Arc::new(self),
        });
        SelfTests { first, again }
    }

    fn tried(&self) -> Arc<FoundHost> {
        Arc::clone(&self.tried.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What the host is now; what it misses is said where that is something else than before.
    async fn look(&self) -> Result<Arc<FoundHost>, SelfTestFailure> {
        let host = self
            .sandbox
            .look_at_host()
            .await
            .map_err(|error| SelfTestFailure {
                runtime: HOST.to_owned(),
                probe: "engine.reached".to_owned(),
                why: Chain(&error).to_string(),
            })?;
        if host.preflight != self.tried().preflight {
            say_missed(&host);
        }
        *self.tried.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&host);
        Ok(host)
    }

    fn outcome(&self, runtimes: Vec<String>, programs: usize, failures: Vec<SelfTestFailure>) -> SelfTest {
        let host = self.tried();
        SelfTest {
            at: self.clock.now(),
            result: match (&self.runtimes, failures.as_slice()) {
                (_, [_, ..]) => SelfTestResult::Failed,
                (Some(_), []) => SelfTestResult::Passed,
                (None, []) => SelfTestResult::LeftOut,
            },
            runtimes,
            programs: u32::try_from(programs).unwrap_or(u32::MAX),
            failures,
            accepted: host
                .preflight
                .as_ref()
                .map_or_else(Vec::new, |preflight| preflight.missed.clone()),
        }
    }
}

#[async_trait]
impl HostTest for Fitness {
    async fn run(&self, stop: &CancellationToken) -> Option<SelfTest> {
        let host = match self.look().await {
            Ok(host) => host,
            Err(failure) => return Some(self.outcome(Vec::new(), 0, vec![failure])),
        };
        let refused = host.refused();
        if !refused.is_empty() {
            return Some(self.outcome(Vec::new(), 0, refused.iter().map(unfit).collect()));
        }
        let runtimes = self
            .runtimes
            .as_ref()
            .map_or_else(Vec::new, |wanted| there(wanted, &host));
        let (mut programs, mut failures) = (0, Vec::new());
        for runtime in &runtimes {
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
        Some(self.outcome(runtimes, programs, failures))
    }

    async fn changed(&self) {
        let tried = self.tried();
        self.sandbox.host_differs_from(&tried).await;
    }
}

/// Those of the runtimes that the engine has.
fn there(wanted: &[String], host: &FoundHost) -> Vec<String> {
    let known = &host.engine.runtimes;
    wanted
        .iter()
        .filter(|runtime| known.contains(*runtime))
        .cloned()
        .collect()
}

fn unfit(refused: &Refused) -> SelfTestFailure {
    SelfTestFailure {
        runtime: HOST.to_owned(),
        probe: refused.name.clone(),
        why: refused.why.clone(),
    }
}

fn say_missed(host: &FoundHost) {
    let Some(preflight) = &host.preflight else { return };
    if !preflight.missed.is_empty() {
        tracing::warn!(
            missed = preflight.missed.join(", "),
            refused = preflight.refused.len(),
            "this host misses what one for the code of strangers should have (`mayfly doctor`)"
        );
    }
    if !preflight.not_checked.is_empty() {
        tracing::warn!(
            not_checked = preflight.not_checked.join(", "),
            "what this host has of these is not known"
        );
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

fn refuse(refused: &[Refused]) -> Result<(), Failure> {
    if refused.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = refused
        .iter()
        .map(|refused| format!("{}: {}", refused.name, refused.why))
        .collect();
    let error = anyhow::anyhow!("{}", lines.join("; ")).context(
        "this host is not fit for the code of strangers, and takes none (docs/fleet.md, `executor.accept`)",
    );
    Err(Failure::new(exit::UNFIT, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_everything_at_once_and_the_way_out() {
        assert!(refuse(&[]).is_ok());
        let refused = ["engine.versions.runc", "engine.lsm"].map(|name| Refused {
            name: name.to_owned(),
            why: "old".to_owned(),
        });
        let text = refuse(&refused).unwrap_err().text();
        for part in ["engine.versions.runc", "engine.lsm", "executor.accept"] {
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
