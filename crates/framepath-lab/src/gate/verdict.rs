// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison of lab summaries with budgets, and the results of the gate.

use std::fmt;

use framepath_model::summary::{Ratio, Summary};

use super::figure_path::{self, canonical, known_paths, near_names, unique};
use super::{Budget, FigureLimits, Limit};
use crate::plain::number::figure;

/// Result of a budget over all its cases: `Fail` if a case fails; otherwise `Missing`, or `Skipped` of an
/// optional budget, if a case is missing; otherwise `Inconclusive` if a case is; otherwise `Pass`. In a
/// comparison with a baseline, the result of one figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BudgetOutcome {
    /// Within the limits, with its whole interval if it has one.
    Pass,
    /// Beyond a limit, with its whole interval if it has one.
    Fail,
    /// The interval spans a limit, so that the figure may be within or beyond it; in a comparison with a
    /// baseline also a time or ratio without an interval, or not above 0. The gate does not fail for it;
    /// `framepath gate --strict` exits with 4 if no other budget fails or misses a figure.
    Inconclusive,
    /// A figure is missing, or a budget's ratio has no interval, so the limit cannot be checked. The gate
    /// fails.
    Missing,
    /// As [`BudgetOutcome::Missing`], but the budget is optional. The gate does not fail.
    Skipped,
}

/// The gate's result for one budget, or for one figure of a comparison with a baseline, on one line.
#[derive(Debug, Clone, PartialEq)]
pub struct BudgetLine {
    /// The budget's name. In a comparison with a baseline: experiment, case, contender and path of the figure;
    /// of a ratio the experiment, case, both contenders and the metric; of a missing experiment only its name.
    pub name: String,
    /// Result of the budget or of the figure.
    pub outcome: BudgetOutcome,
    /// Reason for the result, as text. Of a budget: the figures that fail, are missing or are inconclusive; if
    /// it passes, the figure nearest to its limit. Of a comparison with a baseline: the old and the new
    /// figure, or what the new run lacks.
    pub details: String,
}

impl fmt::Display for BudgetLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.outcome {
            BudgetOutcome::Pass => "pass",
            BudgetOutcome::Fail => "FAIL",
            BudgetOutcome::Inconclusive => "inconclusive",
            BudgetOutcome::Missing => "MISSING",
            BudgetOutcome::Skipped => "skipped",
        };
        write!(f, "{outcome:<12}  {}: {}", self.name, self.details)
    }
}

/// Result of the whole gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GateOutcome {
    /// Every budget passed, or was skipped because it is optional.
    Passed,
    /// No budget failed or misses a figure, but at least one is inconclusive.
    Inconclusive,
    /// A budget failed, or misses a figure and is not optional.
    Failed,
}

/// Returns the result of the whole gate from the lines of all its budgets or compared figures.
pub fn outcome(lines: &[BudgetLine]) -> GateOutcome {
    let has = |outcome| lines.iter().any(|line| line.outcome == outcome);
    if has(BudgetOutcome::Fail) || has(BudgetOutcome::Missing) {
        GateOutcome::Failed
    } else if has(BudgetOutcome::Inconclusive) {
        GateOutcome::Inconclusive
    } else {
        GateOutcome::Passed
    }
}

/// Compares the summaries with each budget; returns one line per budget, in their order.
pub fn evaluate(budgets: &[Budget], summaries: &[Summary]) -> Vec<BudgetLine> {
    budgets.iter().map(|budget| judge(budget, summaries)).collect()
}

/// Returns a sentence for each budget on a count whose metric has an old spelling instead of the path in the
/// JSON. Budgets on ratios are not checked, because their metrics are no paths.
pub fn old_spellings(budgets: &[Budget]) -> Vec<String> {
    let mut notes = Vec::new();
    for budget in budgets {
        let Limit::Count { metric, .. } = &budget.limit else { continue };
        let path = canonical(metric);
        // `cpu_ms` is the path of an object, for its median.
        if path != *metric && !path.starts_with(metric.as_str()) {
            notes.push(format!(
                "budget {}: `{metric}` is an old spelling; write its path in the JSON: `{path}`",
                budget.name
            ));
        }
    }
    notes
}

/// Result of a budget in one case; of a count, in one row.
struct Finding {
    outcome: BudgetOutcome,
    /// Figure divided by its upper limit (the figure itself if that limit is 0), or the lower limit divided
    /// by the figure (infinity if the figure is 0): the larger of both. 0 if the figure or its interval is
    /// missing. If all cases pass, the gate shows the case with the largest value.
    used: f64,
    text: String,
}

impl Finding {
    fn missing(text: String) -> Finding {
        Finding { outcome: BudgetOutcome::Missing, used: 0.0, text }
    }
}

fn judge(budget: &Budget, summaries: &[Summary]) -> BudgetLine {
    let mut findings = Vec::new();
    for summary in summaries.iter().filter(|s| matches(&budget.experiment, &s.experiment)) {
        match &budget.limit {
            Limit::Ratio { metric, a, b, limits } => {
                ratio_findings(budget, summary, [metric, a, b], *limits, &mut findings);
            }
            Limit::Count { metric, contender, limits } => {
                count_findings(budget, summary, [metric, contender], *limits, &mut findings);
            }
        }
    }
    if findings.is_empty() {
        findings.push(Finding::missing(nothing_found(budget, summaries)));
    }
    let texts = |outcome: BudgetOutcome| -> Vec<&str> {
        findings.iter().filter(|f| f.outcome == outcome).map(|f| f.text.as_str()).collect()
    };
    let (failed, missing) = (texts(BudgetOutcome::Fail), texts(BudgetOutcome::Missing));
    let open = texts(BudgetOutcome::Inconclusive);
    let (outcome, details) = if !failed.is_empty() {
        (BudgetOutcome::Fail, [failed, missing, open].concat().join("; "))
    } else if !missing.is_empty() {
        let outcome = if budget.optional { BudgetOutcome::Skipped } else { BudgetOutcome::Missing };
        (outcome, [missing, open].concat().join("; "))
    } else if !open.is_empty() {
        (BudgetOutcome::Inconclusive, format!("{}; run more pairs (--pairs N)", open.join("; ")))
    } else {
        let worst = findings.iter().max_by(|a, b| a.used.total_cmp(&b.used));
        let mut text = worst.map_or(String::new(), |f| f.text.clone());
        if findings.len() > 1 {
            text.push_str(&format!(" (the worst of {} rows)", findings.len()));
        }
        (BudgetOutcome::Pass, text)
    };
    BudgetLine { name: budget.name.clone(), outcome, details }
}

impl FigureLimits {
    /// Compares a figure whose interval is `low` to `high` with the limits.
    pub(super) fn judge(self, [low, high]: [f64; 2]) -> BudgetOutcome {
        let beyond = self.max.is_some_and(|max| low > max) || self.min.is_some_and(|min| high < min);
        let spans = self.max.is_some_and(|max| high > max) || self.min.is_some_and(|min| low < min);
        match (beyond, spans) {
            (true, _) => BudgetOutcome::Fail,
            (false, true) => BudgetOutcome::Inconclusive,
            (false, false) => BudgetOutcome::Pass,
        }
    }

    fn used(self, figure: f64) -> f64 {
        let above = self.max.map(|max| if max > 0.0 { figure / max } else { figure });
        let below = self.min.map(|min| if figure > 0.0 { min / figure } else { f64::INFINITY });
        above.unwrap_or(f64::NEG_INFINITY).max(below.unwrap_or(f64::NEG_INFINITY))
    }
}

/// Formats the limits as `limit 0.75`, `limit at least 20` or `limits 20 to 30`.
impl fmt::Display for FigureLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.min, self.max) {
            (Some(min), Some(max)) => write!(f, "limits {} to {}", figure(min), figure(max)),
            (Some(min), None) => write!(f, "limit at least {}", figure(min)),
            (None, max) => write!(f, "limit {}", figure(max.unwrap_or(f64::NAN))),
        }
    }
}

/// Adds a finding for each case of the budget that has a row of contender `a`, or the ratio a/b or b/a.
fn ratio_findings(
    budget: &Budget,
    summary: &Summary,
    [metric, a, b]: [&str; 3],
    limits: FigureLimits,
    findings: &mut Vec<Finding>,
) {
    let mut cases: Vec<&str> = Vec::new();
    let ran = summary.rows.iter().filter(|row| row.contender == a).map(|row| row.case.as_str());
    let compared = summary
        .ratios
        .iter()
        .filter(|r| same_metric(&r.metric, metric) && ((r.a == a && r.b == b) || (r.a == b && r.b == a)))
        .map(|r| r.case.as_str());
    for case in ran.chain(compared).filter(|case| matches(&budget.case, case)) {
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    for case in cases {
        let what = format!("{case}: {a}/{b} {metric}");
        let Some((median, ci95)) = find_ratio(&summary.ratios, case, metric, a, b) else {
            let why = match why_skipped(summary, case, &[b, a]) {
                skipped if !skipped.is_empty() => skipped,
                _ => near_ratios(&summary.ratios, case, metric, [a, b]),
            };
            findings.push(Finding::missing(format!("no ratio {what}{why}")));
            continue;
        };
        findings.push(match ci95 {
            None => Finding::missing(format!(
                "{what} is {}, {limits}: one pair has no interval; run at least two pairs",
                figure(median)
            )),
            Some([low, high]) => {
                let shown = format!("{} ({} to {})", figure(median), figure(low), figure(high));
                Finding {
                    outcome: limits.judge([low, high]),
                    used: limits.used(median),
                    text: format!("{what} {shown}, {limits}"),
                }
            }
        });
    }
}

fn same_metric(one: &str, other: &str) -> bool {
    canonical(one) == canonical(other)
}

/// Returns near names for the error of a missing ratio, as [`near_names`] formats them: if the case has ratios
/// of these two contenders, the metrics near to `metric`; otherwise the pairs of contenders near to a/b.
fn near_ratios(ratios: &[Ratio], case: &str, metric: &str, [a, b]: [&str; 2]) -> String {
    let of_case = || ratios.iter().filter(|ratio| ratio.case == case);
    let of_pair = |r: &&Ratio| (r.a == a && r.b == b) || (r.a == b && r.b == a);
    let metrics = unique(of_case().filter(of_pair).map(|ratio| ratio.metric.clone()));
    if !metrics.is_empty() {
        return near_names(metric, &metrics);
    }
    let pairs = unique(of_case().map(|ratio| format!("{}/{}", ratio.a, ratio.b)));
    near_names(&format!("{a}/{b}"), &pairs)
}

/// Finds the ratio a/b of a case, and returns its median and interval; inverts b/a if `ratios` has only
/// that. Returns `None` if it has neither.
fn find_ratio(
    ratios: &[Ratio],
    case: &str,
    metric: &str,
    a: &str,
    b: &str,
) -> Option<(f64, Option<[f64; 2]>)> {
    let of = |a: &str, b: &str| {
        ratios.iter().find(|r| r.case == case && same_metric(&r.metric, metric) && r.a == a && r.b == b)
    };
    if let Some(ratio) = of(a, b) {
        return Some((ratio.median, ratio.ci95));
    }
    let ratio = of(b, a)?;
    Some((1.0 / ratio.median, ratio.ci95.map(|[low, high]| [1.0 / high, 1.0 / low])))
}

fn count_findings(
    budget: &Budget,
    summary: &Summary,
    [metric, contender]: [&str; 2],
    limits: FigureLimits,
    findings: &mut Vec<Finding>,
) {
    let any_contender = contender.contains('*');
    for row in &summary.rows {
        if !matches(contender, &row.contender) || !matches(&budget.case, &row.case) {
            continue;
        }
        let what = format!("{}: {} {metric}", row.case, row.contender);
        match figure_path::find(row, metric) {
            Some(count) => {
                let interval = figure_path::interval(row, metric);
                let shown = interval.map_or_else(String::new, |[low, high]| {
                    format!(" ({} to {})", figure(low), figure(high))
                });
                findings.push(Finding {
                    outcome: limits.judge(interval.unwrap_or([count, count])),
                    used: limits.used(count),
                    text: format!("{what} {}{shown}, {limits}", figure(count)),
                });
            }
            None if any_contender => {}
            None => {
                let near = near_names(metric, &known_paths([row]));
                findings.push(Finding::missing(format!("{what} is missing{near}")));
            }
        }
    }
}

/// Formats the reason why the summaries have no figure for a budget: the experiment, case, contender or figure
/// that they lack (the first one, in this order), with the near names that they have. If a contender of the
/// budget was skipped, the reason for that instead of the case, contender or figure.
fn nothing_found(budget: &Budget, summaries: &[Summary]) -> String {
    let of_experiment: Vec<&Summary> =
        summaries.iter().filter(|s| matches(&budget.experiment, &s.experiment)).collect();
    let experiment = &budget.experiment;
    if of_experiment.is_empty() {
        let known = unique(summaries.iter().map(|summary| summary.experiment.clone()));
        return format!("no experiment `{experiment}` in the summary{}", near_names(experiment, &known));
    }
    let (what, metric, contenders) = match &budget.limit {
        Limit::Ratio { metric, a, b, .. } => (format!("{a}/{b} {metric}"), metric, vec![a.as_str(), b]),
        Limit::Count { metric, contender, .. } => {
            (format!("{contender} {metric}"), metric, vec![contender.as_str()])
        }
    };
    let no = format!("no {what} in `{experiment}`, case `{}`", budget.case);
    let skipped = of_experiment
        .iter()
        .map(|summary| why_skipped(summary, &budget.case, &contenders))
        .find(|why| !why.is_empty());
    if let Some(why) = skipped {
        return no + &why;
    }
    let rows = || of_experiment.iter().flat_map(|summary| &summary.rows);
    let in_case: Vec<_> = rows().filter(|row| matches(&budget.case, &row.case)).collect();
    if in_case.is_empty() {
        let cases = unique(rows().map(|row| row.case.clone()));
        return format!("{no}: no such case{}", near_names(&budget.case, &cases));
    }
    let known = unique(in_case.iter().map(|row| row.contender.clone()));
    let unknown = contenders.iter().find(|name| !known.iter().any(|one| matches(name, one)));
    if let Some(unknown) = unknown {
        return format!("{no}: no contender `{unknown}`{}", near_names(unknown, &known));
    }
    format!("{no}: no figure `{metric}`{}", near_names(metric, &known_paths(in_case)))
}

/// Returns the first skipped contender of the summary that fits one of `contenders`, and was skipped in a
/// case that fits `case` or in all cases (`case` and `contenders` may be patterns), and the reason, as
/// ` (NAME skipped: REASON)`; empty if there is none.
pub(super) fn why_skipped(summary: &Summary, case: &str, contenders: &[&str]) -> String {
    let skipped = summary.skipped.iter().find(|skipped| {
        let for_case = skipped.case.as_ref().is_none_or(|c| c == case || matches(case, c));
        for_case && contenders.iter().any(|name| matches(name, &skipped.contender))
    });
    skipped.map_or(String::new(), |s| format!(" ({} skipped: {})", s.contender, s.reason))
}

/// Returns true if a name fits a pattern in which each `*` stands for any number of characters,
/// also none.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name, fits) in [
            ("64B", "64B", true),
            ("64B", "64B0", false),
            ("*", "", true),
            ("*", "anything", true),
            ("paced-*", "paced-60", true),
            ("*p8", "vp9-1080p8", true),
            ("*p8", "vp9-1080p10", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("ab*ba", "aba", false),
            ("**", "x", true),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }
}
