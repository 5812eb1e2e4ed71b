//! Why a job that has not started waits, and what has to be there before it is dispatched.

use std::collections::BTreeSet;

use mayfly_core::{digest::Digest, state::JobState};

use crate::time::ServerTime;

/// Most jobs that are counted before one.
pub const MOST_AHEAD: u64 = 1000;

/// A live session of a pool, as far as waiting jobs look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSession {
    /// Whether its executor is to take nothing new.
    pub cordoned: bool,
    /// Whether its host may run jobs, by its newest self-test.
    pub fit: bool,
    /// The images that its host has; none where it makes sure of each by itself.
    pub images: Option<BTreeSet<Digest>>,
}

/// The live sessions of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolSessions(Vec<PoolSession>);

/// What is looked at to say why a job waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingRecord {
    /// Where it stands.
    pub state: JobState,
    /// Attempts so far.
    pub attempts: u32,
    /// It is not dispatched before this.
    pub ready_at: ServerTime,
    /// The image that it is pinned to.
    pub image: Digest,
    /// Who could run it.
    pub sessions: PoolSessions,
    /// Its tenant's attempts in flight, and most that it may have: none where it may have any.
    pub quota: Option<Quota>,
    /// Jobs of its tenant that are ready and go first, at most [`MOST_AHEAD`].
    pub ahead: u64,
    /// Other tenants that have jobs ready in its pool.
    pub other_tenants: u64,
}

/// A bound of what a tenant has in flight in a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// What it has.
    pub in_flight: u64,
    /// What it may have.
    pub most: u64,
}

/// Why a job waits, and where it stands among those that wait for their turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Why.
    pub reason: WaitingReason,
    /// Its place, where nothing but its turn has to come.
    pub place: Option<Place>,
}

/// Why a job waits: the first of these that holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitingReason {
    /// It may not start before this.
    NotBefore {
        /// When it may.
        until: ServerTime,
    },
    /// An attempt has ended, and the next one has to wait.
    Retry {
        /// How long.
        until: ServerTime,
    },
    /// No executor of its pool takes jobs.
    NoExecutor {
        /// Executors that are there and cordoned.
        cordoned: usize,
        /// Others that are there and whose hosts are not fit, by their self-tests.
        unfit: usize,
    },
    /// Not every executor of its pool has its image yet.
    Image {
        /// How many of them lack it.
        lacking: usize,
        /// Of how many.
        executors: usize,
    },
    /// Its tenant has as much in flight as it may.
    Quota {
        /// How many attempts it may have in flight in the pool.
        most: u64,
    },
    /// Others go first, by the shares of their tenants, by priority, by age; or it has just come.
    Turn,
    /// It is on its way to an executor.
    Dispatched,
}

/// The place of a job among those that are ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Jobs of its tenant that go first, at most [`MOST_AHEAD`]: so many or more.
    pub ahead: u64,
    /// Other tenants that want slots as well, and get their shares of them meanwhile.
    pub other_tenants: u64,
}

impl WaitingReason {
    /// The word that documents have for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::NotBefore { .. } => "not_before",
            Self::Retry { .. } => "retry",
            Self::NoExecutor { .. } => "no_executor",
            Self::Image { .. } => "image",
            Self::Quota { .. } => "quota",
            Self::Turn => "turn",
            Self::Dispatched => "dispatched",
        }
    }

    /// Until when, where that is known.
    #[must_use]
    pub const fn until(self) -> Option<ServerTime> {
        match self {
            Self::NotBefore { until } | Self::Retry { until } => Some(until),
            Self::NoExecutor { .. }
            | Self::Image { .. }
            | Self::Quota { .. }
            | Self::Turn
            | Self::Dispatched => None,
        }
    }
}

impl Waiting {
    /// The reason and the place, as a sentence without a full stop.
    #[must_use]
    pub fn sentence(&self) -> String {
        let reason = match self.reason {
            WaitingReason::NotBefore { .. } => "its time has not come".to_owned(),
            WaitingReason::Retry { .. } => "the next attempt waits after the last one".to_owned(),
            WaitingReason::NoExecutor {
                cordoned: 0,
                unfit: 0,
            } => "no executor of its pool is there".to_owned(),
            WaitingReason::NoExecutor { cordoned, unfit: 0 } => {
                format!("no executor of its pool takes jobs: those that are there are cordoned ({cordoned})")
            }
            WaitingReason::NoExecutor { cordoned, unfit } => {
                let cordoned = match cordoned {
                    0 => String::new(),
                    some => format!("are cordoned ({some}) or "),
                };
                format!(
                    "no executor of its pool takes jobs: those that are there {cordoned}have failed their self-test ({unfit})"
                )
            }
            WaitingReason::Image { lacking, executors } => {
                format!(
                    "its image is not on every executor of its pool yet: {lacking} of {executors} lack it"
                )
            }
            WaitingReason::Quota { most } => {
                format!("its tenant has as many attempts in flight in this pool as it may: {most}")
            }
            WaitingReason::Turn => "its turn has not come".to_owned(),
            WaitingReason::Dispatched => "it is on its way to an executor".to_owned(),
        };
        let Some(Place { ahead, other_tenants }) = self.place else {
            return reason;
        };
        let more = if ahead >= MOST_AHEAD { " or more" } else { "" };
        format!(
            "{reason}; jobs of its tenant that go first: {ahead}{more}; other tenants that want slots: {other_tenants}"
        )
    }
}

impl PoolSessions {
    /// Those that take jobs.
    fn taking(&self) -> impl Iterator<Item = &PoolSession> {
        self.0.iter().filter(|session| !session.cordoned && session.fit)
    }

    fn count(&self, which: impl Fn(&PoolSession) -> bool) -> usize {
        self.0.iter().filter(|session| which(session)).count()
    }

    /// Whether jobs of an image may be dispatched: nobody knows which executor takes a job, so that each that takes jobs
    /// has to have it.
    #[must_use]
    pub fn have(&self, image: &Digest) -> bool {
        self.lacking(image) == 0
    }

    /// The images that jobs may be dispatched of; none where that is any.
    #[must_use]
    pub fn everywhere(&self) -> Option<BTreeSet<Digest>> {
        let mut lists = self.taking().filter_map(|session| session.images.as_ref());
        let first = lists.next()?.clone();
        Some(lists.fold(first, |common, images| {
            common.intersection(images).copied().collect()
        }))
    }

    fn lacking(&self, image: &Digest) -> usize {
        let lacks = |session: &&PoolSession| {
            let images = session.images.as_ref();
            images.is_some_and(|images| !images.contains(image))
        };
        self.taking().filter(lacks).count()
    }
}

impl FromIterator<PoolSession> for PoolSessions {
    fn from_iter<I: IntoIterator<Item = PoolSession>>(sessions: I) -> Self {
        Self(sessions.into_iter().collect())
    }
}

/// Why a job waits; none where it has started or is over.
#[must_use]
pub fn waiting(record: &WaitingRecord, now: ServerTime) -> Option<Waiting> {
    let executors = record.sessions.taking().count();
    let lacking = record.sessions.lacking(&record.image);
    let reason = match record.state {
        JobState::Started | JobState::CancelRequested | JobState::Ended(_) => return None,
        JobState::Queued if record.ready_at > now && record.attempts == 0 => WaitingReason::NotBefore {
            until: record.ready_at,
        },
        JobState::Queued if record.ready_at > now => WaitingReason::Retry {
            until: record.ready_at,
        },
        JobState::Queued | JobState::Dispatched if executors == 0 => WaitingReason::NoExecutor {
            cordoned: record.sessions.count(|session| session.cordoned),
            unfit: record.sessions.count(|session| !session.cordoned && !session.fit),
        },
        JobState::Dispatched => WaitingReason::Dispatched,
        JobState::Queued if lacking > 0 => WaitingReason::Image { lacking, executors },
        JobState::Queued => match record.quota {
            Some(quota) if quota.in_flight >= quota.most => WaitingReason::Quota { most: quota.most },
            Some(_) | None => WaitingReason::Turn,
        },
    };
    let place = Place {
        ahead: record.ahead.min(MOST_AHEAD),
        other_tenants: record.other_tenants,
    };
    let waits_for_turn = match reason {
        WaitingReason::Turn | WaitingReason::Quota { .. } => true,
        WaitingReason::NoExecutor { .. } => record.state == JobState::Queued,
        WaitingReason::NotBefore { .. }
        | WaitingReason::Retry { .. }
        | WaitingReason::Image { .. }
        | WaitingReason::Dispatched => false,
    };
    Some(Waiting {
        reason,
        place: waits_for_turn.then_some(place),
    })
}

#[cfg(test)]
mod tests {
    use mayfly_core::outcome::EndState;

    use super::*;

    fn image(name: &[u8]) -> Digest {
        Digest::of(name)
    }

    fn session(cordoned: bool, images: Option<&[&[u8]]>) -> PoolSession {
        PoolSession {
            cordoned,
            fit: true,
            images: images.map(|names| names.iter().map(|name| image(name)).collect()),
        }
    }

    fn record(sessions: &[PoolSession]) -> WaitingRecord {
        WaitingRecord {
            state: JobState::Queued,
            attempts: 0,
            ready_at: ServerTime::from_micros(100),
            image: image(b"a"),
            sessions: sessions.iter().cloned().collect(),
            quota: None,
            ahead: 7,
            other_tenants: 2,
        }
    }

    fn reason(record: &WaitingRecord) -> Option<WaitingReason> {
        waiting(record, ServerTime::from_micros(100)).map(|waiting| waiting.reason)
    }

    #[test]
    fn the_first_reason_that_holds_is_given() {
        let live = [session(false, None)];
        let place = waiting(&record(&live), ServerTime::from_micros(100))
            .unwrap()
            .place;
        assert_eq!(reason(&record(&live)), Some(WaitingReason::Turn));
        assert_eq!(
            place.map(|place| (place.ahead, place.other_tenants)),
            Some((7, 2))
        );
        let until = ServerTime::from_micros(101);
        let early = WaitingRecord {
            ready_at: until,
            ..record(&[])
        };
        assert_eq!(reason(&early), Some(WaitingReason::NotBefore { until }));
        let again = WaitingRecord { attempts: 1, ..early };
        assert_eq!(reason(&again), Some(WaitingReason::Retry { until }));
        let none = WaitingReason::NoExecutor {
            cordoned: 0,
            unfit: 0,
        };
        assert_eq!(reason(&record(&[])), Some(none));
        let cordoned = [session(true, None), session(true, Some(&[]))];
        let none = WaitingReason::NoExecutor {
            cordoned: 2,
            unfit: 0,
        };
        assert_eq!(reason(&record(&cordoned)), Some(none));
        for (in_flight, expected) in [
            (2, WaitingReason::Turn),
            (3, WaitingReason::Quota { most: 3 }),
            (4, WaitingReason::Quota { most: 3 }),
        ] {
            let bounded = WaitingRecord {
                quota: Some(Quota { in_flight, most: 3 }),
                ..record(&live)
            };
            assert_eq!(reason(&bounded), Some(expected));
        }
        let dispatched = |sessions| WaitingRecord {
            state: JobState::Dispatched,
            ..record(sessions)
        };
        assert_eq!(reason(&dispatched(&live)), Some(WaitingReason::Dispatched));
        assert_eq!(reason(&dispatched(&cordoned)), Some(none), "nobody takes it");
    }

    #[test]
    fn a_reason_is_said_in_a_sentence() {
        let said = |record| waiting(&record, ServerTime::from_micros(100)).unwrap().sentence();
        let live = [session(false, None)];
        assert_eq!(
            said(record(&live)),
            "its turn has not come; jobs of its tenant that go first: 7; other tenants that want slots: 2"
        );
        let many = WaitingRecord {
            ahead: MOST_AHEAD,
            ..record(&live)
        };
        assert!(said(many).contains("go first: 1000 or more;"));
        let lacking = [session(false, None), session(false, Some(&[]))];
        assert_eq!(
            said(record(&lacking)),
            "its image is not on every executor of its pool yet: 1 of 2 lack it"
        );
    }

    #[test]
    fn an_image_has_to_be_everywhere_where_a_job_may_come() {
        let sessions = [
            session(false, Some(&[b"a", b"b"])),
            session(false, None),
            session(true, Some(&[])),
        ];
        assert_eq!(reason(&record(&sessions)), Some(WaitingReason::Turn));
        let mut lacking = sessions.to_vec();
        lacking.push(session(false, Some(&[b"b"])));
        let expected = WaitingReason::Image {
            lacking: 1,
            executors: 3,
        };
        assert_eq!(reason(&record(&lacking)), Some(expected));
        let pool: PoolSessions = lacking.into_iter().collect();
        assert!(!pool.have(&image(b"a")) && pool.have(&image(b"b")));
        let common = [image(b"b")].into();
        assert_eq!(pool.everywhere(), Some(common));
        assert_eq!(
            [session(false, None)]
                .into_iter()
                .collect::<PoolSessions>()
                .everywhere(),
            None
        );
        assert_eq!(
            [session(true, Some(&[]))]
                .into_iter()
                .collect::<PoolSessions>()
                .everywhere(),
            None
        );
        assert!(
            PoolSessions::default().have(&image(b"a")),
            "nobody is there who lacks it"
        );
    }

    #[test]
    fn what_has_started_waits_for_nothing() {
        for state in [
            JobState::Started,
            JobState::CancelRequested,
            JobState::Ended(EndState::Succeeded),
        ] {
            assert_eq!(reason(&WaitingRecord { state, ..record(&[]) }), None, "{state:?}");
        }
    }
}
