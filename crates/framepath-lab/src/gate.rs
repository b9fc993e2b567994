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
//! ```
//!
//! A ratio fails only if its whole interval lies beyond the limit, so that noise hardly ever fails
//! a budget; a count fails if the figure is above the limit. A missing figure, or a ratio of a
//! single pair, fails its budget, unless the budget is optional; the output names the figure.

mod budget;
mod verdict;

pub use budget::{Budget, BudgetError, Limit, parse};
pub use verdict::{BudgetLine, BudgetOutcome, evaluate, passed};
