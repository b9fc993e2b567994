// SPDX-License-Identifier: MIT OR Apache-2.0
//! Case `paced-30` of `decode`, at a camera's frame rate: the latency that a worker adds to a frame.
//!
//! Each run is a process that decodes a clip at 30 frames per second with the
//! ledger at `times`. The added latency is a difference and not a ratio, because the time
//! to reach the worker and return does not depend on the decoding time. The summary also has the ratios of
//! the latency percentiles and of the CPU time.

use std::path::Path;

use framepath_model::stats::{PairedDifference, paired_difference};
use framepath_model::summary::{Summary, SummaryRow};

use crate::error::LabError;
use crate::experiment::ExperimentSettings;
use crate::measure::{Contender, Measured};
use crate::pairs;
use crate::process::Program;
use crate::progress::ProgressView;

pub(super) const CASE: &str = "paced-30";

/// A clip whose decode order is its presentation order: no frame waits for another.
const CLIP: &str = "vp9-1080p8.ivf";
const FRAMES: u64 = 150;

/// Names of the contenders, each with the value of `host=` of its `decode`. The first contender is the baseline.
const CONTENDERS: [(&str, &str); 2] = [("inline-t1", "inline"), ("process-t1", "process")];

/// Seed of the bootstrap, constant for reproducible summaries.
const SEED: u64 = 30;

pub(super) fn steps(rounds: usize) -> usize {
    rounds * CONTENDERS.len()
}

pub(super) fn run(
    settings: &ExperimentSettings,
    rounds: usize,
    watch: &dyn ProgressView,
    summary: &mut Summary,
) -> Result<(), LabError> {
    let file = settings.clip(CLIP)?;
    let contenders = CONTENDERS.map(|(name, host)| {
        let program = program(&settings.framepath, &file, host);
        Contender::new(name, move || measured(&program))
    });
    let inline = CONTENDERS[0].0;
    let hosted = CONTENDERS.iter().skip(1).map(|(name, _)| *name);
    let comparisons: Vec<_> = hosted
        .flat_map(|name| ["latency_p50_us", "latency_p99_us", "cpu_ms"].map(|m| (m, name, inline)))
        .collect();
    let runs = pairs::run(CASE, contenders.into(), &comparisons, rounds, watch, summary)?;
    for ((name, _), their_runs) in CONTENDERS.iter().zip(&runs).skip(1) {
        let row = summary.rows.iter_mut().find(|row| row.case == CASE && row.contender == *name);
        if let Some(row) = row {
            add_differences(row, their_runs, &runs[0]);
        }
    }
    summary.notes.push(format!(
        "{CASE}: {CLIP} at 30 frames per second, one decoder thread, ledger at `times`; `added` is the difference \
         of a pair's percentiles, as the median over the pairs; `low` and `high` are its 95 % interval"
    ));
    Ok(())
}

fn program(framepath: &Path, file: &Path, host: &str) -> Program {
    let file = framepath_model::path::quote(&file.to_string_lossy());
    let host = super::host_text(host);
    let path = format!("file {file} rate=30 ! decode format=nv12 threads=1{host} ! null");
    Program::new(framepath, ["run", "--ledger", "times", "--quiet", "--json", "-", &path])
}

fn measured(program: &Program) -> Result<Measured, LabError> {
    let finished = program.run(true)?;
    let unreadable = |detail: String| LabError::Unknown(format!("`{}` wrote {detail}", program.text()));
    let run: Summary =
        serde_json::from_str(&finished.stdout).map_err(|error| unreadable(format!("no summary: {error}")))?;
    let latency = run.rows.first().and_then(|row| row.latency_us);
    let latency = latency.ok_or_else(|| unreadable("a summary without latencies".to_owned()))?;
    Ok(Measured { latency: Some(latency), ..finished.measured(FRAMES) })
}

/// Adds `added_p50_us`, `added_p99_us` and their intervals to `row`: the latency percentiles of
/// `hosted` minus those of `inline`, as medians over the pairs. Omits unknown figures.
fn add_differences(row: &mut SummaryRow, hosted: &[Measured], inline: &[Measured]) {
    for percentile in ["p50", "p99"] {
        let metric = format!("latency_{percentile}_us");
        let figures = |runs: &[Measured]| runs.iter().map(|m| m.metric(&metric)).collect::<Option<Vec<_>>>();
        let (Some(a), Some(b)) = (figures(hosted), figures(inline)) else { continue };
        let Ok(PairedDifference { median, ci95, .. }) = paired_difference(&a, &b, SEED) else { continue };
        row.extra.insert(format!("added_{percentile}_us"), median);
        if let Some([low, high]) = ci95 {
            row.extra.insert(format!("added_{percentile}_low_us"), low);
            row.extra.insert(format!("added_{percentile}_high_us"), high);
        }
    }
}

#[cfg(test)]
mod tests {
    use framepath_model::summary::LatencyUs;

    use super::*;

    #[test]
    fn added_latency_is_a_difference_within_pairs() {
        let run = |p50: f64| Measured {
            latency: Some(LatencyUs { p50, p95: p50, p99: 2.0 * p50, max: 2.0 * p50 }),
            ..Measured::default()
        };
        let inline: Vec<Measured> = [1000.0, 2000.0, 1500.0].map(run).into();
        let hosted: Vec<Measured> = [1050.0, 2040.0, 1560.0].map(run).into();
        let mut row = SummaryRow::default();
        add_differences(&mut row, &hosted, &inline);
        assert_eq!(row.extra["added_p50_us"], 50.0);
        assert_eq!(row.extra["added_p99_us"], 100.0);
        assert!(row.extra["added_p50_low_us"] <= 40.0 && row.extra["added_p50_high_us"] >= 60.0);
    }
}
