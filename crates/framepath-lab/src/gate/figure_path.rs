// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of a summary's row by their path in the JSON, such as `latency_us.p99` or `hops[1].cpu_us`.

use framepath_model::path::nearest_few;
use framepath_model::summary::{Summary, SummaryRow};
use serde_json::Value;

/// Maximum number of similar names that an error lists.
const NEAR: usize = 4;

/// Figures that the gate computes from a row; the JSON does not contain them.
const COMPUTED: [&str; 2] = ["unexplained_share", "outside_tolerance"];

/// Figure of a row: path in the JSON, and value.
#[derive(Debug, Clone, PartialEq)]
pub struct RowFigure {
    /// Path of the figure below the row: keys joined by dots, places in arrays in brackets.
    pub path: String,
    /// The figure.
    pub value: f64,
}

/// Returns all known figures of a row in alphabetical order of their keys, then those that the gate computes.
pub fn figures(row: &SummaryRow) -> Vec<RowFigure> {
    let mut found = Vec::new();
    if let Ok(value) = serde_json::to_value(row) {
        collect("", &value, &mut found);
    }
    let computed = COMPUTED
        .into_iter()
        .filter_map(|name| row.figure(name).map(|value| RowFigure { path: name.to_owned(), value }));
    found.extend(computed);
    found
}

fn collect(path: &str, value: &Value, found: &mut Vec<RowFigure>) {
    match value {
        Value::Number(number) => {
            let figure = number.as_f64().map(|value| RowFigure { path: path.to_owned(), value });
            found.extend(figure);
        }
        Value::Object(object) => {
            for (key, value) in object {
                let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                collect(&below, value, found);
            }
        }
        Value::Array(values) => {
            for (place, value) in values.iter().enumerate() {
                collect(&format!("{path}[{place}]"), value, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Finds a figure of a row by `name`: a path in the JSON, the path of an object with a `median`, a path
/// with the name of a hop's stage in brackets (`hops[decode].cpu_us`; the first hop of that name), a name
/// that the gate computes, or an old spelling. Returns `None` if the row has no such figure.
pub fn find(row: &SummaryRow, name: &str) -> Option<f64> {
    let path = with_places(row, &canonical(name));
    figures(row).into_iter().find(|figure| figure.path == path).map(|figure| figure.value)
}

/// Returns the ends of the 95 % interval of a figure that [`find`] returns: of a median over several runs
/// (`cpu_ms.median`, `wall_ms.median`, `cpu_us_per_frame`). `None` for other figures and for one run.
pub(super) fn interval(row: &SummaryRow, name: &str) -> Option<[f64; 2]> {
    match canonical(name).as_str() {
        "cpu_ms.median" => row.cpu_ms?.ci95,
        "wall_ms.median" => row.wall_ms?.ci95,
        "cpu_us_per_frame" => {
            let scale = row.cpu_us_per_frame? / row.cpu_ms.filter(|spread| spread.median > 0.0)?.median;
            row.cpu_ms?.ci95.map(|ends| ends.map(|ms| ms * scale))
        }
        _ => None,
    }
}

/// Returns the path for a metric's name: `cpu_ms` is `cpu_ms.median`, `latency_p50_us` is
/// `latency_us.p50`, `cause_queue_us` is `causes_us.queue`. Other names are paths already.
pub(super) fn canonical(name: &str) -> String {
    match name {
        "cpu_ms" | "wall_ms" => return format!("{name}.median"),
        _ => {}
    }
    let inside = |prefix: &str| name.strip_prefix(prefix)?.strip_suffix("_us").filter(|one| !one.is_empty());
    if let Some(percentile @ ("p50" | "p95" | "p99" | "max")) = inside("latency_") {
        return format!("latency_us.{percentile}");
    }
    match inside("cause_") {
        Some(cause) => format!("causes_us.{cause}"),
        None => name.to_owned(),
    }
}

/// Replaces the name of a stage in `hops[NAME]` by the place of the row's first hop with this name. Returns
/// other paths, and one with an unknown name, unchanged.
fn with_places(row: &SummaryRow, path: &str) -> String {
    let Some((name, rest)) = path.strip_prefix("hops[").and_then(|rest| rest.split_once(']')) else {
        return path.to_owned();
    };
    let is_named = |text: &str| text == name || text.split_whitespace().next() == Some(name);
    match row.hops.iter().position(|hop| is_named(&hop.hop)) {
        Some(place) => format!("hops[{place}]{rest}"),
        None => path.to_owned(),
    }
}

/// Returns the names in `known` that are similar to `word`, as ` (near: ...)`. If none is similar, returns
/// all of `known` if they are at most 12, otherwise the command that lists them; the empty text if `known`
/// is empty.
pub(super) fn near_names(word: &str, known: &[String]) -> String {
    const FEW: usize = 12;
    let near = nearest_few(word, known.iter().map(String::as_str), NEAR);
    let quoted = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if !near.is_empty() {
        return format!(" (near: {})", quoted(&near));
    }
    let all: Vec<&str> = known.iter().map(String::as_str).collect();
    match all.len() {
        0 => String::new(),
        1..=FEW => format!(" (known: {})", quoted(&all)),
        _ => " (no similar name; `framepath gate --names SUMMARY.json` lists all)".to_owned(),
    }
}

/// Returns the paths of all figures in the rows of the summaries, each once.
pub(super) fn known_paths<'a>(rows: impl IntoIterator<Item = &'a SummaryRow>) -> Vec<String> {
    unique(rows.into_iter().flat_map(figures).map(|figure| figure.path))
}

/// Returns the names without repetitions, in order of first appearance.
pub(super) fn unique(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

/// Formats every figure of the summaries, a line each, in aligned columns: experiment, case, contender, path
/// of the figure and value. The line of a ratio has `a/b` as contender and the metric as path. A budget names
/// a figure by these words.
pub fn names(summaries: &[Summary]) -> String {
    let mut lines = Vec::new();
    for summary in summaries {
        for row in &summary.rows {
            for figure in figures(row) {
                let value = crate::plain::number::figure(figure.value);
                let experiment = summary.experiment.clone();
                lines.push([experiment, row.case.clone(), row.contender.clone(), figure.path, value]);
            }
        }
        for ratio in &summary.ratios {
            let contenders = format!("{}/{}", ratio.a, ratio.b);
            let value = crate::plain::number::times(ratio.median);
            let experiment = summary.experiment.clone();
            lines.push([experiment, ratio.case.clone(), contenders, ratio.metric.clone(), value]);
        }
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let mut text = String::new();
    for line in &lines {
        let cells: Vec<String> =
            line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(framepath_model::shown::shown(cells.join("  ").trim_end()).as_ref());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use framepath_model::stats::Spread;
    use framepath_model::summary::{CausesUs, HopSummary, LatencyUs};

    fn row() -> SummaryRow {
        let hop = |text: &str, cpu_us| HopSummary { hop: text.into(), cpu_us, ..HopSummary::default() };
        SummaryRow {
            cpu_ms: Spread::of(&[1.0, 2.0, 3.0]),
            latency_us: Some(LatencyUs { p50: 5.0, p95: 6.0, p99: 7.0, max: 8.0 }),
            causes_us: Some(CausesUs { queue: Some(4.0), unexplained: Some(1.0), ..CausesUs::default() }),
            hops: vec![hop("file a.ivf", Some(0.5)), hop("decode threads=1", Some(9.0))],
            extra: [("lost".to_owned(), 0.0)].into(),
            ..SummaryRow::default()
        }
    }

    #[test]
    fn a_figure_is_found_by_its_path_in_the_json() {
        let row = row();
        for (name, value) in [
            ("cpu_ms.median", Some(2.0)),
            ("cpu_ms.max", Some(3.0)),
            ("cpu_ms", Some(2.0)),
            ("latency_us.p99", Some(7.0)),
            ("latency_p99_us", Some(7.0)),
            ("causes_us.queue", Some(4.0)),
            ("cause_queue_us", Some(4.0)),
            ("causes_us.copy", None),
            ("hops[1].cpu_us", Some(9.0)),
            ("hops[decode].cpu_us", Some(9.0)),
            ("hops[queue].cpu_us", None),
            ("lost", Some(0.0)),
            ("unexplained_share", Some(0.2)),
            ("cpu", None),
        ] {
            assert_eq!(find(&row, name), value, "{name}");
        }
    }

    #[test]
    fn every_listed_path_leads_to_its_figure() {
        let row = row();
        let listed = figures(&row);
        assert!(listed.len() > 15, "{listed:?}");
        for figure in listed {
            assert_eq!(find(&row, &figure.path), Some(figure.value), "{}", figure.path);
        }
    }

    #[test]
    fn an_unknown_name_has_near_ones() {
        let known = known_paths([&row()]);
        assert_eq!(
            near_names("latency_us.p98", &known),
            " (near: `latency_us.p95`, `latency_us.p99`, `latency_us.p50`, `latency_us.max`)"
        );
        assert!(near_names("quite-unlike-all", &known).contains("--names"), "{known:?}");
        assert_eq!(near_names("zzzz", &["one".to_owned()]), " (known: `one`)");
    }
}
