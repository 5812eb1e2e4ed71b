//! How far a batch is: a bar on a terminal, now and then a line in a log.

use std::{
    cell::Cell,
    collections::BTreeMap,
    io::IsTerminal as _,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use mayfly_core::{outcome::EndState, units::Span};
use mayfly_sandbox::pool::PoolCounts;

use crate::{args::Pace, report::word, terminal};

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// How many jobs have ended how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    ended: BTreeMap<EndState, u64>,
}

impl Tally {
    pub(crate) const fn of(ended: BTreeMap<EndState, u64>) -> Self {
        Self { ended }
    }

    pub(crate) fn add(&mut self, end: EndState) {
        *self.ended.entry(end).or_default() += 1;
    }

    /// All that have ended.
    pub(crate) fn over(&self) -> u64 {
        self.ended.values().sum()
    }

    pub(crate) fn succeeded(&self) -> u64 {
        self.ended.get(&EndState::Succeeded).copied().unwrap_or(0)
    }

    pub(crate) const fn by_state(&self) -> &BTreeMap<EndState, u64> {
        &self.ended
    }

    /// `198 succeeded, 2 failed`.
    pub(crate) fn words(&self) -> String {
        let parts: Vec<_> = self
            .ended
            .iter()
            .map(|(end, count)| format!("{count} {}", word(end)))
            .collect();
        if parts.is_empty() {
            "none ended".to_owned()
        } else {
            parts.join(", ")
        }
    }
}

/// Says how far a batch is.
pub(crate) struct Progress {
    how: How,
    quiet: bool,
    total: u64,
    /// How many had ended before, once that is known: they say nothing about the rate.
    before: Cell<u64>,
    began: Instant,
}

enum How {
    Not,
    Bar(ProgressBar),
    Lines { next: Cell<Instant> },
}

impl Progress {
    pub(crate) fn begin(pace: &Pace, total: u64) -> Self {
        let began = Instant::now();
        let how = if pace.quiet || pace.no_progress {
            How::Not
        } else if std::io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{bar:24} {msg}");
            let bar = ProgressBar::new(total);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(500));
            How::Bar(bar)
        } else {
            How::Lines {
                next: Cell::new(began + LINE_EVERY),
            }
        };
        Self {
            how,
            quiet: pace.quiet,
            total,
            before: Cell::new(0),
            began,
        }
    }

    /// Takes note of how many had ended before this process took the batch over.
    pub(crate) fn had_ended(&self, before: u64) {
        self.before.set(before);
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Jobs that have ended here, and how many a second.
    pub(crate) fn rate(&self, tally: &Tally) -> (u64, f64) {
        let here = tally.over().saturating_sub(self.before.get());
        let seconds = self.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "shown with one digit after the point")]
        let rate = if seconds > 0.0 { here as f64 / seconds } else { 0.0 };
        (here, rate)
    }

    /// Shows where the batch stands.
    pub(crate) fn show(&self, tally: &Tally, running: u64, pool: Option<PoolCounts>) {
        match &self.how {
            How::Not => {}
            How::Bar(bar) => {
                bar.set_position(tally.over());
                bar.set_message(self.text(tally, running, pool));
            }
            How::Lines { next } => {
                let now = Instant::now();
                if now >= next.get() {
                    next.set(now + LINE_EVERY);
                    terminal::say(&format!("mayfly: {}", self.text(tally, running, pool)));
                }
            }
        }
    }

    fn text(&self, tally: &Tally, running: u64, pool: Option<PoolCounts>) -> String {
        let (here, rate) = self.rate(tally);
        let (done, total) = (tally.over(), self.total);
        let mut text = format!("{done}/{total} done · {running} running · {}", tally.words());
        if here > 0 {
            text.push_str(&format!(" · {rate:.1}/s"));
            let left = Duration::try_from_secs_f64(left(total.saturating_sub(done), rate));
            if done < total
                && let Ok(left) = left
            {
                text.push_str(&format!(" · {} left", Span::seconds(left.as_secs())));
            }
        }
        if let Some(pool) = pool {
            text.push_str(&format!(" · {}", warm(&pool)));
        }
        text
    }

    /// Says a line, above the bar where there is one; not where silence was asked for.
    pub(crate) fn say(&self, line: &str) {
        match &self.how {
            _ if self.quiet => {}
            How::Bar(bar) => bar.suspend(|| terminal::say(line)),
            How::Not | How::Lines { .. } => terminal::say(line),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let How::Bar(bar) = &self.how {
            bar.finish_and_clear();
        }
    }
}

/// How many jobs found a sandbox ready, and how many did not.
pub(crate) fn warm(pool: &PoolCounts) -> String {
    format!("{} warm, {} cold", pool.hits, pool.misses.total())
}

/// Seconds that so many jobs take.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn left(jobs: u64, rate: f64) -> f64 {
    (jobs as f64 / rate).ceil()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_had_ended_before_says_nothing_about_the_rate() {
        let pace = Pace {
            slots: None,
            pool: None,
            out: None,
            json: false,
            quiet: false,
            no_progress: true,
        };
        let progress = Progress::begin(&pace, 10);
        let mut tally = Tally::default();
        (0..4).for_each(|_| tally.add(EndState::Succeeded));
        progress.had_ended(4);
        assert!(
            !progress.text(&tally, 2, None).contains("/s"),
            "no rate of nothing"
        );
        assert!(
            progress
                .text(&tally, 2, None)
                .starts_with("4/10 done · 2 running · 4 succeeded")
        );
        tally.add(EndState::OutOfMemory);
        assert_eq!(progress.rate(&tally).0, 1);
        assert_eq!(tally.words(), "4 succeeded, 1 out_of_memory");
        assert!(progress.text(&tally, 2, None).ends_with("left"));
    }
}
