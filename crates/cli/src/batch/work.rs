//! The loop that sees a batch through: accept what is left to accept, follow what ends, write each result once.
//!
//! Three things end it: all jobs have ended; somebody asked it to stop and what ran has ended; results can't be written
//! any more, which is the same as being asked to stop. Whatever is not over then stays in the database.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use mayfly_core::{
    chain::Chain,
    id::{JobId, TenantId},
    image::{ImageName, ImagePin},
    job::JobSpec,
};
use mayfly_sandbox::{pool::PoolCounts, seam::NoLiveOutput};
use mayfly_store::{
    error::StoreError,
    records::{BatchJob, EndMark},
    seam::MAX_PAGE,
};
use tokio_util::sync::CancellationToken;

use super::{
    input::{Input, Item},
    progress::{Progress, Tally},
    results::Results,
    run::Plan,
};
use crate::{
    embedded::{Brake, Embedded, Requests, Submission},
    exit,
    failure::Failure,
};

/// Jobs that are accepted in one transaction: so many, and of so many bytes of content.
const CHUNK_ITEMS: usize = 100;
const CHUNK_BYTES: u64 = 8 << 20;
/// The longest time between two looks, whatever is committed: another process's commits wake nobody here.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often the running jobs are counted.
const COUNT_EVERY: Duration = Duration::from_millis(500);

/// What is left to be accepted.
pub(super) struct Accept<'a> {
    pub(super) input: &'a Input,
    pub(super) base: &'a JobSpec,
    pub(super) pins: &'a HashMap<ImageName, ImagePin>,
}

/// How it ended.
pub(super) struct Ended {
    /// How the jobs have ended that have.
    pub(super) tally: Tally,
    /// Whether every item is accepted.
    pub(super) accepted: bool,
    /// What came of the pool of warm sandboxes, where there is one.
    pub(super) pool: Option<PoolCounts>,
    /// What became of the results.
    pub(super) written: io::Result<()>,
    /// Trouble of ours that ended it early.
    pub(super) failure: Option<Failure>,
}

pub(super) struct Work<'a> {
    plan: &'a Plan<'a>,
    progress: &'a Progress,
    results: Results,
    tally: Tally,
    /// Jobs that are in the tally.
    counted: HashSet<JobId>,
    mark: Option<EndMark>,
    /// Somebody asked for the end, or results can't be written.
    stopping: CancellationToken,
    /// Results can't be written; jobs are counted still.
    unwritable: bool,
    running: u64,
    counted_at: Option<Instant>,
    pool: Option<PoolCounts>,
    /// Whether no job is left in the hands of an earlier process.
    adopted: bool,
    wait_said: bool,
    trouble_said: bool,
}

impl<'a> Work<'a> {
    pub(super) fn new(plan: &'a Plan<'a>, progress: &'a Progress, results: Results) -> Self {
        Self {
            plan,
            progress,
            results,
            tally: Tally::default(),
            counted: HashSet::new(),
            mark: None,
            stopping: CancellationToken::new(),
            unwritable: false,
            running: 0,
            counted_at: None,
            pool: None,
            adopted: false,
            wait_said: false,
            trouble_said: false,
        }
    }

    /// Writes what is missing of the results of a batch that is over.
    pub(super) async fn write_all(mut self) -> Ended {
        let failure = self.look_at_all().await.err().map(Failure::from);
        self.progress.had_ended(self.tally.over());
        self.end(true, failure).await
    }

    /// Sees the batch through.
    pub(super) async fn run(mut self, accept: Option<Accept<'_>>) -> Ended {
        let mut accepted = accept.is_none();
        let live = Arc::new(NoLiveOutput);
        let plan = self.plan;
        let (embedded, _uids) = match plan.session.embedded(plan.slots, live, &plan.pool).await {
            Ok(started) => started,
            Err(failure) => return self.end(accepted, Some(failure)).await,
        };
        let brake = embedded.brake();
        let (progress, stopping) = (self.progress, self.stopping.clone());
        let seen_through = async {
            let failure = self.see_through(&embedded, accept, &mut accepted).await.err();
            embedded.stop().await;
            self.end(accepted, failure).await
        };
        tokio::select! {
            ended = seen_through => ended,
            never = hear(progress, &brake, &stopping) => match never {},
        }
    }

    async fn see_through(
        &mut self,
        embedded: &Embedded,
        accept: Option<Accept<'_>>,
        accepted: &mut bool,
    ) -> Result<(), Failure> {
        // First the mark, then all that is there: whatever ends in between is seen twice and counted once.
        self.look_at_all().await?;
        self.progress.had_ended(self.tally.over());
        let trouble = match accept {
            Some(accept) => match self.accept(embedded, accept).await {
                Ok(all) => {
                    *accepted = all;
                    None
                }
                Err(failure) => Some(failure),
            },
            None => None,
        };
        if let Some(failure) = trouble {
            // What is accepted and runs is finished, and all that has ended is written.
            self.stop(&embedded.brake());
            self.follow(embedded).await?;
            return Err(failure);
        }
        self.follow(embedded).await
    }

    /// Accepts what the input has, chunk by chunk. Says whether that was all of it.
    async fn accept(&mut self, embedded: &Embedded, accept: Accept<'_>) -> Result<bool, Failure> {
        let policy = &self.plan.session.settings.policy;
        let baseline = mayfly_sandbox::baseline_digest();
        let (mut chunk, mut bytes, mut items) = (Vec::new(), 0, 0);
        for item in accept.input.items(accept.base, policy)? {
            if self.stopping.is_cancelled() {
                return Ok(false);
            }
            let Item { name, spec } = item.map_err(|wrong| wrong.into_failure(&accept.input.name))?;
            let changed =
                || Failure::usage(format!("{} has changed: image {}", accept.input.name, spec.image));
            let pin = accept.pins.get(&spec.image).ok_or_else(changed)?.clone();
            let (labels, priority, retain_source) = (spec.labels.clone(), spec.priority, spec.retain_source);
            let now = self.plan.session.clock.now();
            let times = spec.times(policy, now).map_err(Failure::usage)?;
            let resolved = spec.resolve(policy, pin, &baseline).map_err(Failure::usage)?;
            bytes += resolved.content_bytes();
            let submission = Submission {
                resolved,
                labels,
                priority,
                times,
                retain_source,
            };
            chunk.push((name, submission));
            items += 1;
            if chunk.len() >= CHUNK_ITEMS || bytes >= CHUNK_BYTES {
                embedded
                    .submit_items(self.plan.id, std::mem::take(&mut chunk))
                    .await?;
                bytes = 0;
                self.look().await?;
            }
        }
        embedded.submit_items(self.plan.id, chunk).await?;
        let complete = self
            .plan
            .session
            .store
            .complete_batch(TenantId::LOCAL, self.plan.id, items);
        complete.await.map_err(|error| match error {
            StoreError::Refused { source, .. } => {
                let name = &accept.input.name;
                Failure::usage(format!(
                    "batch {} is not of {name} as it is now: {source}",
                    self.plan.id
                ))
            }
            error => error.into(),
        })?;
        Ok(true)
    }

    /// Waits for ends until there is none left, or nothing runs any more.
    async fn follow(&mut self, embedded: &Embedded) -> Result<(), Failure> {
        let mut commits = self.plan.session.store.commits();
        loop {
            commits.borrow_and_update();
            // Before the look, so that nothing ends behind it.
            let is_over = embedded.is_over();
            match self.adopt_and_look(embedded).await {
                Ok(()) => self.trouble_said = false,
                // The roles go on trying as well; Ctrl-C ends it.
                Err(error) if error.is_temporary() && !is_over => self.say_trouble(&error),
                Err(error) => return Err(error.into()),
            }
            if self.tally.over() >= self.plan.items {
                return Ok(());
            }
            if is_over && self.stopping.is_cancelled() {
                return Ok(());
            }
            if is_over {
                let error = anyhow::anyhow!("a role has ended before the batch had; the log lines say why");
                return Err(Failure::new(exit::INTERNAL, error));
            }
            self.count().await;
            self.pool = embedded.pool_counts().or(self.pool);
            self.progress.show(&self.tally, self.running, self.pool);
            tokio::select! {
                changed = commits.changed() => {
                    if changed.is_err() {
                        return Err(Failure::new(exit::INTERNAL, anyhow::anyhow!("the database was closed")));
                    }
                }
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = self.results.broken(), if !self.unwritable => self.unwritable = true,
            }
            if self.unwritable {
                self.stop(&embedded.brake());
            }
        }
    }

    /// Takes note of all jobs that have ended by now.
    async fn look_at_all(&mut self) -> Result<(), StoreError> {
        let (store, id) = (&self.plan.session.store, self.plan.id);
        self.mark = Some(store.list_batch_ends(TenantId::LOCAL, id, None, 0).await?.upto);
        let mut after = None;
        loop {
            let page = store
                .list_batch_jobs(TenantId::LOCAL, id, after, MAX_PAGE)
                .await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = Some(last.position);
            for job in page {
                self.note(job).await?;
            }
        }
    }

    /// Takes over what earlier processes have left, until that is all here.
    async fn adopt_and_look(&mut self, embedded: &Embedded) -> Result<(), StoreError> {
        if !self.adopted && !self.stopping.is_cancelled() {
            self.adopted = embedded.adopt(self.plan.id).await?;
            if !self.adopted && !std::mem::replace(&mut self.wait_said, true) {
                self.progress.say(
                    "mayfly: waiting until an earlier process of this batch is known to be dead, and its jobs can be taken over",
                );
            }
        }
        self.look().await
    }

    /// Takes note of the jobs that have ended since the last look.
    async fn look(&mut self) -> Result<(), StoreError> {
        loop {
            let store = &self.plan.session.store;
            let ends = store
                .list_batch_ends(TenantId::LOCAL, self.plan.id, self.mark, MAX_PAGE)
                .await?;
            let is_full = u32::try_from(ends.jobs.len()).is_ok_and(|count| count >= MAX_PAGE);
            for job in ends.jobs {
                self.note(job).await?;
            }
            self.mark = Some(ends.upto);
            if !is_full {
                return Ok(());
            }
        }
    }

    /// Counts a job, if it has ended, and writes its result, if that is not there yet.
    async fn note(&mut self, job: BatchJob) -> Result<(), StoreError> {
        let id = job.job.id;
        let Some(end) = job.job.state.end() else {
            return Ok(());
        };
        if self.counted.contains(&id) {
            return Ok(());
        }
        if !self.unwritable && !self.results.has(id) {
            let details = self.plan.session.store.find_job(TenantId::LOCAL, id).await?;
            let details = details.ok_or(StoreError::NoSuchJob(id))?;
            self.unwritable = self.results.write(&job.item, details).await.is_err();
        }
        self.counted.insert(id);
        self.tally.add(end);
        Ok(())
    }

    /// Counts what runs, now and then.
    async fn count(&mut self) {
        if self.counted_at.is_some_and(|at| at.elapsed() < COUNT_EVERY) {
            return;
        }
        self.counted_at = Some(Instant::now());
        let found = self.plan.session.store.find_batch(TenantId::LOCAL, self.plan.id);
        // It is shown, and nothing depends on it.
        if let Ok(Some(batch)) = found.await {
            self.running = batch.running;
        }
    }

    fn say_trouble(&mut self, error: &StoreError) {
        if !std::mem::replace(&mut self.trouble_said, true) {
            self.progress.say(&format!(
                "mayfly: {}; trying again, Ctrl-C stops the batch",
                crate::terminal::shown(&Chain(error).to_string())
            ));
        }
    }

    fn stop(&self, brake: &Brake) {
        self.stopping.cancel();
        brake.drain();
    }

    async fn end(self, accepted: bool, failure: Option<Failure>) -> Ended {
        Ended {
            tally: self.tally,
            pool: self.pool,
            accepted,
            written: self.results.finish().await,
            failure,
        }
    }
}

/// Hears requests to end. The first lets what runs finish, the second gives it up, the third ends the process at once.
async fn hear(progress: &Progress, brake: &Brake, stopping: &CancellationToken) -> std::convert::Infallible {
    let mut requests = Requests::new();
    requests.next().await;
    stopping.cancel();
    brake.drain();
    progress.say("mayfly: stopping: nothing new starts, what runs is finished; Ctrl-C again gives it up");
    requests.next().await;
    brake.abort();
    progress.say("mayfly: stopping: what runs is given up");
    requests.next().await;
    #[expect(
        clippy::exit,
        reason = "the third request is for exactly this; the guests' stdin closes with us"
    )]
    std::process::exit(i32::from(exit::STOPPED))
}
