// SPDX-License-Identifier: MIT OR Apache-2.0
//! Summaries for people: findings in words, and tables for a terminal.

mod contenders;
mod findings;
pub(crate) mod number;
pub(crate) mod tables;

pub use contenders::contender_description;
pub use findings::{contender_in_words, findings, metric_in_words};
pub use tables::tables;
