// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger as CSV: one line per row, stable column names. A cell that was
//! not measured is empty; so is a time of 0 in the columns `device_ns`, `held_ns`,
//! `pool_ns`, `paced_ns`, `held_depth_ns`, `stolen_ns`, `network_ns`, `throttled_ns` and `stopped_ns`, and so
//! are `device_queue_ns` and `device_run_ns` if both are 0. New columns are the last ones.

use std::io::{self, Write};

use framepath_model::ledger::{Row, flag};
use framepath_model::shown::shown;

use crate::report::Report;

const HEADER: &str = "path,seq,hop,stage,thread,birth_ns,enter_ns,leave_ns,wall_ns,copied_bytes,copy_ns,queue_ns,\
                      wakeup_ns,blocked_ns,compute_ns,preempted_ns,unexplained_ns,voluntary_switches,\
                      involuntary_switches,minor_faults,cycles,instructions,cache_misses,last,dropped,\
                      device_ns,device_queue_ns,device_run_ns,held_ns,pool_ns,paced_ns,\
                      held_depth_ns,stolen_ns,drop_reason,network_ns,clock_error_ns,viewer,\
                      throttled_ns,stopped_ns";

/// Writes a line of column names, and one line for each row of `report`. The column `path` has the path text.
///
/// # Errors
/// Errors of `to`.
///
/// ```
/// use framepath::{Options, Pipeline, export};
///
/// let report = Pipeline::parse("test frames=2 ! null")?.run(&Options::default())?;
/// let mut table = Vec::new();
/// export::csv::write(&report, &mut table)?;
/// // A line of names, and for each frame one of the source and one of the sink.
/// assert_eq!(String::from_utf8(table)?.lines().count(), 1 + 2 * 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write(report: &Report, to: &mut dyn Write) -> io::Result<()> {
    write_all(&[("", report)], to)
}

/// Writes the rows of several runs into one table. The column `path` has the name of the run, or the path
/// text if the name is empty.
///
/// # Errors
/// Errors of `to`.
pub fn write_all(runs: &[(&str, &Report)], to: &mut dyn Write) -> io::Result<()> {
    writeln!(to, "{HEADER}")?;
    for (name, report) in runs {
        let path = if name.is_empty() { report.path() } else { (*name).to_owned() };
        let path = quoted(&path);
        let has_pmu = report.rows.iter().any(|r| r.cycles > 0);
        for row in &report.rows {
            write!(to, "{path},")?;
            line(report, row, has_pmu, to)?;
        }
    }
    to.flush()
}

fn line(report: &Report, row: &Row, has_pmu: bool, to: &mut dyn Write) -> io::Result<()> {
    let counted = row.has(flag::COUNTED);
    let unexplained = row.causes()[framepath_model::ledger::Cause::Unexplained];
    write!(
        to,
        "{},{},{},{},{},{},{},{},",
        row.seq,
        row.hop,
        quoted(report.hops.get(usize::from(row.hop)).map_or("", |h| &h.text)),
        // A traced program chooses its threads' names.
        quoted(&shown(report.threads.get(usize::from(row.thread)).map_or("", |t| t))),
        row.birth_ns,
        row.enter_ns,
        row.leave_ns,
        row.wall_ns(),
    )?;
    let is_own = !row.has(flag::TRACED);
    cell(to, is_own.then_some(row.copied_bytes))?;
    cell(to, (is_own || row.has(flag::SAMPLED)).then_some(row.copy_ns))?;
    write!(to, "{},{},{},", row.queue_ns, row.wakeup_ns, row.blocked_ns)?;
    cell(to, counted.then_some(row.compute_ns))?;
    cell(to, counted.then_some(row.preempted_ns))?;
    cell(to, unexplained)?;
    cell(to, counted.then_some(row.voluntary_switches))?;
    cell(to, counted.then_some(row.involuntary_switches))?;
    cell(to, (counted && is_own).then_some(row.minor_faults))?;
    for events in [row.cycles, row.instructions, row.cache_misses] {
        cell(to, (counted && has_pmu).then_some(events))?;
    }
    write!(to, "{},{},", u8::from(row.has(flag::LAST)), u8::from(row.has(flag::DROPPED)))?;
    let in_device = row.device_ns > 0;
    let split = row.device_queue_ns > 0 || row.device_run_ns > 0;
    cell(to, in_device.then_some(row.device_ns))?;
    cell(to, split.then_some(row.device_queue_ns))?;
    cell(to, split.then_some(row.device_run_ns))?;
    cell(to, (row.held_ns > 0).then_some(row.held_ns))?;
    cell(to, (row.pool_ns > 0).then_some(row.pool_ns))?;
    cell(to, (row.paced_ns > 0).then_some(row.paced_ns))?;
    cell(to, (row.held_depth_ns > 0).then_some(row.held_depth_ns))?;
    cell(to, (row.stolen_ns > 0).then_some(row.stolen_ns))?;
    write!(to, "{},", if row.has(flag::CONGESTED) { "congestion" } else { "" })?;
    cell(to, (row.network_ns > 0).then_some(row.network_ns))?;
    cell(to, report.clock_of(row).map(|remote| remote.error_ns))?;
    cell(to, report.remote_of(row.hop).map(|remote| remote.viewer).filter(|viewer| *viewer != 0))?;
    cell(to, (row.throttled_ns > 0).then_some(row.throttled_ns))?;
    match row.stopped_ns {
        0 => writeln!(to),
        ns => writeln!(to, "{ns}"),
    }
}

fn cell(to: &mut dyn Write, value: Option<impl std::fmt::Display>) -> io::Result<()> {
    match value {
        Some(value) => write!(to, "{value},"),
        None => write!(to, ","),
    }
}

/// Quotes `text` as in RFC 4180 if it holds a comma, a quote or a line end.
fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
