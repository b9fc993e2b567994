// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath compare`: two paths, two commands, or a path and a command, run in interleaved pairs. The
//! CPU time of a side includes every process that the side starts and waits for.
//!
//! Each path runs in its own `framepath run` process, so that both sides are
//! measured in the same way.

mod compared_side;
mod stages;
mod traced_side;

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use framepath_model::shown::shown;
use framepath_model::stats::{Spread, Verdict};
use framepath_model::summary::{Ratio, Summary, SummaryRow};
use framepath_os::process::signal;
use serde::Serialize;

use crate::error::LabError;
use crate::measure::{Contender, Measured};
use crate::pairs;
use crate::plain::metric_in_words;
use crate::plain::number::{bare_ratio, figure, times};
use crate::progress::ProgressView;
use traced_side::{StageTimes, TracedSideRun};

pub use compared_side::{ComparedSide, SideError, sides};
pub use stages::StageDifference;

/// Metrics by which the sides are compared, pair by pair.
const METRICS: [&str; 2] = ["wall_ms", "cpu_ms"];

/// Name of the only case of a comparison.
const CASE: &str = "all";

/// Seed of the bootstrap of every difference, constant for reproducible summaries.
const SEED: u64 = 0x7374_6167_6573;

/// Comparison of two sides whose runs were traced.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TracedComparison {
    /// Figures of the runs, as [`run`] returns them; the rows also have the stages as hops.
    #[serde(flatten)]
    pub summary: Summary,
    /// Differences by stage and cause; empty if neither side has frames.
    pub stages: Vec<StageDifference>,
}

/// Runs both sides once to warm up and `rounds` times for the figures. Returns a summary with one
/// case and the contenders `a` and `b`. `framepath` is the binary that runs paths.
///
/// # Errors
/// A side is not installed ([`LabError::Missing`]), did not start, did not exit with 0, or is a path that
/// lost packets or frames ([`LabError::Lost`]); or SIGINT or SIGTERM interrupted the comparison
/// ([`LabError::Interrupted`]).
pub fn run(
    sides: &[ComparedSide; 2],
    rounds: usize,
    framepath: &Path,
    watch: &dyn ProgressView,
) -> Result<Summary, LabError> {
    let mut summary = begun(sides);
    watch.begin("compare", 2 * (rounds as u64 + 1));
    let [a, b] = sides;
    let run = |side: &ComparedSide| -> Result<Measured, LabError> { side.run(framepath) };
    let outcome = warm_up(sides, watch, |side| side.run(framepath).map(drop)).and_then(|()| {
        let contenders = vec![Contender::new("a", || run(a)), Contender::new("b", || run(b))];
        measure(contenders, rounds, watch, &mut summary)
    });
    watch.end();
    outcome.map(|()| summary)
}

/// Does the same as [`run`], with each run under the tracer at the highest level that this process has the rights for. The
/// figures include the tracer's cost.
///
/// # Errors
/// As for [`run`], and [`LabError::Unknown`] if the kernel denies the observation.
pub fn trace(
    sides: &[ComparedSide; 2],
    rounds: usize,
    framepath: &Path,
    watch: &dyn ProgressView,
) -> Result<TracedComparison, LabError> {
    let mut summary = begun(sides);
    watch.begin("compare", 2 * (rounds as u64 + 1));
    let (mut of_a, mut of_b) = (TracedRuns::default(), TracedRuns::default());
    let [a, b] = sides;
    let outcome = warm_up(sides, watch, |side| side.run(framepath).map(drop)).and_then(|()| {
        let contenders = vec![
            Contender::new("a", || of_a.add(a.trace(framepath)?)),
            Contender::new("b", || of_b.add(b.trace(framepath)?)),
        ];
        measure(contenders, rounds, watch, &mut summary)
    });
    watch.end();
    outcome?;
    let notes = [("a", &of_a), ("b", &of_b)].map(|(name, runs)| (name, runs.notes.join("; ")));
    match &notes {
        [(_, a), (_, b)] if a == b => summary.notes.push(format!("both sides traced: {a}")),
        notes => summary.notes.extend(notes.iter().map(|(name, text)| format!("{name} traced: {text}"))),
    }
    summary.notes.push("the times include the cost of the tracer".to_owned());
    Ok(TracedComparison { summary, stages: stages::differences(&of_a.stages, &of_b.stages) })
}

/// Traced runs of a side.
#[derive(Default)]
struct TracedRuns {
    stages: Vec<StageTimes>,
    /// Notes of the last run.
    notes: Vec<String>,
}

impl TracedRuns {
    fn add(&mut self, run: TracedSideRun) -> Result<Measured, LabError> {
        self.stages.push(run.stages);
        self.notes = run.notes;
        Ok(run.measured)
    }
}

/// Returns a summary without figures.
fn begun(sides: &[ComparedSide; 2]) -> Summary {
    Summary {
        experiment: "compare".to_owned(),
        machine: crate::machine(),
        started_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|time| time.as_secs()),
        rows: Vec::new(),
        ratios: Vec::new(),
        skipped: Vec::new(),
        notes: vec![format!("a: {}", sides[0]), format!("b: {}", sides[1])],
    }
}

/// Runs each side once: this loads files and libraries into the page cache, and detects errors early.
fn warm_up(
    sides: &[ComparedSide; 2],
    watch: &dyn ProgressView,
    run: impl Fn(&ComparedSide) -> Result<(), LabError>,
) -> Result<(), LabError> {
    for side in sides {
        if signal::interrupted() {
            return Err(LabError::Interrupted);
        }
        watch.step(&format!("warming up {side}"));
        run(side)?;
    }
    Ok(())
}

fn measure(
    contenders: Vec<Contender<'_>>,
    rounds: usize,
    watch: &dyn ProgressView,
    summary: &mut Summary,
) -> Result<(), LabError> {
    let comparisons = METRICS.map(|metric| (metric, "a", "b"));
    pairs::run(CASE, contenders, &comparisons, rounds, watch, summary)?;
    Ok(())
}

impl TracedComparison {
    /// Formats the comparison for a terminal: the text of its summary, then the stages, and the largest difference in one
    /// line.
    pub fn text(&self) -> String {
        text(&self.summary) + &stages::text(&self.stages)
    }
}

/// Formats the comparison for a terminal: the sides, their figures side by side, then in words the
/// verdicts on wall time and CPU time. Omits figures and verdicts if the summary lacks a side.
pub fn text(summary: &Summary) -> String {
    let mut text = String::new();
    for note in &summary.notes {
        text.push_str(&format!("{}\n", shown(note)));
    }
    let (Some(a), Some(b)) = (summary.row(CASE, "a"), summary.row(CASE, "b")) else { return text };
    text.push('\n');
    let ratio = |metric: &str| summary.ratios.iter().find(|ratio| ratio.metric == metric);
    let mut lines = vec![["", "a", "b", "a / b", "95 % interval"].map(str::to_owned)];
    for (heading, metric, spread) in [
        ("wall ms", "wall_ms", (|row: &SummaryRow| row.wall_ms) as fn(&SummaryRow) -> Option<Spread>),
        ("CPU ms", "cpu_ms", |row| row.cpu_ms),
    ] {
        let cell = |row| spread(row).map_or_else(String::new, in_words);
        let (middle, interval) = ratio(metric).map_or_else(Default::default, ratio_cells);
        lines.push([heading.to_owned(), cell(a), cell(b), middle, interval]);
    }
    for (heading, metric) in [("load", "load"), ("peak KiB", "peak_memory_kib")] {
        let cell = |row: &SummaryRow| row.figure(metric).map_or_else(String::new, figure);
        let quotient = a.figure(metric).zip(b.figure(metric)).filter(|(_, b)| *b > 0.0);
        let quotient = quotient.map_or_else(String::new, |(a, b)| times(a / b));
        lines.push([heading.to_owned(), cell(a), cell(b), quotient, String::new()]);
    }
    text.push_str(&aligned(&lines));
    text.push('\n');
    for metric in METRICS {
        if let Some(ratio) = ratio(metric) {
            text.push_str(&verdict(ratio));
            text.push('\n');
        }
    }
    text
}

/// Formats a spread as `312 [300 to 340]`: median, minimum and maximum.
fn in_words(spread: Spread) -> String {
    format!("{} [{} to {}]", figure(spread.median), figure(spread.min), figure(spread.max))
}

fn ratio_cells(ratio: &Ratio) -> (String, String) {
    let interval = ratio
        .ci95
        .map_or_else(String::new, |[low, high]| format!("{} to {}", bare_ratio(low), bare_ratio(high)));
    (times(ratio.median), interval)
}

/// Formats the verdict on a ratio as a sentence: a takes less or more than b if the interval excludes 1,
/// "no difference" if it includes 1, and only the ratio with "no verdict" if there is no interval.
fn verdict(ratio: &Ratio) -> String {
    let metric = metric_in_words(&ratio.metric);
    let pairs = if ratio.pairs == 1 { "1 pair".to_owned() } else { format!("{} pairs", ratio.pairs) };
    let interval = match ratio.ci95 {
        Some([low, high]) => {
            format!("95 % interval {} to {}, {pairs}", bare_ratio(low), bare_ratio(high))
        }
        None => format!("{pairs}: no interval, no verdict"),
    };
    match ratio.verdict() {
        Verdict::NoDifference if ratio.ci95.is_none() => {
            format!("{metric}: {} ({interval})", times(ratio.median))
        }
        Verdict::NoDifference => {
            format!("{metric}: no difference ({}, {interval})", times(ratio.median))
        }
        Verdict::ALess | Verdict::AMore => {
            let word = if ratio.verdict() == Verdict::ALess { "less" } else { "more" };
            format!("{metric}: a takes {word} than b, {} ({interval})", times(ratio.median))
        }
    }
}

/// Formats lines of five cells, headings first, as aligned columns: the first to the left, the others
/// to the right.
fn aligned(lines: &[[String; 5]]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let mut text = String::new();
    for line in lines {
        let mut row = format!("{:<1$}", line[0], widths[0]);
        for column in 1..line.len() {
            row.push_str(&format!("   {:>1$}", line[column], widths[column]));
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::NoProgress;

    fn command(text: &str) -> Vec<String> {
        vec!["sh".to_owned(), "-c".to_owned(), text.to_owned()]
    }

    fn two(a: &str, b: &str) -> [ComparedSide; 2] {
        let mut words = command(a);
        words.push("--".to_owned());
        words.extend(command(b));
        sides(&[], &words).unwrap()
    }

    #[test]
    fn two_commands_run_in_pairs() {
        let summary = run(&two("exit 0", ":"), 2, Path::new("framepath"), &NoProgress).unwrap();
        assert_eq!(summary.contenders(), ["a", "b"]);
        assert!(summary.rows.iter().all(|row| row.runs == 2));
        assert!(summary.ratios.iter().all(|ratio| ratio.pairs == 2));
        let text = text(&summary);
        for part in ["a: sh -c 'exit 0'", "b: sh -c :", "wall ms", "peak KiB", "wall time: "] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn a_failed_command_is_an_error_with_its_stderr() {
        let error =
            run(&two(":", "echo broken >&2; exit 3"), 2, Path::new("framepath"), &NoProgress).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("exited with 3") && text.contains("broken"), "{text}");
    }

    #[test]
    fn verdicts_need_an_interval_without_1() {
        let ratio = |median, ci95| Ratio {
            case: CASE.into(),
            metric: "cpu_ms".into(),
            a: "a".into(),
            b: "b".into(),
            median,
            ci95,
            pairs: if ci95.is_some() { 10 } else { 1 },
            verdict: None,
        };
        for (ratio, text) in [
            (
                ratio(0.71, Some([0.68, 0.74])),
                "CPU time: a takes less than b, 0.71× (95 % interval 0.68 to 0.74, 10 pairs)",
            ),
            (
                ratio(1.5, Some([1.2, 1.9])),
                "CPU time: a takes more than b, 1.50× (95 % interval 1.20 to 1.90, 10 pairs)",
            ),
            (
                ratio(1.01, Some([0.9, 1.1])),
                "CPU time: no difference (1.01×, 95 % interval 0.90 to 1.10, 10 pairs)",
            ),
            (ratio(0.5, None), "CPU time: 0.50× (1 pair: no interval, no verdict)"),
        ] {
            assert_eq!(verdict(&ratio), text);
        }
    }
}
