//! How many runs a second, with so many at once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use mayfly_core::clock::Clock;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{
    args::ThroughputArgs,
    ground::{Ground, Rig},
    interrupted,
    report::{Block, Head, SCHEMA, Throughput, Way, WayRate},
    stats::{millis, rounded},
};
use crate::{exit, failure::Failure, progress::Step};

/// Jobs that are on their way for each slot: one that runs and one that waits, so that no slot waits for a submission.
const IN_FLIGHT: u32 = 2;

/// Measures, and says what came of it.
pub(crate) async fn measure(
    ground: &Arc<Ground>,
    args: &ThroughputArgs,
    clock: &dyn Clock,
    stop: &CancellationToken,
) -> Result<Throughput, Failure> {
    let begun = Instant::now();
    let mut machine = ground.machine.clone();
    let mut ways: Vec<Seen> = [
        Some(Way::Engine),
        Some(Way::Cold),
        ground.warm.as_ref().map(|_| Way::Warm),
    ]
    .into_iter()
    .flatten()
    .map(Seen::new)
    .collect();
    warm_up(ground, &ways, args.slots, stop).await?;
    let step = Step::begin(format!(
        "{} jobs of each of {} ways in {} blocks, {} at once",
        args.jobs,
        ways.len(),
        args.blocks,
        args.slots
    ));
    let (blocks, count) = (args.blocks.min(args.jobs), ways.len());
    for block in 0..blocks {
        // Each round of blocks begins with another way.
        for turn in 0..count {
            let seen = &mut ways[(block as usize + turn) % count];
            let share = |block: u32| u64::from(args.jobs) * u64::from(block) / u64::from(blocks);
            let jobs = u32::try_from(share(block + 1) - share(block)).unwrap_or(u32::MAX);
            let limit = args
                .seconds
                .map(|seconds| Duration::from_secs(seconds.into()) / blocks);
            seen.add(do_block(ground, seen.way, jobs, args.slots, limit, stop).await?);
            step.count(
                u64::from(block) * count as u64 + turn as u64 + 1,
                u64::from(blocks) * count as u64,
            );
        }
    }
    machine.ended();
    let rate = |way| ways.iter().find(|seen| seen.way == way).and_then(Seen::rate);
    let (Some(cold), Some(engine)) = (rate(Way::Cold), rate(Way::Engine)) else {
        return Err(Failure::new(exit::INTERNAL, anyhow::anyhow!("no job was run")));
    };
    let mut rates: Vec<WayRate> = ways.iter().map(Seen::report).collect();
    if ground.warm.is_none() {
        rates.push(WayRate {
            skipped: Some("--pool 0".to_owned()),
            ..Seen::new(Way::Warm).report()
        });
    }
    Ok(Throughput {
        head: Head {
            schema: SCHEMA,
            command: command(args),
            at: clock.now(),
            seconds: rounded(begun.elapsed().as_secs_f64()),
            machine,
            subject: ground.subject.clone(),
        },
        jobs: args.jobs,
        slots: args.slots,
        blocks,
        limit_seconds: args.seconds,
        ways: rates,
        cold_to_engine: rounded(cold / engine),
    })
}

fn command(args: &ThroughputArgs) -> String {
    let mut command = format!(
        "mayfly bench throughput --jobs {} --slots {} --blocks {}",
        args.jobs, args.slots, args.blocks
    );
    if let Some(seconds) = args.seconds {
        command.push_str(&format!(" --seconds {seconds}"));
    }
    command.push_str(&args.subject.flags());
    command
}

/// What was seen of one way.
struct Seen {
    way: Way,
    blocks: Vec<Block>,
    jobs: u32,
    took: Duration,
    cpu: Option<Duration>,
    hits: u32,
}

/// A block that was done.
struct Done {
    jobs: u32,
    hits: u32,
    took: Duration,
    cpu: Option<Duration>,
}

impl Seen {
    const fn new(way: Way) -> Self {
        Self {
            way,
            blocks: Vec::new(),
            jobs: 0,
            took: Duration::ZERO,
            cpu: Some(Duration::ZERO),
            hits: 0,
        }
    }

    fn add(&mut self, done: Done) {
        self.blocks.push(Block {
            jobs: done.jobs as usize,
            seconds: rounded(done.took.as_secs_f64()),
        });
        self.jobs += done.jobs;
        self.hits += done.hits;
        self.took += done.took;
        self.cpu = self.cpu.zip(done.cpu).map(|(before, more)| before + more);
    }

    fn rate(&self) -> Option<f64> {
        let seconds = self.took.as_secs_f64();
        (self.jobs > 0 && seconds > 0.0).then(|| f64::from(self.jobs) / seconds)
    }

    fn report(&self) -> WayRate {
        let cpu = self.cpu.filter(|_| self.jobs > 0);
        WayRate {
            way: self.way,
            skipped: None,
            blocks: self.blocks.clone(),
            jobs_per_second: self.rate().map(rounded),
            cpu_ms_per_job: cpu.map(|cpu| millis(cpu / self.jobs)),
            pool_hits: (self.way == Way::Warm).then_some(self.hits as usize),
        }
    }
}

/// As many jobs of each way as there are slots, not counted.
async fn warm_up(
    ground: &Arc<Ground>,
    ways: &[Seen],
    slots: u32,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let _step = Step::begin("warming up".to_owned());
    for seen in ways {
        do_block(ground, seen.way, slots, slots, None, stop).await?;
    }
    Ok(())
}

/// Does jobs until there are no more, or the time is up. It begins when the machine is at rest, and ends when all
/// outcomes can be seen and all containers of these jobs are removed; a pool is not waited for to be full again.
async fn do_block(
    ground: &Arc<Ground>,
    way: Way,
    jobs: u32,
    slots: u32,
    limit: Option<Duration>,
    stop: &CancellationToken,
) -> Result<Done, Failure> {
    let rested = stop.run_until_cancelled(ground.rest()).await;
    rested.unwrap_or_else(|| Err(interrupted()))?;
    let tickets = Arc::new(Tickets {
        left: AtomicU32::new(jobs),
        end: CancellationToken::new(),
        until: limit.map(|limit| Instant::now() + limit),
        stop: stop.clone(),
    });
    let workers = match way {
        Way::Cold | Way::Warm | Way::Http => slots * IN_FLIGHT,
        Way::DockerRun | Way::Engine => slots,
    };
    let cpu_before = mayfly_telemetry::cpu_time();
    let begun = Instant::now();
    let mut working = JoinSet::new();
    for _ in 0..workers {
        working.spawn(work(Arc::clone(ground), way, Arc::clone(&tickets)));
    }
    let (mut done, mut hits, mut failure) = (0, 0, None);
    while let Some(ended) = working.join_next().await {
        let ended = ended.unwrap_or_else(|error| Err(Failure::new(exit::INTERNAL, error)));
        match ended {
            Ok((jobs, warm)) => (done, hits) = (done + jobs, hits + warm),
            Err(error) => {
                tickets.end.cancel();
                failure.get_or_insert(error);
            }
        }
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    if stop.is_cancelled() {
        return Err(interrupted());
    }
    ground.removed().await?;
    let took = begun.elapsed();
    let cpu = mayfly_telemetry::cpu_time().zip(cpu_before);
    Ok(Done {
        jobs: done,
        hits,
        took,
        cpu: cpu.map(|(after, before)| after.saturating_sub(before)),
    })
}

/// The jobs of a block that nobody has begun.
struct Tickets {
    left: AtomicU32,
    /// A job has failed.
    end: CancellationToken,
    until: Option<Instant>,
    stop: CancellationToken,
}

impl Tickets {
    fn take(&self) -> bool {
        if self.end.is_cancelled()
            || self.stop.is_cancelled()
            || self.until.is_some_and(|until| Instant::now() >= until)
        {
            return false;
        }
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        taken.is_ok()
    }
}

/// One job after the other. Says how many, and how many of them found a sandbox ready.
async fn work(ground: Arc<Ground>, way: Way, tickets: Arc<Tickets>) -> Result<(u32, u32), Failure> {
    let (mut done, mut hits) = (0, 0);
    while tickets.take() {
        let rig: Option<&Rig> = match way {
            Way::DockerRun | Way::Engine => None,
            Way::Cold => Some(&ground.cold),
            Way::Warm | Way::Http => ground.warm.as_ref(),
        };
        match rig {
            Some(rig) => hits += u32::from(rig.run(&ground.job).await?.was_warm()),
            None => {
                let exit_code = ground.floor.run().await?.exit_code;
                if exit_code != 0 {
                    let error =
                        anyhow::anyhow!("the program ended with exit code {exit_code} without a guest");
                    return Err(Failure::new(exit::INTERNAL, error));
                }
            }
        }
        done += 1;
    }
    Ok((done, hits))
}
