// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger as a trace that Perfetto (ui.perfetto.dev) opens: a track per
//! thread, a slice per frame and hop, and a flow that follows each frame.
//!
//! Format: the Trace Event Format's JSON object form, with complete events
//! (`X`) and flow events (`s`, `t`, `f`); times in microseconds.

use std::io::{self, Write};

use framepath_model::ledger::{Row, flag};
use serde_json::{Value, json};

use crate::report::Report;

/// Writes all rows of `report`.
///
/// # Errors
/// What `to` says.
pub fn write(report: &Report, to: &mut dyn Write) -> io::Result<()> {
    write_all(&[("framepath", report)], to)
}

/// Writes several runs into one trace, each as a process of its name.
///
/// # Errors
/// What `to` says.
pub fn write_all(runs: &[(&str, &Report)], to: &mut dyn Write) -> io::Result<()> {
    write!(to, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    for (at, (name, report)) in runs.iter().enumerate() {
        let separator = if at == 0 { "" } else { ",\n" };
        write!(to, "{separator}")?;
        process(at + 1, name, report, to)?;
    }
    writeln!(to, "]}}")?;
    to.flush()
}

/// One run as process `pid`; its time starts at 0.
fn process(pid: usize, name: &str, report: &Report, to: &mut dyn Write) -> io::Result<()> {
    let origin = report.rows.iter().map(|r| r.enter_ns).min().unwrap_or(0);
    write!(to, "{}", json!({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}))?;
    for (thread, name) in report.threads.iter().enumerate() {
        let args = json!({"name": format!("{thread} {name}")});
        let event = json!({"ph": "M", "pid": pid, "tid": thread, "name": "thread_name", "args": args});
        write!(to, ",\n{event}")?;
    }
    let mut rows: Vec<&Row> = report.rows.iter().filter(|r| !r.has(flag::DROPPED)).collect();
    rows.sort_unstable_by_key(|r| (r.seq, r.enter_ns, r.hop));
    for frame in rows.chunk_by(|a, b| a.seq == b.seq) {
        for (at, row) in frame.iter().enumerate() {
            let name = report.hops.get(usize::from(row.hop)).map_or("", |h| &h.text);
            write!(to, ",\n{}", slice(pid, row, name, origin))?;
            if frame.len() > 1 {
                let last = at + 1 == frame.len();
                let step = if at == 0 {
                    "s"
                } else if last {
                    "f"
                } else {
                    "t"
                };
                write!(to, ",\n{}", flow(pid, row, step, origin))?;
            }
        }
    }
    Ok(())
}

/// Where the slice stands: a frame's wait in a link or inside a decoder
/// overlaps the thread's work on other frames, so it is drawn from the moment
/// the thread turned to it.
fn drawn_from(row: &Row) -> u64 {
    if row.has(flag::LINK) { row.enter_ns } else { row.enter_ns.max(row.leave_ns - busy_ns(row)) }
}

fn busy_ns(row: &Row) -> u64 {
    row.wall_ns().saturating_sub(row.queue_ns + row.wakeup_ns)
}

fn micros(ns: u64, origin: u64) -> f64 {
    ns.saturating_sub(origin) as f64 / 1e3
}

fn slice(pid: usize, row: &Row, name: &str, origin: u64) -> Value {
    let link = row.has(flag::LINK);
    let from = drawn_from(row);
    let mut args = json!({
        "frame": row.seq,
        "copied_bytes": row.copied_bytes,
        "copy_us": row.copy_ns as f64 / 1e3,
        "queue_us": row.queue_ns as f64 / 1e3,
        "wakeup_us": row.wakeup_ns as f64 / 1e3,
        "blocked_us": row.blocked_ns as f64 / 1e3,
    });
    if row.has(flag::COUNTED) {
        args["compute_us"] = json!(row.compute_ns as f64 / 1e3);
        args["preempted_us"] = json!(row.preempted_ns as f64 / 1e3);
        args["switches"] = json!(row.voluntary_switches + row.involuntary_switches);
        args["minor_faults"] = json!(row.minor_faults);
    }
    // Waits in a queue overlap each other: they are drawn as an instant where
    // they end, their length in the arguments and in the flow's arrow.
    let (phase, duration) = if link { ("i", Value::Null) } else { ("X", json!(micros(row.leave_ns, from))) };
    let at = if link { row.leave_ns } else { from };
    let mut event = json!({
        "ph": phase, "pid": pid, "tid": row.thread, "ts": micros(at, origin),
        "name": format!("{name} #{}", row.seq), "cat": if link { "link" } else { "stage" }, "args": args,
    });
    if link {
        event["s"] = json!("t");
    } else {
        event["dur"] = duration;
    }
    event
}

fn flow(pid: usize, row: &Row, step: &str, origin: u64) -> Value {
    let link = row.has(flag::LINK);
    let at = if link { row.leave_ns } else { drawn_from(row) };
    json!({
        "ph": step, "pid": pid, "tid": row.thread, "ts": micros(at, origin),
        "name": "frame", "cat": "frame", "id": format!("{pid}.{}", row.seq), "bp": "e",
    })
}
