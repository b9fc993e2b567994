// SPDX-License-Identifier: MIT OR Apache-2.0
//! The display alone: framepath's window, with a picture of 4:2:0 as a decoder emits it.

use framepath_model::summary::{HopSummary, Summary, SummaryRow};

use super::desktop::{RATE, SIZE};
use crate::display::Display;
use crate::error::LabError;
use crate::experiment::ExperimentSettings;
use crate::measure::Measured;
use crate::process::Program;

/// Names of the programs that display.
pub(super) const DISPLAYERS: [&str; 1] = ["play"];

/// Shows `frames` pictures on `screen`.
///
/// # Errors
/// framepath fails.
pub(super) fn run(
    settings: &ExperimentSettings,
    screen: &Display,
    frames: u64,
) -> Result<Measured, LabError> {
    let path = format!("test size={}x{} format=yuv420p rate={RATE} frames={frames} ! play", SIZE.0, SIZE.1);
    // The program's own environment stays as it is, but for the display.
    let words = [format!("DISPLAY={}", screen.x_name()?), settings.framepath.to_string_lossy().into_owned()];
    let options = ["run", "--quiet", "--json", "-", &path].map(str::to_owned);
    let finished = Program::new("env", words.into_iter().chain(options)).run(true)?;
    measured(&own_row(&finished.stdout)?)
}

/// Returns the figures of the window's hop in the summary's row.
fn measured(row: &SummaryRow) -> Result<Measured, LabError> {
    let hop = row.hops.last().ok_or_else(|| LabError::Unknown("framepath's run has no hops".to_owned()))?;
    let HopSummary { cpu_us, frames, .. } = hop;
    let shown =
        row.figure("shown").ok_or_else(|| LabError::Unknown("framepath's run has no window".to_owned()))?;
    let figures = [("shown", Some(shown)), ("display_cpu_ms", cpu_us.map(|us| us / 1e3))];
    Ok(Measured {
        frames: *frames,
        wall_ns: row.wall_ms.map_or(0, |wall| (wall.median * 1e6) as u64),
        cpu_ns: row.cpu_ms.map_or(0, |cpu| (cpu.median * 1e6) as u64),
        extra: figures.into_iter().filter_map(|(name, figure)| Some((name.to_owned(), figure?))).collect(),
        ..Measured::default()
    })
}

/// Reads the row of the summary that framepath's run has printed.
pub(super) fn own_row(output: &str) -> Result<SummaryRow, LabError> {
    let failed =
        |what: &dyn std::fmt::Display| LabError::Unknown(format!("the summary of framepath's run: {what}"));
    let summary: Summary = serde_json::from_str(output).map_err(|error| failed(&error))?;
    summary.rows.into_iter().next().ok_or_else(|| failed(&"it has no row"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_that_of_the_last_hop() {
        let hop = |cpu_us| HopSummary { frames: 9, cpu_us: Some(cpu_us), ..HopSummary::default() };
        let row = SummaryRow {
            hops: vec![hop(500.0), hop(2500.0)],
            extra: [("shown".to_owned(), 8.0)].into(),
            ..SummaryRow::default()
        };
        let measured = measured(&row).unwrap();
        assert_eq!((measured.frames, measured.metric("shown")), (9, Some(8.0)));
        assert_eq!(measured.metric("display_cpu_ms"), Some(2.5));
        assert!(super::measured(&SummaryRow::default()).is_err());
    }
}
