// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTML tables of the report: rows, comparisons, skipped contenders and machines.

use std::fmt::Write;

use framepath_model::stats::Verdict;
use framepath_model::summary::{Machine, Ratio, Summary};

use super::LabRun;
use super::svg::escape;
use crate::plain::number::bare_ratio;
use crate::plain::tables::{Column, cause_columns, cells, count_columns, time_columns, verdict_in_words};

/// Creates the HTML tables of a summary's rows: times, counts and causes. Omits a table without
/// any figure.
pub fn rows(summary: &Summary) -> String {
    let mut html = String::new();
    let parts: [(&str, Vec<Column>); 3] = [
        ("times", time_columns()),
        ("counts", count_columns(&summary.rows)),
        ("causes of the median frame", cause_columns()),
    ];
    for (what, columns) in parts {
        let Some(lines) = cells(&summary.rows, &columns) else { continue };
        // Long tables are folded, so that the page stays readable from top to bottom.
        let open = if lines.len() <= 25 { " open" } else { "" };
        let _ = write!(
            html,
            "<details{open}><summary>{}: {what}, {} rows</summary>{}</details>",
            escape(&summary.experiment),
            lines.len() - 1,
            table(&lines, 2)
        );
    }
    html
}

/// Creates an HTML table of lines of cells, headings first; columns from index `left` on are
/// figures, aligned to the right.
fn table(lines: &[Vec<String>], left: usize) -> String {
    let mut html = String::from("<div class=\"scroll\"><table>");
    for (i, line) in lines.iter().enumerate() {
        html.push_str("<tr>");
        for (column, cell) in line.iter().enumerate() {
            let tag = if i == 0 { "th" } else { "td" };
            let class = if column >= left { " class=\"n\"" } else { "" };
            let _ = write!(html, "<{tag}{class}>{}</{tag}>", escape(cell));
        }
        html.push_str("</tr>");
    }
    html.push_str("</table></div>");
    html
}

/// Identity of a comparison across runs: experiment, case, metric, contender a, contender b.
type Key<'a> = [&'a str; 5];

fn key<'a>(experiment: &'a str, ratio: &'a Ratio) -> Key<'a> {
    [experiment, &ratio.case, &ratio.metric, &ratio.a, &ratio.b]
}

/// Creates an HTML table of every comparison, with ratio, interval and verdict of each run; empty
/// if there is no comparison.
pub fn ratios(runs: &[LabRun]) -> String {
    let of = |run: &'_ LabRun| -> Vec<(String, Ratio)> {
        run.summaries
            .iter()
            .flat_map(|s| s.ratios.iter().map(|r| (s.experiment.clone(), r.clone())))
            .collect()
    };
    let all: Vec<Vec<(String, Ratio)>> = runs.iter().map(of).collect();
    let mut keys: Vec<Key> = Vec::new();
    for (experiment, ratio) in all.iter().flatten() {
        let key = key(experiment, ratio);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    if keys.is_empty() {
        return String::new();
    }
    let mut html = String::from(
        "<div class=\"scroll\"><table><tr><th>experiment</th><th>case</th><th>metric</th><th>a / b</th>",
    );
    for run in runs {
        let label = if runs.len() > 1 { format!("{}: ", run.label) } else { String::new() };
        let _ = write!(
            html,
            "<th class=\"n\">{}a / b</th><th class=\"n\">95 % interval</th><th>verdict on a</th>",
            escape(&label)
        );
    }
    html.push_str("</tr>");
    for wanted in keys {
        let [experiment, case, metric, a, b] = wanted.map(escape);
        let _ = write!(html, "<tr><td>{experiment}</td><td>{case}</td><td>{metric}</td><td>{a} / {b}</td>");
        for ratios in &all {
            match ratios.iter().find(|(experiment, ratio)| key(experiment, ratio) == wanted) {
                Some((_, ratio)) => html.push_str(&ratio_cells(ratio)),
                None => html.push_str("<td></td><td></td><td></td>"),
            }
        }
        html.push_str("</tr>");
    }
    html.push_str("</table></div>");
    html
}

fn ratio_cells(ratio: &Ratio) -> String {
    let interval = match ratio.ci95 {
        Some([low, high]) => {
            format!("{} to {}, {} pairs", bare_ratio(low), bare_ratio(high), ratio.pairs)
        }
        None => format!("none, {} pair", ratio.pairs),
    };
    let class = match ratio.verdict() {
        Verdict::NoDifference => "same",
        Verdict::ALess => "less",
        Verdict::AMore => "more",
    };
    format!(
        "<td class=\"n\">{}</td><td class=\"n\">{interval}</td><td class=\"{class}\">{}</td>",
        bare_ratio(ratio.median),
        verdict_in_words(ratio)
    )
}

/// Creates an HTML table of the contenders that did not run, with the reasons; empty if all ran.
pub fn skipped(run: &LabRun) -> String {
    let all = run.summaries.iter().flat_map(|s| s.skipped.iter().map(|sk| (&s.experiment, sk)));
    let mut html = String::new();
    for (experiment, skipped) in all {
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"wrap\">{}</td></tr>",
            escape(experiment),
            escape(&skipped.contender),
            escape(skipped.case.as_deref().unwrap_or("every case")),
            escape(&skipped.reason)
        );
    }
    if html.is_empty() {
        return html;
    }
    format!(
        "<div class=\"scroll\"><table><tr><th>experiment</th><th>contender</th><th>case</th>\
         <th>why, and what would make it run</th></tr>{html}</table></div>"
    )
}

/// Creates an HTML list of the machine's known properties and the versions of programs.
pub fn machine(machine: &Machine) -> String {
    let mut html = String::from("<dl>");
    let mut entry = |name: &str, value: &str| {
        let _ = write!(html, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    };
    entry("processor", &machine.cpu);
    entry("cores", &machine.cores.to_string());
    if let Some(mib) = machine.memory_mib {
        entry("memory", &format!("{mib} MiB"));
    }
    entry("kernel", &machine.kernel);
    for (name, value) in [
        ("system", &machine.os),
        ("under", &machine.virtualisation),
        ("frequency governor", &machine.governor),
        ("graphics", &machine.gpu),
        ("graphics driver", &machine.gpu_driver),
        ("display", &machine.display),
    ] {
        if let Some(value) = value {
            entry(name, value);
        }
    }
    entry("hardware counters", if machine.pmu { "readable" } else { "not readable" });
    for (name, version) in &machine.versions {
        entry(name, version);
    }
    html.push_str("</dl>");
    html
}
