// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger as a trace that Perfetto (ui.perfetto.dev) opens: a track per
//! thread, a slice per frame and stage, an instant per frame and link, and a flow that follows each
//! frame to each sink.
//!
//! Format: the Trace Event Format's JSON object form, with complete events
//! (`X`), instants (`i`) and flow events (`s`, `t`, `f`); times in microseconds.

use std::io::{self, Write};

use framepath_model::ledger::{Row, flag};
use serde_json::{Value, json};

use crate::report::Report;

/// Writes the rows of `report`, except those of drops, as a trace with one process named `framepath`.
///
/// # Errors
/// Errors of `to`.
///
/// ```
/// use framepath::{Options, Pipeline, export};
///
/// let report = Pipeline::parse("test frames=2 ! queue ! null")?.run(&Options::default())?;
/// let mut trace = Vec::new();
/// export::trace::write(&report, &mut trace)?;
/// assert!(trace.starts_with(b"{"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write(report: &Report, to: &mut dyn Write) -> io::Result<()> {
    write_all(&[("framepath", report)], to)
}

/// Writes several runs into one trace, each as a process with the run's name (the first of each pair).
///
/// # Errors
/// Errors of `to`.
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

/// Writes the events of one run as process `pid`. The earliest `enter_ns` of the run becomes time 0.
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
    let drawn = drawn_from(&rows);
    for (row, from) in rows.iter().zip(&drawn) {
        let name = report.hops.get(usize::from(row.hop)).map_or("", |h| &h.text);
        write!(to, ",\n{}", slice(pid, row, *from, name, origin))?;
    }
    let hops = report.hop_tree();
    for end in hops.leaves() {
        let branch = hops.way_to(end);
        let is_in_branch =
            |(row, _): &(&&Row, &u64)| branch.get(usize::from(row.hop)).is_some_and(|is_in| *is_in);
        let mut rows = rows.iter().zip(&drawn).filter(is_in_branch).peekable();
        let mut before = None;
        while let Some((row, from)) = rows.next() {
            let first = before.replace(row.seq) != Some(row.seq);
            let last = rows.peek().is_none_or(|(next, _)| next.seq != row.seq);
            // An arrow needs two ends.
            let step = match (first, last) {
                (true, true) => continue,
                (true, false) => "s",
                (false, false) => "t",
                (false, true) => "f",
            };
            write!(to, ",\n{}", flow(pid, end, row, *from, step, origin))?;
        }
    }
    Ok(())
}

/// Returns the start of each row's slice, CLOCK_MONOTONIC nanoseconds; for a link, the end of the wait, where
/// its instant is drawn.
///
/// A track cannot show overlapping slices, and a frame's wait in a link or inside a decoder overlaps the
/// thread's work on other frames. A stage's slice therefore starts when the thread last started to work on
/// the frame, and not before the end of the previous slice.
fn drawn_from(rows: &[&Row]) -> Vec<u64> {
    let mut from: Vec<u64> = rows.iter().map(|row| row.leave_ns).collect();
    let mut order: Vec<usize> = (0..rows.len()).filter(|at| !rows[*at].has(flag::LINK)).collect();
    order.sort_unstable_by_key(|at| (rows[*at].thread, rows[*at].leave_ns, rows[*at].enter_ns));
    for track in order.chunk_by(|a, b| rows[*a].thread == rows[*b].thread) {
        let mut done = 0;
        for at in track {
            let row = rows[*at];
            from[*at] = (row.leave_ns - busy_ns(row)).max(row.enter_ns).max(done);
            done = row.leave_ns;
        }
    }
    from
}

fn busy_ns(row: &Row) -> u64 {
    row.wall_ns().saturating_sub(row.queue_ns + row.held_ns + row.pool_ns + row.wakeup_ns)
}

fn micros(ns: u64, origin: u64) -> f64 {
    ns.saturating_sub(origin) as f64 / 1e3
}

fn slice(pid: usize, row: &Row, from: u64, name: &str, origin: u64) -> Value {
    let link = row.has(flag::LINK);
    let mut args = json!({
        "frame": row.seq,
        "copied_bytes": row.copied_bytes,
        "copy_us": row.copy_ns as f64 / 1e3,
        "queue_us": row.queue_ns as f64 / 1e3,
        "wakeup_us": row.wakeup_ns as f64 / 1e3,
        "blocked_us": row.blocked_ns as f64 / 1e3,
    });
    for (name, ns) in [("held_us", row.held_ns), ("pool_us", row.pool_ns), ("paced_us", row.paced_ns)] {
        if ns > 0 {
            args[name] = json!(ns as f64 / 1e3);
        }
    }
    if row.device_ns > 0 {
        args["device_us"] = json!(row.device_ns as f64 / 1e3);
    }
    if row.has(flag::COUNTED) {
        args["compute_us"] = json!(row.compute_ns as f64 / 1e3);
        args["preempted_us"] = json!(row.preempted_ns as f64 / 1e3);
        args["switches"] = json!(row.voluntary_switches + row.involuntary_switches);
        args["minor_faults"] = json!(row.minor_faults);
    }
    // Waits in a queue overlap each other, so each is drawn as an instant at its end. The arguments and the
    // flow's arrow show its length.
    let (phase, duration) = if link { ("i", Value::Null) } else { ("X", json!(micros(row.leave_ns, from))) };
    let mut event = json!({
        "ph": phase, "pid": pid, "tid": row.thread, "ts": micros(from, origin),
        "name": format!("{name} #{}", row.seq), "cat": if link { "link" } else { "stage" }, "args": args,
    });
    if link {
        event["s"] = json!("t");
    } else {
        event["dur"] = duration;
    }
    event
}

/// Makes the event of one step of a frame's flow to the sink that is hop `end`: `step` is `s` (start), `t`
/// (middle) or `f` (end).
fn flow(pid: usize, end: u16, row: &Row, from: u64, step: &str, origin: u64) -> Value {
    json!({
        "ph": step, "pid": pid, "tid": row.thread, "ts": micros(from, origin),
        "name": "frame", "cat": "frame", "id": format!("{pid}.{end}.{}", row.seq), "bp": "e",
    })
}
