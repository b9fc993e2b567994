// SPDX-License-Identifier: MIT OR Apache-2.0
//! A summary as tables for a terminal.

use std::collections::BTreeSet;

use framepath_model::shown::shown;
use framepath_model::stats::{Spread, Verdict};
use framepath_model::summary::{Ratio, Summary, SummaryRow};

use super::number::{bare_ratio, figure};

/// Formats a summary for a terminal: aligned tables of times, counts, causes and ratios, then the
/// skipped contenders and the notes. Headings have the units. An unknown figure is an empty cell;
/// columns and rows without any figure are omitted.
pub fn tables(summary: &Summary) -> String {
    let mut parts = Vec::new();
    parts.extend(grid(&summary.rows, &time_columns()));
    parts.extend(grid(&summary.rows, &count_columns(&summary.rows)));
    parts.extend(grid(&summary.rows, &cause_columns()));
    parts.extend(ratios(summary));
    let mut text = parts.join("\n");
    for skipped in &summary.skipped {
        let case = skipped.case.as_ref().map_or(String::new(), |case| format!(" ({case})"));
        let (contender, reason) = (shown(&skipped.contender), shown(&skipped.reason));
        text.push_str(&format!("skipped: {contender}{}: {reason}\n", shown(&case)));
    }
    for note in &summary.notes {
        text.push_str(&format!("note: {}\n", shown(note)));
    }
    text
}

/// A column of a table: its heading, and the function that makes its cell.
pub(crate) struct Column {
    pub heading: String,
    pub cell: Box<Cell>,
}

/// Function that returns the text of a row's cell in a column; `None` if the figure is not known.
type Cell = dyn Fn(&SummaryRow) -> Option<String>;

fn column(heading: &str, cell: impl Fn(&SummaryRow) -> Option<String> + 'static) -> Column {
    Column { heading: heading.to_owned(), cell: Box::new(cell) }
}

fn metric_column(heading: &str, metric: &'static str) -> Column {
    column(heading, move |row| row.figure(metric).map(figure))
}

fn spread(spread: &Spread) -> String {
    let Spread { median, min, max, .. } = *spread;
    format!("{} [{} to {}]", figure(median), figure(min), figure(max))
}

/// Returns the columns of runs, frames, times, load and latencies.
pub(crate) fn time_columns() -> Vec<Column> {
    vec![
        column("runs", |row| Some(row.runs.to_string())),
        column("frames", |row| Some(figure(row.frames as f64))),
        column("wall ms", |row| row.wall_ms.as_ref().map(spread)),
        column("CPU ms", |row| row.cpu_ms.as_ref().map(spread)),
        metric_column("CPU µs/frame", "cpu_us_per_frame"),
        metric_column("load", "load"),
        metric_column("p50 µs", "latency_p50_us"),
        metric_column("p95 µs", "latency_p95_us"),
        metric_column("p99 µs", "latency_p99_us"),
        metric_column("max µs", "latency_max_us"),
    ]
}

/// Returns the columns of counts per frame, peak memory, and the figures that only the experiment of
/// these rows has.
pub(crate) fn count_columns(rows: &[SummaryRow]) -> Vec<Column> {
    let mut columns = vec![
        metric_column("copied B/frame", "copied_bytes_per_frame"),
        metric_column("switches/frame", "switches_per_frame"),
        metric_column("syscalls/frame", "syscalls_per_frame"),
        metric_column("peak KiB", "peak_memory_kib"),
    ];
    let keys: BTreeSet<String> = rows.iter().flat_map(|row| row.extra.keys().cloned()).collect();
    for key in keys {
        let heading = heading_of(&key);
        columns.push(column(&heading, move |row| row.extra.get(&key).copied().map(figure)));
    }
    columns
}

/// Formats a figure's key as a heading: `cpu_us_per_push` is `cpu µs/push`.
fn heading_of(key: &str) -> String {
    let words: Vec<&str> = key.split('_').map(|word| if word == "us" { "µs" } else { word }).collect();
    words.join(" ").replace(" per ", "/")
}

/// Returns the columns of the median frame's latency by cause, in microseconds.
pub(crate) fn cause_columns() -> Vec<Column> {
    let names: Vec<&str> = framepath_model::summary::CausesUs::default().named().map(|(n, _)| n).into();
    names
        .into_iter()
        .enumerate()
        .map(|(i, name)| {
            column(&format!("{name} µs"), move |row| {
                row.causes_us.as_ref().and_then(|causes| causes.named()[i].1).map(figure)
            })
        })
        .collect()
}

/// Returns the table as lines of cells: headings first, then case, contender and figures of each row.
/// Omits columns and rows without any figure; `None` if no column is left.
pub(crate) fn cells(rows: &[SummaryRow], columns: &[Column]) -> Option<Vec<Vec<String>>> {
    let mut known = Vec::new();
    for column in columns {
        let cells: Vec<Option<String>> = rows.iter().map(|row| (column.cell)(row)).collect();
        if cells.iter().any(Option::is_some) {
            known.push((column, cells));
        }
    }
    if known.is_empty() {
        return None;
    }
    let mut lines = Vec::new();
    let headings = known.iter().map(|(column, _)| column.heading.clone());
    lines.push(["case".to_owned(), "contender".to_owned()].into_iter().chain(headings).collect());
    for (i, row) in rows.iter().enumerate() {
        let cells: Vec<&Option<String>> = known.iter().map(|(_, cells)| &cells[i]).collect();
        if cells.iter().any(|cell| cell.is_some()) {
            let names = [row.case.clone(), row.contender.clone()];
            let cells = cells.into_iter().map(|cell| cell.clone().unwrap_or_default());
            lines.push(names.into_iter().chain(cells).collect());
        }
    }
    Some(lines)
}

fn grid(rows: &[SummaryRow], columns: &[Column]) -> Option<String> {
    cells(rows, columns).map(|lines| aligned(&lines, 2))
}

/// Returns the verdict about contender `a` as words: `no difference`, `less` or `more`; `no verdict` for a
/// single pair.
pub(crate) fn verdict_in_words(ratio: &Ratio) -> &'static str {
    match ratio.verdict() {
        Verdict::NoDifference if ratio.ci95.is_none() => "no verdict",
        Verdict::NoDifference => "no difference",
        Verdict::ALess => "less",
        Verdict::AMore => "more",
    }
}

fn ratios(summary: &Summary) -> Option<String> {
    if summary.ratios.is_empty() {
        return None;
    }
    let mut lines = vec![
        ["case", "metric", "a / b", "verdict", "ratio", "95 % interval", "pairs"].map(str::to_owned).to_vec(),
    ];
    for ratio in &summary.ratios {
        let interval = ratio
            .ci95
            .map_or(String::new(), |[low, high]| format!("{} to {}", bare_ratio(low), bare_ratio(high)));
        lines.push(vec![
            ratio.case.clone(),
            ratio.metric.clone(),
            format!("{} / {}", ratio.a, ratio.b),
            verdict_in_words(ratio).to_owned(),
            bare_ratio(ratio.median),
            interval,
            ratio.pairs.to_string(),
        ]);
    }
    Some(aligned(&lines, 4))
}

/// Formats lines of cells with a rule under the headings. The first `left` columns are
/// aligned to the left, the others to the right.
fn aligned(lines: &[Vec<String>], left: usize) -> String {
    // Control characters are escaped, because cells contain file names and output of other programs.
    let lines: Vec<Vec<_>> = lines.iter().map(|line| line.iter().map(|cell| shown(cell)).collect()).collect();
    let columns = lines.first().map_or(0, Vec::len);
    let width =
        |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (i, line) in lines.iter().enumerate() {
        let mut row = String::new();
        for (column, cell) in line.iter().enumerate() {
            let blanks = " ".repeat(widths[column] - cell.chars().count());
            if column > 0 {
                row.push_str("  ");
            }
            if column < left {
                row.push_str(cell);
                row.push_str(&blanks);
            } else {
                row.push_str(&blanks);
                row.push_str(cell);
            }
        }
        text.push_str(row.trim_end());
        text.push('\n');
        if i == 0 {
            let rule: usize = widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1);
            text.push_str(&"─".repeat(rule));
            text.push('\n');
        }
    }
    text
}
