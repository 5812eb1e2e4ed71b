//! What a process tells and takes of its host: log lines on stderr, and the clock.
//!
//! Log lines go to stderr, since stdout is data. Some libraries write whole request bodies at `debug`, a job's
//! environment among them: they are held at `info` whatever filter is asked for, and at `warn` where one has a line at `info`
//! for each message. The broker's library calls an error what
//! is none (a queue that is asked for and not there yet, a connection that we end), and returns to us all that it says:
//! it is heard only where the filter names it.

use std::{io::IsTerminal as _, time::Duration};

use chrono::{DateTime, Utc};
use mayfly_core::clock::Clock;
use tracing_subscriber::{
    EnvFilter, Layer as _, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// How log lines look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for programs.
    Json,
}

/// Why log lines can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter can't be read.
    #[error("`{filter}` is no log filter: write `info`, or `warn,mayfly=debug`")]
    Filter {
        /// What was given.
        filter: String,
        /// Why not.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// There is a subscriber already.
    #[error("log lines were set up twice")]
    Twice(#[source] tracing_subscriber::util::TryInitError),
}

/// Crates that log bodies at `debug`.
const HELD: [&str; 4] = ["bollard=info", "hyper=info", "hyper_util=info", "rmcp=warn"];

/// The broker's library.
const UNHEARD: &str = "lapin=off";

/// Sends log lines to stderr from here on.
///
/// # Errors
/// A filter that can't be read, or a second call.
///
/// # Panics
/// Never: the directives of our own are well-formed.
pub fn init(filter: &str, format: LogFormat) -> Result<(), TelemetryError> {
    let parsed = directives(filter)?;
    let lines = match format {
        LogFormat::Text => {
            let colour = std::io::stderr().is_terminal();
            fmt::layer()
                .with_writer(std::io::stderr)
                .with_target(false)
                .with_ansi(colour)
                .boxed()
        }
        LogFormat::Json => fmt::layer().json().with_writer(std::io::stderr).boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(parsed))
        .try_init()
        .map_err(TelemetryError::Twice)
}

/// The filter that was asked for, with what is ours before and behind it: of two directives for one target the later counts.
fn directives(filter: &str) -> Result<EnvFilter, TelemetryError> {
    let asked = format!("{UNHEARD},{filter}");
    let mut parsed = EnvFilter::try_new(asked).map_err(|source| TelemetryError::Filter {
        filter: filter.chars().take(80).collect(),
        source,
    })?;
    for held in HELD {
        parsed = parsed.add_directive(held.parse().expect("our own directive is well-formed"));
    }
    Ok(parsed)
}

/// The host's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place where the time comes from"
    )]
    fn now(&self) -> DateTime<Utc> {
        Utc::now()
    }

    fn since_boot(&self) -> Duration {
        boottime::since_boot()
    }
}

/// Time that the CPUs have spent on this process so far; `None` where the system does not tell.
#[must_use]
pub fn cpu_time() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    {
        let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let (seconds, nanos) = (
            u64::try_from(spent.tv_sec).ok()?,
            u32::try_from(spent.tv_nsec).ok()?,
        );
        Some(Duration::new(seconds, nanos))
    }
    #[cfg(not(target_os = "linux"))]
    None
}

#[cfg(target_os = "linux")]
mod boottime {
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};

    pub(super) fn since_boot() -> Duration {
        let at = clock_gettime(ClockId::Boottime);
        // The kernel gives neither a negative time since boot nor a second of more than 10^9 nanoseconds.
        Duration::new(
            u64::try_from(at.tv_sec).unwrap_or(0),
            u32::try_from(at.tv_nsec).unwrap_or(0),
        )
    }
}

#[cfg(not(target_os = "linux"))]
mod boottime {
    use std::{
        sync::OnceLock,
        time::{Duration, Instant},
    };

    /// The monotonic clock, from the first question on. A laptop's suspension is not counted here; the embedded roles
    /// share their process, so that nobody else's lease runs meanwhile.
    pub(super) fn since_boot() -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_since_boot_never_goes_back_and_moves() {
        let first = SystemClock.since_boot();
        let later = std::iter::repeat_with(|| SystemClock.since_boot())
            .take(1_000_000)
            .find(|now| *now > first);
        assert!(later.is_some());
    }

    #[test]
    fn a_filter_that_can_not_be_read_is_named() {
        let error = init("mayfly=loud", LogFormat::Text).unwrap_err();
        assert!(error.to_string().contains("mayfly=loud"), "{error}");
        assert!(!error.to_string().contains("lapin"), "{error}");
    }

    #[test]
    fn bodies_are_never_logged_and_the_brokers_library_is_heard_where_it_is_named() {
        let of = |filter| {
            let text = directives(filter).expect("it is a filter").to_string();
            let mut parts: Vec<String> = text.split(',').map(ToOwned::to_owned).collect();
            parts.sort();
            parts
        };
        let held = ["bollard=info", "hyper=info", "hyper_util=info", "rmcp=warn"];
        let with = |others: [&str; 2]| {
            let mut all: Vec<String> = held.iter().chain(&others).map(|&part| part.to_owned()).collect();
            all.sort();
            all
        };
        assert_eq!(of("info"), with(["lapin=off", "info"]));
        assert_eq!(of("info,lapin=debug,hyper=trace"), with(["lapin=debug", "info"]));
    }
}
