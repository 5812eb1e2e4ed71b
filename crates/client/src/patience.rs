//! When a request that failed is sent again, and how long that is waited for.

use std::time::Duration;

use mayfly_wire::problem::Code;
use uuid::Uuid;

use crate::error::ClientError;

/// Whether a request may be sent again without knowing what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It changes nothing, or the second time is as the first.
    Safe,
    /// Only where the first has certainly not been done.
    OnlyUndone,
}

/// Wait before the first repetition.
const FIRST: Duration = Duration::from_millis(100);
/// Longest wait that nobody has asked for.
const LONGEST: Duration = Duration::from_secs(5);

/// How long to wait before a request is sent again, where it may be and there is time for that: so many repetitions have
/// been made, and this much is left of the caller's patience.
pub(crate) fn wait(
    error: &ClientError,
    repeat: Repeat,
    repetitions: u32,
    left: Duration,
) -> Option<Duration> {
    if !may_repeat(error, repeat) {
        return None;
    }
    let usual = backoff(repetitions);
    // Nobody comes back before the time that the server has named, and not all at that very moment.
    let wait = match error.retry_after() {
        Some(asked) => asked + usual / 4,
        None => usual,
    };
    (wait <= left).then_some(wait)
}

fn may_repeat(error: &ClientError, repeat: Repeat) -> bool {
    match error {
        ClientError::Unreachable { .. } => true,
        ClientError::TimedOut { .. } | ClientError::Cut { .. } => repeat == Repeat::Safe,
        ClientError::Refused(refusal) => match (refusal.status, refusal.code()) {
            // Refused at the door.
            (429, _) | (_, Some(Code::Overloaded)) => true,
            // A proxy's words for a server that is not there, or has not answered in time, and the server's own.
            (408 | 502..=504, _) => repeat == Repeat::Safe,
            _ => false,
        },
        ClientError::Address(_)
        | ClientError::Certificate(_)
        | ClientError::Build(_)
        | ClientError::Request { .. }
        | ClientError::TooLarge { .. }
        | ClientError::Unreadable { .. }
        | ClientError::NotTheApi { .. } => false,
    }
}

/// Doubles from [`FIRST`] to [`LONGEST`], and of that a random part between a half and all, so that those who were cut
/// off together do not come back together.
pub(crate) fn backoff(repetitions: u32) -> Duration {
    let whole = FIRST
        .saturating_mul(2_u32.saturating_pow(repetitions))
        .min(LONGEST);
    let half = whole / 2;
    let thousandths = u32::try_from(Uuid::new_v4().as_u128() % 1001).unwrap_or(0);
    half + half * thousandths / 1000
}

#[cfg(test)]
mod tests {
    use mayfly_wire::problem::Problem;

    use super::*;
    use crate::error::Refusal;

    const MUCH: Duration = Duration::from_secs(3600);

    fn refused(status: u16, code: Option<Code>, retry_after: Option<u64>) -> ClientError {
        ClientError::Refused(Box::new(Refusal {
            doing: "test",
            status,
            problem: code.map(|code| Problem::new(code, "r")),
            retry_after: retry_after.map(Duration::from_secs),
        }))
    }

    #[test]
    fn what_may_have_been_done_is_not_done_again_unless_that_is_safe() {
        let twice = |error: &ClientError| {
            [Repeat::Safe, Repeat::OnlyUndone].map(|repeat| wait(error, repeat, 0, MUCH).is_some())
        };
        let timed_out = ClientError::TimedOut {
            doing: "test",
            after: MUCH,
        };
        assert_eq!(twice(&timed_out), [true, false]);
        assert_eq!(twice(&refused(503, Some(Code::Unavailable), None)), [true, false]);
        for status in [408, 502, 503, 504] {
            assert_eq!(twice(&refused(status, None, None)), [true, false], "{status}");
        }
        assert_eq!(twice(&refused(429, Some(Code::RateLimited), None)), [true, true]);
        assert_eq!(twice(&refused(503, Some(Code::Overloaded), None)), [true, true]);
        for status in [400, 401, 403, 404, 409, 413, 422, 500, 501] {
            assert_eq!(twice(&refused(status, None, None)), [false, false], "{status}");
        }
    }

    #[test]
    fn a_time_that_the_server_names_is_kept_to_and_never_waited_for_past_the_patience() {
        let error = refused(429, Some(Code::RateLimited), Some(7));
        for repetitions in [0, 9] {
            let waits = wait(&error, Repeat::Safe, repetitions, MUCH).unwrap();
            assert!(
                waits >= Duration::from_secs(7) && waits <= Duration::from_secs(9),
                "{waits:?}"
            );
        }
        assert_eq!(wait(&error, Repeat::Safe, 0, Duration::from_secs(6)), None);
    }

    #[test]
    fn waits_double_have_a_bound_and_differ() {
        for repetitions in 0..40 {
            let whole = (FIRST * 2_u32.pow(repetitions.min(10))).min(LONGEST);
            for _ in 0..20 {
                let waits = backoff(repetitions);
                assert!(waits >= whole / 2 && waits <= whole, "{repetitions}: {waits:?}");
            }
        }
        let some: std::collections::BTreeSet<_> = (0..20).map(|_| backoff(8)).collect();
        assert!(some.len() > 1, "they do not all come back at once");
    }
}
