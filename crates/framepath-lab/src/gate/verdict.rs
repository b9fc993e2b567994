// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison of lab summaries with budgets.

use std::fmt;

use framepath_model::summary::{Ratio, Summary};

use super::{Budget, Limit};
use crate::plain::number::figure;

/// Result of a budget over all its cases: `Fail` if a case fails, otherwise `Missing` or `Skipped` if a
/// case lacks its figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BudgetOutcome {
    /// Within the limit, or a ratio beyond it within noise: its interval contains the limit.
    Pass,
    /// Beyond the limit; a ratio with its whole interval.
    Fail,
    /// A figure is missing, or a ratio has no interval, so the limit cannot be checked. The gate
    /// fails.
    Missing,
    /// As [`BudgetOutcome::Missing`], but the budget is optional. The gate does not fail.
    Skipped,
}

/// The gate's result for one budget, on one line.
#[derive(Debug, Clone, PartialEq)]
pub struct BudgetLine {
    /// The budget's name.
    pub name: String,
    /// Result of the budget.
    pub outcome: BudgetOutcome,
    /// The figures and their limit, or the missing figures, as text; of a passed budget with several
    /// cases only the figure nearest to the limit.
    pub details: String,
}

impl fmt::Display for BudgetLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.outcome {
            BudgetOutcome::Pass => "pass",
            BudgetOutcome::Fail => "FAIL",
            BudgetOutcome::Missing => "MISSING",
            BudgetOutcome::Skipped => "skipped",
        };
        write!(f, "{outcome:<7}  {}: {}", self.name, self.details)
    }
}

/// Returns true if every budget passed or was skipped because it is optional.
pub fn passed(lines: &[BudgetLine]) -> bool {
    lines.iter().all(|line| matches!(line.outcome, BudgetOutcome::Pass | BudgetOutcome::Skipped))
}

/// Compares the summaries with each budget; returns one line per budget, in their order.
pub fn evaluate(budgets: &[Budget], summaries: &[Summary]) -> Vec<BudgetLine> {
    budgets.iter().map(|budget| judge(budget, summaries)).collect()
}

/// Result of a budget in one case; of a count, in one row.
struct Finding {
    outcome: BudgetOutcome,
    /// Figure divided by its limit; the figure itself if the limit is 0, and 0 if the figure or its
    /// interval is missing. If all cases pass, the gate shows the case with the largest value.
    used: f64,
    text: String,
}

fn judge(budget: &Budget, summaries: &[Summary]) -> BudgetLine {
    let mut findings = Vec::new();
    for summary in summaries.iter().filter(|s| matches(&budget.experiment, &s.experiment)) {
        match &budget.limit {
            Limit::Ratio { metric, a, b, max } => {
                ratio_findings(budget, summary, [metric, a, b], *max, &mut findings);
            }
            Limit::Count { metric, contender, max_count } => {
                count_findings(budget, summary, [metric, contender], *max_count, &mut findings);
            }
        }
    }
    if findings.is_empty() {
        findings.push(Finding {
            outcome: BudgetOutcome::Missing,
            used: 0.0,
            text: nothing_found(budget, summaries),
        });
    }
    let texts = |outcome: BudgetOutcome| -> Vec<&str> {
        findings.iter().filter(|f| f.outcome == outcome).map(|f| f.text.as_str()).collect()
    };
    let (failed, missing) = (texts(BudgetOutcome::Fail), texts(BudgetOutcome::Missing));
    let (outcome, mut details) = if !failed.is_empty() {
        (BudgetOutcome::Fail, failed.join("; "))
    } else if !missing.is_empty() {
        let outcome = if budget.optional { BudgetOutcome::Skipped } else { BudgetOutcome::Missing };
        (outcome, missing.join("; "))
    } else {
        let worst = findings.iter().max_by(|a, b| a.used.total_cmp(&b.used));
        let mut text = worst.map_or(String::new(), |f| f.text.clone());
        if findings.len() > 1 {
            text.push_str(&format!(" (the worst of {} rows)", findings.len()));
        }
        (BudgetOutcome::Pass, text)
    };
    if outcome == BudgetOutcome::Fail && !missing.is_empty() {
        details = format!("{details}; {}", missing.join("; "));
    }
    BudgetLine { name: budget.name.clone(), outcome, details }
}

/// Adds a finding for each case of the budget that has a row of contender `a` or the ratio.
fn ratio_findings(
    budget: &Budget,
    summary: &Summary,
    [metric, a, b]: [&str; 3],
    max: f64,
    findings: &mut Vec<Finding>,
) {
    let mut cases: Vec<&str> = Vec::new();
    let ran = summary.rows.iter().filter(|row| row.contender == a).map(|row| row.case.as_str());
    let compared = summary
        .ratios
        .iter()
        .filter(|r| r.metric == metric && ((r.a == a && r.b == b) || (r.a == b && r.b == a)))
        .map(|r| r.case.as_str());
    for case in ran.chain(compared).filter(|case| matches(&budget.case, case)) {
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    for case in cases {
        let what = format!("{case}: {a}/{b} {metric}");
        let Some((median, ci95)) = find_ratio(&summary.ratios, case, metric, a, b) else {
            let why = why_skipped(summary, case, &[b, a]);
            findings.push(Finding {
                outcome: BudgetOutcome::Missing,
                used: 0.0,
                text: format!("no ratio {what}{why}"),
            });
            continue;
        };
        let limit = figure(max);
        findings.push(match ci95 {
            None => Finding {
                outcome: BudgetOutcome::Missing,
                used: 0.0,
                text: format!(
                    "{what} is {}, limit {limit}: one pair has no interval; run at least two pairs",
                    figure(median)
                ),
            },
            Some([low, high]) => {
                let outcome = if low > max { BudgetOutcome::Fail } else { BudgetOutcome::Pass };
                let shown = format!("{} ({} to {})", figure(median), figure(low), figure(high));
                // The median is beyond the limit, but the interval is not.
                let note = match outcome {
                    BudgetOutcome::Pass if median > max => ", within noise",
                    _ => "",
                };
                Finding {
                    outcome,
                    used: if max > 0.0 { median / max } else { median },
                    text: format!("{what} {shown}, limit {limit}{note}"),
                }
            }
        });
    }
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
        ratios.iter().find(|r| r.case == case && r.metric == metric && r.a == a && r.b == b)
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
    max_count: f64,
    findings: &mut Vec<Finding>,
) {
    let any_contender = contender.contains('*');
    for row in &summary.rows {
        if !matches(contender, &row.contender) || !matches(&budget.case, &row.case) {
            continue;
        }
        let what = format!("{}: {} {metric}", row.case, row.contender);
        match row.figure(metric) {
            Some(count) => findings.push(Finding {
                outcome: if count > max_count { BudgetOutcome::Fail } else { BudgetOutcome::Pass },
                used: if max_count > 0.0 { count / max_count } else { count },
                text: format!("{what} {}, limit {}", figure(count), figure(max_count)),
            }),
            None if any_contender => {}
            None => findings.push(Finding {
                outcome: BudgetOutcome::Missing,
                used: 0.0,
                text: format!("{what} is missing"),
            }),
        }
    }
}

/// Formats the reason why the summaries have no figure for a budget.
fn nothing_found(budget: &Budget, summaries: &[Summary]) -> String {
    let of_experiment: Vec<&Summary> =
        summaries.iter().filter(|s| matches(&budget.experiment, &s.experiment)).collect();
    if of_experiment.is_empty() {
        return format!("no experiment `{}` in the summary", budget.experiment);
    }
    let (what, contenders) = match &budget.limit {
        Limit::Ratio { metric, a, b, .. } => (format!("{a}/{b} {metric}"), vec![a.as_str(), b]),
        Limit::Count { metric, contender, .. } => (format!("{contender} {metric}"), vec![contender.as_str()]),
    };
    let why = of_experiment
        .iter()
        .map(|summary| why_skipped(summary, &budget.case, &contenders))
        .find(|why| !why.is_empty())
        .unwrap_or_default();
    format!("no {what} in `{}`, case `{}`{why}", budget.experiment, budget.case)
}

/// Returns the first skipped contender of the summary that fits one of `contenders` in `case` (all may
/// be patterns), and the reason, as ` (NAME skipped: REASON)`; empty if there is none.
fn why_skipped(summary: &Summary, case: &str, contenders: &[&str]) -> String {
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
