//! How long one run takes, by each way in turn.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use mayfly_core::clock::Clock;
use tokio_util::sync::CancellationToken;

use super::{
    args::LatencyArgs,
    docker::Docker,
    ground::{Gone, Ground},
    interrupted,
    report::{Head, Latency, Part, Ratio, SCHEMA, Way, WayTimes},
    stats::{Times, median, rounded},
};
use crate::{exit, failure::Failure, progress::Step};

/// Measures, and says what came of it.
pub(crate) async fn measure(
    ground: &Ground,
    args: &LatencyArgs,
    clock: &dyn Clock,
    stop: &CancellationToken,
) -> Result<Latency, Failure> {
    let begun = Instant::now();
    let mut machine = ground.machine.clone();
    let docker = Docker::find(args.docker.clone(), ground).await;
    machine.docker_client = docker.as_ref().ok().map(|docker| docker.version.clone());
    let plan = Plan::of(args, ground, docker.is_ok());
    let mut course = Course {
        ground,
        docker: docker.as_ref().ok(),
        pause: args.pause.map(|pause| pause.as_duration()),
        stop,
        seen: BTreeMap::new(),
    };
    course.warm_up(&plan, args.warm_up).await?;
    course.go(&plan).await?;
    machine.ended();
    let mut ways: Vec<WayTimes> = course.seen.iter().map(|(way, seen)| seen.times(*way)).collect();
    if let Err(reason) = &docker {
        ways.push(WayTimes::skipped(Way::DockerRun, reason.clone()));
    }
    if ground.warm.is_none() {
        ways.push(WayTimes::skipped(Way::Warm, "--pool 0".to_owned()));
    }
    if let Err(reason) = ground.over_http() {
        ways.push(WayTimes::skipped(Way::Http, reason.to_owned()));
    }
    ways.sort_by_key(|times| times.way);
    let warm = course.seen.get(&Way::Warm);
    Ok(Latency {
        head: Head {
            schema: SCHEMA,
            command: plan.command(args),
            at: clock.now(),
            seconds: rounded(begun.elapsed().as_secs_f64()),
            machine,
            subject: ground.subject.clone(),
        },
        runs: plan.runs,
        slow_runs: plan.slow_runs,
        warm_up: args.warm_up,
        pause_ms: args
            .pause
            .map(|pause| u64::try_from(pause.as_duration().as_millis()).unwrap_or(u64::MAX)),
        ratios: ratios(&ways),
        ways,
        pool_hits: warm.map_or(0, |seen| seen.times.len()),
        pool_misses: warm.map_or(0, |seen| seen.missed.len()),
        pool_booted: warm.map_or(0, |seen| seen.booted),
        missed: warm.and_then(|seen| Times::of(&seen.missed)),
    })
}

/// Which ways, and how often.
struct Plan {
    ways: Vec<Way>,
    runs: u32,
    slow_runs: u32,
}

impl Plan {
    fn of(args: &LatencyArgs, ground: &Ground, docker: bool) -> Self {
        let mut ways = vec![Way::DockerRun, Way::Engine, Way::Cold, Way::Warm, Way::Http];
        ways.retain(|way| match way {
            Way::DockerRun => docker,
            Way::Engine | Way::Cold => true,
            Way::Warm => ground.warm.is_some(),
            Way::Http => ground.over_http().is_ok(),
        });
        Self {
            ways,
            runs: args.runs,
            slow_runs: args.slow_runs.unwrap_or(args.runs),
        }
    }

    fn runs_of(&self, way: Way) -> u32 {
        match way {
            Way::DockerRun | Way::Engine | Way::Cold => self.slow_runs,
            Way::Warm | Way::Http => self.runs,
        }
    }

    fn rounds(&self) -> u32 {
        self.ways.iter().map(|way| self.runs_of(*way)).max().unwrap_or(0)
    }

    fn total(&self) -> u64 {
        self.ways.iter().map(|way| u64::from(self.runs_of(*way))).sum()
    }

    /// The ways of a round, in order. Each round begins with another way, and a way with fewer runs than there are
    /// rounds is spread evenly over them.
    fn round(&self, round: u32) -> impl Iterator<Item = Way> {
        let (rounds, count) = (u64::from(self.rounds()), self.ways.len());
        (0..count)
            .map(move |turn| self.ways[(round as usize + turn) % count])
            .filter(move |way| {
                let done_by = |round: u64| round * u64::from(self.runs_of(*way)) / rounds;
                done_by(u64::from(round) + 1) > done_by(u64::from(round))
            })
    }

    fn command(&self, args: &LatencyArgs) -> String {
        let mut command = format!(
            "mayfly bench latency --runs {} --slow-runs {} --warm-up {}",
            self.runs, self.slow_runs, args.warm_up
        );
        if let Some(pause) = args.pause {
            command.push_str(&format!(" --pause {pause}"));
        }
        command.push_str(&args.subject.flags());
        command
    }
}

/// All runs.
struct Course<'a> {
    ground: &'a Ground,
    docker: Option<&'a Docker>,
    pause: Option<Duration>,
    stop: &'a CancellationToken,
    seen: BTreeMap<Way, Seen>,
}

/// What was seen of one way.
#[derive(Default)]
struct Seen {
    times: Vec<Duration>,
    /// Of jobs that were to find a sandbox ready, and did not.
    missed: Vec<Duration>,
    /// How many of the others ran in an interpreter that was started before.
    booted: usize,
    stdout_bytes: Option<u64>,
    parts: Vec<(&'static str, Vec<Duration>)>,
}

/// One run.
struct Once {
    took: Duration,
    missed: bool,
    booted: bool,
    stdout_bytes: u64,
    parts: Vec<(&'static str, Duration)>,
}

impl Course<'_> {
    async fn warm_up(&mut self, plan: &Plan, times: u32) -> Result<(), Failure> {
        let step = Step::begin(format!("warming up, {times} runs of each way"));
        for round in 0..times {
            for way in &plan.ways {
                self.rest().await?;
                self.once(*way).await?;
            }
            step.count(u64::from(round) + 1, u64::from(times));
        }
        Ok(())
    }

    async fn go(&mut self, plan: &Plan) -> Result<(), Failure> {
        let step = Step::begin(format!("{} runs, the ways in turn", plan.total()));
        let mut done = 0;
        for round in 0..plan.rounds() {
            for way in plan.round(round) {
                self.rest().await?;
                let once = self.once(way).await?;
                self.seen.entry(way).or_default().add(once);
                done += 1;
                step.count(done, plan.total());
            }
        }
        Ok(())
    }

    /// Between two runs.
    async fn rest(&self) -> Result<(), Failure> {
        let rested = self.stop.run_until_cancelled(async {
            match self.pause {
                Some(pause) => {
                    tokio::time::sleep(pause).await;
                    Ok(())
                }
                None => self.ground.rest().await,
            }
        });
        rested.await.unwrap_or_else(|| Err(interrupted()))
    }

    async fn once(&self, way: Way) -> Result<Once, Failure> {
        let ground = self.ground;
        let (docker, warm) = (self.docker, ground.warm.as_ref());
        match way {
            Way::DockerRun => {
                let docker = docker.expect("the plan has this way only where there is a client");
                let (took, stdout_bytes) = docker.run(ground).await?;
                Ok(Once {
                    took,
                    missed: false,
                    booted: false,
                    stdout_bytes,
                    parts: Vec::new(),
                })
            }
            Way::Engine => engine(ground).await,
            Way::Cold => Ok(Once::of(ground.cold.run(&ground.job).await?, false)),
            Way::Warm => {
                let rig = warm.expect("the plan has this way only where there is a pool");
                let gone = rig.run(&ground.job).await?;
                let missed = !gone.was_warm();
                Ok(Once::of(gone, missed))
            }
            Way::Http => {
                let rig = warm.expect("the plan has this way only where there is a pool");
                let gone = rig.run_over_http().await?;
                let missed = !gone.was_warm();
                Ok(Once::of(gone, missed))
            }
        }
    }
}

async fn engine(ground: &Ground) -> Result<Once, Failure> {
    let run = ground.floor.run().await?;
    if run.exit_code != 0 {
        let error = anyhow::anyhow!(
            "the program ended with exit code {} without a guest",
            run.exit_code
        );
        return Err(Failure::new(exit::INTERNAL, error));
    }
    Ok(Once {
        took: run.total(),
        missed: false,
        booted: false,
        stdout_bytes: run.stdout_bytes,
        parts: vec![
            ("create", run.create),
            ("attach", run.attach),
            ("start", run.start),
            ("run, wait", run.wait),
            ("remove", run.remove),
        ],
    })
}

impl Once {
    fn of(gone: Gone, missed: bool) -> Self {
        Self {
            took: gone.took,
            missed,
            booted: gone.was_booted(),
            stdout_bytes: gone.stdout_bytes(),
            parts: gone.parts(),
        }
    }
}

impl Seen {
    fn add(&mut self, once: Once) {
        if once.missed {
            self.missed.push(once.took);
            return;
        }
        self.times.push(once.took);
        self.booted += usize::from(once.booted);
        self.stdout_bytes = Some(once.stdout_bytes);
        for (part, took) in once.parts {
            match self.parts.iter_mut().find(|(name, _)| *name == part) {
                Some((_, times)) => times.push(took),
                None => self.parts.push((part, vec![took])),
            }
        }
    }

    fn times(&self, way: Way) -> WayTimes {
        let part = |(part, times): &(&str, Vec<Duration>)| {
            Some(Part {
                part: (*part).to_owned(),
                n: times.len(),
                p50_ms: median(times)?,
            })
        };
        let ms = Times::of(&self.times);
        WayTimes {
            way,
            skipped: ms.is_none().then(|| "no run found a sandbox ready".to_owned()),
            ms,
            stdout_bytes: self.stdout_bytes,
            parts: self.parts.iter().filter_map(part).collect(),
        }
    }
}

impl WayTimes {
    fn skipped(way: Way, reason: String) -> Self {
        Self {
            way,
            skipped: Some(reason),
            ms: None,
            stdout_bytes: None,
            parts: Vec::new(),
        }
    }
}

/// Each way against the engine's command line, and ours against the engine's floor, by their medians.
fn ratios(ways: &[WayTimes]) -> Vec<Ratio> {
    let p50 = |way| {
        let times = ways.iter().find(|times| times.way == way)?.ms?;
        Some(times.p50).filter(|p50| *p50 > 0.0)
    };
    [
        (Way::Engine, Way::DockerRun),
        (Way::Cold, Way::DockerRun),
        (Way::Warm, Way::DockerRun),
        (Way::Http, Way::DockerRun),
        (Way::Cold, Way::Engine),
        (Way::Warm, Way::Engine),
        (Way::Http, Way::Engine),
        (Way::Warm, Way::Cold),
        (Way::Http, Way::Cold),
    ]
    .into_iter()
    .filter_map(|(way, than)| {
        Some(Ratio {
            way,
            than,
            times_faster: rounded(p50(than)? / p50(way)?),
        })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(runs: u32, slow_runs: u32) -> Plan {
        Plan {
            ways: vec![Way::DockerRun, Way::Engine, Way::Cold, Way::Warm],
            runs,
            slow_runs,
        }
    }

    #[test]
    fn each_way_has_exactly_its_runs_spread_over_the_rounds() {
        for (runs, slow_runs) in [(1, 1), (7, 3), (500, 100), (3, 7), (10, 1)] {
            let plan = plan(runs, slow_runs);
            let mut counts = BTreeMap::new();
            let mut in_first_half = 0;
            for round in 0..plan.rounds() {
                for way in plan.round(round) {
                    *counts.entry(way).or_insert(0) += 1;
                    in_first_half += u32::from(way == Way::Engine && 2 * (round + 1) <= plan.rounds());
                }
            }
            for way in &plan.ways {
                assert_eq!(
                    counts[way],
                    plan.runs_of(*way),
                    "{way:?} of {runs} and {slow_runs}"
                );
            }
            assert!(
                in_first_half.abs_diff(slow_runs / 2) <= 1,
                "{in_first_half} of {slow_runs}"
            );
        }
    }

    #[test]
    fn rounds_begin_with_each_way_in_turn() {
        let plan = plan(8, 8);
        let first: Vec<Way> = (0..8).filter_map(|round| plan.round(round).next()).collect();
        assert_eq!(first, [&plan.ways[..], &plan.ways[..]].concat());
    }

    #[test]
    fn a_miss_is_counted_by_itself_and_a_way_without_times_says_why() {
        let once = |ms, missed| Once {
            took: Duration::from_millis(ms),
            missed,
            booted: !missed,
            stdout_bytes: 3,
            parts: vec![("the run", Duration::from_millis(ms / 2))],
        };
        let mut seen = Seen::default();
        seen.add(once(300, true));
        let nothing = seen.times(Way::Warm);
        assert_eq!((nothing.ms, nothing.skipped.is_some()), (None, true));
        seen.add(once(20, false));
        let times = seen.times(Way::Warm);
        assert_eq!(times.ms.map(|ms| (ms.n, ms.max)), Some((1, 20.0)));
        assert_eq!((times.parts[0].n, times.parts[0].p50_ms), (1, 10.0));
        assert_eq!((seen.missed.len(), seen.booted), (1, 1));
    }

    #[test]
    fn a_ratio_is_the_other_median_by_this_one_and_needs_both() {
        let times = |way, ms: Option<u64>| WayTimes {
            ms: ms.and_then(|ms| Times::of(&[Duration::from_millis(ms)])),
            ..WayTimes::skipped(way, String::new())
        };
        let found = ratios(&[
            times(Way::DockerRun, None),
            times(Way::Engine, Some(200)),
            times(Way::Cold, Some(250)),
            times(Way::Warm, Some(20)),
        ]);
        let found: Vec<_> = found
            .iter()
            .map(|ratio| (ratio.way, ratio.than, ratio.times_faster))
            .collect();
        assert_eq!(
            found,
            [
                (Way::Cold, Way::Engine, 0.8),
                (Way::Warm, Way::Engine, 10.0),
                (Way::Warm, Way::Cold, 12.5)
            ]
        );
    }
}
