// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cases `ledger-...`: a run of framepath, observed by its own ledger and by the tracer at once. The compared interval is
//! the decoder's, frame by frame: from the end of the demuxer's call to the end of the call that returns the frame.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use framepath_model::ledger::Row;
use framepath_model::path;
use framepath_model::stats::median;
use framepath_model::summary::Summary;

use super::observe;
use crate::csv_line::cells;
use crate::error::LabError;
use crate::experiment::ExperimentSettings;
use crate::measure::Measured;
use crate::pairs;
use crate::progress::ProgressView;
use crate::temporary_folder::temporary_folder;
use crate::traced::{self, trace_to_end};

/// Decoding by framepath: name of the case, clip, and options of the stage `decode`.
const CASES: [(&str, &str, &str); 8] = [
    ("ledger-h264-threads1", "hard-h264-1080p8.h264", "threads=1"),
    ("ledger-h264-frames", "hard-h264-1080p8.h264", "threads=3 threading=frame"),
    ("ledger-h264-slices", "hard-h264-1080p8.h264", "threads=3 threading=slice"),
    ("ledger-vp9-threads1", "hard-vp9-1080p8.ivf", "threads=1"),
    ("ledger-vp9-frames", "hard-vp9-1080p8.ivf", "threads=3 threading=frame"),
    ("ledger-hevc-threads1", "hevc-180p8-container.mkv", "threads=1"),
    ("ledger-hevc-frames", "hevc-180p8-container.mkv", "threads=3 threading=frame"),
    ("ledger-vp8-threads1", "vp8-180p8-container.webm", "threads=1"),
];

/// Ledger of the tracer.
const TRACE: &str = "trace";
/// Ledger of framepath itself.
const LEDGER: &str = "ledger";

/// Returns the names of the cases.
pub(super) fn cases() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|(name, ..)| *name)
}

/// Runs the wanted cases.
///
/// # Errors
/// [`LabError::Interrupted`]; [`LabError::Unknown`] if a clip is missing or a ledger lacks the decoder;
/// [`LabError::Command`] if framepath fails.
pub(super) fn run(
    settings: &ExperimentSettings,
    watch: &dyn ProgressView,
    summary: &mut Summary,
) -> Result<(), LabError> {
    let wanted: Vec<_> = CASES.iter().filter(|(name, ..)| settings.wants(name)).collect();
    for (name, clip, options) in &wanted {
        let words = [
            format!("file {}", path::quote(&settings.clip(clip)?.to_string_lossy())),
            format!("decode {options}"),
            "null".to_owned(),
        ];
        let path = words.join(" ! ");
        let runs = observe((name, TRACE), settings, watch, summary, || observed(settings, &path))?;
        let (trace, ledger): (Vec<_>, Vec<_>) =
            runs.into_iter().map(|[trace, ledger]| (trace, ledger)).unzip();
        if trace.is_empty() {
            continue;
        }
        summary.rows.push(pairs::row(name, TRACE, &trace));
        summary.rows.push(pairs::row(name, LEDGER, &ledger));
        for metric in ["decode_compute_us", "decode_cpu_us", "decode_p50_us"] {
            summary.ratios.extend(pairs::ratio(name, metric, (TRACE, &trace), (LEDGER, &ledger)));
        }
    }
    if !wanted.is_empty() {
        summary.notes.push(
            "ledger-*: decode_p50: median time of a frame in the decoder; decode_compute: mean of the frames' rows; \
             decode_cpu: CPU time of the decoder per frame, with the decoder's threads, and by the ledger with the \
             calls that return no frame; apart: the tracer's time of a frame minus the ledger's, the median and the \
             largest over the frames"
                .to_owned(),
        );
    }
    Ok(())
}

/// Returns the figures of one run by the tracer and by framepath's own ledger.
fn observed(settings: &ExperimentSettings, path: &str) -> Result<[Measured; 2], LabError> {
    let folder = temporary_folder()?;
    let (json, csv) = (folder.path().join("ledger.json"), folder.path().join("ledger.csv"));
    let mut command = Command::new(&settings.framepath);
    command.args(["run", "--quiet", "--json"]).arg(&json).arg("--csv").arg(&csv);
    command.args(["--", path]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let traced = trace_to_end(command, &format!("framepath run '{path}'"))?;
    let stream = traced.streams.first().ok_or_else(|| no_decoder(TRACE))?;
    let of_decoder =
        |row: &&Row| stream.stages.get(usize::from(row.hop)).is_some_and(|stage| is_decoder(stage));
    let rows_of_trace: DecoderRows = (stream.rows.iter().filter(of_decoder))
        .map(|row| (row.seq, [row.wall_ns(), row.compute_ns]))
        .collect();
    let read = |file: &Path| fs::read_to_string(file).map_err(LabError::io("reading framepath's own ledger"));
    let rows_of_ledger = decoder_rows(&read(&csv)?).ok_or_else(|| no_decoder(LEDGER))?;
    let summary: Summary = serde_json::from_str(&read(&json)?)
        .map_err(|error| LabError::Unknown(format!("framepath's own ledger: {error}")))?;

    let mut by_trace = traced::measured(&traced, stream);
    let has_pool = stream.rows.iter().any(|row| row.pool_ns > 0);
    // The work of threads that share frames, or whose frames are not known, is in no row.
    let threads = traced.threads.iter().filter(|row| has_pool && row.codec.is_some());
    let cpu_ns = rows_of_trace.values().map(|[_, compute_ns]| compute_ns).sum::<u64>()
        + threads.map(|row| row.running_ns).sum::<u64>();
    let cpu_us = cpu_ns as f64 / 1e3 / stream.frames.max(1) as f64;
    add_decoder(&mut by_trace, &rows_of_trace, TRACE, Some(cpu_us))?;
    let row = summary.rows.first().ok_or_else(|| no_decoder(LEDGER))?;
    let mut by_ledger = Measured {
        frames: row.frames,
        wall_ns: traced.wall_ns,
        cpu_ns: traced.usage.cpu_ns.unwrap_or(0),
        latency: row.latency_us,
        causes: row.causes_us,
        hops: row.hops.clone(),
        ..Measured::default()
    };
    let cpu_us = row.hops.iter().find(|hop| is_decoder(&hop.hop)).and_then(|hop| hop.cpu_us);
    add_decoder(&mut by_ledger, &rows_of_ledger, LEDGER, cpu_us)?;
    let apart: Vec<f64> = (rows_of_trace.iter())
        .filter_map(|(seq, [wall_ns, _])| Some((*wall_ns as f64 - rows_of_ledger.get(seq)?[0] as f64) / 1e3))
        .collect();
    let figures = [("apart_us", median(&apart)), ("apart_max_us", super::largest(&apart))];
    by_trace.extra.extend(figures.into_iter().filter_map(|(key, us)| Some((key.to_owned(), us?))));
    Ok([by_trace, by_ledger])
}

/// Time in the decoder and CPU time of each frame by its number, nanoseconds.
type DecoderRows = BTreeMap<u64, [u64; 2]>;

/// Reads the rows of the stage `decode` from a ledger as CSV; `None` if it lacks a column.
fn decoder_rows(csv: &str) -> Option<DecoderRows> {
    let mut lines = csv.lines();
    let head = cells(lines.next()?);
    let column = |name: &str| head.iter().position(|cell| cell == name);
    let [stage, seq, wall_ns, compute_ns] =
        [column("stage")?, column("seq")?, column("wall_ns")?, column("compute_ns")?];
    let row = |line: &str| {
        let cells = cells(line);
        let number = |at: usize| cells.get(at)?.parse().ok();
        let is_decoder = is_decoder(cells.get(stage)?);
        is_decoder.then(|| Some((number(seq)?, [number(wall_ns)?, number(compute_ns)?])))?
    };
    Some(lines.filter_map(row).collect())
}

/// Adds the figures of the stage `decode`, whose frames have `rows`, and whose CPU time per frame is `cpu_us`.
fn add_decoder(
    measured: &mut Measured,
    rows: &DecoderRows,
    observer: &str,
    cpu_us: Option<f64>,
) -> Result<(), LabError> {
    let compute_ns: u64 = rows.values().map(|[_, compute_ns]| compute_ns).sum();
    let hop = measured.hops.iter().find(|hop| is_decoder(&hop.hop)).ok_or_else(|| no_decoder(observer))?;
    let figures = [
        ("decode_frames", Some(rows.len() as f64)),
        ("decode_compute_us", Some(compute_ns as f64 / 1e3 / rows.len().max(1) as f64)),
        ("decode_p50_us", hop.latency_us.map(|us| us.p50)),
        ("decode_cpu_us", cpu_us),
    ];
    measured.extra.extend(figures.into_iter().filter_map(|(key, us)| Some((key.to_owned(), us?))));
    Ok(())
}

fn is_decoder(stage: &str) -> bool {
    stage.split(' ').next() == Some("decode")
}

fn no_decoder(observer: &str) -> LabError {
    LabError::Unknown(format!("the observer {observer} saw no frame in a decoder"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_decoder_are_read_by_their_columns() {
        let csv = "path,seq,hop,stage,wall_ns,compute_ns\n\"a,b ! decode\",7,0,\"file a,b\",1,2\n\
                   \"a,b ! decode\",7,1,decode threads=1,30,20\n\"a,b ! decode\",8,1,decode threads=1,40,\n";
        assert_eq!(decoder_rows(csv), Some(BTreeMap::from([(7, [30, 20])])));
        assert_eq!(decoder_rows("path,seq"), None);
    }
}
