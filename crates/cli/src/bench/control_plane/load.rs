//! The tenant of a bench: what it submits over HTTP, how long that takes, and what it is shown in the end.

use std::{
    cell::Cell,
    pin::Pin,
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use mayfly_client::{Client, JobFilter};
use mayfly_core::job::JobSpec;
use mayfly_store_postgres::bench::BenchDatabase;
use mayfly_wire::job::{State, SubmitMany};
use tokio::{sync::watch, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::internal;
use crate::{bench::interrupted, failure::Failure};

/// How often it is looked how many jobs wait.
const LOOK: Duration = Duration::from_millis(20);
/// How often a single job is submitted under load: often enough for its percentiles, too seldom to be a load of its own.
const SINGLE_EVERY: Duration = Duration::from_millis(50);
/// Jobs of a page that is fetched back.
const PAGE: u32 = 1000;

/// What is submitted, and how.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) spec: JobSpec,
    pub(crate) seconds: Duration,
    /// Requests with many jobs that are under way at once.
    pub(crate) submitters: u32,
    /// Jobs of each.
    pub(crate) bulk: u32,
    /// No more is submitted while so many jobs wait for their turn.
    pub(crate) ahead: u64,
}

/// How long submissions took.
#[derive(Debug, Default)]
pub(crate) struct Times {
    pub(crate) bulk: Vec<Duration>,
    pub(crate) single: Vec<Duration>,
}

impl Times {
    /// Adds those of a submitter, or says what its trouble was.
    fn take(&mut self, ended: Result<Self, Failure>) -> Option<Failure> {
        match ended {
            Ok(times) => {
                self.bulk.extend(times.bulk);
                self.single.extend(times.single);
                None
            }
            Err(error) => Some(error),
        }
    }
}

/// One job after the other, each timed.
pub(crate) async fn singly(client: &Client, spec: &JobSpec, count: u32) -> Result<Vec<Duration>, Failure> {
    let mut times = Vec::new();
    for _ in 0..count {
        times.push(single(client, spec).await?);
    }
    Ok(times)
}

async fn single(client: &Client, spec: &JobSpec) -> Result<Duration, Failure> {
    let key = uuid::Uuid::new_v4().to_string();
    let begun = Instant::now();
    client.submit(spec, &key).await.map_err(internal)?;
    Ok(begun.elapsed())
}

async fn bulk(client: &Client, jobs: &SubmitMany) -> Result<Duration, Failure> {
    let begun = Instant::now();
    client.submit_many(jobs).await.map_err(internal)?;
    Ok(begun.elapsed())
}

/// Submits for as long as the plan says: by many, and beside that one job at a time.
pub(crate) async fn put_on(
    client: &Client,
    plan: &Plan,
    database: &BenchDatabase,
    pool: &str,
    stop: &CancellationToken,
) -> Result<Times, Failure> {
    let (until, end) = (Instant::now() + plan.seconds, CancellationToken::new());
    let (room, has_room) = watch::channel(true);
    let jobs = SubmitMany {
        jobs: vec![plan.spec.clone(); plan.bulk as usize],
    };
    // What has been submitted and has not had its turn waits.
    let (accepted, before) = (Cell::new(0_u64), database.dispatched(pool).await?);
    // All of them are this one task's: the load takes no more than one core.
    let mut submitters = FuturesUnordered::new();
    for _ in 0..plan.submitters {
        let submitter = many(client, &jobs, has_room.clone(), &accepted, &end);
        submitters.push(Box::pin(submitter) as Submitter<'_>);
    }
    submitters.push(Box::pin(alone(client, &plan.spec, &accepted, &end)));
    let mut all = Times::default();
    let mut trouble = None;
    while Instant::now() < until && !stop.is_cancelled() && trouble.is_none() {
        match database.dispatched(pool).await {
            Ok(dispatched) => {
                let waiting = accepted.get().saturating_sub(dispatched.saturating_sub(before));
                room.send_replace(waiting < plan.ahead);
            }
            Err(error) => trouble = Some(Failure::from(error)),
        }
        let look = tokio::time::sleep(LOOK);
        tokio::select! {
            () = look => {}
            Some(ended) = submitters.next() => trouble = all.take(ended),
        }
    }
    end.cancel();
    while let Some(ended) = submitters.next().await {
        trouble = trouble.or(all.take(ended));
    }
    match trouble {
        Some(trouble) => Err(trouble),
        None if stop.is_cancelled() => Err(interrupted()),
        None => Ok(all),
    }
}

type Submitter<'a> = Pin<Box<dyn Future<Output = Result<Times, Failure>> + 'a>>;

/// Submits many jobs at a time, whenever there is room, until the end.
async fn many(
    client: &Client,
    jobs: &SubmitMany,
    mut has_room: watch::Receiver<bool>,
    accepted: &Cell<u64>,
    end: &CancellationToken,
) -> Result<Times, Failure> {
    let mut times = Times::default();
    while end
        .run_until_cancelled(has_room.wait_for(|room| *room))
        .await
        .is_some()
    {
        times.bulk.push(bulk(client, jobs).await?);
        accepted.set(accepted.get() + jobs.jobs.len() as u64);
    }
    Ok(times)
}

/// Submits one job every now and then until the end.
async fn alone(
    client: &Client,
    spec: &JobSpec,
    accepted: &Cell<u64>,
    end: &CancellationToken,
) -> Result<Times, Failure> {
    let mut times = Times::default();
    let mut due = tokio::time::interval(SINGLE_EVERY);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while end.run_until_cancelled(due.tick()).await.is_some() {
        times.single.push(single(client, spec).await?);
        accepted.set(accepted.get() + 1);
    }
    Ok(times)
}

/// Fetches all jobs back, and says how many there are and how many of them succeeded.
pub(crate) async fn fetch_back(client: &Client) -> Result<(u64, u64), Failure> {
    let mut pages = client.jobs(&JobFilter::default(), PAGE);
    let (mut jobs, mut succeeded) = (0, 0);
    while let Some(job) = pages.next().await.map_err(internal)? {
        jobs += 1;
        succeeded += u64::from(job.state == State::Succeeded);
    }
    Ok((jobs, succeeded))
}
