// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs paths in the test's own process.

use framepath::{Level, Options, Report, RunError};

use crate::deadline::within_deadline;

/// Returns the default options with the ledger at `level`.
pub fn at(level: Level) -> Options {
    Options { level, ..Options::default() }
}

/// Runs the path in `text` and returns its report, which may have an error of a hop, or the error
/// that kept the run from starting. Panics if the text is no path, or if the run panics or takes
/// longer than 120 s.
pub fn try_run(text: &str, options: &Options) -> Result<Report, RunError> {
    let path = framepath::path::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let options = options.clone();
    within_deadline(move || framepath::run(&path, &options))
}

/// Runs the path in `text` and returns its report. Panics if the run ends with an error, and as
/// [`try_run`].
pub fn run(text: &str, options: &Options) -> Report {
    let report = try_run(text, options).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert!(report.error.is_none(), "{text}: {:?}", report.error);
    report
}
