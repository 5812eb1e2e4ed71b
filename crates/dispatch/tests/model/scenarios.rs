//! Orders of events that the random search finds too seldom, told step by step. With all rules they break nothing.

use mayfly_core::state::JobState;
use mayfly_dispatch::{
    executor::Action,
    message::{Inbound, SessionEvent},
    rules::Rules,
    timing::Timing,
};

use crate::{
    host::GuestStage,
    ops::{Case, JobPlan, Op},
    world::{World, job_id},
};

/// A fleet of hosts with two slots each and one job that runs for so long, or more.
fn fleet(hosts: usize, run_ms: &[u64], rules: Rules, timing: Timing) -> World {
    let plan = |run_ms: &u64| JobPlan {
        max_attempts: 3,
        run_ms: *run_ms,
        poison: false,
        expires_ms: None,
    };
    let jobs = run_ms.iter().map(plan).collect();
    World::new(
        &Case {
            hosts: vec![2; hosts],
            jobs,
            ops: Vec::new(),
        },
        rules,
        timing,
    )
}

impl World {
    /// Goes on until something is so; to the step.
    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let end = self.t + 300_000;
        while !is_so(self) && self.oracle.violation().is_none() {
            assert!(self.t < end, "{what}: this never happens");
            if !self.step() {
                let next = self.next_event().unwrap_or(self.t + 1);
                self.pass(next - self.t);
            }
        }
    }

    fn apply_all(&mut self, ops: &[Op]) {
        for op in ops {
            self.apply(op);
        }
    }

    fn has_started(&self, job: usize) -> bool {
        self.db
            .job(job_id(job))
            .is_some_and(|job| job.state == JobState::Started)
    }

    /// The host on which a guest runs some code.
    fn runner(&self) -> Option<usize> {
        self.hosts
            .iter()
            .position(|host| host.guests.iter().any(|guest| guest.runs()))
    }

    /// Whether everything that was said to a host has been heard there.
    fn has_heard_all(&self, host: usize) -> bool {
        let said = self
            .recorders
            .iter()
            .all(|recorder| recorder.buffer.is_empty() && recorder.done.is_empty());
        let process = self.hosts[host].process.as_ref();
        said && process.is_some_and(|process| process.inbox.is_empty() && process.todo.is_empty())
    }

    fn is_about_to_send(&self, host: usize) -> bool {
        let process = self.hosts[host].process.as_ref();
        process.is_some_and(|process| matches!(process.todo.front(), Some(Action::SendJob(_))))
    }
}

/// A job is granted, its sandbox is ready when the lease has nearly ended, and the process is frozen twice: before it
/// looks at the lease, and right after the job is sent. The successor starts before the guest gives up.
pub(crate) fn late_send(rules: Rules, timing: Timing) -> World {
    let mut world = fleet(2, &[60_000], rules, timing);
    world.apply(&Op::Hang { host: 0 });
    world.apply(&Op::Pause { host: 1 });
    world.until("the attempt is granted", |world| {
        world.has_started(0) && world.has_heard_all(0)
    });
    world.apply(&Op::CutEvents {
        host: 0,
        arrives: true,
        read: true,
    });
    world.apply(&Op::Resume { host: 1 });
    world.oracle.paused.clear();
    let give_up = world.t + ms(timing.lease - timing.kill_margin);
    world.run_until(give_up - 500);
    world.apply(&Op::Unhang { host: 0 });
    world.until("its job is about to be sent", |world| world.is_about_to_send(0));
    world.apply(&Op::Freeze { host: 0 });
    world.run_until(give_up + ms(timing.kill_margin) - 3_000);
    world.apply(&Op::Thaw { host: 0 });
    // The alive frames go out in their own time.
    world.pass(1);
    let sent = |world: &World| {
        !world.hosts[0]
            .guests
            .iter()
            .any(|guest| guest.stage == GuestStage::Idle)
    };
    world.until("its job is sent, or given up", sent);
    world.apply(&Op::Freeze { host: 0 });
    world.run_until(world.t + 30_000);
    world
}

/// A connection is lost, and then the process is frozen just before it would have killed what it runs.
pub(crate) fn cut_then_frozen(rules: Rules, timing: Timing) -> World {
    let mut world = fleet(2, &[60_000], rules, timing);
    world.until("the job runs", |world| world.runner().is_some());
    let host = world.runner().unwrap_or(0);
    world.apply(&Op::CutEvents {
        host,
        arrives: true,
        read: true,
    });
    world.run_until(world.t + ms(timing.lease - timing.kill_margin) - 500);
    world.apply(&Op::Freeze { host });
    world.run_until(world.t + 60_000);
    world
}

/// A recorder grants and is frozen before it says so. Another one takes over; the ask is covered by its receipt and
/// asked again; meanwhile the job is to be canceled. The first recorder's grant comes before the second one's denial.
pub(crate) fn old_answer(rules: Rules, timing: Timing) -> World {
    let mut world = fleet(1, &[60_000], rules, timing);
    world.until("the start is committed", |world| world.has_started(0));
    let slow = world.active;
    world.apply_all(&[
        Op::FreezeRecorder { recorder: slow },
        Op::HandOver,
        Op::Cancel { job: 0 },
    ]);
    world.until("the denial is committed", |world| {
        world
            .db
            .job(job_id(0))
            .is_some_and(|job| job.state.end().is_some())
    });
    world.apply_all(&[
        Op::FreezeRecorder { recorder: 1 - slow },
        Op::ThawRecorder { recorder: slow },
    ]);
    world.run_until(world.t + 1_000);
    world
}

/// An event is lost on its way, and then every reply for long enough: nobody tells the executor of the gap.
pub(crate) fn long_gap(rules: Rules, timing: Timing) -> World {
    let mut world = fleet(1, &[600_000, 600_000], rules, timing);
    world.until("the first job runs", |world| world.runner().is_some());
    world.apply_all(&[
        Op::FreezeRecorder { recorder: 0 },
        Op::FreezeRecorder { recorder: 1 },
        Op::Submit,
    ]);
    world.until("the second one's ask and a tick are on their way", |world| {
        let asks = |inbound: &Inbound| {
            let Inbound::Batch(batch) = inbound else {
                return false;
            };
            batch
                .events
                .iter()
                .any(|event| matches!(event, SessionEvent::Starting { .. }))
        };
        let tick = |inbound: &Inbound| matches!(inbound, Inbound::Tick(_));
        let ready = || world.events.ready.iter().map(|(_, inbound)| inbound);
        ready().any(asks) && ready().any(tick)
    });
    world.apply_all(&[
        Op::LoseEvents,
        Op::LoseReplies { host: 0, lose: true },
        Op::ThawRecorder { recorder: 0 },
        Op::ThawRecorder { recorder: 1 },
    ]);
    world.run_until(world.t + 120_000);
    world
}

/// A result is lost on its way, while the executor's next heartbeats are not.
pub(crate) fn lost_result(rules: Rules, timing: Timing) -> World {
    let mut world = fleet(1, &[3_000], rules, timing);
    world.until("the job runs", |world| world.runner().is_some());
    world.apply_all(&[
        Op::FreezeRecorder { recorder: 0 },
        Op::FreezeRecorder { recorder: 1 },
    ]);
    world.until("its result and a tick are on their way", |world| {
        let ready = || world.events.ready.iter().map(|(_, inbound)| inbound);
        world.runner().is_none() && ready().any(|inbound| matches!(inbound, Inbound::Tick(_)))
    });
    world.apply_all(&[
        Op::LoseEvents,
        Op::LoseReplies { host: 0, lose: true },
        Op::ThawRecorder { recorder: 0 },
        Op::ThawRecorder { recorder: 1 },
    ]);
    world.run_until(world.t + 10_000);
    world
}

/// The message of a running attempt is in the queue once more.
pub(crate) fn copy_while_running(rules: Rules, timing: Timing) -> World {
    let mut world = fleet(1, &[20_000], rules, timing);
    world.until("the job runs", |world| world.runner().is_some());
    let copy = world
        .db
        .attempts()
        .next()
        .and_then(|record| world.message(record.attempt, 1));
    world.jobs.ready.extend(copy);
    world.run_until(world.t + 10_000);
    world
}

/// A process dies under an engine that does not answer, so that its guest lives on without `alive` frames.
pub(crate) fn crash_under_a_hung_engine(rules: Rules, timing: Timing) -> World {
    let mut world = fleet(2, &[60_000], rules, timing);
    world.until("the job runs", |world| world.runner().is_some());
    let host = world.runner().unwrap_or(0);
    world.apply_all(&[Op::Hang { host }, Op::Crash { host }]);
    world.run_until(world.t + 60_000);
    world
}

/// No recorder goes on for longer than a lease, and the broker loses what waits for them.
fn lost_while_nobody_records(rules: Rules, timing: Timing, loss: &[Op]) -> World {
    let mut world = fleet(1, &[300_000], rules, timing);
    world.until("the job runs", |world| world.runner().is_some());
    world.apply_all(&[
        Op::FreezeRecorder { recorder: 0 },
        Op::FreezeRecorder { recorder: 1 },
    ]);
    world.run_until(world.t + 60_000);
    world.apply_all(loss);
    world.apply_all(&[Op::ThawRecorder { recorder: 0 }, Op::ThawRecorder { recorder: 1 }]);
    world.run_until(world.t + 20_000);
    world
}

/// The queue is still there, and empty.
pub(crate) fn emptied_while_nobody_records(rules: Rules, timing: Timing) -> World {
    lost_while_nobody_records(rules, timing, &[Op::LoseEvents])
}

/// The queue is gone, and has to be declared anew; the executor can't say for a while that it is there.
pub(crate) fn wiped_while_nobody_records(rules: Rules, timing: Timing) -> World {
    let cut = Op::CutEvents {
        host: 0,
        arrives: true,
        read: true,
    };
    lost_while_nobody_records(rules, timing, &[cut, Op::Wipe])
}

/// An attempt is granted and its sandbox is not ready. The process is frozen for longer than its lease, until the
/// session is dead; then its sandbox is there, and a heartbeat is confirmed before the answer to it is read.
pub(crate) fn revived_lease(rules: Rules, timing: Timing) -> World {
    let mut world = fleet(2, &[60_000], rules, timing);
    world.apply_all(&[Op::Hang { host: 0 }, Op::Pause { host: 1 }]);
    world.until("the attempt is granted", |world| {
        world.has_started(0) && world.has_heard_all(0)
    });
    world.apply_all(&[
        Op::CutEvents {
            host: 0,
            arrives: true,
            read: true,
        },
        Op::LoseReplies { host: 0, lose: true },
    ]);
    world.until("the session is dead", |world| {
        world.db.sessions().any(|record| !record.is_live())
    });
    world.apply(&Op::Reconnect { host: 0 });
    world.run_until(world.t + 5);
    world.apply(&Op::Unhang { host: 0 });
    world.run_until(world.t + 10_000);
    world
}

fn ms(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
