//! The table: each kind of fault, and the promise that it tests.

use mayfly_failpoints::Point;

use super::{
    faults::{
        Fault,
        broker::Fault as Broker,
        connections::{Fault as Connection, Which},
        database::Fault as Database,
        engine::Fault as Engine,
        messages::Fault as Message,
        processes::Fault as Process,
        races::Fault as Race,
    },
    ground::Who,
};

/// A kind of fault.
#[derive(Debug, Clone)]
pub struct Kind {
    pub name: String,
    /// What it tests, by the words of README and design.
    pub promise: &'static str,
    pub fault: Fault,
    /// Jobs get one attempt each: whatever of them it ends or starts anew shows.
    pub harms_nothing: bool,
}

/// Every accepted job reaches exactly one recorded outcome.
const KEPT: &str = "what is accepted is kept, and has one result";
const HARMLESS: &str = "no running job is harmed";
/// No attempt starts twice, whatever is delivered again.
const STARTS_ONCE: &str = "an attempt starts at most once, after its start is committed";
const OUTLIVES: &str = "no run outlives its executor or its lease";
const LATE: &str = "a late or second report replaces no result";
const CANCEL: &str = "of cancel and finish one wins, and no canceled job has a result";
const POISON: &str = "a job that takes its executors with it ends after its attempts, and others go on";
const RECOVERS: &str = "everybody comes back by himself, and nothing is lost";

impl Kind {
    fn new(name: &str, promise: &'static str, fault: Fault) -> Self {
        Self {
            name: name.to_owned(),
            promise,
            fault,
            harms_nothing: promise == HARMLESS,
        }
    }

    pub const fn needs_engine(&self) -> bool {
        matches!(self.fault, Fault::Engine(_))
    }
}

/// At which points a server dies. Ticks and the confirms of attempts go on without jobs, the others need one.
const OF_SERVERS: [Point; 7] = [
    Point::AttemptsCommitted,
    Point::MessageWritten,
    Point::AttemptConfirmed,
    Point::EventsTaken,
    Point::EventsCommitted,
    Point::EventsAnswered,
    Point::TickCommitted,
];

/// At which points an executor dies.
const OF_EXECUTORS: [Point; 8] = [
    Point::AttemptDelivered,
    Point::ContainerCreated,
    Point::ContainerStarted,
    Point::MessageWritten,
    Point::EventsConfirmed,
    Point::AttemptGranted,
    Point::JobSent,
    Point::RunEnded,
];

/// Points that only long output comes to, which the jobs here do not write: `blobs` has them.
const ELSEWHERE: [Point; 1] = [Point::OutputUploaded];

/// All of them, in the order in which they are gone through.
pub fn all() -> Vec<Kind> {
    let mut kinds = points();
    kinds.extend(processes());
    kinds.extend(broker());
    kinds.extend(connections());
    kinds.extend(database());
    kinds.extend(engine());
    kinds.extend(messages());
    kinds.extend(races());
    kinds
}

fn points() -> Vec<Kind> {
    let of = |who: Who, promise| {
        move |point: Point| {
            let name = format!("{who:?} killed at {}", point.name()).to_lowercase();
            Kind::new(&name, promise, Fault::Dies(who, point))
        }
    };
    let servers = OF_SERVERS.into_iter().map(of(Who::Server, HARMLESS));
    let executors = OF_EXECUTORS.into_iter().map(of(Who::Executor, STARTS_ONCE));
    servers.chain(executors).collect()
}

fn processes() -> Vec<Kind> {
    [
        ("server killed", HARMLESS, Process::ServerKilled),
        ("executor killed", KEPT, Process::ExecutorKilled),
        ("both executors killed", KEPT, Process::BothExecutorsKilled),
        (
            "everybody killed, executors back first",
            KEPT,
            Process::EverybodyKilled,
        ),
        (
            "executor killed three times in a row",
            KEPT,
            Process::ExecutorKilledAgainAndAgain,
        ),
        (
            "server frozen for longer than a lease",
            HARMLESS,
            Process::ServerFrozenPastALease,
        ),
        (
            "executor frozen for longer than a lease",
            OUTLIVES,
            Process::ExecutorFrozenPastALease,
        ),
        (
            "executor frozen for less than a lease",
            KEPT,
            Process::ExecutorFrozenShortly,
        ),
        ("executor drained within its grace", HARMLESS, Process::Drained),
        (
            "executor drained past its grace",
            OUTLIVES,
            Process::DrainedPastTheGrace,
        ),
        ("executor asked to end twice", OUTLIVES, Process::AskedToEndTwice),
        ("server asked to end", HARMLESS, Process::ServerStopped),
        (
            "second process of an executor",
            HARMLESS,
            Process::SecondProcessOfAnExecutor,
        ),
        (
            "one of two servers killed, schedulers and recorders",
            HARMLESS,
            Process::ReplicaTakesOver,
        ),
        (
            "one of two recorders frozen with its events",
            LATE,
            Process::RecorderFrozenWithItsEvents,
        ),
        (
            "one of two schedulers frozen with its attempts",
            STARTS_ONCE,
            Process::SchedulerFrozenWithItsAttempts,
        ),
    ]
    .map(|(name, promise, fault)| Kind::new(name, promise, Fault::Process(fault)))
    .into()
}

fn broker() -> Vec<Kind> {
    [
        ("broker restarted", KEPT, Broker::Restarted),
        ("broker killed", KEPT, Broker::Killed),
        ("broker wiped", KEPT, Broker::Wiped),
        ("broker loses an executor's user", KEPT, Broker::UserLost),
        ("queue of jobs deleted", HARMLESS, Broker::JobsQueueDeleted),
        ("queue of jobs purged", HARMLESS, Broker::JobsQueuePurged),
        ("queue of events deleted", KEPT, Broker::EventsQueueDeleted),
        (
            "queue of dead letters deleted",
            HARMLESS,
            Broker::DeadLettersDeleted,
        ),
        ("exchanges deleted", RECOVERS, Broker::ExchangesDeleted),
        (
            "broker closes every connection",
            RECOVERS,
            Broker::ConnectionsClosed,
        ),
        ("broker has a memory alarm", KEPT, Broker::MemoryAlarm),
        ("broker has a disk alarm", KEPT, Broker::DiskAlarm),
    ]
    .map(|(name, promise, fault)| Kind::new(name, promise, Fault::Broker(fault)))
    .into()
}

fn connections() -> Vec<Kind> {
    let whose = [
        ("server's publishing connection", Which::ServerPublishes),
        ("server's consuming connection", Which::ServerConsumes),
        ("executor's publishing connection", Which::ExecutorPublishes),
        ("executor's consuming connection", Which::ExecutorConsumes),
    ];
    let cut = whose.map(|(name, which)| (format!("{name} cut"), Connection::Cut(which)));
    let half = whose.map(|(name, which)| (format!("{name} half-open"), Connection::HalfOpen(which)));
    let mut kinds: Vec<Kind> = cut
        .into_iter()
        .chain(half)
        .map(|(name, fault)| Kind::new(&name, RECOVERS, Fault::Connection(fault)))
        .collect();
    kinds.push(Kind::new(
        "executor cut off from the broker for longer than a lease",
        OUTLIVES,
        Fault::Connection(Connection::ExecutorCutOff),
    ));
    kinds.push(Kind::new(
        "server cut off from the broker",
        HARMLESS,
        Fault::Connection(Connection::ServerCutOff),
    ));
    kinds
}

fn database() -> Vec<Kind> {
    [
        ("database restarted", Database::Restarted),
        ("database crashed", Database::Crashed),
        ("database away for longer than a lease", Database::AwayPastALease),
        ("database ends every session", Database::SessionsEnded),
        ("database read-only", Database::ReadOnly),
        ("database out of connections", Database::NoMoreConnections),
        ("database tables locked", Database::TablesLocked),
        ("database connections cut", Database::Cut),
        ("database connections half-open", Database::HalfOpen),
        ("database slow", Database::Slow),
    ]
    .map(|(name, fault)| Kind::new(name, HARMLESS, Fault::Database(fault)))
    .into()
}

fn engine() -> Vec<Kind> {
    [
        ("engine killed and restarted", KEPT, Engine::Killed),
        ("engine frozen for less than a lease", KEPT, Engine::FrozenShortly),
        (
            "engine frozen for longer than a lease",
            OUTLIVES,
            Engine::FrozenPastALease,
        ),
    ]
    .map(|(name, promise, fault)| Kind::new(name, promise, Fault::Engine(fault)))
    .into()
}

fn messages() -> Vec<Kind> {
    [
        (
            "dispatch messages twice more",
            STARTS_ONCE,
            Message::DispatchAgain,
        ),
        (
            "dispatch messages again in reverse order",
            STARTS_ONCE,
            Message::DispatchReordered,
        ),
        (
            "dispatch messages with another's token",
            STARTS_ONCE,
            Message::DispatchWithAnothersToken,
        ),
        (
            "dispatch messages of attempts that nobody made",
            STARTS_ONCE,
            Message::DispatchOfNobody,
        ),
        (
            "malformed messages among the jobs",
            HARMLESS,
            Message::MalformedJobs,
        ),
        (
            "a message of more than 48 MiB among the jobs",
            HARMLESS,
            Message::OversizedJob,
        ),
        ("events twice more", LATE, Message::EventsAgain),
        ("events again in reverse order", LATE, Message::EventsReordered),
        (
            "malformed messages among the events",
            HARMLESS,
            Message::MalformedEvents,
        ),
        (
            "a message of more than 48 MiB among the events",
            HARMLESS,
            Message::OversizedEvents,
        ),
        (
            "events of an executor by another's user",
            LATE,
            Message::EventsOfAnother,
        ),
        ("events that nobody vouches for", LATE, Message::EventsOfNobody),
        (
            "an executor lies about what others run",
            LATE,
            Message::ExecutorLies,
        ),
    ]
    .map(|(name, promise, fault)| Kind::new(name, promise, Fault::Message(fault)))
    .into()
}

fn races() -> Vec<Kind> {
    [
        ("jobs canceled as they end", CANCEL, Race::CancelAgainstFinish),
        ("jobs canceled as they start", CANCEL, Race::CancelAgainstStart),
        ("a job that kills its executors", POISON, Race::Poison),
    ]
    .map(|(name, promise, fault)| Kind::new(name, promise, Fault::Race(fault)))
    .into()
}

#[test]
fn at_least_forty_kinds_each_under_a_name_of_its_own_and_every_point_among_them() {
    let kinds = all();
    let names: std::collections::BTreeSet<&str> = kinds.iter().map(|kind| &*kind.name).collect();
    assert_eq!(names.len(), kinds.len());
    assert!(kinds.len() >= 40, "{}", kinds.len());
    for point in Point::ALL {
        assert!(
            OF_SERVERS.contains(&point) || OF_EXECUTORS.contains(&point) || ELSEWHERE.contains(&point),
            "nobody dies at {}",
            point.name()
        );
    }
}
