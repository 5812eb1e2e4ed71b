//! How a job moves from its acceptance to its one end. Every store moves jobs by this function alone.

use serde::{Deserialize, Serialize};

use crate::outcome::EndState;

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Accepted; no attempt stands.
    Queued,
    /// An attempt is on its way to an executor and has not started.
    Dispatched,
    /// An attempt has started.
    Started,
    /// An attempt has started and somebody has asked for its end: the only outcome from here is `canceled`.
    CancelRequested,
    /// Over.
    Ended(EndState),
}

/// What can happen to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobMove {
    /// The scheduler makes an attempt for it.
    Dispatch,
    /// The recorder grants the attempt to a session.
    Start,
    /// The run has ended, or can't any more; the job ends with it.
    End(EndState),
    /// The run has ended and the job is tried again.
    Retry,
    /// Somebody asks for its end.
    Cancel,
    /// It has waited longer than it may.
    Expire,
}

/// A move that is not one from where the job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a job that is {from:?} can't make the move {attempted:?}")]
pub struct IllegalMove {
    /// Where the job stands, and stays.
    pub from: JobState,
    /// What was tried.
    pub attempted: JobMove,
}

impl JobState {
    /// Where the job stands after a move.
    ///
    /// # Errors
    /// A move that is not one from here; the job stays where it is.
    pub fn after(self, attempted: JobMove) -> Result<Self, IllegalMove> {
        let illegal = Err(IllegalMove {
            from: self,
            attempted,
        });
        match (self, attempted) {
            (Self::Queued, JobMove::Dispatch) => Ok(Self::Dispatched),
            // Not started means not begun: it ends at once, and a grant that is asked for later is denied.
            (Self::Queued | Self::Dispatched, JobMove::Cancel) => Ok(Self::Ended(EndState::Canceled)),
            (Self::Queued | Self::Dispatched, JobMove::Expire) => Ok(Self::Ended(EndState::Expired)),
            (Self::Queued | Self::Dispatched, JobMove::End(end @ (EndState::Rejected | EndState::Error))) => {
                Ok(Self::Ended(end))
            }
            (Self::Dispatched, JobMove::Start) => Ok(Self::Started),
            (Self::Started, JobMove::Cancel) | (Self::CancelRequested, JobMove::Cancel) => {
                Ok(Self::CancelRequested)
            }
            (Self::Started, JobMove::Retry) => Ok(Self::Queued),
            // A run that has started can't expire, and it is canceled by way of the request alone.
            (Self::Started, JobMove::End(EndState::Expired | EndState::Canceled)) => illegal,
            (Self::Started, JobMove::End(end)) => Ok(Self::Ended(end)),
            (Self::CancelRequested, JobMove::End(EndState::Canceled)) => Ok(Self::Ended(EndState::Canceled)),
            (Self::Queued | Self::Dispatched | Self::Started | Self::CancelRequested | Self::Ended(_), _) => {
                illegal
            }
        }
    }

    /// The terminal state, of a job that is over.
    #[must_use]
    pub const fn end(self) -> Option<EndState> {
        match self {
            Self::Ended(end) => Some(end),
            Self::Queued | Self::Dispatched | Self::Started | Self::CancelRequested => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ends() -> impl Strategy<Value = EndState> {
        prop::sample::select(vec![
            EndState::Succeeded,
            EndState::Failed,
            EndState::TimedOut,
            EndState::OutOfMemory,
            EndState::LimitExceeded,
            EndState::Canceled,
            EndState::Rejected,
            EndState::Expired,
            EndState::Error,
            EndState::Lost,
        ])
    }

    fn moves() -> impl Strategy<Value = JobMove> {
        prop_oneof![
            Just(JobMove::Dispatch),
            Just(JobMove::Start),
            ends().prop_map(JobMove::End),
            Just(JobMove::Retry),
            Just(JobMove::Cancel),
            Just(JobMove::Expire),
        ]
    }

    proptest! {
        /// Whatever is tried in whatever order: an end is final, a job that was canceled ends as canceled, nothing
        /// ends as succeeded without a start, and nothing starts without a dispatch.
        #[test]
        fn any_order_of_moves_keeps_the_promises(list in prop::collection::vec(moves(), 0..40)) {
            let mut state = JobState::Queued;
            let (mut started, mut canceled) = (false, false);
            for next in list {
                let before = state;
                match state.after(next) {
                    Err(illegal) => prop_assert_eq!(illegal, IllegalMove { from: before, attempted: next }),
                    Ok(after) => {
                        prop_assert!(before.end().is_none(), "an end is final");
                        if next == JobMove::Start {
                            prop_assert_eq!(before, JobState::Dispatched);
                            prop_assert!(!canceled, "a canceled job never starts");
                            started = true;
                        }
                        canceled |= next == JobMove::Cancel;
                        if let Some(end) = after.end() {
                            prop_assert!(!canceled || end == EndState::Canceled);
                            let of_a_run = matches!(end, EndState::Succeeded | EndState::Failed | EndState::TimedOut
                                | EndState::OutOfMemory | EndState::LimitExceeded | EndState::Lost);
                            prop_assert!(started || !of_a_run);
                            prop_assert!(end != EndState::Expired || matches!(before, JobState::Queued | JobState::Dispatched));
                        }
                        state = after;
                    }
                }
            }
        }

        /// From wherever a job stands, some list of moves ends it.
        #[test]
        fn every_job_can_end(list in prop::collection::vec(moves(), 0..20)) {
            let state = list.into_iter().fold(JobState::Queued, |state, next| state.after(next).unwrap_or(state));
            let over = state.end().is_some()
                || state.after(JobMove::Cancel).and_then(|state| match state {
                    JobState::Ended(_) => Ok(state),
                    started => started.after(JobMove::End(EndState::Canceled)),
                }).is_ok_and(|state| state.end().is_some());
            prop_assert!(over);
        }
    }
}
