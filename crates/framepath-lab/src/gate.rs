// SPDX-License-Identifier: MIT OR Apache-2.0
//! Budgets: limits on the figures of lab summaries, as ratios or counts.
//!
//! ```toml
//! [[budget]]
//! name = "a queue costs at most 5 % of GStreamer's"
//! experiment = "queue"
//! case = "64B"                  # "*" in experiment, case and contender: any number of characters
//! metric = "cpu_us_per_push"
//! a = "queue"
//! b = "gst-queue"
//! max = 0.05                    # of the ratio a/b
//!
//! [[budget]]
//! name = "native decode copies nothing"
//! experiment = "decode"
//! case = "*"
//! contender = "inline-native"
//! metric = "copied_bytes_per_frame"
//! max_count = 0                 # of the figure itself
//! optional = true               # a missing figure is no failure
//!
//! [[budget]]
//! name = "decode costs at most 4 ms of CPU per frame"
//! experiment = "decode"
//! case = "vp9-1080p8"
//! contender = "inline"
//! metric = "cpu_us_per_frame"   # the figure's path in the row of the JSON
//! max_count = 4000
//! ```
//!
//! `min` and `min_count` are lower limits. A figure with an interval (a ratio, or the median CPU time or
//! wall time of several runs) fails if its whole interval lies beyond a limit, and is inconclusive if the
//! interval spans the limit, so that noise hardly ever fails a budget. Another figure fails if it is beyond
//! the limit. A missing figure, or a ratio of a single pair, fails its budget, unless the budget is optional;
//! the output names the figure and the near names.
//!
//! Without budgets, [`baseline`] compares two runs of the same experiments.

mod baseline;
mod budget;
mod figure_path;
mod verdict;

pub use baseline::{BaselineReport, baseline};
pub use budget::{Budget, BudgetError, FigureLimits, Limit, parse};
pub use figure_path::{RowFigure, figures, find, names};
pub use verdict::{BudgetLine, BudgetOutcome, GateOutcome, evaluate, old_spellings, outcome};
