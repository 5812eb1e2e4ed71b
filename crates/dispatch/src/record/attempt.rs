use mayfly_core::{id::SessionId, outcome::Cause};

/// Where an attempt stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttemptState {
    /// Made for its job; no session has started it. It may be published any number of times.
    Dispatched,
    /// A session has started it, and holds it.
    Started {
        /// The session.
        session: SessionId,
    },
    /// Over.
    Over {
        /// Why.
        cause: Cause,
    },
}

/// What can happen to an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttemptMove {
    /// A session starts it.
    Start {
        /// The session.
        session: SessionId,
    },
    /// It ends by the word of a session, or with that session.
    End {
        /// The session.
        session: SessionId,
        /// Why.
        cause: Cause,
    },
    /// It ends before any session has started it.
    Withdraw {
        /// Why.
        cause: Cause,
    },
}

/// A move that is not one from where the attempt stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an attempt that is {from:?} can't make the move {attempted:?}")]
pub struct IllegalAttemptMove {
    /// Where the attempt stands, and stays.
    pub from: AttemptState,
    /// What was tried.
    pub attempted: AttemptMove,
}

impl AttemptState {
    /// Where the attempt stands after a move. Starting again in the same session changes nothing and is no fault: an
    /// executor asks until it is answered.
    ///
    /// # Errors
    /// A move that is not one from here; the attempt stays where it is.
    pub fn after(self, attempted: AttemptMove) -> Result<Self, IllegalAttemptMove> {
        let illegal = Err(IllegalAttemptMove {
            from: self,
            attempted,
        });
        match (self, attempted) {
            (Self::Dispatched, AttemptMove::Start { session }) => Ok(Self::Started { session }),
            (Self::Dispatched, AttemptMove::Withdraw { cause }) => Ok(Self::Over { cause }),
            (Self::Started { session: holder }, AttemptMove::Start { session }) if holder == session => {
                Ok(self)
            }
            (Self::Started { session: holder }, AttemptMove::End { session, cause }) if holder == session => {
                Ok(Self::Over { cause })
            }
            (Self::Dispatched | Self::Started { .. } | Self::Over { .. }, _) => illegal,
        }
    }

    /// The session that holds it.
    #[must_use]
    pub const fn holder(self) -> Option<SessionId> {
        match self {
            Self::Started { session } => Some(session),
            Self::Dispatched | Self::Over { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn moves() -> impl Strategy<Value = AttemptMove> {
        let session = (0..3_u128).prop_map(|n| SessionId::from_uuid(Uuid::from_u128(n)));
        let cause = prop::sample::select(vec![Cause::Exited, Cause::ExecutorLost, Cause::CanceledByRequest]);
        prop_oneof![
            session.clone().prop_map(|session| AttemptMove::Start { session }),
            (session, cause.clone()).prop_map(|(session, cause)| AttemptMove::End { session, cause }),
            cause.prop_map(|cause| AttemptMove::Withdraw { cause }),
        ]
    }

    proptest! {
        /// Whatever is tried in whatever order: one session at most ever starts it, only that session ends it once it
        /// has started, and an end is final.
        #[test]
        fn any_order_of_moves_has_one_start_and_one_end(list in prop::collection::vec(moves(), 0..30)) {
            let mut state = AttemptState::Dispatched;
            let (mut starter, mut over) = (None, false);
            for next in list {
                let before = state;
                match state.after(next) {
                    Err(illegal) => prop_assert_eq!(illegal, IllegalAttemptMove { from: before, attempted: next }),
                    Ok(after) => {
                        prop_assert!(!over, "an end is final");
                        match next {
                            AttemptMove::Start { session } => {
                                prop_assert_eq!(*starter.get_or_insert(session), session);
                                prop_assert_eq!(after.holder(), Some(session));
                            }
                            AttemptMove::End { session, .. } => prop_assert_eq!(starter, Some(session)),
                            AttemptMove::Withdraw { .. } => prop_assert_eq!(starter, None),
                        }
                        over = matches!(after, AttemptState::Over { .. });
                        state = after;
                    }
                }
            }
        }
    }
}
