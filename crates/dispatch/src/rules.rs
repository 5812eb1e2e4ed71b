//! The rules that the model test drops one at a time, to see that each of them is needed and that the test would
//! notice. Outside of that test there is one set of them, with nothing in it to be changed.

/// A rule of the state machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Rule {
    /// A session is judged by a tick that has been processed, not by the clock.
    TickBeforeDeath,
    /// A tick is void if a heartbeat of the session has been processed since it was sent.
    HeartbeatVoidsTick,
    /// A gap in the ticks' numbers starts all leases afresh, and ticks of another epoch are void.
    NumberedTicks,
    /// A queue that has to be declared anew starts all leases afresh.
    AfreshWithTheQueue,
    /// What a session's processed number covers is not processed again.
    ProcessedNumbers,
    /// A heartbeat behind a gap renews the lease.
    GappedHeartbeatRenews,
    /// A heartbeat behind a gap ends nothing that it does not name.
    NamingNeedsNoGap,
    /// A job whose end was asked for is not started.
    NoGrantAfterCancel,
    /// A result counts only from the session that holds the attempt.
    ResultFromHolder,
    /// An attempt is granted to one session only.
    OneGrant,
    /// An executor's lease that has ended is not revived by a late confirm.
    EndedLeaseIsFinal,
    /// The lease is looked at right before a job is sent to its sandbox.
    LeaseCheckedBeforeJob,
    /// That check leaves the guests' limit as a margin.
    AliveMargin,
    /// An ask without an answer is asked again.
    AskUntilAnswered,
    /// An answer counts for the ask that it names.
    AnswerNamesAsk,
    /// Heartbeats name what is asked for.
    HeartbeatNamesAsked,
    /// Heartbeats name what has finished and has no receipt.
    HeartbeatNamesFinished,
    /// A further copy of an attempt is acked without an ask.
    CopiesAreAcked,
    /// A session is announced when its predecessor's containers are gone.
    PredecessorIsGone,
    /// A finished event is kept until a receipt covers it.
    KeptUntilReceipt,
    /// Unstarted attempts that the broker has lost are published again.
    PublishAgain,
}

/// Which rules are in force.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    #[cfg(feature = "mutants")]
    dropped: u32,
}

impl Rules {
    /// All of them.
    #[must_use]
    pub const fn all() -> Self {
        Self {
            #[cfg(feature = "mutants")]
            dropped: 0,
        }
    }

    /// All but some.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn without(rules: &[Rule]) -> Self {
        Self {
            dropped: rules.iter().fold(0, |bits, rule| bits | 1 << (*rule as u32)),
        }
    }

    #[cfg(feature = "mutants")]
    pub(crate) const fn hold(self, rule: Rule) -> bool {
        self.dropped & (1 << (rule as u32)) == 0
    }

    #[cfg(not(feature = "mutants"))]
    pub(crate) const fn hold(self, _: Rule) -> bool {
        true
    }
}
