// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cases `crossing-30` and `crossing-flat-out` of `rpc`: the total cost of sending a frame to a worker and
//! back, as the CPU time of both processes with a stage that does nothing, minus that of the same path
//! inline.
//!
//! Each CPU time is that of a long run minus that of a short run, which removes the start-up.

use framepath::{Level, Options, Report};
use framepath_model::stats::paired_difference;
use framepath_model::summary::{Summary, SummaryRow};

use crate::error::LabError;
use crate::measure::{Contender, Measured, complete};
use crate::pairs;
use crate::progress::ProgressView;

/// Number of frames of the short run, whose CPU time is subtracted from that of the long run.
const SHORT: u64 = 15;
/// Seed of the bootstrap, constant for reproducible summaries.
const SEED: u64 = 2005;
const METRIC: &str = "crossing_cpu_us_per_frame";

/// Measures `frames` frames at `rate` per second (0: full speed), inline and in a worker, `rounds` times.
/// Adds both rows to `summary`; the worker's row has the cost of crossing, if it can be computed.
pub(super) fn run(
    case: &str,
    rate: u32,
    frames: u64,
    rounds: usize,
    watch: &dyn ProgressView,
    summary: &mut Summary,
) -> Result<(), LabError> {
    let contender = |name, host: &'static str| Contender::new(name, move || difference(host, rate, frames));
    let contenders = vec![contender("inline", ""), contender("process", " host=process")];
    let runs = pairs::run(case, contenders, &[], rounds, watch, summary)?;
    let figures = |runs: &[Measured]| runs.iter().map(|run| run.metric(METRIC)).collect::<Option<Vec<_>>>();
    let both = figures(&runs[1]).zip(figures(&runs[0]));
    let Some(Ok(found)) = both.map(|(process, inline)| paired_difference(&process, &inline, SEED)) else {
        return Ok(());
    };
    let row = summary.rows.iter_mut().find(|row| row.case == case && row.contender == "process");
    if let Some(row) = row {
        add(row, found.median, found.ci95);
    }
    Ok(())
}

/// Adds `crossing_us`, CPU microseconds per frame, with its interval, and its share of one CPU at 30
/// frames per second in percent.
fn add(row: &mut SummaryRow, median: f64, ci95: Option<[f64; 2]>) {
    row.extra.insert("crossing_us".to_owned(), median);
    row.extra.insert("share_at_30_percent".to_owned(), median * 30.0 / 1e6 * 100.0);
    if let Some([low, high]) = ci95 {
        row.extra.insert("crossing_low_us".to_owned(), low);
        row.extra.insert("crossing_high_us".to_owned(), high);
    }
}

fn difference(host: &str, rate: u32, frames: u64) -> Result<Measured, LabError> {
    let short = nothing(host, rate, SHORT)?;
    let long = nothing(host, rate, SHORT + frames)?;
    let cpu_ns = long.cpu_ns.saturating_sub(short.cpu_ns);
    let mut measured = Measured {
        frames,
        wall_ns: long.wall_ns.saturating_sub(short.wall_ns),
        cpu_ns,
        ..Measured::default()
    };
    measured.extra.insert(METRIC.to_owned(), cpu_ns as f64 / 1e3 / frames as f64);
    Ok(measured)
}

fn nothing(host: &str, rate: u32, frames: u64) -> Result<Report, LabError> {
    let text = format!("test bytes=4096 rate={rate} frames={frames} ! burn time=0ns{host} ! null");
    let path = framepath::path::parse(&text)?;
    complete(framepath::run(&path, &Options { level: Level::Off, ..Options::default() })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_of_one_cpu_at_thirty_frames_a_second() {
        let mut row = SummaryRow::default();
        add(&mut row, 33.0, Some([30.0, 40.0]));
        assert!((row.extra["share_at_30_percent"] - 0.099).abs() < 1e-9);
        assert_eq!((row.extra["crossing_low_us"], row.extra["crossing_high_us"]), (30.0, 40.0));
    }
}
