//! Each rule dropped, one at a time: the model has to notice, for the right reason. Without that, a model that is
//! content with everything would pass as well.

use std::time::Duration;

use mayfly_dispatch::{
    rules::{Rule, Rules},
    timing::Timing,
};
use proptest::{
    strategy::{Strategy as _, ValueTree as _},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use crate::{ops, play, scenarios, world::World};

/// The first violation in a search that is the same each time.
fn search(rules: Rules, most: u32) -> Option<String> {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let cases = ops::cases();
    (0..most).find_map(|_| {
        let case = cases
            .new_tree(&mut runner)
            .expect("cases can always be made")
            .current();
        play(&case, rules, Timing::standard())
            .oracle
            .violation()
            .map(str::to_owned)
    })
}

/// Drops one rule and expects that a short search finds a violation of this kind.
fn search_notices(rule: Rule, kind: &str) {
    let found = search(Rules::without(&[rule]), 300).expect("the search finds nothing without this rule");
    assert!(found.contains(kind), "{rule:?} is missed as: {found}");
}

/// Drops some rules and expects that a scenario shows it, which shows nothing with all rules in force.
fn scenario_notices(scenario: fn(Rules, Timing) -> World, rules: &[Rule], kind: &str) {
    let world = scenario(Rules::all(), Timing::standard());
    assert_eq!(world.oracle.violation(), None, "{}", world.history());
    let world = scenario(Rules::without(rules), Timing::standard());
    let found = world
        .oracle
        .violation()
        .expect("the scenario shows nothing without these rules");
    assert!(found.contains(kind), "{rules:?} are missed as: {found}");
}

#[test]
fn a_session_judged_by_the_clock_without_a_tick_is_noticed() {
    search_notices(Rule::TickBeforeDeath, "was lost, and the lease");
}

#[test]
fn a_tick_that_counts_although_a_newer_heartbeat_is_processed_is_noticed() {
    search_notices(Rule::HeartbeatVoidsTick, "was lost, and the lease");
}

#[test]
fn events_without_processed_numbers_are_noticed() {
    search_notices(Rule::ProcessedNumbers, "is on record twice");
}

#[test]
fn a_grant_after_a_cancel_is_noticed() {
    search_notices(Rule::NoGrantAfterCancel, "runs the code of");
}

#[test]
fn a_result_of_another_session_is_noticed() {
    search_notices(Rule::ResultFromHolder, "the result of");
}

#[test]
fn a_second_grant_is_noticed() {
    search_notices(Rule::OneGrant, "ran twice");
}

#[test]
fn an_ask_that_is_forgotten_when_its_answer_is_lost_is_noticed() {
    search_notices(Rule::AskUntilAnswered, "was lost, and the lease");
}

#[test]
fn heartbeats_that_omit_what_is_asked_for_are_noticed() {
    search_notices(Rule::HeartbeatNamesAsked, "was lost, and the lease");
}

#[test]
fn results_that_are_dropped_at_the_confirm_are_noticed() {
    search_notices(Rule::KeptUntilReceipt, "still hold");
}

#[test]
fn attempts_that_are_published_only_once_are_noticed() {
    search_notices(Rule::PublishAgain, "have not ended");
}

#[test]
fn a_lease_that_is_not_looked_at_before_the_job_is_sent_is_noticed() {
    scenario_notices(scenarios::late_send, &[Rule::LeaseCheckedBeforeJob], "overlap");
}

#[test]
fn a_lease_that_is_looked_at_without_a_margin_is_noticed() {
    scenario_notices(scenarios::late_send, &[Rule::AliveMargin], "overlap");
}

#[test]
fn a_lease_that_is_revived_by_a_late_confirm_is_noticed() {
    scenario_notices(
        scenarios::revived_lease,
        &[Rule::EndedLeaseIsFinal],
        "runs the code of",
    );
}

#[test]
fn an_answer_that_is_taken_for_a_later_ask_is_noticed() {
    scenario_notices(scenarios::old_answer, &[Rule::AnswerNamesAsk], "runs the code of");
}

#[test]
fn a_heartbeat_behind_a_gap_that_does_not_renew_is_noticed() {
    scenario_notices(
        scenarios::long_gap,
        &[Rule::GappedHeartbeatRenews],
        "was lost, and the lease",
    );
}

/// Each of the two rules makes up for the other: an executor that names what it has reported can be judged across a gap,
/// and one that doesn't can be judged where there is none.
#[test]
fn an_attempt_that_is_judged_as_no_longer_named_across_a_gap_is_noticed() {
    let both = [Rule::NamingNeedsNoGap, Rule::HeartbeatNamesFinished];
    scenario_notices(scenarios::lost_result, &both, "was lost, and the lease");
    for one in both {
        let world = scenarios::lost_result(Rules::without(&[one]), Timing::standard());
        assert_eq!(world.oracle.violation(), None, "without {one:?}");
    }
}

#[test]
fn a_further_copy_of_an_attempt_that_is_run_is_noticed() {
    scenario_notices(
        scenarios::copy_while_running,
        &[Rule::CopiesAreAcked],
        "ran twice",
    );
}

#[test]
fn a_session_that_is_announced_while_its_predecessors_guest_lives_is_noticed() {
    scenario_notices(
        scenarios::crash_under_a_hung_engine,
        &[Rule::PredecessorIsGone],
        "overlap",
    );
}

#[test]
fn ticks_without_numbers_are_noticed_after_a_loss() {
    scenario_notices(
        scenarios::emptied_while_nobody_records,
        &[Rule::NumberedTicks],
        "was lost, and the lease",
    );
}

#[test]
fn leases_that_do_not_start_afresh_with_the_queue_are_noticed() {
    scenario_notices(
        scenarios::wiped_while_nobody_records,
        &[Rule::AfreshWithTheQueue],
        "was lost, and the lease",
    );
}

#[test]
fn guests_that_live_on_for_longer_than_the_margin_of_the_kill_are_noticed() {
    let standard = scenarios::cut_then_frozen(Rules::all(), Timing::standard());
    assert_eq!(standard.oracle.violation(), None);
    let timing = Timing {
        alive_limit: Duration::from_secs(20),
        ..Timing::standard()
    };
    let found = scenarios::cut_then_frozen(Rules::all(), timing);
    assert!(
        found
            .oracle
            .violation()
            .is_some_and(|found| found.contains("overlap"))
    );
    assert!(timing.checked().is_err(), "such times are refused");
}
