//! What a case is made of.

use proptest::prelude::*;

/// A fleet, its jobs, and what happens to them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Case {
    pub(crate) hosts: Vec<u32>,
    pub(crate) jobs: Vec<JobPlan>,
    pub(crate) ops: Vec<Op>,
}

/// A job.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobPlan {
    pub(crate) max_attempts: u32,
    pub(crate) run_ms: u64,
    pub(crate) poison: bool,
    pub(crate) expires_ms: Option<u64>,
}

/// One thing that happens. Hosts, jobs and servers are named by any number; the world takes the remainder.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Op {
    /// Everything that can go on does, in a random order, until this much time has passed.
    Run {
        ms: u64,
        seed: u64,
    },
    /// That many steps of whoever can go on, in a random order and without any time passing.
    Steps {
        count: usize,
        seed: u64,
    },
    /// Time passes, and nobody gets to do anything but send `alive` frames.
    Stall {
        ms: u64,
    },
    Submit,
    Cancel {
        job: usize,
    },
    /// An executor's process dies.
    Crash {
        host: usize,
    },
    Freeze {
        host: usize,
    },
    Thaw {
        host: usize,
    },
    /// A host's virtual machine stands still, its clocks included.
    Pause {
        host: usize,
    },
    Resume {
        host: usize,
    },
    /// The engine of a host answers nothing any more.
    Hang {
        host: usize,
    },
    Unhang {
        host: usize,
    },
    /// The connection on which events are published breaks. What was under way arrives or not; what was received and
    /// not read is read or not.
    CutEvents {
        host: usize,
        arrives: bool,
        read: bool,
    },
    /// The connection on which jobs are consumed breaks.
    CutJobs {
        host: usize,
    },
    Reconnect {
        host: usize,
    },
    Drain {
        host: usize,
    },
    Abort {
        host: usize,
    },
    /// Replies to a host are lost, from now on or no longer.
    LoseReplies {
        host: usize,
        lose: bool,
    },
    FreezeRecorder {
        recorder: usize,
    },
    ThawRecorder {
        recorder: usize,
    },
    /// The broker gives up on the active recorder: the other one gets what that has not acked.
    HandOver,
    CrashRecorder {
        recorder: usize,
    },
    /// A scheduler and reconciler stands still, between a commit and a publication perhaps.
    FreezeScheduler {
        scheduler: usize,
    },
    ThawScheduler {
        scheduler: usize,
    },
    CrashScheduler {
        scheduler: usize,
    },
    /// No server runs.
    ServersDown {
        down: bool,
    },
    DatabaseDown {
        down: bool,
    },
    BrokerDown {
        down: bool,
    },
    /// The broker loses all queues and everything in them.
    Wipe,
    /// The broker loses what waits in the recorder's queue, a tick included.
    LoseEvents,
    /// The broker loses a job's message.
    LoseJob,
    /// A job's message is in the queue twice.
    CopyJob {
        seed: u64,
    },
    DeadLetter,
    /// An executor that holds nothing reports a result.
    Rogue {
        job: usize,
    },
}

fn jobs() -> impl Strategy<Value = JobPlan> {
    let run_ms = prop_oneof![3 => 50_u64..2_000, 2 => 2_000_u64..20_000, 1 => 20_000_u64..120_000];
    let poison = prop::bool::weighted(0.08);
    let expires = prop::option::weighted(0.1, 1_000_u64..60_000);
    (prop::sample::select(vec![1, 1, 3]), run_ms, poison, expires).prop_map(
        |(max_attempts, run_ms, poison, expires_ms)| JobPlan {
            max_attempts,
            run_ms,
            poison,
            expires_ms,
        },
    )
}

fn ops() -> impl Strategy<Value = Op> {
    let run_ms = prop_oneof![4 => 1_u64..1_500, 4 => 1_500_u64..12_000, 2 => 12_000_u64..70_000];
    let seed = any::<u64>();
    let go_on = prop_oneof![
        8 => (run_ms, seed).prop_map(|(ms, seed)| Op::Run { ms, seed }),
        10 => (1_usize..25, seed).prop_map(|(count, seed)| Op::Steps { count, seed }),
        1 => (1_u64..15_000).prop_map(|ms| Op::Stall { ms }),
        2 => Just(Op::Submit),
        1 => (0_usize..3).prop_map(|job| Op::Cancel { job }),
    ];
    prop_oneof![5 => go_on, 3 => host_faults(), 3 => server_faults()]
}

fn host_faults() -> impl Strategy<Value = Op> {
    let host = 0_usize..3;
    prop_oneof![
        2 => host.clone().prop_map(|host| Op::Crash { host }),
        4 => host.clone().prop_map(|host| Op::Freeze { host }),
        4 => host.clone().prop_map(|host| Op::Thaw { host }),
        1 => host.clone().prop_map(|host| Op::Pause { host }),
        2 => host.clone().prop_map(|host| Op::Resume { host }),
        1 => host.clone().prop_map(|host| Op::Hang { host }),
        2 => host.clone().prop_map(|host| Op::Unhang { host }),
        3 => (host.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(host, arrives, read)| Op::CutEvents { host, arrives, read }),
        2 => host.clone().prop_map(|host| Op::CutJobs { host }),
        5 => host.clone().prop_map(|host| Op::Reconnect { host }),
        1 => host.clone().prop_map(|host| Op::Drain { host }),
        1 => host.clone().prop_map(|host| Op::Abort { host }),
        3 => (host, prop::bool::weighted(0.4)).prop_map(|(host, lose)| Op::LoseReplies { host, lose }),
    ]
}

fn server_faults() -> impl Strategy<Value = Op> {
    let which = 0_usize..2;
    prop_oneof![
        3 => which.clone().prop_map(|recorder| Op::FreezeRecorder { recorder }),
        4 => which.clone().prop_map(|recorder| Op::ThawRecorder { recorder }),
        4 => Just(Op::HandOver),
        1 => which.clone().prop_map(|recorder| Op::CrashRecorder { recorder }),
        2 => which.clone().prop_map(|scheduler| Op::FreezeScheduler { scheduler }),
        3 => which.clone().prop_map(|scheduler| Op::ThawScheduler { scheduler }),
        1 => which.prop_map(|scheduler| Op::CrashScheduler { scheduler }),
        2 => prop::bool::weighted(0.4).prop_map(|down| Op::ServersDown { down }),
        2 => prop::bool::weighted(0.4).prop_map(|down| Op::DatabaseDown { down }),
        2 => prop::bool::weighted(0.4).prop_map(|down| Op::BrokerDown { down }),
        1 => Just(Op::Wipe),
        1 => Just(Op::LoseEvents),
        1 => Just(Op::LoseJob),
        3 => any::<u64>().prop_map(|seed| Op::CopyJob { seed }),
        1 => Just(Op::DeadLetter),
        1 => (0_usize..3).prop_map(|job| Op::Rogue { job }),
    ]
}

/// Cases for the search.
pub(crate) fn cases() -> impl Strategy<Value = Case> {
    (
        prop::collection::vec(1_u32..=2, 2..=3),
        prop::collection::vec(jobs(), 1..=3),
        prop::collection::vec(ops(), 0..70),
    )
        .prop_map(|(hosts, jobs, ops)| Case { hosts, jobs, ops })
}
