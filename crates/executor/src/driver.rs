//! The driver of the machine: everything that happens goes in, with the time, and what comes back is done.

use std::{num::NonZeroU16, sync::Arc, time::Duration};

use mayfly_core::{clock::Clock, id::SessionId};
use mayfly_dispatch::executor::{Action, Executor as Machine, Input};
use mayfly_failpoints::{Point, reach};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    ExecutorParts,
    fitness::Testing,
    jobs::{Done, Jobs, Means},
    link::{Command, Link},
};

pub(crate) struct Driver {
    clock: Arc<dyn Clock>,
    machine: Machine,
    /// What the machine wants done before anything has happened.
    first: Vec<Action>,
    link: Link,
    happened: mpsc::UnboundedReceiver<Input>,
    jobs: Jobs,
    done: mpsc::UnboundedReceiver<Done>,
    testing: Testing,
    /// What is known of the host before anything has happened.
    first_test: Option<Input>,
}

/// Whether the machine goes on.
#[derive(PartialEq, Eq)]
enum Life {
    GoesOn,
    IsOver,
}

impl Driver {
    pub(crate) fn new(parts: ExecutorParts) -> Self {
        let ExecutorParts {
            config,
            queue,
            sandbox,
            clock,
            listeners,
            blobs,
            outside,
            self_tests,
        } = parts;
        // Both channels are filled by tasks that the machine's own bounds limit: at most four items for each
        // attempt that is held or lingers, one for each batch that is out, one for each delivery within the prefetch.
        let (done_to, done) = mpsc::unbounded_channel();
        let (happened_to, happened) = mpsc::unbounded_channel();
        let prefetch = u16::try_from(config.slots)
            .ok()
            .and_then(NonZeroU16::new)
            .unwrap_or(NonZeroU16::MAX);
        let link = Link::begin(
            queue,
            config.pool.clone(),
            config.executor,
            prefetch,
            happened_to,
            Arc::clone(&listeners),
        );
        let jobs = Jobs::new(
            Means {
                sandbox,
                clock: Arc::clone(&clock),
                listeners,
                blobs,
                outside,
            },
            config.executor,
            done_to,
        );
        let (testing, first_test) = Testing::begin(self_tests);
        let (machine, first) = Machine::new(config, clock.since_boot());
        Self {
            clock,
            machine,
            first,
            link,
            happened,
            jobs,
            done,
            testing,
            first_test,
        }
    }

    /// Until the machine says that it is done.
    pub(crate) async fn run(mut self, drain: CancellationToken, abort: CancellationToken) {
        let first = std::mem::take(&mut self.first);
        let mut life = self.act(first);
        if let Some(test) = self.first_test.take() {
            life = self.tell(test);
        }
        let (mut draining, mut aborting) = (false, false);
        while life == Life::GoesOn {
            let wait = self
                .machine
                .next_wake()
                .map(|at| at.saturating_sub(self.clock.since_boot()));
            let input = tokio::select! {
                biased;
                () = abort.cancelled(), if !aborting => {
                    aborting = true;
                    self.leave();
                    Some(Input::Abort)
                }
                () = drain.cancelled(), if !draining => {
                    draining = true;
                    self.leave();
                    Some(Input::Drain)
                }
                Some(input) = self.happened.recv() => Some(input),
                Some(done) = self.done.recv() => self.jobs.take(done),
                news = self.testing.news() => news,
                () = elapsed(wait) => Some(Input::Time),
            };
            if let Some(input) = input {
                life = self.tell(input);
            }
        }
        self.link.end().await;
        self.testing.finish().await;
        self.jobs.finish(self.done).await;
    }

    /// Nothing new will be taken, so that nothing needs to be kept ready or known for it.
    fn leave(&self) {
        self.jobs.drain();
        self.testing.stop();
    }

    /// Tells the machine what has happened, and does what it wants.
    fn tell(&mut self, input: Input) -> Life {
        match &input {
            Input::Delivered { .. } => reach(Point::AttemptDelivered),
            Input::RunEnded { .. } => reach(Point::RunEnded),
            Input::Confirmed(_) => reach(Point::EventsConfirmed),
            _ => {}
        }
        let actions = self.machine.handle(input, self.clock.since_boot());
        self.act(actions)
    }

    fn act(&mut self, actions: Vec<Action>) -> Life {
        // What the machine is to know of what was just done, after all of it has been done.
        let mut answers = Vec::new();
        for action in actions {
            match action {
                Action::Sweep => self.jobs.sweep(),
                Action::NewSession => answers.push(Input::NewSession(SessionId::new())),
                Action::Publish { publish, batch } => self.link.tell(Command::Publish(publish, batch)),
                Action::StartConsuming => self.link.tell(Command::Consume(true)),
                Action::StopConsuming => self.link.tell(Command::Consume(false)),
                Action::Ack(delivery) => self.link.tell(Command::Ack(delivery)),
                Action::Return(delivery) => self.link.tell(Command::Return(delivery)),
                Action::Reject(delivery) => self.link.tell(Command::Reject(delivery)),
                Action::Prepare(message) => {
                    let session = self.machine.session();
                    self.jobs
                        .prepare(*message, session.expect("attempts are taken in a session alone"));
                }
                Action::SendJob(attempt) => {
                    // The one question whose answer may not wait: asked with the time of this very moment.
                    reach(Point::AttemptGranted);
                    if self.machine.may_send(attempt, self.clock.since_boot()) {
                        self.jobs.send(attempt);
                        reach(Point::JobSent);
                    } else {
                        answers.push(Input::Time);
                    }
                }
                Action::Kill { attempt, why } => self.jobs.kill(attempt, why),
                Action::Discard(attempt) => self.jobs.discard(attempt),
                Action::SelfTest => self.testing.start(),
                Action::Done => return Life::IsOver,
            }
        }
        for answer in answers {
            if self.tell(answer) == Life::IsOver {
                return Life::IsOver;
            }
        }
        Life::GoesOn
    }
}

async fn elapsed(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
