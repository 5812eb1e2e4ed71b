//! When a job may start, and when it has waited too long.

use chrono::{DateTime, TimeDelta, Utc};

use super::JobSpec;
use crate::{
    fault::{Fault, Faults},
    policy::Policy,
};

/// The times of a job that is submitted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// It does not start before this; none where that has passed already.
    pub not_before: Option<DateTime<Utc>>,
    /// It has waited too long then.
    pub expires_at: Option<DateTime<Utc>>,
}

impl JobSpec {
    /// The times that it asks for, where a policy allows them. What is allowed now is allowed later as well.
    ///
    /// # Errors
    /// A start that is further away than the policy lets a job wait, or that the job would not live to see.
    pub fn times(&self, policy: &Policy, submitted_at: DateTime<Utc>) -> Result<Times, Faults> {
        let mut faults = Faults::default();
        let after = |wait: std::time::Duration| {
            let wait = TimeDelta::from_std(wait).ok()?;
            submitted_at.checked_add_signed(wait)
        };
        let expires_at = self.expires_after.and_then(|wait| after(wait.as_duration()));
        let not_before = self.not_before.filter(|start| *start > submitted_at);
        if let Some(start) = not_before {
            if after(policy.max_wait.as_duration()).is_some_and(|most| start > most) {
                let message = format!(
                    "{} is further away than the policy's ceiling, {}, from submission",
                    start.to_rfc3339(),
                    policy.max_wait
                );
                faults.push(Fault::new("not_before", "out_of_range", message));
            }
            if let Some((wait, end)) = self.expires_after.zip(expires_at)
                && end <= start
            {
                let message = format!(
                    "the job would expire {wait} after submission and never start, since it may not start before {}; \
                     `expires_after` counts from submission",
                    start.to_rfc3339()
                );
                faults.push(Fault::new("expires_after", "before_start", message));
            }
        }
        if faults.is_empty() {
            Ok(Times {
                not_before,
                expires_at,
            })
        } else {
            Err(faults)
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeZone as _;
    use serde_json::json;

    use super::*;

    fn now() -> DateTime<Utc> {
        Utc.timestamp_opt(1_795_910_400, 0).unwrap()
    }

    fn times(
        not_before: Option<i64>,
        expires_after: Option<&str>,
    ) -> Result<Times, Vec<(String, &'static str)>> {
        let at = not_before.map(|seconds| now() + TimeDelta::seconds(seconds));
        let spec: JobSpec = serde_json::from_value(json!({
            "image": "python", "command": ["true"], "not_before": at, "expires_after": expires_after,
        }))
        .unwrap();
        spec.times(&Policy::default(), now()).map_err(|faults| {
            faults
                .iter()
                .map(|fault| (fault.path.clone(), fault.code))
                .collect()
        })
    }

    fn at(seconds: i64) -> Option<DateTime<Utc>> {
        Some(now() + TimeDelta::seconds(seconds))
    }

    #[test]
    fn a_start_that_has_passed_is_no_wait() {
        for passed in [None, Some(-3600), Some(0)] {
            assert_eq!(times(passed, None), Ok(Times::default()), "{passed:?}");
        }
        let asked = times(Some(60), Some("61s")).unwrap();
        assert_eq!((asked.not_before, asked.expires_at), (at(60), at(61)));
    }

    #[test]
    fn a_start_is_at_most_as_far_away_as_a_job_may_wait() {
        let week = 7 * 24 * 3600;
        assert_eq!(times(Some(week), None).unwrap().not_before, at(week));
        let refused = [("not_before".to_owned(), "out_of_range")];
        assert_eq!(times(Some(week + 1), None).unwrap_err(), refused);
        let spec: JobSpec = serde_json::from_value(json!({
            "image": "python", "command": ["true"], "not_before": DateTime::<Utc>::MAX_UTC,
        }))
        .unwrap();
        assert!(spec.times(&Policy::default(), now()).is_err());
    }

    #[test]
    fn a_job_that_would_expire_before_it_may_start_is_refused() {
        let refused = [("expires_after".to_owned(), "before_start")];
        assert_eq!(times(Some(60), Some("60s")).unwrap_err(), refused);
        assert_eq!(times(Some(60), Some("1s")).unwrap_err(), refused);
        assert!(times(Some(-60), Some("1s")).is_ok());
    }
}
