// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports of traced programs in the form of framepath's own runs, so that all outputs are the same.

use std::collections::HashMap;

use framepath::{HopInfo, Report, export};
use framepath_model::summary::SummaryRow;
use framepath_os::measure::meter::Level;
use framepath_trace::{StageWait, StreamLedger, TraceReport};
use serde_json::{Value, json};

/// Returns the report of each stream, with a name that no other stream of the program has and that is the same in the next
/// recording: the stream's way, and a number from the second stream with this way on.
pub(crate) fn reports(traced: &TraceReport) -> Vec<(String, Report)> {
    let mut ways: HashMap<String, u32> = HashMap::new();
    let name = |stream: &StreamLedger| {
        let way = stream.way();
        let number = ways.entry(way.clone()).and_modify(|number| *number += 1).or_insert(1);
        if *number == 1 { way } else { format!("{way} ({number})") }
    };
    let names: Vec<String> = traced.streams.iter().map(name).collect();
    names.into_iter().zip(&traced.streams).map(|(name, stream)| (name, report(traced, stream))).collect()
}

fn report(traced: &TraceReport, stream: &StreamLedger) -> Report {
    let mut report = Report::default();
    (report.frames, report.wall_ns) = (stream.frames, traced.wall_ns);
    report.cpu_ns = traced.usage.cpu_ns.unwrap_or_else(|| traced.running_ns());
    report.level = Level::Full;
    report.hops = stream.stages.iter().map(HopInfo::new).collect();
    report.threads = threads(traced, &stream.threads);
    report.rows = stream.rows.clone();
    report.spans = stream.spans.clone();
    report
}

/// Returns the names of threads, with their ids.
fn threads(traced: &TraceReport, ids: &[i32]) -> Vec<String> {
    let names: HashMap<i32, &str> =
        traced.threads.iter().map(|row| (row.thread, row.name.as_str())).collect();
    let name = |id: &i32| format!("{} ({id})", names.get(id).copied().unwrap_or("thread"));
    ids.iter().map(name).collect()
}

/// Returns the figures as JSON: a summary as that of a run, with a row for each stream, and with the times of the
/// threads and the facts of the recording under the key `trace`.
pub(crate) fn json(traced: &TraceReport, reports: &mut [(String, Report)]) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&figures(traced, reports)?)
}

/// Returns the same on one line, with a line end.
pub(crate) fn json_line(traced: &TraceReport) -> serde_json::Result<String> {
    let mut line = serde_json::to_string(&figures(traced, &mut reports(traced))?)?;
    line.push('\n');
    Ok(line)
}

fn figures(traced: &TraceReport, reports: &mut [(String, Report)]) -> serde_json::Result<Value> {
    let row = |(name, report): &mut (String, Report)| SummaryRow {
        contender: name.clone(),
        ..export::summary::row(report, &traced.program)
    };
    let mut summary = export::summary::of_rows("trace", reports.iter_mut().map(row).collect());
    summary.notes = traced.notes();
    let mut value = serde_json::to_value(&summary)?;
    for (row, stream) in traced.streams.iter().enumerate() {
        for hop in 0..stream.stages.len() {
            let waits: Vec<&StageWait> =
                stream.stage_waits.iter().filter(|wait| usize::from(wait.hop) == hop).collect();
            if let Some(Value::Object(keys)) = value.pointer_mut(&format!("/rows/{row}/hops/{hop}")) {
                keys.insert("waits".to_owned(), json!(waits));
            }
        }
    }
    if let Value::Object(keys) = &mut value {
        keys.insert("trace".to_owned(), json!(traced));
    }
    Ok(value)
}
