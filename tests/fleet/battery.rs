//! The reliability battery: each kind of fault that a fleet is promised to stand, on a real RabbitMQ, PostgreSQL and engine,
//! with jobs under way. What came of the jobs is recorded and judged outside of mayfly (`history`).
//!
//! ```text
//! kinds     the table: name, promise, fault
//! run       one kind: jobs under way, the fault, its undoing, every job to its end, the judgement
//! ground    one fleet that lives through a whole round, with everything that faults are done by
//! faults    how each is done and undone
//! figures   the result file, and the page that is made of it
//! ```
//!
//! Two fleets go through the table side by side, or as many as `MAYFLY_TEST_BATTERY_FLEETS` says. Leases and all other times of
//! the protocol are a fifth of the standard ones, so that they can be outwaited.

mod client;
mod faults;
mod figures;
mod ground;
mod kinds;
mod run;

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use self::{figures::Figures, ground::Ground, kinds::Kind, run::Ran};

/// Where `MAYFLY_TEST_BATTERY_ROUNDS` does not say how often each kind is gone through, one of so many is, once: some of each
/// family of faults. All of them take a quarter of an hour.
const ONE_OF: usize = 3;

/// The number that a variable holds.
#[expect(clippy::disallowed_methods, reason = "a test's own variables are no settings")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Fleets that go through the kinds side by side, each through its part of the table: most of a kind is waiting, for leases
/// and for roles and services that begin again. `MAYFLY_TEST_BATTERY_FLEETS` says another number.
const FLEETS: usize = 2;

/// What all fleets have come to so far.
struct Score {
    figures: Figures,
    against: BTreeMap<(usize, String), String>,
}

impl Score {
    fn note(&mut self, round: usize, number: usize, kind: &Kind, ran: &Ran) {
        eprintln!("{:>2} {:<60} {}", number + 1, kind.name, ran.line());
        if let Err(why) = ran.verdict() {
            eprintln!("   {why}");
            self.against.insert((round, kind.name.clone()), why);
        }
        self.figures.add(kind, ran);
        if let Some(file) = variable("MAYFLY_TEST_BATTERY_RESULT") {
            std::fs::write(&file, self.figures.json()).expect("the result file can be written");
        }
    }
}

/// One fleet's part of one round.
async fn go_through(round: usize, part: &[(usize, Kind)], score: &Mutex<Score>) {
    let Some(mut ground) = Ground::make().await else {
        return;
    };
    for (number, kind) in part {
        if !ground.can(kind) {
            continue;
        }
        let ran = run::run(&mut ground, kind, &format!("r{round}k{number}n")).await;
        let mut score = score.lock().unwrap_or_else(PoisonError::into_inner);
        score.note(round, *number, kind, &ran);
    }
    ground.leaves_nothing().await;
}

#[test]
fn a_fleet_stands_every_kind_of_fault() {
    let count = |name| variable(name).map(|count| count.parse::<usize>().expect("a number"));
    let rounds = count("MAYFLY_TEST_BATTERY_ROUNDS");
    let fleets = count("MAYFLY_TEST_BATTERY_FLEETS").unwrap_or(FLEETS).max(1);
    // For a look at a few of them alone, by parts of their names.
    let only = variable("MAYFLY_TEST_BATTERY_ONLY");
    let wanted = |number: usize, name: &str| match (&only, rounds) {
        (Some(only), _) => only.split(',').any(|part| name.contains(part)),
        (None, Some(_)) => true,
        (None, None) => number.is_multiple_of(ONE_OF),
    };
    let rounds = rounds.unwrap_or(1);
    let kinds = kinds::all().into_iter().enumerate();
    let mut parts: Vec<Vec<(usize, Kind)>> = (0..fleets).map(|_| Vec::new()).collect();
    for (place, kind) in kinds
        .filter(|(number, kind)| wanted(*number, &kind.name))
        .enumerate()
    {
        parts[place % fleets].push(kind);
    }
    let score = Mutex::new(Score {
        figures: Figures::new(ground::DIVISOR),
        against: BTreeMap::new(),
    });
    for round in 1..=rounds {
        // Each on threads of its own: what a fault is done by may keep one for a while.
        std::thread::scope(|scope| {
            for part in parts.iter().filter(|part| !part.is_empty()) {
                let score = &score;
                scope.spawn(move || {
                    let runtime = tokio::runtime::Runtime::new().expect("a runtime of the test's own");
                    runtime.block_on(go_through(round, part, score));
                });
            }
        });
    }
    let score = score.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(score.against.is_empty(), "{:#?}", score.against);
}
