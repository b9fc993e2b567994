// SPDX-License-Identifier: MIT OR Apache-2.0
//! One run of one of framepath's paths, and the check that no frame was lost, duplicated or
//! reordered on the way.

use framepath::{Level, Options, Report};
use framepath_model::ledger::{Row, flag};
use framepath_model::stats::median;
use framepath_os::time::now_ns;
use framepath_os::v4l2::{META_NODE, MetaReader, MetaRecord, measuring};

use super::Way;
use super::nodes::Nodes;
use crate::error::LabError;
use crate::measure::Measured;

/// One contender's path, the number of frames of each run, and the machine's devices.
pub(super) struct PathRun<'a> {
    pub(super) way: Way,
    pub(super) frames: u64,
    pub(super) nodes: &'a Nodes,
}

impl PathRun<'_> {
    /// Runs the path once at ledger level `full`. Returns the figures and the report. Frames that
    /// the camera's driver counted as dropped are a figure, not an error.
    ///
    /// # Errors
    /// [`LabError::Missing`] if a device is absent or the measuring node's records cannot be read;
    /// [`LabError::Command`] if a frame was lost, duplicated or reordered, or the node's records do not
    /// match the frames or report a failure; the path's own error; [`LabError::Interrupted`] after SIGINT or
    /// SIGTERM.
    pub(super) fn measured(&self) -> Result<(Measured, Report), LabError> {
        for need in &self.way.needs {
            need.met(self.nodes)?;
        }
        let began_ns = now_ns();
        let reader = self.way.device_hop.map(|_| MetaReader::open(META_NODE.as_ref())).transpose();
        let reader = reader.map_err(|error| LabError::Missing(error.to_string()))?;
        let path = framepath::path::parse(&self.way.path)?;
        let mut report = framepath::run(&path, &Options { level: Level::Full, ..Options::default() })?;
        if let Some(error) = report.error.take() {
            return Err(error.into());
        }
        if report.interrupted {
            return Err(LabError::Interrupted);
        }
        let mut measured = Measured::from_report(&mut report);
        let sequences = sequences(&report.rows);
        self.correlated(check_sequences(&sequences, self.frames, report.dropped + report.missed))?;
        add_figures(&mut measured, &report);
        if let (Some(hop), Some(reader)) = (self.way.device_hop, reader) {
            let records = self.records(&reader, began_ns)?;
            self.correlated(joined(&sequences, &records))?;
            add_device(&mut measured, &report, hop, &records);
        }
        Ok((measured, report))
    }

    /// Converts the error of a check of the frames' numbers to [`LabError::Command`].
    fn correlated(&self, outcome: Result<(), String>) -> Result<(), LabError> {
        outcome.map_err(|what| LabError::Command {
            exit_code: None,
            command: format!("framepath run '{}'", self.way.path),
            outcome: "lost, duplicated or reordered frames".to_owned(),
            stderr: what,
        })
    }

    /// Reads the measuring node's records of frames that were queued at `since_ns` (monotonic clock)
    /// or later. The records may include frames of another program that uses the node at the same time;
    /// [`joined`] then fails.
    fn records(&self, reader: &MetaReader, since_ns: u64) -> Result<Vec<MetaRecord>, LabError> {
        let refused = |error: framepath_os::v4l2::V4l2Error| LabError::Missing(error.to_string());
        let mut records = Vec::new();
        reader.read(&mut records).map_err(refused)?;
        records.retain(|record| record.queued_ns >= since_ns);
        Ok(records)
    }
}

/// Returns the source's frame numbers, in the order in which the frames ended at the sink.
fn sequences(rows: &[Row]) -> Vec<u64> {
    let mut ended: Vec<&Row> = rows.iter().filter(|row| row.has(flag::LAST)).collect();
    ended.sort_by_key(|row| row.leave_ns);
    ended.iter().map(|row| row.seq).collect()
}

/// Checks that `frames` frames arrived, each once and in order, and that exactly `dropped` numbers
/// are missing between them. The error says what is wrong.
fn check_sequences(sequences: &[u64], frames: u64, dropped: u64) -> Result<(), String> {
    if sequences.len() as u64 != frames {
        return Err(format!("{} of {frames} frames arrived", sequences.len()));
    }
    if let Some(pair) = sequences.windows(2).find(|pair| pair[1] <= pair[0]) {
        return Err(format!("frame {} arrived after frame {}", pair[1], pair[0]));
    }
    let (first, last) = (sequences[0], sequences[sequences.len() - 1]);
    let missing = last + 1 - first - frames;
    if missing != dropped {
        return Err(format!(
            "{missing} numbers are missing, and the driver counted {dropped} dropped frames"
        ));
    }
    Ok(())
}

/// Checks that each frame number of the path has one record of the measuring node, in order, and that no
/// record reports a failure. The error says what is wrong.
fn joined(sequences: &[u64], records: &[MetaRecord]) -> Result<(), String> {
    if let Some(failed) = records.iter().find(|record| record.status >= measuring::STATUS_FAILED) {
        return Err(format!("frame {} failed in the node", failed.source_sequence));
    }
    let recorded: Vec<u64> = records.iter().map(|record| record.source_sequence).collect();
    if recorded == sequences {
        return Ok(());
    }
    let at = recorded.iter().zip(sequences).take_while(|(a, b)| a == b).count();
    Err(format!("{} records for {} frames; they differ from number {at} on", recorded.len(), sequences.len()))
}

/// Returns the sum of `figure` over all rows, divided by the number of frames.
fn per_frame(rows: &[Row], frames: u64, figure: impl Fn(&Row) -> u64) -> f64 {
    rows.iter().map(figure).sum::<u64>() as f64 / frames.max(1) as f64
}

/// Adds page faults, dropped frames and, where the CPU counts them, cycles and cache misses.
fn add_figures(measured: &mut Measured, report: &Report) {
    let of = |figure: fn(&Row) -> u64| per_frame(&report.rows, report.frames, figure);
    measured.extra.insert("faults_per_frame".to_owned(), of(|row| row.minor_faults.into()));
    measured.extra.insert("dropped".to_owned(), (report.dropped + report.missed) as f64);
    let cycles = of(|row| row.cycles);
    if cycles > 0.0 {
        measured.extra.insert("cycles_per_frame".to_owned(), cycles);
        measured.extra.insert("cache_misses_per_frame".to_owned(), of(|row| row.cache_misses));
    }
}

/// Adds the figures of the device's hop `hop`: medians of its times, and the bytes per frame that the
/// kernel copied, by the node's records. The medians leave out rows without the device's own time.
fn add_device(measured: &mut Measured, report: &Report, hop: u16, records: &[MetaRecord]) {
    let rows: Vec<&Row> = report.rows.iter().filter(|row| row.hop == hop && row.device_run_ns > 0).collect();
    let middle_us = |figure: fn(&Row) -> u64| {
        median(&rows.iter().map(|row| figure(row) as f64 / 1e3).collect::<Vec<_>>())
    };
    let copied = records.iter().map(|record| record.copied).sum::<u64>() as f64 / records.len().max(1) as f64;
    let figures = [
        ("added_p50_us", middle_us(Row::wall_ns)),
        ("device_queue_us", middle_us(|row| row.device_queue_ns.into())),
        ("device_run_us", middle_us(|row| row.device_run_ns.into())),
        ("kernel_copied_bytes_per_frame", Some(copied)),
    ];
    measured.extra.extend(figures.into_iter().filter_map(|(key, figure)| Some((key.to_owned(), figure?))));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_duplicated_and_reordered_frames_are_errors() {
        assert_eq!(check_sequences(&[0, 1, 2], 3, 0), Ok(()));
        assert_eq!(check_sequences(&[0, 1, 4], 3, 2), Ok(()));
        assert!(check_sequences(&[0, 1], 3, 0).unwrap_err().contains("2 of 3 frames arrived"));
        assert!(check_sequences(&[0, 2, 1], 3, 0).unwrap_err().contains("frame 1 arrived after frame 2"));
        assert!(check_sequences(&[0, 1, 1], 3, 0).is_err());
        assert!(check_sequences(&[0, 1, 4], 3, 0).unwrap_err().contains("2 numbers are missing"));
        assert!(check_sequences(&[0, 1, 2], 3, 1).is_err(), "a counted drop without a missing number");
    }

    #[test]
    fn frames_and_records_must_match_one_to_one() {
        let records = |numbers: &[u64]| -> Vec<MetaRecord> {
            numbers.iter().map(|n| MetaRecord { source_sequence: *n, ..MetaRecord::default() }).collect()
        };
        assert_eq!(joined(&[0, 1, 3], &records(&[0, 1, 3])), Ok(()));
        for wrong in [&[0, 1][..], &[0, 1, 2], &[0, 3, 1], &[0, 1, 3, 3]] {
            assert!(joined(&[0, 1, 3], &records(wrong)).is_err(), "{wrong:?}");
        }
        let failed = MetaRecord { status: measuring::STATUS_FAILED, ..MetaRecord::default() };
        assert!(joined(&[0], &[failed]).unwrap_err().contains("frame 0 failed"));
    }
}
