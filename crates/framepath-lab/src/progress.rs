// SPDX-License-Identifier: MIT OR Apache-2.0
//! Display of an experiment's progress.

use framepath_model::shown::shown;
use indicatif::{ProgressBar, ProgressStyle};

/// Receiver of an experiment's progress. Only the thread that runs the experiment calls its functions.
pub trait ProgressView {
    /// Shows that `experiment` begins, which has about `steps` steps.
    fn begin(&self, experiment: &str, steps: u64);
    /// Shows that the next step begins, which runs `what`.
    fn step(&self, what: &str);
    /// Shows that the experiment has ended, complete or not.
    fn end(&self);
}

/// Receiver that ignores progress.
pub struct NoProgress;

impl ProgressView for NoProgress {
    fn begin(&self, _: &str, _: u64) {}
    fn step(&self, _: &str) {}
    fn end(&self) {}
}

/// Progress bar on standard error; invisible if standard error is not a terminal.
pub struct Bar(ProgressBar);

impl Bar {
    /// Creates a bar that is invisible until an experiment begins.
    pub fn new() -> Bar {
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{prefix:>10} {wide_bar} {pos}/{len} {elapsed}  {msg:36}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Bar(bar)
    }
}

impl Default for Bar {
    fn default() -> Bar {
        Bar::new()
    }
}

impl ProgressView for Bar {
    fn begin(&self, experiment: &str, steps: u64) {
        self.0.reset();
        self.0.set_length(steps);
        self.0.set_prefix(experiment.to_owned());
        self.0.set_message(String::new());
        // No steady tick, because its wake-ups would affect the figures.
        self.0.disable_steady_tick();
    }

    fn step(&self, what: &str) {
        self.0.set_message(shown(what).into_owned());
        self.0.inc(1);
    }

    fn end(&self) {
        self.0.finish_and_clear();
    }
}
