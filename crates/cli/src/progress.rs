//! Long steps: a bar on a terminal, a line in a log.

use std::{io::IsTerminal as _, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};

use crate::terminal;

/// A step that takes a while.
pub(crate) struct Step {
    bar: Option<ProgressBar>,
}

impl Step {
    /// Says that it has begun.
    pub(crate) fn begin(what: String) -> Self {
        if !std::io::stderr().is_terminal() {
            terminal::say(&format!("mayfly: {what}"));
            return Self { bar: None };
        }
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new_spinner()
            .with_style(style)
            .with_message(terminal::harmless(&what).into_owned());
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { bar: Some(bar) }
    }

    /// Says how far it is, in bytes.
    pub(crate) fn bytes(&self, done: u64, of: u64) {
        let Some(bar) = &self.bar else { return };
        if bar.length().is_none()
            && let Ok(style) =
                ProgressStyle::with_template("{spinner} {msg} {bytes}/{total_bytes} {wide_bar} {eta}")
        {
            bar.set_style(style);
        }
        bar.set_length(of);
        bar.set_position(done);
    }

    /// Says how many are done.
    pub(crate) fn count(&self, done: u64, of: u64) {
        let Some(bar) = &self.bar else { return };
        if bar.length().is_none()
            && let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {pos}/{len} {wide_bar} {eta}")
        {
            bar.set_style(style);
        }
        bar.set_length(of);
        bar.set_position(done);
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
