//! What happens, and how often.

use mayfly_core::outcome::EndState;
use proptest::prelude::*;

/// Picks one of a list, the newest for 0.
pub(super) type Pick = u8;

/// Something that happens.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Submit {
        of_another: bool,
        priority: i16,
        max_attempts: u32,
        again_after_failure: bool,
        expires_after: Option<u8>,
    },
    Dispatch,
    Confirm(Pick, u32),
    PublishAgain(u64),
    DeadLetter(Pick),
    Open(Pick, u32),
    Ask(Pick, Pick, bool),
    Beat(Pick, u8, bool),
    Finish(Pick, Pick, EndState),
    Abandon(Pick, Pick, bool),
    Close(Pick),
    Again(Pick),
    Lose,
    Process(usize),
    Quarantine,
    Tick,
    QueueIsGone,
    Cancel(Pick, bool),
    Expire,
    Orphans,
    Pass(u8),
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    let submit = (
        prop::bool::weighted(0.2),
        -1..2_i16,
        1..4_u32,
        any::<bool>(),
        prop::option::weighted(0.3, 0..120_u8),
    );
    let submit = submit.prop_map(
        |(of_another, priority, max_attempts, again_after_failure, expires_after)| Op::Submit {
            of_another,
            priority,
            max_attempts,
            again_after_failure,
            expires_after,
        },
    );
    let end = prop::sample::select(vec![
        EndState::Succeeded,
        EndState::Failed,
        EndState::Error,
        EndState::Canceled,
    ]);
    let pick = 0..4_u8;
    prop_oneof![
        6 => submit,
        8 => Just(Op::Dispatch),
        2 => (pick.clone(), 1..4_u32).prop_map(|(pick, publication)| Op::Confirm(pick, publication)),
        2 => (0..4_u64).prop_map(Op::PublishAgain),
        2 => pick.clone().prop_map(Op::DeadLetter),
        4 => (pick.clone(), 1..4_u32).prop_map(|(executor, slots)| Op::Open(executor, slots)),
        10 => (pick.clone(), pick.clone(), prop::bool::weighted(0.1)).prop_map(|(c, m, forged)| Op::Ask(c, m, forged)),
        4 => (pick.clone(), any::<u8>(), prop::bool::weighted(0.7)).prop_map(|(c, mask, all)| Op::Beat(c, mask, all)),
        8 => (pick.clone(), pick.clone(), end).prop_map(|(c, m, end)| Op::Finish(c, m, end)),
        2 => (pick.clone(), pick.clone(), any::<bool>()).prop_map(|(c, m, ran)| Op::Abandon(c, m, ran)),
        1 => pick.clone().prop_map(Op::Close),
        2 => pick.clone().prop_map(Op::Again),
        1 => Just(Op::Lose),
        14 => (1..4_usize).prop_map(Op::Process),
        1 => Just(Op::Quarantine),
        4 => Just(Op::Tick),
        1 => Just(Op::QueueIsGone),
        2 => (pick, prop::bool::weighted(0.1)).prop_map(|(pick, stranger)| Op::Cancel(pick, stranger)),
        2 => Just(Op::Expire),
        1 => Just(Op::Orphans),
        6 => (0..50_u8).prop_map(Op::Pass),
    ]
}

/// That one of a list; none of an empty one.
pub(super) fn pick<T>(list: &[T], pick: Pick) -> Option<&T> {
    let back = usize::from(pick).checked_rem(list.len())?;
    list.get(list.len() - 1 - back)
}
