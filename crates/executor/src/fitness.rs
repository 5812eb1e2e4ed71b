//! Trying again and again whether sandboxes on this host still hold, beside the jobs that run.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use mayfly_core::self_test::{SelfTest, SelfTestResult};
use mayfly_dispatch::executor::Input;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::pauses::{Pauses, part};

/// Tries whether sandboxes on this host hold.
#[async_trait]
pub trait HostTest: Send + Sync {
    /// Hostile programs in sandboxes of their own, one after the other. It leaves no container behind.
    ///
    /// None if it was asked to stop before it was through.
    async fn run(&self, stop: &CancellationToken) -> Option<SelfTest>;

    /// Resolves when the host is known to be no more what it was when it was last tried.
    ///
    /// # Cancel safety
    /// Call it again: it goes on.
    async fn changed(&self);
}

/// The self-tests of a host.
pub struct SelfTests {
    /// The one that was made before the executor began.
    pub first: SelfTest,
    /// Those that follow; none where there are none.
    pub again: Option<Repetition>,
}

/// How self-tests are repeated.
pub struct Repetition {
    /// Who makes them.
    pub host: Arc<dyn HostTest>,
    /// How long after one that passed the next one is due, at most; at least nine tenths of it.
    pub every: Duration,
    /// The longest wait after the first one that failed. It doubles with each further one, up to `every`.
    pub retry_first: Duration,
}

/// What the driver does of them.
#[derive(Default)]
pub(crate) struct Testing {
    repetition: Option<(Repetition, Pauses)>,
    stop: CancellationToken,
    tests: JoinSet<Option<SelfTest>>,
    failed: bool,
    /// The machine was told that the host has changed, and no test has ended since.
    told: bool,
}

impl Testing {
    /// The tests that follow a first one, and what is to be said of that.
    pub(crate) fn begin(tests: Option<SelfTests>) -> (Self, Option<Input>) {
        let Some(SelfTests { first, again }) = tests else {
            return (Self::default(), None);
        };
        let mut testing = Self {
            repetition: again.map(|again| {
                let pauses = Pauses::new(again.retry_first, again.every);
                (again, pauses)
            }),
            ..Self::default()
        };
        let input = testing.say(first);
        (testing, Some(input))
    }

    /// Begins a test.
    pub(crate) fn start(&mut self) {
        if let Some((repetition, _)) = &self.repetition {
            let (host, stop) = (Arc::clone(&repetition.host), self.stop.clone());
            self.tests.spawn(async move { host.run(&stop).await });
        }
    }

    /// What the next test has come to, or that the host is no more what was tried. It never returns while no test is made
    /// and the host stays as it is.
    pub(crate) async fn news(&mut self) -> Option<Input> {
        if let Some(ended) = self.tests.join_next().await {
            return self.take(ended);
        }
        match &self.repetition {
            Some((repetition, _)) if !self.told => {
                repetition.host.changed().await;
                self.told = true;
                tracing::warn!(
                    "the host is not what it was: no new job is taken before it has been tried again"
                );
                Some(Input::HostChanged)
            }
            Some(_) | None => std::future::pending().await,
        }
    }

    fn take(&mut self, ended: Result<Option<SelfTest>, JoinError>) -> Option<Input> {
        match ended {
            Ok(Some(test)) => Some(self.say(test)),
            Ok(None) => None,
            Err(error) => {
                // It was spawned here, and nobody aborts it.
                std::panic::resume_unwind(error.into_panic())
            }
        }
    }

    /// The next test is due the sooner the fewer have failed in a row.
    fn say(&mut self, test: SelfTest) -> Input {
        let fit = test.is_fit();
        let next_in = self.repetition.as_mut().map(|(repetition, pauses)| {
            if fit {
                *pauses = Pauses::new(repetition.retry_first, repetition.every);
                repetition.every.mul_f64(0.9 + 0.1 * part())
            } else {
                pauses.next()
            }
        });
        let next_in_s = next_in.map(|wait| wait.as_secs());
        match test.result {
            SelfTestResult::Failed => {
                let found: Vec<String> = test.failures.iter().map(ToString::to_string).collect();
                let found = found.join("; ");
                tracing::error!(found, next_in_s, "the self-test has failed: no new job is taken");
            }
            SelfTestResult::Passed if self.failed => {
                tracing::info!(next_in_s, "the self-test has passed: jobs are taken again");
            }
            SelfTestResult::Passed => tracing::info!(next_in_s, "the self-test has passed"),
            SelfTestResult::LeftOut => {}
        }
        self.failed = !fit;
        self.told = false;
        Input::SelfTested {
            test: Box::new(test.bounded()),
            next_in,
        }
    }

    /// Nothing more is to be known: a test under way stops after the program that it tries.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until no sandbox of a test is left.
    pub(crate) async fn finish(mut self) {
        self.stop();
        while let Some(ended) = self.tests.join_next().await {
            drop(self.take(ended));
        }
    }
}

#[cfg(test)]
mod tests;
