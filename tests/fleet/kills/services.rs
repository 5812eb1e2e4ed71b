//! Broker and database, restarted, emptied, and away in the middle of a run.

use std::time::{Duration, Instant};

use super::{figures::Trial, run::Run};
use crate::{
    history::{Start, now_ms},
    support::{Do, SOON, wait_for},
};

/// What happens to what the fleet stands on.
#[derive(Debug, Clone, Copy)]
pub enum Trouble {
    /// Killed, and begun again with its data.
    BrokerRestarted,
    /// All queues and messages are gone at once, the ones under way included.
    BrokerWiped,
    DatabaseStopped(Duration),
}

impl Trouble {
    const fn name(self) -> &'static str {
        match self {
            Self::BrokerRestarted => "the broker was restarted",
            Self::BrokerWiped => "the broker was wiped",
            Self::DatabaseStopped(_) => "PostgreSQL was stopped",
        }
    }

    /// For how long it may last without harm to what runs; docs/fleet.md has the sum.
    const fn promised(self) -> Duration {
        match self {
            Self::BrokerRestarted | Self::BrokerWiped => Duration::from_secs(25),
            Self::DatabaseStopped(_) => Duration::MAX,
        }
    }

    /// Longer than it takes, so that what began before ends behind it.
    const fn outlasted_by(self) -> Duration {
        match self {
            Self::BrokerRestarted | Self::BrokerWiped => Duration::from_secs(40),
            Self::DatabaseStopped(time) => time.saturating_add(Duration::from_secs(20)),
        }
    }
}

impl Run {
    /// Lets something happen while programs run, and nobody is killed until they have ended: none of them may be harmed.
    pub async fn suffer(&mut self, trouble: Trouble) -> Trial {
        self.all_are_back().await;
        let run_ms = u64::try_from(trouble.outlasted_by().as_millis()).expect("minutes fit");
        for witness in ["first", "second"] {
            let token = format!("{}-{witness}", trouble.name().replace(' ', "-"));
            self.witness(&token, run_ms).await;
        }
        let running = self.clients.recorder.under_way();
        let (begun, begun_ms) = (Instant::now(), now_ms());
        self.clients.recorder.fault(trouble.name(), None);
        match trouble {
            Trouble::BrokerRestarted => {
                self.fleet.services.broker(Do::Kill);
                self.fleet.services.broker(Do::Start);
            }
            Trouble::BrokerWiped => self.fleet.services.wipe_broker().await,
            Trouble::DatabaseStopped(time) => {
                self.fleet.services.database(Do::Stop);
                tokio::time::sleep(time).await;
                self.fleet.services.database(Do::Start);
            }
        }
        let took = begun.elapsed();
        let mut harmed = 0;
        for start in &running {
            harmed += usize::from(!self.is_unharmed(start, trouble).await);
        }
        let lost = format!(
            "SELECT count(*) FROM attempts WHERE cause IN ('executor_lost', 'abandoned') \
             AND ended_at > to_timestamp({begun_ms} / 1000.0)"
        );
        Trial {
            what: trouble.name().to_owned(),
            took,
            promised: trouble.promised(),
            running: running.len(),
            harmed,
            called_lost: usize::try_from(self.fleet.services.count(&lost)).expect("a count fits"),
        }
    }

    /// Whether a program has come to its own end, and its result is its job's.
    async fn is_unharmed(&self, start: &Start, trouble: Trouble) -> bool {
        wait_for(
            trouble.outlasted_by() + 2 * SOON,
            "the result of what ran",
            async || {
                let history = self.clients.recorder.history(&[], 0);
                let ended = history
                    .starts
                    .iter()
                    .find(|heard| heard.number == start.number)
                    .expect("it was heard");
                let job = history
                    .submissions
                    .iter()
                    .find(|submission| submission.token == start.token)?;
                let read = history.reads.iter().find(|read| read.job == job.job)?;
                Some(ended.over && read.number.as_ref() == Some(&start.number))
            },
        )
        .await
    }
}
