// SPDX-License-Identifier: MIT OR Apache-2.0
//! `aa`: compares a contender with itself. Every verdict other than "no difference" is wrong.

use framepath::{Level, Options};
use framepath_model::stats::Verdict;
use framepath_model::summary::SummaryRow;

use crate::error::LabError;
use crate::experiment::{ExperimentResult, ExperimentSettings};
use crate::measure::{Contender, Measured, complete};
use crate::pairs;
use crate::progress::ProgressView;

const COMPARISONS: usize = 20;
const CLIP: &str = "h264-180p8-high.h264";
/// Metrics that every comparison uses; each has its own verdict.
const METRICS: [&str; 2] = ["cpu_ms", "wall_ms"];

/// Returns the name of the comparison with this number: `aa-01`.
fn case_of(number: usize) -> String {
    format!("aa-{number:02}")
}

/// Returns the names of all cases, those that run only with `--full` included.
pub(super) fn cases() -> Vec<String> {
    (1..=COMPARISONS).map(case_of).collect()
}

pub(super) fn run(
    settings: &ExperimentSettings,
    watch: &dyn ProgressView,
    findings: &mut ExperimentResult,
) -> Result<(), LabError> {
    let summary = &mut findings.summary;
    let rounds = settings.rounds(6, 12);
    watch.begin("aa", (COMPARISONS * 2 * rounds) as u64);
    let file = settings.clips.join(CLIP);
    let file = framepath_model::path::quote(&file.to_string_lossy());
    let text = format!("file {file} loop=8 ! decode threads=1 format=nv12 ! null");
    for number in 1..=COMPARISONS {
        let case = case_of(number);
        if !settings.wants(&case) {
            continue;
        }
        let contenders = vec![Contender::new("a", || decode(&text)), Contender::new("b", || decode(&text))];
        let comparisons = METRICS.map(|metric| (metric, "a", "b"));
        pairs::run(&case, contenders, &comparisons, rounds, watch, summary)?;
    }
    for metric in METRICS {
        let of_metric = summary.ratios.iter().filter(|r| r.metric == metric);
        let (all, wrong) = of_metric.fold((0, 0), |(all, wrong), ratio| {
            (all + 1, wrong + usize::from(ratio.verdict() != Verdict::NoDifference))
        });
        let extra = [("comparisons", all as f64), ("wrong_verdicts", wrong as f64)];
        summary.rows.push(SummaryRow {
            case: metric.to_owned(),
            contender: "a".to_owned(),
            runs: rounds as u32,
            extra: extra.map(|(key, figure)| (key.to_owned(), figure)).into(),
            ..SummaryRow::default()
        });
        summary.notes.push(format!("{metric}: {wrong} of {all} verdicts were wrong, {rounds} pairs each"));
    }
    Ok(())
}

fn decode(text: &str) -> Result<Measured, LabError> {
    let path = framepath::path::parse(text)?;
    let mut report = complete(framepath::run(&path, &Options { level: Level::Off, ..Options::default() })?)?;
    Ok(Measured::from_report(&mut report))
}
