// SPDX-License-Identifier: MIT OR Apache-2.0
//! Report of a run as text.

use framepath::{Report, export};

/// Returns the summary that `framepath run --json` writes.
pub(crate) fn report_json(mut report: Report) -> String {
    serde_json::to_string(&export::summary::summary(&mut report, "run")).unwrap_or_default()
}
