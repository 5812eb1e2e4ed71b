//! A sandbox that came from the pool: the one that was made, with the record's words for this job.

use async_trait::async_trait;
use mayfly_core::{
    limits::Limits,
    run::{Origin, SandboxFacts},
};

use crate::seam::{ReadySandbox, Run, RunEnd};

/// A warm sandbox in its job's hands.
pub(crate) struct Taken {
    sandbox: Box<dyn ReadySandbox>,
    now: Now,
    facts: SandboxFacts,
}

/// What is so since it is a job's.
#[derive(Debug, Clone, Copy)]
struct Now {
    asked: Limits,
    origin: Origin,
}

impl Now {
    /// Limits that are not fixed at creation are the job's own.
    fn tell(&self, facts: &mut SandboxFacts) {
        facts.origin = self.origin;
        facts.in_force.wall = self.asked.wall;
        facts.in_force.stdout = self.asked.stdout;
        facts.in_force.stderr = self.asked.stderr;
    }
}

impl Taken {
    /// `asked`: the job's limits.
    pub(crate) fn new(sandbox: Box<dyn ReadySandbox>, asked: &Limits, origin: Origin) -> Self {
        let now = Now {
            asked: *asked,
            origin,
        };
        let mut facts = sandbox.facts().clone();
        now.tell(&mut facts);
        Self { sandbox, now, facts }
    }
}

#[async_trait]
impl ReadySandbox for Taken {
    fn facts(&self) -> &SandboxFacts {
        &self.facts
    }

    fn is_alive(&mut self) -> bool {
        self.sandbox.is_alive()
    }

    async fn run(self: Box<Self>, run: Run) -> RunEnd {
        let mut end = self.sandbox.run(run).await;
        if let Some(facts) = &mut end.report.sandbox {
            self.now.tell(facts);
        }
        end
    }

    async fn discard(self: Box<Self>) {
        self.sandbox.discard().await;
    }
}
