//! A model of a whole fleet, with everything that can go wrong in it, around the real state machines.
//!
//! A world holds hosts (with frozen, crashed and paused executors, hung engines and guests that obey their `alive`
//! limit), a broker (which loses what it has not confirmed, delivers again, is cut off, wiped, declared anew), recorders
//! that take over from each other while frozen ones go on late, schedulers and a reconciler that die between a commit and
//! a publication, a database that is down, and a rogue executor. Random lists of operations drive it; after each step
//! the oracles look; at the end all faults stop, and every job has to end. What fails shrinks.
//!
//! The second half drops each rule of the machines, one at a time, and expects the model to notice.

mod host;
mod mutants;
mod ops;
mod oracle;
mod random;
mod scenarios;
mod server;
mod steps;
mod world;

use mayfly_core::outcome::EndState;
use mayfly_dispatch::{rules::Rules, timing::Timing};
use proptest::{
    prelude::*,
    test_runner::{TestError, TestRunner},
};

use crate::{ops::Case, world::World};

/// Cases of the random search, unless the environment says otherwise.
const CASES: u32 = 1_000;

/// Plays a case to its end.
pub(crate) fn play(case: &Case, rules: Rules, timing: Timing) -> World {
    play_in(World::new(case, rules, timing), case)
}

/// What happens in a case, for a person.
fn history(case: &Case, rules: Rules, timing: Timing) -> String {
    let mut world = World::new(case, rules, timing);
    world.keep_notes();
    play_in(world, case).history()
}

fn play_in(mut world: World, case: &Case) -> World {
    for op in &case.ops {
        world.apply(op);
        if world.oracle.violation().is_some() {
            return world;
        }
    }
    world.heal_and_finish();
    world
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long a test runs is not a setting of the product"
)]
fn cases() -> u32 {
    let asked = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    asked("MAYFLY_MODEL_CASES")
        .or_else(|| asked("PROPTEST_CASES"))
        .unwrap_or(CASES)
}

#[test]
fn no_order_of_faults_breaks_a_promise() {
    let mut config = ProptestConfig::with_cases(cases());
    config.failure_persistence = None;
    config.max_shrink_iters = 2_000;
    let mut runner = TestRunner::new(config);
    let (ends, steps) = (std::cell::RefCell::new(Vec::new()), std::cell::Cell::new(0_u64));
    let result = runner.run(&ops::cases(), |case| {
        let world = play(&case, Rules::all(), Timing::standard());
        steps.set(steps.get() + world.steps);
        ends.borrow_mut().extend(world.ends());
        match world.oracle.violation() {
            None => Ok(()),
            Some(violation) => Err(TestCaseError::fail(violation.to_owned())),
        }
    });
    if let Err(TestError::Fail(why, case)) = &result {
        panic!(
            "{why}\n{}\n{case:?}",
            history(case, Rules::all(), Timing::standard())
        );
    }
    assert_eq!(result, Ok(()));
    let ends = ends.into_inner();
    let share = |end| 100 * ends.iter().filter(|found| **found == end).count() / ends.len().max(1);
    let (succeeded, canceled, lost) = (
        share(EndState::Succeeded),
        share(EndState::Canceled),
        share(EndState::Lost),
    );
    println!(
        "{} jobs, {} steps; {succeeded} % succeeded, {canceled} % canceled, {lost} % lost",
        ends.len(),
        steps.get()
    );
    // A search in which nothing ever gets done, or nothing ever goes wrong, would prove nothing.
    assert!(succeeded >= 40 && canceled >= 3 && lost >= 3);
}
