// SPDX-License-Identifier: MIT OR Apache-2.0
//! Summary of a traced program as JSON, in the form of framepath's own runs.

use framepath::{Report, export};
use framepath_model::summary::SummaryRow;
use framepath_trace::TraceReport;
use serde_json::{Value, json};

/// Returns the figures as JSON: a summary as that of a run, with a row for each stream, and with the times of the
/// threads and the facts of the recording under the key `trace`.
pub(crate) fn json(traced: &TraceReport, reports: &mut [(String, Report)]) -> serde_json::Result<String> {
    let row = |(name, report): &mut (String, Report)| SummaryRow {
        contender: name.clone(),
        ..export::summary::row(report, &traced.program)
    };
    let mut summary = export::summary::of_rows("trace", reports.iter_mut().map(row).collect());
    summary.notes = traced.notes();
    let mut value = serde_json::to_value(&summary)?;
    if let Value::Object(keys) = &mut value {
        keys.insert("trace".to_owned(), json!(traced));
    }
    serde_json::to_string_pretty(&value)
}
