//! PostgreSQL: away, frozen, read-only, full, locked.

use std::process::{Command, Stdio};

use mayfly_testkit::proxy::{Direction, Flow};

use super::{A_WHILE, PAST_A_LEASE, PAST_HEARTBEATS, lasts};
use crate::{
    battery::{ground::Ground, run::Jobs},
    support::Do,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Restarted,
    Crashed,
    AwayPastALease,
    SessionsEnded,
    ReadOnly,
    NoMoreConnections,
    TablesLocked,
    Cut,
    HalfOpen,
    Slow,
}

const OTHERS: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename IN ('mayfly_api', \
                      'mayfly_engine')";

impl Fault {
    pub async fn strike(self, ground: &mut Ground, jobs: &mut Jobs) {
        ground.strikes(&format!("database: {self:?}"), None);
        let (services, way) = (&ground.fleet.services, &ground.ways.database);
        match self {
            Self::Restarted => {
                services.database(Do::Stop);
                jobs.submit_meanwhile(2);
                services.database(Do::Start);
            }
            Self::Crashed => {
                services.database(Do::Kill);
                jobs.submit_meanwhile(2);
                services.database(Do::Start);
            }
            Self::AwayPastALease => {
                services.database(Do::Kill);
                jobs.submit_meanwhile(2);
                lasts(PAST_A_LEASE).await;
                services.database(Do::Start);
            }
            Self::SessionsEnded => {
                services.ask(OTHERS);
                jobs.submit_meanwhile(2);
            }
            Self::ReadOnly => {
                services.ask("ALTER DATABASE mayfly SET default_transaction_read_only = on");
                // Those that there are take it at their next beginning.
                services.ask(OTHERS);
                jobs.submit_meanwhile(2);
                lasts(A_WHILE).await;
                services.ask(
                    "BEGIN READ WRITE; ALTER DATABASE mayfly RESET default_transaction_read_only; COMMIT",
                );
            }
            Self::NoMoreConnections => {
                for role in ["mayfly_api", "mayfly_engine"] {
                    services.ask(&format!("ALTER ROLE {role} CONNECTION LIMIT 0"));
                }
                services.ask(OTHERS);
                jobs.submit_meanwhile(2);
                lasts(A_WHILE).await;
                for role in ["mayfly_api", "mayfly_engine"] {
                    services.ask(&format!("ALTER ROLE {role} CONNECTION LIMIT -1"));
                }
            }
            Self::TablesLocked => {
                let seconds = PAST_HEARTBEATS.as_secs();
                let query =
                    format!("BEGIN; LOCK TABLE jobs, attempts, sessions; SELECT pg_sleep({seconds}); COMMIT");
                let locked = Command::new("psql")
                    .args([services.postgres(), "--no-psqlrc", "--command", &query])
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .spawn();
                jobs.submit_meanwhile(2);
                let status = locked.and_then(|mut locked| locked.wait()).expect("psql starts");
                assert!(status.success(), "the lock was had");
            }
            Self::Cut => {
                way.cut();
                jobs.submit_meanwhile(2);
            }
            Self::HalfOpen => {
                way.stop_all();
                jobs.submit_meanwhile(2);
                lasts(PAST_HEARTBEATS).await;
                way.open_all();
            }
            Self::Slow => {
                // There and back, of each statement.
                for direction in [Direction::ToServer, Direction::ToClient] {
                    way.set(direction, Flow::Delayed(std::time::Duration::from_millis(60)));
                }
                jobs.submit_meanwhile(2);
                lasts(PAST_HEARTBEATS).await;
                way.open_all();
            }
        }
    }
}
