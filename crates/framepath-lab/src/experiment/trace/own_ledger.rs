// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cases `ledger-...`: a run of framepath, observed by its own ledger and by the tracer at once. The compared interval is
//! the decoder's: from the end of the demuxer's call to the end of the call that returns the frame.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use framepath_model::path;
use framepath_model::summary::{Skipped, Summary};
use framepath_os::process::signal;
use framepath_trace::TraceReport;

use crate::error::LabError;
use crate::experiment::ExperimentSettings;
use crate::measure::Measured;
use crate::pairs;
use crate::progress::ProgressView;
use crate::traced::{stream_report, trace};

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
        let mut runs: [Vec<Measured>; 2] = Default::default();
        for _ in 0..settings.rounds(5, 20) {
            if signal::interrupted() {
                return Err(LabError::Interrupted);
            }
            watch.step(name);
            match observed(settings, &words.join(" ! ")) {
                Ok(of_run) => runs.iter_mut().zip(of_run).for_each(|(runs, measured)| runs.push(measured)),
                Err(LabError::Missing(reason)) => {
                    let skipped =
                        Skipped { contender: TRACE.to_owned(), case: Some((*name).to_owned()), reason };
                    summary.skipped.push(skipped);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        let [trace, ledger] = &runs;
        if trace.is_empty() {
            continue;
        }
        summary.rows.push(pairs::row(name, TRACE, trace));
        summary.rows.push(pairs::row(name, LEDGER, ledger));
        for metric in ["decode_cpu_us", "decode_p50_us"] {
            summary.ratios.extend(pairs::ratio(name, metric, (TRACE, trace), (LEDGER, ledger)));
        }
    }
    if !wanted.is_empty() {
        summary.notes.push(
            "ledger-*: decode_p50: median time of a frame in the decoder; decode_cpu: CPU time of the decoder per \
             frame, with the decoder's threads; apart: median by the tracer minus the ledger's"
                .to_owned(),
        );
    }
    Ok(())
}

/// Returns the figures of one run by the tracer and by framepath's own ledger.
fn observed(settings: &ExperimentSettings, path: &str) -> Result<[Measured; 2], LabError> {
    let file = std::env::temp_dir().join(format!("framepath-own-ledger-{}.json", std::process::id()));
    let own = OwnFile(file);
    let mut command = Command::new(&settings.framepath);
    command.args(["run", "--quiet", "--json"]).arg(&own.0).args(["--", path]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let traced = trace(command)?;
    if signal::interrupted() {
        return Err(LabError::Interrupted);
    }
    if traced.usage.exit_code != Some(0) {
        return Err(LabError::Command {
            command: format!("framepath run '{path}'"),
            outcome: "failed under the tracer".to_owned(),
            exit_code: traced.usage.exit_code,
            stderr: String::new(),
        });
    }
    let text = fs::read_to_string(&own.0).map_err(LabError::io("reading framepath's own ledger"))?;
    let summary: Summary = serde_json::from_str(&text)
        .map_err(|error| LabError::Unknown(format!("framepath's own ledger: {error}")))?;
    let mut by_trace = by_trace(&traced)?;
    let by_ledger = by_ledger(&summary, &traced)?;
    let median = |measured: &Measured| measured.extra.get("decode_p50_us").copied();
    if let Some((trace, ledger)) = median(&by_trace).zip(median(&by_ledger)) {
        by_trace.extra.insert("apart_us".to_owned(), trace - ledger);
    }
    Ok([by_trace, by_ledger])
}

fn by_trace(traced: &TraceReport) -> Result<Measured, LabError> {
    let stream = traced.streams.first().ok_or_else(|| no_decoder(TRACE))?;
    let mut measured = Measured::from_report(&mut stream_report(traced, stream));
    let rows = stream.rows.iter().filter(|row| {
        let stage = stream.stages.get(usize::from(row.hop));
        stage.is_some_and(|stage| is_decoder(stage))
    });
    let (compute_ns, pool_ns) =
        rows.fold((0, 0), |(compute, pool), row| (compute + row.compute_ns, pool + row.pool_ns));
    // The work of threads that share frames, or whose frames are not known, is in no row.
    let threads = traced.threads.iter().filter(|row| pool_ns > 0 && row.codec.is_some());
    let cpu_ns = compute_ns + threads.map(|row| row.running_ns).sum::<u64>();
    let cpu_us = cpu_ns as f64 / 1e3 / stream.frames.max(1) as f64;
    add_decoder(&mut measured, TRACE, Some(cpu_us))?;
    Ok(measured)
}

fn by_ledger(summary: &Summary, traced: &TraceReport) -> Result<Measured, LabError> {
    let row = summary.rows.first().ok_or_else(|| no_decoder(LEDGER))?;
    let mut measured = Measured {
        frames: row.frames,
        wall_ns: traced.wall_ns,
        cpu_ns: traced.usage.cpu_ns.unwrap_or(0),
        latency: row.latency_us,
        causes: row.causes_us,
        hops: row.hops.clone(),
        ..Measured::default()
    };
    let cpu_us = row.hops.iter().find(|hop| is_decoder(&hop.hop)).and_then(|hop| hop.cpu_us);
    add_decoder(&mut measured, LEDGER, cpu_us)?;
    Ok(measured)
}

/// Adds the figures of the stage `decode`, whose CPU time per frame is `cpu_us`.
fn add_decoder(measured: &mut Measured, observer: &str, cpu_us: Option<f64>) -> Result<(), LabError> {
    let hop = measured.hops.iter().find(|hop| is_decoder(&hop.hop)).ok_or_else(|| no_decoder(observer))?;
    let figures = [
        ("decode_frames", Some(hop.frames as f64)),
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

/// File that framepath writes. It is removed when this value is dropped.
struct OwnFile(PathBuf);

impl Drop for OwnFile {
    fn drop(&mut self) {
        // A file that cannot be removed does no harm.
        let _ = fs::remove_file(&self.0);
    }
}
