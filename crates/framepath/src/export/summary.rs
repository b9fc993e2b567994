// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of one run in the format of the lab's summaries, which
//! `framepath run --json` writes.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use framepath_model::ledger::{Cause, Causes, Digest, HopDigest, Latency};
use framepath_model::stats::Spread;
use framepath_model::summary::{CausesUs, HopSummary, LatencyUs, Summary, SummaryRow};
use framepath_os::measure::meter::Level;

use super::advice::advice;
use super::machine::machine;
use crate::remote::RemoteReport;
use crate::report::{HopInfo, Report, SinkReport};

/// Returns the summary of one run: one row for each sink, the run's notes, and one more note for each loss,
/// for damage of the stream, for an interruption and for an error. `case` is the path's text. Changes the
/// report's rows as [`Report::digest`] does, unless the level is `off`. Starts `ffmpeg -version` for the
/// description of the machine.
///
/// ```
/// use framepath::{Options, Pipeline, export};
///
/// let mut report = Pipeline::parse("test frames=8 size=64x48 ! null")?.run(&Options::default())?;
/// let summary = export::summary::summary(&mut report, "test");
/// assert_eq!((summary.experiment.as_str(), summary.rows[0].frames), ("run", 8));
/// # Ok::<(), framepath::RunError>(())
/// ```
pub fn summary(report: &mut Report, case: &str) -> Summary {
    let rows = rows(report, case);
    let mut notes = report.notes.clone();
    notes.extend(report.remotes.iter().map(ToString::to_string));
    notes.extend(report.losses().iter().map(ToString::to_string));
    notes.extend((!report.damage.is_none()).then(|| format!("damaged stream: {}", report.damage)));
    notes.extend(report.interrupted.then(|| "interrupted".to_owned()));
    notes.extend(report.error.as_ref().map(|error| format!("stopped: {error}")));
    from_rows(rows, notes)
}

/// Returns the summary of a path that could not start: no rows, and a note with `reason`. Starts
/// `ffmpeg -version` for the description of the machine.
pub fn stopped(reason: &str) -> Summary {
    from_rows(Vec::new(), vec![format!("stopped: {reason}")])
}

fn from_rows(rows: Vec<SummaryRow>, notes: Vec<String>) -> Summary {
    Summary { notes, ..of_rows("run", rows) }
}

/// Returns a summary with these rows, of an experiment with this name. Starts `ffmpeg -version` for the description
/// of the machine.
pub fn of_rows(experiment: &str, rows: Vec<SummaryRow>) -> Summary {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Summary {
        experiment: experiment.to_owned(),
        machine: machine(),
        started_unix_s: now.ok().map(|time| time.as_secs()),
        rows,
        ratios: Vec::new(),
        skipped: Vec::new(),
        notes: Vec::new(),
    }
}

/// Returns the summary row of one run, in which an unknown figure is `None`. Latency, switches and causes are
/// unknown at level `off`; in a path with a `tee` they are those of the last sink. Changes the report's rows
/// as [`Report::digest`] does, unless the level is `off`.
pub fn row(report: &mut Report, case: &str) -> SummaryRow {
    let last = report.hop_tree().leaves().last().copied().unwrap_or_default();
    let digest = (report.level != Level::Off).then(|| report.digest_of(last));
    row_of(report, case, last, digest)
}

/// Returns [`row`] for each sink. With several sinks, the contender's name has the sink's text. Times, copies
/// and losses are those of the whole run in each row.
fn rows(report: &mut Report, case: &str) -> Vec<SummaryRow> {
    if report.sinks.len() < 2 {
        return vec![row(report, case)];
    }
    let sinks = report.sinks.clone();
    let of_sink = |sink: SinkReport| {
        let digest = (report.level != Level::Off).then(|| report.digest_of(sink.hop));
        let text = &report.hops[usize::from(sink.hop)].text;
        let is_same = |other: &&SinkReport| report.hops[usize::from(other.hop)].text == *text;
        let contender = match report.sinks.iter().filter(is_same).count() {
            1 => format!("path to {text}"),
            // Adds the hop, because the names of rows have to differ.
            _ => format!("path to {text} (hop {})", sink.hop),
        };
        let row = row_of(report, case, sink.hop, digest);
        let cpu_us_per_frame = SummaryRow::per_frame(row.cpu_ms, sink.frames);
        SummaryRow { contender, frames: sink.frames, cpu_us_per_frame, ..row }
    };
    sinks.into_iter().map(of_sink).collect()
}

/// Returns the figures of each hop for the frames that reached hop `sink`, without the hops of other viewers; `frames` is the number
/// of frames of the row.
fn hops(report: &Report, sink: u16, digest: &Digest, frames: u64) -> Vec<HopSummary> {
    let summary = |((hop, figures), cpu_ns): ((&HopInfo, &HopDigest), Option<u64>)| {
        let is_known = |(_, figure): (Cause, Option<f64>)| figure.is_some();
        HopSummary {
            hop: hop.text.clone(),
            frames: figures.frames,
            dropped: figures.dropped,
            cpu_us: cpu_ns.map(|ns| ns as f64 / 1e3 / frames.max(1) as f64),
            latency_us: (figures.frames > 0).then(|| latency_us(figures.wall)),
            copied_bytes_per_frame: (!digest.is_traced).then_some(figures.copied_bytes),
            held_depth_us: Some(figures.median_held_depth_ns / 1e3).filter(|us| *us > 0.0),
            causes_us: figures.median.iter().any(is_known).then(|| causes_us(&figures.median)),
        }
    };
    let all = (0..).zip(report.hops.iter().zip(&digest.hops).zip(report.hops_cpu_ns(digest)));
    all.filter(|(at, _)| !report.is_of_other_viewer(*at, sink)).map(|(_, hop)| summary(hop)).collect()
}

fn row_of(report: &Report, case: &str, sink: u16, digest: Option<Digest>) -> SummaryRow {
    let (wall_ns, cpu_ns) = (report.wall_ns as f64, report.cpu_ns as f64);
    let cpu_ms = Spread::of(&[cpu_ns / 1e6]);
    SummaryRow {
        case: case.to_owned(),
        contender: "path".to_owned(),
        runs: 1,
        frames: report.frames,
        wall_ms: Spread::of(&[wall_ns / 1e6]),
        cpu_ms,
        cpu_us_per_frame: SummaryRow::per_frame(cpu_ms, report.frames),
        load: (report.wall_ns > 0).then(|| cpu_ns / wall_ns),
        latency_us: digest.as_ref().and_then(|digest| digest.latency).map(latency_us),
        copied_bytes_per_frame: (report.frames > 0 && digest.as_ref().is_none_or(|digest| !digest.is_traced))
            .then(|| report.copied_bytes as f64 / report.frames as f64),
        switches_per_frame: digest.as_ref().and_then(|digest| digest.switches),
        syscalls_per_frame: None,
        causes_us: digest.as_ref().map(|digest| causes_us(&digest.causes)),
        hops: digest.as_ref().map(|digest| hops(report, sink, digest, report.frames)).unwrap_or_default(),
        advice: digest
            .as_ref()
            .map(|digest| advice(report, digest).into_iter().map(|advice| advice.text).collect())
            .unwrap_or_default(),
        other_cpu_us: digest
            .and_then(|digest| report.other_cpu_ns(&digest))
            .map(|ns| ns as f64 / 1e3 / report.frames.max(1) as f64),
        peak_memory_kib: None,
        extra: counts(report),
    }
}

/// Returns the counts of a run by their key: `dropped` (by leaky queues, the source's device, `play` and
/// `congested` encoders),
/// `lost` ([`Report::losses`], which has the device's frames too), `undecodable` packets and `concealed` frames
/// of damaged streams, and with a `play` also `shown` and `late`. With the ledgers of other machines also the number of frames
/// with (`remote_frames`) and without (`without_remote`) rows of them, all viewers together, and the largest error of the clocks
/// (`clock_error_ns`).
fn counts(report: &Report) -> BTreeMap<String, f64> {
    let late = report.played.map_or(0, |played| played.late);
    let lost: u64 = report.losses().iter().map(|loss| loss.count).sum();
    let dropped = report.dropped + report.missed + report.congested + late;
    let mut counts = vec![("dropped", dropped), ("congested", report.congested), ("lost", lost)];
    counts.extend([("undecodable", report.damage.undecodable), ("concealed", report.damage.concealed)]);
    counts.extend(report.played.map(|played| ("shown", played.shown)));
    counts.extend(report.played.map(|played| ("late", played.late)));
    if !report.remotes.is_empty() {
        let sum = |count: fn(&RemoteReport) -> u64| report.remotes.iter().map(count).sum();
        counts.extend([
            ("remote_frames", sum(|remote| remote.frames)),
            ("without_remote", sum(|remote| remote.without)),
            ("clock_error_ns", report.remotes.iter().map(|remote| remote.error_ns).max().unwrap_or_default()),
        ]);
    }
    counts.into_iter().map(|(key, count)| (key.to_owned(), count as f64)).collect()
}

/// Converts the percentiles of a latency from nanoseconds to microseconds.
pub fn latency_us(latency: Latency) -> LatencyUs {
    let us = |ns: u64| ns as f64 / 1e3;
    LatencyUs { p50: us(latency.p50), p95: us(latency.p95), p99: us(latency.p99), max: us(latency.max) }
}

/// Converts the time of each cause from nanoseconds to microseconds; `None` stays `None`.
pub fn causes_us(causes: &Causes) -> CausesUs {
    let us = |cause| causes[cause].map(|ns: f64| ns / 1e3);
    CausesUs {
        compute: us(Cause::Compute),
        copy: us(Cause::Copy),
        queue: us(Cause::Queue),
        held: us(Cause::Held),
        wakeup: us(Cause::Wakeup),
        preempted: us(Cause::Preempted),
        throttled: us(Cause::Throttled),
        stopped: us(Cause::Stopped),
        stolen: us(Cause::Stolen),
        blocked: us(Cause::Blocked),
        paced: us(Cause::Paced),
        device: us(Cause::Device),
        network: us(Cause::Network),
        pool: us(Cause::Pool),
        unexplained: us(Cause::Unexplained),
    }
}
