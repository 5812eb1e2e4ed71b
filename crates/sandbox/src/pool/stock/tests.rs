//! The stock as a machine: what it says for what it is told. A sandbox is a number.

use std::collections::HashSet;

use mayfly_core::{limits::LimitRules, units::Span};
use proptest::prelude::*;

use super::*;
use crate::{
    baseline::sample_request,
    pool::{Classes, Kept, WarmCommands},
};

type Numbers = Stock<u32>;

const MINUTE: Duration = Duration::from_secs(60);

fn config(size: u32) -> PoolConfig {
    PoolConfig {
        size,
        max: size,
        max_idle: 5 * MINUTE,
        starts_per_second: 1000,
        starts: 8,
        classes: Classes::new([], [], [], &LimitRules::default().ceilings),
        longest_wall: Span::seconds(3600),
        longest_wait: MINUTE,
        warm: WarmCommands::default(),
        kept: Vec::new(),
    }
}

/// Requests of different kinds.
fn kind(n: u32) -> SandboxRequest {
    let mut request = sample_request();
    request.limits.open_files = 1000 + n;
    request.longest_idle = MINUTE;
    request
}

fn ask(stock: &mut Numbers, request: &SandboxRequest, now: Instant) -> Option<u32> {
    match stock.ask(&Key::of(request), request, now) {
        Took::Ready { sandbox, .. } => Some(sandbox),
        Took::None(_) => None,
    }
}

/// Begins all that may be begun now, but for the rate.
fn begin(stock: &mut Numbers, mut now: Instant) -> Vec<SandboxRequest> {
    let mut begun = Vec::new();
    loop {
        match stock.next(now) {
            Next::Start { request, .. } => begun.push(*request),
            Next::Wait(Some(at)) if at <= now + Duration::from_millis(1) => now = at,
            Next::Wait(_) => return begun,
        }
    }
}

/// Time goes on until nothing is to be done, each start succeeding at once. Gives the time and the kinds begun.
fn settle(stock: &mut Numbers, mut now: Instant, number: &mut u32) -> (Instant, Vec<SandboxRequest>) {
    let mut begun = Vec::new();
    loop {
        match stock.next(now) {
            Next::Start { request, .. } => {
                *number += 1;
                stock.made(&request, Ok(*number), now);
                begun.push(*request);
            }
            Next::Wait(Some(at)) if at < now + Duration::from_secs(5) => now = at,
            Next::Wait(_) => return (now, begun),
        }
    }
}

#[test]
fn what_is_always_kept_is_made_without_being_asked_for_and_made_again_when_it_is_taken() {
    let kept = Kept {
        request: kind(1),
        min: 2,
    };
    let mut stock = Numbers::new(&PoolConfig {
        kept: vec![kept],
        ..config(4)
    });
    let (now, begun) = settle(&mut stock, Instant::now(), &mut 0);
    assert_eq!(begun.len(), 2);
    assert_ne!(begun[0].sandbox_id, begun[1].sandbox_id);
    assert_eq!(
        ask(&mut stock, &kind(1), now),
        Some(1),
        "the one that waits longest"
    );
    assert_eq!(settle(&mut stock, now, &mut 2).1.len(), 1);
}

#[test]
fn a_sandbox_of_the_pool_is_asked_for_with_the_longest_times_that_a_job_may_have() {
    let mut stock = Numbers::new(&config(1));
    let now = Instant::now();
    let mut request = kind(1);
    request.limits.wall = Span::seconds(2);
    assert_eq!(ask(&mut stock, &request, now), None);
    let (now, begun) = settle(&mut stock, now, &mut 0);
    assert_eq!(begun[0].limits.wall, Span::seconds(3600));
    assert_eq!(begun[0].longest_idle, 6 * MINUTE);
    for change in [
        (|request| request.limits.wall = Span::seconds(3601)) as fn(&mut SandboxRequest),
        |request| request.longest_idle = MINUTE + Duration::from_secs(1),
    ] {
        let mut longer = kind(1);
        change(&mut longer);
        assert_eq!(ask(&mut stock, &longer, now), None);
    }
    assert_eq!(stock.counts().misses.too_long, 2);
    assert_eq!(ask(&mut stock, &kind(1), now), Some(1));
}

#[test]
fn misses_are_counted_by_their_reason() {
    let mut stock = Numbers::new(&config(2));
    let now = Instant::now();
    ask(&mut stock, &kind(1), now);
    ask(&mut stock, &kind(1), now);
    let mut number = 0;
    let (now, _) = settle(&mut stock, now, &mut number);
    assert_eq!(number, 2, "it was asked for twice");
    assert!(ask(&mut stock, &kind(1), now).is_some());
    stock.hit();
    assert!(ask(&mut stock, &kind(1), now).is_some());
    assert!(matches!(
        stock.take_another(&Key::of(&kind(1))),
        Took::None(Miss::Dead)
    ));
    assert!(stock.drain().is_empty());
    ask(&mut stock, &kind(1), now);
    let counts = stock.counts();
    let misses = counts.misses;
    assert_eq!((counts.hits, counts.discarded.dead), (1, 1));
    assert_eq!(
        (misses.unknown, misses.empty, misses.dead, misses.drained),
        (1, 1, 1, 1)
    );
    assert_eq!(misses.total(), 4);
}

#[test]
fn never_more_starts_at_once_nor_in_a_second_than_allowed() {
    let kept = Kept {
        request: kind(1),
        min: 8,
    };
    let mut stock = Numbers::new(&PoolConfig {
        starts: 2,
        starts_per_second: 4,
        kept: vec![kept],
        ..config(8)
    });
    let began = Instant::now();
    let mut now = began;
    let mut in_the_making = VecDeque::new();
    let mut at = Vec::new();
    while at.len() < 8 {
        match stock.next(now) {
            Next::Start { request, .. } => {
                at.push(now);
                in_the_making.push_back(request);
                assert!(in_the_making.len() <= 2);
            }
            Next::Wait(Some(then)) => now = then,
            Next::Wait(None) => {
                assert_eq!(in_the_making.len(), 2);
                let request = in_the_making.pop_front().unwrap();
                stock.made(&request, Ok(0), now);
            }
        }
    }
    for (n, at) in at.iter().enumerate() {
        assert_eq!(
            *at - began,
            Duration::from_millis(250) * u32::try_from(n).unwrap()
        );
    }
}

#[test]
fn a_job_that_waits_for_its_own_sandbox_goes_first_and_not_for_ever() {
    let mut stock = Numbers::new(&config(4));
    let began = Instant::now();
    for _ in 0..4 {
        ask(&mut stock, &kind(1), began);
    }
    stock.job_waits();
    let Next::Wait(Some(until)) = stock.next(began) else {
        panic!("a job goes first");
    };
    assert_eq!(until - began, LONGEST_YIELD);
    assert_eq!(
        begin(&mut stock, until).len(),
        1,
        "one at a time goes along with it"
    );
    stock.job_waits_no_longer();
    assert_eq!(begin(&mut stock, until).len(), 3);
}

#[test]
fn nothing_is_begun_in_the_moments_after_one_was_taken() {
    let mut stock = Numbers::new(&config(1));
    let mut number = 0;
    let now = Instant::now();
    ask(&mut stock, &kind(1), now);
    let (now, _) = settle(&mut stock, now, &mut number);
    assert!(ask(&mut stock, &kind(1), now).is_some());
    let Next::Wait(Some(until)) = stock.next(now) else {
        panic!("it is calm first");
    };
    assert_eq!(until - now, CALM);
    assert_eq!(begin(&mut stock, until).len(), 1);
}

#[test]
fn what_has_waited_for_long_enough_goes_and_comes_again_only_where_it_is_wanted() {
    let mut stock = Numbers::new(&config(2));
    let now = Instant::now();
    ask(&mut stock, &kind(1), now);
    let mut number = 0;
    let (now, _) = settle(&mut stock, now, &mut number);
    let mut at = now;
    while at < now + 5 * MINUTE {
        at += Duration::from_secs(5);
        let out = stock.look(at, |_| true);
        assert!(out.is_empty() || at >= now + 4 * MINUTE, "up to a fifth earlier");
    }
    assert_eq!((stock.counts().ready, stock.counts().discarded.aged), (0, 1));
    assert!(
        begin(&mut stock, at).is_empty(),
        "nobody has asked for it of late"
    );
}

#[test]
fn the_dead_are_found_and_replaced() {
    let mut stock = Numbers::new(&config(2));
    let now = Instant::now();
    ask(&mut stock, &kind(1), now);
    ask(&mut stock, &kind(1), now);
    let (now, _) = settle(&mut stock, now, &mut 0);
    assert_eq!(stock.look(now, |sandbox| *sandbox != 1), [1]);
    assert_eq!(stock.counts().discarded.dead, 1);
    assert_eq!(settle(&mut stock, now, &mut 2).1.len(), 1);
}

#[test]
fn after_a_standstill_no_idle_guest_is_trusted() {
    let mut stock = Numbers::new(&config(2));
    let now = Instant::now();
    ask(&mut stock, &kind(1), now);
    let (now, _) = settle(&mut stock, now, &mut 0);
    stock.look(now, |_| true);
    let thawed = now + GUEST_LIMIT;
    assert_eq!(
        ask(&mut stock, &kind(1), thawed),
        None,
        "also before it was looked at"
    );
    assert_eq!(stock.counts().misses.dead, 1);
    assert_eq!(stock.look(thawed, |_| true), [1]);
}

#[test]
fn after_failures_it_waits_longer_each_time_and_says_so_once() {
    for (failed, first, longest) in [
        (Failed::Soon, PAUSE.0, PAUSE.1),
        (Failed::Late, LONG_PAUSE.0, LONG_PAUSE.1),
    ] {
        let kept = Kept {
            request: kind(1),
            min: 1,
        };
        let mut stock = Numbers::new(&PoolConfig {
            kept: vec![kept],
            ..config(1)
        });
        let mut now = Instant::now();
        let mut expected = first;
        for n in 0..12 {
            let begun = begin(&mut stock, now);
            assert_eq!(begun.len(), 1);
            let (_, report) = stock.made(&begun[0], Err(failed), now);
            assert_eq!(report == Report::Began, n == 0);
            let Next::Wait(Some(again)) = stock.next(now) else {
                panic!("not at once");
            };
            let waited = again - now;
            assert!(
                waited <= expected && waited >= expected / 2,
                "{waited:?} {expected:?}"
            );
            expected = (expected * 2).min(longest);
            now = again;
        }
        let begun = begin(&mut stock, now);
        let (_, report) = stock.made(&begun[0], Ok(1), now);
        assert_eq!(report, Report::Recovered);
    }
}

#[test]
fn a_job_whose_own_could_be_made_ends_the_wait() {
    let mut stock = Numbers::new(&config(1));
    let now = Instant::now();
    ask(&mut stock, &kind(1), now);
    let (key, later) = (Key::of(&kind(1)), now + CALM);
    let begun = begin(&mut stock, later);
    stock.made(&begun[0], Err(Failed::Late), later);
    assert!(begin(&mut stock, later + LONG_PAUSE.0 / 4).is_empty());
    stock.can_be_made(&key);
    let begun = begin(&mut stock, later + LONG_PAUSE.0 / 4);
    let (_, report) = stock.made(&begun[0], Ok(1), later);
    assert_eq!(report, Report::Recovered);
}

#[test]
fn one_kind_in_trouble_does_not_hold_up_another() {
    let kept = |n| Kept {
        request: kind(n),
        min: 1,
    };
    let mut stock = Numbers::new(&PoolConfig {
        kept: vec![kept(1), kept(2)],
        ..config(2)
    });
    let now = Instant::now();
    let begun = begin(&mut stock, now);
    stock.made(&begun[0], Err(Failed::Late), now);
    stock.made(&begun[1], Ok(1), now);
    let good = SandboxRequest {
        limits: begun[1].limits,
        ..kind(1)
    };
    assert!(ask(&mut stock, &good, now).is_some());
    let (_, again) = settle(&mut stock, now, &mut 1);
    assert_eq!(again.len(), 1);
    assert_eq!(Key::of(&again[0]), Key::of(&begun[1]));
}

#[test]
fn where_there_is_no_room_the_kind_that_was_asked_for_longest_ago_makes_it() {
    let mut stock = Numbers::new(&config(2));
    let (mut number, mut now) = (0, Instant::now());
    for n in [1, 2] {
        ask(&mut stock, &kind(n), now);
        (now, _) = settle(&mut stock, now, &mut number);
    }
    assert_eq!(number, 2);
    for _ in 0..3 {
        now += Duration::from_secs(1);
        ask(&mut stock, &kind(3), now);
    }
    let (now, begun) = settle(&mut stock, now, &mut number);
    assert_eq!(begun.len(), 1, "one place, and not both");
    assert_eq!(stock.counts().discarded.displaced, 1);
    assert_eq!(ask(&mut stock, &kind(1), now), None);
    assert!(ask(&mut stock, &kind(2), now).is_some());
    assert!(ask(&mut stock, &kind(3), now).is_some());
}

#[test]
fn more_kinds_than_places_asked_for_in_turn_do_not_chase_each_other() {
    let mut stock = Numbers::new(&config(4));
    let (mut number, mut now) = (0, Instant::now());
    let mut hits = 0;
    for round in 0..100 {
        for n in 0..5 {
            now += Duration::from_secs(1);
            stock.look(now, |_| true);
            hits += u32::from(ask(&mut stock, &kind(n), now).is_some() && round >= 50);
            (now, _) = settle(&mut stock, now, &mut number);
        }
    }
    assert_eq!(hits, 50 * 4);
    assert_eq!(stock.counts().discarded.displaced, 0);
}

#[test]
fn kinds_without_end_are_not_remembered() {
    let mut stock = Numbers::new(&config(1));
    let now = Instant::now();
    for n in 0..10_000 {
        ask(&mut stock, &kind(n), now);
    }
    assert!(stock.shelves.len() <= MOST_KINDS);
    stock.look(now + 10 * MINUTE, |_| true);
    assert!(stock.shelves.is_empty());
}

#[derive(Debug, Clone)]
enum Move {
    Ask(u32),
    AskOfTheDead(u32),
    JobWaits,
    JobWaitsNoLonger,
    Next,
    Made(usize, bool),
    Look(u32),
    Time(u64),
    Drain,
}

fn a_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        8 => (0u32..6).prop_map(Move::Ask),
        1 => (0u32..6).prop_map(Move::AskOfTheDead),
        1 => Just(Move::JobWaits),
        2 => Just(Move::JobWaitsNoLonger),
        10 => Just(Move::Next),
        8 => (any::<usize>(), prop::bool::weighted(0.9)).prop_map(|(n, good)| Move::Made(n, good)),
        2 => (0u32..4).prop_map(Move::Look),
        4 => (0u64..30_000).prop_map(Move::Time),
        1 => Just(Move::Drain),
    ]
}

proptest! {
    /// Whatever happens: never more than the size are there, never more than allowed in the making, a job gets one of
    /// its own kind, each is handed out once, and every one that was made is accounted for.
    #[test]
    fn a_pool_keeps_its_bounds_and_hands_each_sandbox_out_once(
        size in 1u32..6,
        starts in 1u32..4,
        min in 0u32..2,
        moves in prop::collection::vec(a_move(), 0..200),
    ) {
        let kept = Kept { request: kind(0), min };
        let mut stock = Numbers::new(&PoolConfig { starts, kept: vec![kept], ..config(size) });
        let mut now = Instant::now();
        let mut making: Vec<SandboxRequest> = Vec::new();
        let mut made: Vec<Key> = Vec::new();
        let (mut out, mut waiting, mut drained) = (HashSet::new(), 0u32, false);
        let mut leaves = |number: u32| -> Result<(), TestCaseError> {
            prop_assert!(out.insert(number), "{} left twice", number);
            Ok(())
        };
        for a_move in moves {
            match a_move {
                Move::Ask(n) => {
                    if let Some(number) = ask(&mut stock, &kind(n), now) {
                        prop_assert!(!drained);
                        prop_assert_eq!(&made[number as usize], &Key::of(&kind(n)));
                        leaves(number)?;
                    }
                }
                Move::AskOfTheDead(n) => {
                    let key = Key::of(&kind(n));
                    let mut took = stock.ask(&key, &kind(n), now);
                    while let Took::Ready { sandbox, .. } = took {
                        leaves(sandbox)?;
                        took = stock.take_another(&key);
                    }
                }
                Move::JobWaits => { stock.job_waits(); waiting += 1; }
                Move::JobWaitsNoLonger if waiting > 0 => { stock.job_waits_no_longer(); waiting -= 1; }
                Move::JobWaitsNoLonger => {}
                Move::Next => match stock.next(now) {
                    Next::Start { request, displaced } => {
                        prop_assert!(!drained);
                        prop_assert!(waiting == 0 || making.is_empty(), "jobs go first");
                        if let Some(number) = displaced { leaves(number)?; }
                        making.push(*request);
                    }
                    Next::Wait(at) => prop_assert!(at.is_none_or(|at| at > now), "it would spin"),
                },
                Move::Made(n, good) if !making.is_empty() => {
                    let request = making.swap_remove(n % making.len());
                    let number = u32::try_from(made.len()).unwrap();
                    if good { made.push(Key::of(&request)); }
                    let result = if good { Ok(number) } else { Err(Failed::Soon) };
                    if let (Some(back), _) = stock.made(&request, result, now) {
                        prop_assert!(drained && back == number);
                        leaves(back)?;
                    }
                }
                Move::Made(..) => {}
                Move::Look(dead) => for number in stock.look(now, |number| *number % 4 != dead) { leaves(number)?; },
                Move::Time(ms) => now += Duration::from_millis(ms),
                Move::Drain => {
                    drained = true;
                    for number in stock.drain() { leaves(number)?; }
                }
            }
            let counts = stock.counts();
            prop_assert!(counts.ready + counts.starting <= size);
            prop_assert_eq!(counts.starting as usize, making.len());
            prop_assert!(counts.starting <= starts);
            prop_assert!(!drained || counts.ready == 0);
        }
        for number in stock.drain() { leaves(number)?; }
        prop_assert_eq!(out.len(), made.len(), "one is lost");
    }
}
