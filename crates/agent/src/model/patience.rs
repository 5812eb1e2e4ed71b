//! When a request is sent again, and how long that is waited for.

use std::time::Duration;

use uuid::Uuid;

use super::refusal::ModelError;

/// Wait before the first repetition.
const FIRST: Duration = Duration::from_millis(500);
/// Longest wait that nobody has asked for.
const LONGEST: Duration = Duration::from_secs(20);

/// How long to wait before a request is sent again, where that helps and there is time for it: so many repetitions have
/// been made, and this much is left.
pub(crate) fn wait(error: &ModelError, repetitions: u32, left: Duration) -> Option<Duration> {
    if !helps(error) {
        return None;
    }
    let usual = backoff(repetitions);
    let wait = match error {
        // Nobody comes back before the time that was named, and not all at that very moment.
        ModelError::Refused(refusal) => refusal.retry_after.map_or(usual, |asked| asked + usual / 4),
        _ => usual,
    };
    (wait <= left).then_some(wait)
}

fn helps(error: &ModelError) -> bool {
    match error {
        ModelError::Unreachable { .. } | ModelError::Cut { .. } => true,
        ModelError::Refused(refusal) => {
            let may = matches!(refusal.status, 408 | 409 | 429 | 500..);
            refusal.should_retry.unwrap_or(may) && !refusal.is_used_up()
        }
        // It has taken long enough, or would be the same again.
        ModelError::TimedOut { .. }
        | ModelError::TooLarge { .. }
        | ModelError::Unreadable { .. }
        | ModelError::Client(_) => false,
    }
}

/// Doubles from [`FIRST`] to [`LONGEST`], and of that a random part between a half and all.
fn backoff(repetitions: u32) -> Duration {
    let whole = FIRST
        .saturating_mul(2_u32.saturating_pow(repetitions))
        .min(LONGEST);
    let half = whole / 2;
    let thousandths = u32::try_from(Uuid::new_v4().as_u128() % 1001).unwrap_or(0);
    half + half * thousandths / 1000
}

#[cfg(test)]
mod tests {
    use super::{
        super::{name::Provider, refusal::Refusal},
        *,
    };

    const MUCH: Duration = Duration::from_secs(3600);

    fn refused(status: u16, body: &str) -> ModelError {
        ModelError::Refused(Box::new(Refusal::read(Provider::OpenAi, "m", status, body)))
    }

    #[test]
    fn what_may_pass_is_waited_for_and_what_stays_is_not() {
        for status in [408, 409, 429, 500, 502, 503, 504, 529] {
            assert!(wait(&refused(status, ""), 0, MUCH).is_some(), "{status}");
        }
        for status in [400, 401, 402, 403, 404, 413, 422] {
            assert!(wait(&refused(status, ""), 0, MUCH).is_none(), "{status}");
        }
        let quota = r#"{"error":{"message":"m","code":"insufficient_quota"}}"#;
        assert!(wait(&refused(429, quota), 0, MUCH).is_none());
        let ModelError::Refused(mut refusal) = refused(500, "") else {
            unreachable!()
        };
        refusal.should_retry = Some(false);
        assert!(wait(&ModelError::Refused(refusal), 0, MUCH).is_none());
    }

    #[test]
    fn a_time_that_is_named_is_kept_to_and_never_waited_for_past_the_patience() {
        let ModelError::Refused(mut refusal) = refused(429, "") else {
            unreachable!()
        };
        refusal.retry_after = Some(Duration::from_secs(7));
        let error = ModelError::Refused(refusal);
        let waits = wait(&error, 0, MUCH).unwrap();
        assert!(
            waits >= Duration::from_secs(7) && waits <= Duration::from_secs(8),
            "{waits:?}"
        );
        assert_eq!(wait(&error, 0, Duration::from_secs(6)), None);
    }

    #[test]
    fn waits_double_and_have_a_bound() {
        for repetitions in 0..40 {
            let whole = (FIRST * 2_u32.pow(repetitions.min(10))).min(LONGEST);
            let waits = backoff(repetitions);
            assert!(waits >= whole / 2 && waits <= whole, "{repetitions}: {waits:?}");
        }
    }
}
