// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison of two runs of the same experiments, without budgets.

use framepath_model::summary::{Machine, Ratio, Summary, SummaryRow};

use super::figure_path::{find, interval};
use super::verdict::why_skipped;
use super::{BudgetLine, BudgetOutcome, FigureLimits};
use crate::plain::number::{figure, times};

/// Paths of the counts that noise does not change. A new count that is greater than the old one fails,
/// except for an increase of at most one millionth, which counts as rounding.
const COUNTS: [&str; 4] = ["copied_bytes_per_frame", "lost", "undecodable", "concealed"];

/// Metrics of which more is better. Of all other metrics, less is better.
const MORE_IS_BETTER: [&str; 4] = ["throughput_mb_s", "frames_per_s", "shown", "identified_percent"];

/// Result of a comparison with a baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct BaselineReport {
    /// One line for each compared figure, and for each experiment, row, ratio or count that only the baseline
    /// has, in the order of the baseline.
    pub lines: Vec<BudgetLine>,
    /// Number of the times and ratios whose whole interval is better than the baseline by more than the
    /// tolerance. These figures are among those that passed.
    pub better: usize,
    /// Facts that a reader must know, a sentence each, such as different machines.
    pub notes: Vec<String>,
}

/// Compares the summaries `new` with `old`: every ratio and CPU time of `old`, the wall time of rows with the
/// same number of frames, and the counts of bytes copied per frame and of what was lost, undecodable or
/// concealed. A time or ratio passes if its whole interval is at most `tolerance` worse than in `old`
/// (0.05: 5 %), fails if its whole interval is worse by more, and is
/// inconclusive otherwise, also without an interval or if a figure is not above 0. A count passes if it is not
/// greater. An experiment, row, ratio or count that only `old` has is missing; a time that only one row has,
/// and everything that only `new` has, is ignored.
///
/// Times are not compared if the machines differ in the processor or the number of processors; ratios and
/// counts are.
pub fn baseline(old: &[Summary], new: &[Summary], tolerance: f64) -> BaselineReport {
    let mut report = BaselineReport { lines: Vec::new(), better: 0, notes: Vec::new() };
    for before in old {
        let Some(after) = new.iter().find(|one| one.experiment == before.experiment) else {
            report.add(
                &before.experiment,
                BudgetOutcome::Missing,
                "the new run lacks this experiment".into(),
            );
            continue;
        };
        let differs = different(&before.machine, &after.machine);
        if let Some(differs) = &differs {
            let note = format!("{}: {differs}; times are not compared", before.experiment);
            report.notes.push(note);
        }
        for row in &before.rows {
            rows(&before.experiment, row, after, differs.is_none(), tolerance, &mut report);
        }
        for ratio in &before.ratios {
            ratios(&before.experiment, ratio, after, tolerance, &mut report);
        }
    }
    report
}

impl BaselineReport {
    fn add(&mut self, name: &str, outcome: BudgetOutcome, details: String) {
        self.lines.push(BudgetLine { name: name.to_owned(), outcome, details });
    }

    /// Adds the line of a time or ratio that was `before` and is `after`. `ends` are the ends of the interval
    /// of after/before, `None` if a run has no usable interval. The figure is inconclusive without `ends`,
    /// and if `before` or `after` is not positive. `more_is_better` inverts the comparison.
    fn compared(
        &mut self,
        name: &str,
        [before, after]: [f64; 2],
        ends: Option<[f64; 2]>,
        more_is_better: bool,
        tolerance: f64,
    ) {
        let shown = format!("{} to {}", figure(before), figure(after));
        if before <= 0.0 || after <= 0.0 {
            let details = format!("{shown}: no ratio of figures that are not positive");
            self.add(name, BudgetOutcome::Inconclusive, details);
            return;
        }
        let change = after / before;
        let Some([low, high]) = ends else {
            let details = format!(
                "{shown}, {} the baseline: no interval, because a run has too few rounds; use --pairs 6 or more",
                times(change)
            );
            self.add(name, BudgetOutcome::Inconclusive, details);
            return;
        };
        let limits = if more_is_better {
            FigureLimits { min: Some(1.0 / (1.0 + tolerance)), max: None }
        } else {
            FigureLimits { min: None, max: Some(1.0 + tolerance) }
        };
        let is_better = if more_is_better { low > 1.0 + tolerance } else { high < 1.0 / (1.0 + tolerance) };
        self.better += usize::from(is_better);
        let details = format!(
            "{shown}, {} the baseline ({} to {}), {limits}",
            times(change),
            figure(low),
            figure(high)
        );
        self.add(name, limits.judge([low, high]), details);
    }
}

fn rows(
    experiment: &str,
    before: &SummaryRow,
    new: &Summary,
    same_machine: bool,
    tolerance: f64,
    report: &mut BaselineReport,
) {
    let place = format!("{experiment} {}: {}", before.case, before.contender);
    let Some(after) = new.row(&before.case, &before.contender) else {
        let why = why_skipped(new, &before.case, &[&before.contender]);
        report.add(&place, BudgetOutcome::Missing, format!("the new run lacks this row{why}"));
        return;
    };
    for path in COUNTS {
        let Some(count) = find(before, path) else { continue };
        let name = format!("{place} {path}");
        match find(after, path) {
            None => report.add(&name, BudgetOutcome::Missing, "the new run lacks this figure".into()),
            Some(now) => {
                // The rounding of a mean over a different number of frames is no change.
                let is_more = now > count * 1.000_001;
                let outcome = if is_more { BudgetOutcome::Fail } else { BudgetOutcome::Pass };
                report.add(&name, outcome, format!("{} to {}", figure(count), figure(now)));
            }
        }
    }
    if !same_machine {
        return;
    }
    // CPU time per frame, where a run has frames: the runs may have different numbers of them.
    let cpu = if before.cpu_us_per_frame.is_some() { "cpu_us_per_frame" } else { "cpu_ms.median" };
    let paths = if before.frames == after.frames { vec![cpu, "wall_ms.median"] } else { vec![cpu] };
    for path in paths {
        let (Some(was), Some(is)) = (find(before, path), find(after, path)) else { continue };
        let ends = interval(before, path).zip(interval(after, path)).and_then(quotient);
        report.compared(&format!("{place} {path}"), [was, is], ends, false, tolerance);
    }
}

fn ratios(experiment: &str, before: &Ratio, new: &Summary, tolerance: f64, report: &mut BaselineReport) {
    let Ratio { case, metric, a, b, .. } = before;
    let name = format!("{experiment} {case}: {a}/{b} {metric}");
    let same = |r: &&Ratio| r.case == *case && r.metric == *metric && r.a == *a && r.b == *b;
    let Some(after) = new.ratios.iter().find(same) else {
        let why = why_skipped(new, case, &[a, b]);
        report.add(&name, BudgetOutcome::Missing, format!("the new run lacks this ratio{why}"));
        return;
    };
    let ends = before.ci95.zip(after.ci95).and_then(quotient);
    let more = MORE_IS_BETTER.contains(&metric.as_str());
    report.compared(&name, [before.median, after.median], ends, more, tolerance);
}

/// Returns an interval of the quotient after/before from the intervals of both; `None` if a lower end is
/// not positive.
fn quotient((before, after): ([f64; 2], [f64; 2])) -> Option<[f64; 2]> {
    let positive = before[0] > 0.0 && after[0] > 0.0;
    positive.then(|| [after[0] / before[1], after[1] / before[0]])
}

/// Returns the first fact in which the machines differ and that changes times; `None` if there is none.
fn different(old: &Machine, new: &Machine) -> Option<String> {
    if old.cpu != new.cpu {
        return Some(format!("the processors differ ({}, {})", old.cpu, new.cpu));
    }
    (old.cores != new.cores)
        .then(|| format!("the numbers of processors differ ({}, {})", old.cores, new.cores))
}
