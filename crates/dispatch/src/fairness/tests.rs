//! A pool that is simulated: slots, runs, and a scheduler that picks whenever a run ends or a job comes.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
};

use proptest::prelude::*;

use super::*;
use crate::scheduler::room;

fn pool_shares() -> PoolShares {
    PoolShares::new(ServerTime::from_micros(0))
}

fn tenant(number: usize) -> TenantId {
    TenantId::from_uuid(uuid::Uuid::from_u128(number as u128))
}

fn number_of(tenant: TenantId) -> usize {
    usize::try_from(tenant.as_uuid().as_u128()).unwrap()
}

/// What a tenant does.
#[derive(Debug, Clone)]
struct Behaviour {
    weight: u32,
    /// How long each of its runs takes, in microseconds, by turns.
    runs: Vec<u64>,
    /// Jobs that it has ready at the beginning.
    ready: u64,
}

#[derive(Debug, Default, Clone)]
struct Account {
    stored: f64,
    ended: Vec<(u64, u64)>,
    running: Vec<u64>,
    unstarted: u64,
    ready: u64,
    turns: usize,
    /// Slot time in all, in microseconds.
    had: u64,
}

/// One pool. Times are microseconds since its beginning.
struct Pool {
    slots: usize,
    now: u64,
    shares: PoolShares,
    behaviour: Vec<Behaviour>,
    accounts: Vec<Account>,
    /// Dispatched and not started, in the broker's order.
    queue: VecDeque<(usize, u64)>,
    /// When what runs ends, whose it is, when it began.
    running: BinaryHeap<Reverse<(u64, usize, u64)>>,
    ends: VecDeque<u64>,
    /// Waits from submission to start of jobs that came later.
    waits: Vec<(usize, u64)>,
    /// Most attempts that were dispatched ahead of free slots.
    ahead: u64,
}

#[expect(clippy::cast_precision_loss, reason = "a simulation")]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

impl Pool {
    fn new(slots: usize, behaviour: Vec<Behaviour>) -> Self {
        let accounts = behaviour
            .iter()
            .map(|tenant| Account {
                ready: tenant.ready,
                ..Account::default()
            })
            .collect();
        Self {
            slots,
            now: 0,
            shares: pool_shares(),
            behaviour,
            accounts,
            queue: VecDeque::new(),
            running: BinaryHeap::new(),
            ends: VecDeque::new(),
            waits: Vec::new(),
            ahead: 0,
        }
    }

    fn dispatch(&mut self) {
        while self.ends.front().is_some_and(|end| end + 10_000_000 <= self.now) {
            self.ends.pop_front();
        }
        let free = self.slots - self.running.len();
        self.ahead = self.ahead.max(room(0, 0, self.ends.len() as u64));
        let most = room(free as u64, self.queue.len() as u64, self.ends.len() as u64);
        let counted = u64::try_from(self.shares.counted_to.as_micros()).unwrap();
        let mut newest = counted;
        let loads: Vec<TenantLoad> = (0..self.accounts.len())
            .map(|number| {
                let account = &self.accounts[number];
                let ended: Vec<_> = account.ended.iter().filter(|(at, _)| *at > counted).collect();
                newest = ended.iter().map(|(at, _)| *at).fold(newest, u64::max);
                TenantLoad {
                    weight: self.behaviour[number].weight,
                    account: account.stored,
                    ended: ended.len() as u64,
                    ended_seconds: ended.iter().map(|(_, took)| seconds(*took)).sum(),
                    in_flight: account.unstarted + account.running.len() as u64,
                    running_seconds: account
                        .running
                        .iter()
                        .map(|since| seconds(self.now - since))
                        .sum(),
                    wants: account.ready > 0,
                    ..TenantLoad::new(tenant(number))
                }
            })
            .collect();
        let newest = ServerTime::from_micros(i64::try_from(newest).unwrap());
        let mut picker = Picker::new(self.shares, newest, loads);
        let mut picked = false;
        for _ in 0..most {
            let Some(next) = picker.pick() else { break };
            let number = number_of(next);
            let account = &mut self.accounts[number];
            account.ready -= 1;
            account.unstarted += 1;
            if account.ready == 0 {
                picker.has_no_more(next);
            }
            self.queue.push_back((number, self.now));
            picked = true;
        }
        if picked {
            let kept = picker.finish();
            assert!(kept.pool.level >= self.shares.level, "the level never sinks");
            self.shares = kept.pool;
            for (whose, account) in kept.tenants {
                self.accounts[number_of(whose)].stored = account;
            }
            for account in &mut self.accounts {
                account.ended.clear();
            }
        }
        while self.running.len() < self.slots {
            let Some((number, _)) = self.queue.pop_front() else {
                break;
            };
            let account = &mut self.accounts[number];
            let runs = &self.behaviour[number].runs;
            let took = runs[account.turns % runs.len()];
            account.turns += 1;
            account.unstarted -= 1;
            account.running.push(self.now);
            self.running.push(Reverse((self.now + took, number, self.now)));
            if let Some(wait) = self
                .waits
                .iter_mut()
                .find(|(whose, wait)| *whose == number && *wait > 1 << 40)
            {
                wait.1 = self.now - (wait.1 - (1 << 41));
            }
        }
    }

    /// A job comes; how long it waits is measured.
    fn submit(&mut self, number: usize) {
        self.accounts[number].ready += 1;
        self.waits.push((number, self.now + (1 << 41)));
        self.dispatch();
    }

    /// Until some time has passed.
    fn run_to(&mut self, end: u64) {
        self.dispatch();
        while let Some(Reverse((at, number, began))) = self.running.peek().copied() {
            if at > end {
                break;
            }
            self.running.pop();
            // Ends of one moment are of one transaction.
            let is_last = self.running.peek().is_none_or(|Reverse((next, ..))| *next != at);
            self.now = at;
            let account = &mut self.accounts[number];
            account
                .running
                .swap_remove(account.running.iter().position(|since| *since == began).unwrap());
            account.ended.push((at, at - began));
            account.had += at - began;
            self.ends.push_back(at);
            if is_last {
                self.dispatch();
            }
        }
        self.now = end;
    }

    fn shares(&self) -> Vec<f64> {
        let all: u64 = self.accounts.iter().map(|account| account.had).sum();
        self.accounts
            .iter()
            .map(|account| seconds(account.had) / seconds(all))
            .collect()
    }
}

const PLENTY: u64 = 10_000_000;

fn behaviour() -> impl Strategy<Value = Behaviour> {
    let runs = prop::collection::vec(50_000_u64..2_000_000, 1..6);
    (1_u32..=8, runs).prop_map(|(weight, runs)| Behaviour {
        weight,
        runs,
        ready: PLENTY,
    })
}

/// Whose share is how far from its weight's.
fn off(pool: &Pool) -> Option<String> {
    let weights: u32 = pool.behaviour.iter().map(|tenant| tenant.weight).sum();
    let shares = pool.shares();
    let off = pool.behaviour.iter().zip(&shares).any(|(tenant, share)| {
        let due = f64::from(tenant.weight) / f64::from(weights);
        (share / due - 1.0).abs() > 0.2
    });
    off.then(|| format!("{shares:?} of {:?}", pool.behaviour))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// P8: slot time follows weights within 20 %, whatever the runs of each take.
    #[test]
    fn shares_follow_weights(slots in 1_usize..40, tenants in prop::collection::vec(behaviour(), 2..6)) {
        let mut pool = Pool::new(slots, tenants);
        // Long enough that one run of anybody is little of what its tenant has.
        pool.run_to(4_000_000_000 / (slots as u64).max(4));
        prop_assert_eq!(off(&pool), None);
    }

    /// Whatever another tenant has queued, a tenant's next job waits for what was dispatched before it came and for
    /// nothing else: each slot is free once in the longest run, so that much time frees as many slots as there are.
    #[test]
    fn whoever_comes_waits_for_what_is_dispatched_alone(
        slots in 4_usize..40,
        runs in prop::collection::vec(50_000_u64..2_000_000, 1..6),
        gaps in prop::collection::vec(500_000_u64..4_000_000, 20..30),
    ) {
        let longest = *runs.iter().max().unwrap();
        // One comes when the one before it has started.
        let gaps: Vec<_> = gaps.iter().map(|gap| 3 * longest + gap).collect();
        let (waits, ahead) = waits(slots, runs, &gaps);
        let most = longest * (ahead + 1).div_ceil(slots as u64);
        prop_assert!(waits.iter().all(|wait| *wait <= most), "{most}: {waits:?}");
    }

    /// P8: it starts within one mean run, or 250 ms, on average over those that come at any time. Where runs differ so much
    /// that a run that is met is much longer than their mean, what is left of it may be, too; these do not.
    #[test]
    fn whoever_comes_waits_for_one_mean_run_at_most(
        slots in 4_usize..40,
        shortest in 50_000_u64..1_000_000,
        above in prop::collection::vec(100_u64..150, 1..6),
        gaps in prop::collection::vec(500_000_u64..4_000_000, 40..60),
    ) {
        let runs: Vec<_> = above.iter().map(|percent| shortest * percent / 100).collect();
        let mean = runs.iter().sum::<u64>() / runs.len() as u64;
        let (waits, _) = waits(slots, runs, &gaps);
        let average = waits.iter().sum::<u64>() / waits.len() as u64;
        prop_assert!(average <= mean.max(250_000), "{average} of {mean}: {waits:?}");
    }
}

/// How long jobs that come with these gaps wait in a pool that is full of another tenant's, and how many attempts were
/// dispatched ahead of free slots at most.
fn waits(slots: usize, runs: Vec<u64>, gaps: &[u64]) -> (Vec<u64>, u64) {
    let greedy = Behaviour {
        weight: 1,
        runs,
        ready: PLENTY,
    };
    let modest = Behaviour {
        weight: 1,
        runs: vec![1000],
        ready: 0,
    };
    let mut pool = Pool::new(slots, vec![greedy, modest]);
    pool.run_to(20_000_000);
    let mut at = pool.now;
    for gap in gaps {
        at += gap;
        pool.run_to(at);
        pool.submit(1);
    }
    pool.run_to(at + 10_000_000);
    let waits: Vec<u64> = pool.waits.iter().map(|(_, wait)| *wait).collect();
    assert_eq!(waits.len(), gaps.len());
    (waits, pool.ahead)
}

/// A tenant that had the pool for itself for a long time is not punished for it, and one that wanted nothing in that
/// time has no claim to it.
#[test]
fn idle_time_earns_nothing_and_idle_slots_cost_nothing() {
    let second = 1_000_000;
    let tenants = |ready| Behaviour {
        weight: 1,
        runs: vec![second],
        ready,
    };
    let mut pool = Pool::new(10, vec![tenants(PLENTY), tenants(0)]);
    pool.run_to(600 * second);
    pool.accounts[1].ready = PLENTY;
    let before: Vec<u64> = pool.accounts.iter().map(|account| account.had).collect();
    pool.run_to(700 * second);
    let had: Vec<u64> = (0..2)
        .map(|number| pool.accounts[number].had - before[number])
        .collect();
    let share = seconds(had[0]) / seconds(had[0] + had[1]);
    assert!((0.4..0.6).contains(&share), "{share}");
}

/// Long runs are counted while they run, and not at their end alone.
#[test]
fn runs_that_take_long_are_counted_while_they_run() {
    let second = 1_000_000;
    let tenants = |runs| Behaviour {
        weight: 1,
        runs: vec![runs],
        ready: PLENTY,
    };
    let mut pool = Pool::new(10, vec![tenants(1000 * second), tenants(second)]);
    pool.run_to(300 * second);
    let running = pool.accounts[0].running.len();
    assert!((4..=6).contains(&running), "{running} of 10 slots have long runs");
}

#[test]
fn a_tenant_gets_no_more_than_it_may_have_in_flight() {
    let load = |number, most| TenantLoad {
        wants: true,
        in_flight: 1,
        most_in_flight: most,
        ..TenantLoad::new(tenant(number))
    };
    let mut picker = Picker::new(
        pool_shares(),
        ServerTime::from_micros(0),
        [load(1, Some(3)), load(2, Some(1)), load(3, Some(0))],
    );
    let picked: Vec<_> = std::iter::from_fn(|| picker.pick()).take(10).collect();
    assert_eq!(picked, [tenant(1), tenant(1)]);
}

/// A tenant that is at its bound does not keep the level down for the others.
#[test]
fn the_level_is_of_those_that_may_have_more() {
    let load = |number, account: f64, most| TenantLoad {
        wants: true,
        account,
        most_in_flight: most,
        ..TenantLoad::new(tenant(number))
    };
    let loads = [load(1, 5.0, Some(0)), load(2, 70.0, None)];
    let picker = Picker::new(pool_shares(), ServerTime::from_micros(0), loads);
    assert!((picker.finish().pool.level - 70.0).abs() < 1e-9);
    let newcomer = TenantLoad {
        wants: true,
        ..TenantLoad::new(tenant(3))
    };
    let pool = PoolShares {
        level: 70.0,
        ..pool_shares()
    };
    let kept = Picker::new(pool, ServerTime::from_micros(0), [newcomer]).finish();
    assert_eq!(kept.tenants, [(tenant(3), 70.0)]);
}

/// What is picked and has no job after all is not counted, and a pick that comes to nothing changes no account.
#[test]
fn a_pick_without_a_job_counts_for_nothing() {
    let wants = |number| TenantLoad {
        wants: true,
        ..TenantLoad::new(tenant(number))
    };
    let mut picker = Picker::new(pool_shares(), ServerTime::from_micros(0), [wants(1), wants(2)]);
    assert_eq!(picker.pick(), Some(tenant(1)));
    picker.has_none(tenant(1));
    assert_eq!(picker.pick(), Some(tenant(2)));
    picker.has_no_more(tenant(2));
    assert_eq!(picker.pick(), None);
    assert_eq!(
        picker.finish().tenants,
        BTreeMap::new().into_iter().collect::<Vec<_>>()
    );
}
