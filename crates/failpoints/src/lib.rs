//! Points at which a test makes a process die or freeze, so that each step between two commits is tried as the last one.
//!
//! A process that is built with the feature `armed` reads at its first point:
//!
//! * `MAYFLY_TEST_FAILPOINT`, `NAME[:NTH[:ACTION]]`: the point by its [name](Point::name), at which passage of it, from 1
//!   and by default the first, and what happens there: `kill` (SIGKILL, the default) or `stop` (SIGSTOP). Or `@FILE`, in
//!   which such a text may be written at any time: it holds for the next passage of its point (the NTH is not looked at),
//!   by whichever of the processes that share the file, and the file goes with it.
//! * `MAYFLY_TEST_FAILPOINT_HIT`, a file that is made right before: a test that waits for a death in vain knows whether
//!   the point was ever reached.
//! * `MAYFLY_TEST_TIMES_DIVIDED_BY`, a number: leases, heartbeats and all other times of the protocol are shorter by it, so
//!   that a test can outwait them.
//! * `MAYFLY_TEST_SELF_TESTS_DIVIDED_BY`, a number: the same for the times between self-tests.
//!
//! Without the feature [`reach`] is nothing at all.

/// A place between two steps that a crash must not tell apart, by what has just been done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// Scheduler: attempts are committed, and not published.
    AttemptsCommitted,
    /// Any role: a message to the broker (an attempt, a tick, a batch of events) is written, and not confirmed.
    MessageWritten,
    /// Scheduler: an attempt is confirmed by the broker, and that is not on record.
    AttemptConfirmed,
    /// Recorder: events are taken from the queue, and not committed.
    EventsTaken,
    /// Recorder: events are committed, and not answered.
    EventsCommitted,
    /// Recorder: events are answered, and not acked.
    EventsAnswered,
    /// Reconciler: a tick is committed, and not published.
    TickCommitted,
    /// Executor: an attempt is delivered, and not asked for.
    AttemptDelivered,
    /// Executor: an attempt is granted, and its delivery not acked.
    AttemptGranted,
    /// Executor: a container is created, and not started.
    ContainerCreated,
    /// Executor: a container is started, and has no job.
    ContainerStarted,
    /// Executor: the job is on its way to the guest.
    JobSent,
    /// Executor: what the run has written, or its files, are left on the server, and nobody has been told that it is over.
    OutputUploaded,
    /// Executor: the run is over, and nobody has been told.
    RunEnded,
    /// Executor: a batch of events is confirmed, and has no receipt.
    EventsConfirmed,
}

impl Point {
    /// All of them, in the order of a job's life.
    pub const ALL: [Self; 15] = [
        Self::AttemptsCommitted,
        Self::MessageWritten,
        Self::AttemptConfirmed,
        Self::AttemptDelivered,
        Self::ContainerCreated,
        Self::ContainerStarted,
        Self::EventsConfirmed,
        Self::EventsTaken,
        Self::EventsCommitted,
        Self::EventsAnswered,
        Self::AttemptGranted,
        Self::JobSent,
        Self::OutputUploaded,
        Self::RunEnded,
        Self::TickCommitted,
    ];

    /// What the variable calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AttemptsCommitted => "attempts-committed",
            Self::MessageWritten => "message-written",
            Self::AttemptConfirmed => "attempt-confirmed",
            Self::EventsTaken => "events-taken",
            Self::EventsCommitted => "events-committed",
            Self::EventsAnswered => "events-answered",
            Self::TickCommitted => "tick-committed",
            Self::AttemptDelivered => "attempt-delivered",
            Self::AttemptGranted => "attempt-granted",
            Self::ContainerCreated => "container-created",
            Self::ContainerStarted => "container-started",
            Self::JobSent => "job-sent",
            Self::OutputUploaded => "output-uploaded",
            Self::RunEnded => "run-ended",
            Self::EventsConfirmed => "events-confirmed",
        }
    }
}

/// The process has come to a point.
#[cfg(not(feature = "armed"))]
#[inline]
pub const fn reach(_: Point) {}

/// By what the times of the protocol are divided: 1.
#[cfg(not(feature = "armed"))]
#[inline]
#[must_use]
pub const fn times_divided_by() -> u32 {
    1
}

/// By what the times between self-tests are divided: 1.
#[cfg(not(feature = "armed"))]
#[inline]
#[must_use]
pub const fn self_tests_divided_by() -> u32 {
    1
}

#[cfg(feature = "armed")]
mod armed;
#[cfg(feature = "armed")]
pub use armed::{reach, self_tests_divided_by, times_divided_by};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Point;

    #[test]
    fn each_point_is_listed_once_under_a_name_of_its_own() {
        let names: BTreeSet<_> = Point::ALL.iter().map(|point| point.name()).collect();
        assert_eq!(names.len(), Point::ALL.len());
    }
}
