// SPDX-License-Identifier: MIT OR Apache-2.0
//! `queue`: Contreras' test. Measures the cost of a push, direct and through a queue, in framepath
//! and in GStreamer: 16 MiB in buffers of 2^3 to 2^20 bytes at full speed (at least 4096 pushes, in the
//! quick size at most 50,000); then buffers of 64 bytes at fixed rates, where the latency of the hand-off
//! matters.
//!
//! No contender touches the bytes: the experiment measures only the hand-off. Framepath's
//! contenders run in this process, GStreamer's in the `gst-push` peer. The CPU time is that of both
//! threads during the pushes, without start-up.

use framepath::{Level, Options};
use framepath_model::stats::median;
use framepath_model::summary::{LatencyUs, Summary};
use serde::Deserialize;

use crate::error::LabError;
use crate::experiment::{ExperimentResult, ExperimentSettings, Size};
use crate::measure::{Contender, Measured, complete};
use crate::pairs;
use crate::process::Program;
use crate::progress::ProgressView;

/// Bytes of all buffers of a run together, as in Contreras' test. Divided by the size of a buffer
/// this gives the number of pushes, unless the limits of [`PUSHES`] change that number.
const TOTAL: u64 = 16 << 20;
/// Smallest and largest number of pushes of a run at full speed; at most 50,000 in the quick size.
const PUSHES: std::ops::RangeInclusive<u64> = 4096..=(TOTAL / 8);
/// Ledger rows kept: enough for the latencies of a paced run. The number is small because
/// allocating the rows is start-up, which the peer excludes from its figures.
const LEDGER_ROWS: usize = 1 << 12;
/// Depth of framepath's queue: GStreamer's default, 200 buffers.
const DEPTH: u32 = 200;
/// Slots of the source's pool: enough for a full queue and the frames outside it.
const POOL: u32 = 256;

/// Rates of the paced cases, pushes per second.
const RATES: [u64; 3] = [60, 250, 1000];

/// Returns the names of all cases, those that run only with `--full` included.
pub(super) fn cases() -> Vec<String> {
    let sizes = (3..=20).map(|exponent| case_of(1 << exponent));
    sizes.chain(RATES.map(paced_case)).collect()
}

pub(super) fn run(
    settings: &ExperimentSettings,
    watch: &dyn ProgressView,
    findings: &mut ExperimentResult,
) -> Result<(), LabError> {
    let summary = &mut findings.summary;
    let sizes = sizes(settings);
    let rates: Vec<u64> = RATES.into_iter().filter(|r| settings.wants(&paced_case(*r))).collect();
    let rounds = settings.rounds(6, 12);
    let steps = (sizes.len() * 9 + rates.len() * 3) * rounds;
    watch.begin("queue", steps as u64);
    for size in sizes {
        flat_out(settings, size, rounds, watch, summary)?;
    }
    for rate in rates {
        paced(settings, rate, rounds, watch, summary)?;
    }
    summary.notes.push(format!(
        "at full speed: {} MiB in buffers of the case's size, at least {} and at most {} pushes; CPU of both \
         threads, without start-up; framepath's queue has depth {DEPTH}, GStreamer's its default limits \
         (200 buffers, 10 MiB)",
        TOTAL >> 20,
        PUSHES.start(),
        most_pushes(settings),
    ));
    summary.notes.push(
        "framepath's contenders and gst-direct, gst-queue, gst-queue2 acquire a buffer for every push and release it \
         at the end, GStreamer's in its cheapest way (direct: allocated, queues: GstBufferPool); the -reuse \
         contenders only reference buffers made before the clock starts; a program that fills its buffers cannot \
         do this, so they show GStreamer's lower bound"
            .to_owned(),
    );
    Ok(())
}

fn sizes(settings: &ExperimentSettings) -> Vec<u64> {
    let exponents: Vec<u32> = match settings.size {
        Size::Quick => vec![3, 6, 10, 16, 20],
        Size::Full => (3..=20).collect(),
    };
    // A case requested by name runs in the quick size too.
    let exponents = if settings.cases.is_empty() { exponents } else { (3..=20).collect() };
    exponents.into_iter().map(|e| 1 << e).filter(|s| settings.wants(&case_of(*s))).collect()
}

/// Returns the name of the case with buffers of `bytes` bytes: `64B`, `1KiB`, `1MiB`.
fn case_of(bytes: u64) -> String {
    match bytes {
        b if b < 1 << 10 => format!("{b}B"),
        b if b < 1 << 20 => format!("{}KiB", b >> 10),
        b => format!("{}MiB", b >> 20),
    }
}

fn paced_case(rate: u64) -> String {
    format!("paced-{rate}")
}

fn most_pushes(settings: &ExperimentSettings) -> u64 {
    if settings.size == Size::Quick { 50_000 } else { *PUSHES.end() }
}

fn flat_out(
    settings: &ExperimentSettings,
    size: u64,
    rounds: usize,
    watch: &dyn ProgressView,
    summary: &mut Summary,
) -> Result<(), LabError> {
    let pushes = (TOTAL / size).clamp(*PUSHES.start(), most_pushes(settings));
    let source = format!("test bytes={size} frames={pushes} pool={POOL}");
    let direct = format!("{source} ! null");
    let queue = format!("{source} ! queue depth={DEPTH} ! null");
    let gst = |mode, buffers| move || gst_push(settings, mode, buffers, size, pushes, None);
    let contenders = vec![
        Contender::new("direct", || measure_queue(&direct, Level::Off)),
        Contender::new("direct-times", || measure_queue(&direct, Level::Times)),
        Contender::new("queue", || measure_queue(&queue, Level::Off)),
        Contender::new("queue-times", || measure_queue(&queue, Level::Times)),
        Contender::new("gst-direct", gst("direct", "new")),
        Contender::new("gst-queue", gst("queue", "pool")),
        Contender::new("gst-queue2", gst("queue2", "pool")),
        Contender::new("gst-direct-reuse", gst("direct", "reuse")),
        Contender::new("gst-queue-reuse", gst("queue", "reuse")),
    ];
    let comparisons = [
        ("cpu_us_per_push", "direct", "gst-direct"),
        ("cpu_us_per_push", "direct-times", "gst-direct"),
        ("cpu_us_per_push", "queue", "gst-queue"),
        ("cpu_us_per_push", "queue-times", "gst-queue"),
        ("cpu_us_per_push", "queue", "gst-queue2"),
        ("cpu_us_per_push", "direct", "gst-direct-reuse"),
        ("cpu_us_per_push", "queue", "gst-queue-reuse"),
        ("cpu_us_per_push", "queue", "direct"),
        ("cpu_us_per_push", "gst-queue", "gst-direct"),
    ];
    let case = case_of(size);
    let runs = pairs::run(&case, contenders, &comparisons, rounds, watch, summary)?;
    if let ([off, times, ..], Some(row)) =
        (&runs[..], summary.rows.iter_mut().find(|r| r.case == case && r.contender == "direct-times"))
    {
        let per_hop = ledger_ns_per_hop(off, times);
        row.extra.extend(per_hop.map(|ns| ("ledger_ns_per_hop".to_owned(), ns)));
    }
    Ok(())
}

/// Computes the CPU time of the ledger at `times` for each push and each of the direct path's two
/// hops, nanoseconds: the median of the differences within the pairs of `off` and `times`;
/// `None` without pairs, or if a run's CPU time per push is not known.
fn ledger_ns_per_hop(off: &[Measured], times: &[Measured]) -> Option<f64> {
    let cost = |m: &Measured| m.metric("cpu_us_per_push");
    let differences = off.iter().zip(times).map(|(off, times)| Some((cost(times)? - cost(off)?) * 1e3 / 2.0));
    median(&differences.collect::<Option<Vec<_>>>()?)
}

fn paced(
    settings: &ExperimentSettings,
    rate: u64,
    rounds: usize,
    watch: &dyn ProgressView,
    summary: &mut Summary,
) -> Result<(), LabError> {
    let seconds = if settings.size == Size::Quick { 0.3 } else { 2.0 };
    let pushes = ((rate as f64 * seconds) as u64).max(15);
    let queue = format!("test bytes=64 frames={pushes} rate={rate} pool={POOL} ! queue depth={DEPTH} ! null");
    let gst = |mode| move || gst_push(settings, mode, "pool", 64, pushes, Some(rate));
    let contenders = vec![
        Contender::new("queue-times", || measure_queue(&queue, Level::Times)),
        Contender::new("gst-queue", gst("queue")),
        Contender::new("gst-queue2", gst("queue2")),
    ];
    let comparisons = [
        ("cpu_us_per_push", "queue-times", "gst-queue"),
        ("latency_p50_us", "queue-times", "gst-queue"),
        ("latency_p99_us", "queue-times", "gst-queue"),
    ];
    pairs::run(&paced_case(rate), contenders, &comparisons, rounds, watch, summary)?;
    Ok(())
}

/// Runs the path `text` in this process with the ledger at `level`.
fn measure_queue(text: &str, level: Level) -> Result<Measured, LabError> {
    let path = framepath::path::parse(text)?;
    let options = Options { level, rows: LEDGER_ROWS, ..Options::default() };
    let mut report = complete(framepath::run(&path, &options)?)?;
    let mut measured = Measured::from_report(&mut report);
    per_push(&mut measured);
    Ok(measured)
}

fn per_push(measured: &mut Measured) {
    for metric in ["cpu_us_per_push", "wall_us_per_push"] {
        let figure = measured.metric(metric);
        measured.extra.extend(figure.map(|us| (metric.to_owned(), us)));
    }
}

/// Figures in the line of JSON that the peer `gst-push` prints.
#[derive(Deserialize)]
struct GstPush {
    pushes: u64,
    wall_ns: u64,
    cpu_ns: u64,
    voluntary_switches: u64,
    involuntary_switches: u64,
    latency_ns: Option<GstLatency>,
}

#[derive(Deserialize)]
struct GstLatency {
    p50: u64,
    p95: u64,
    p99: u64,
    max: u64,
}

fn gst_push(
    settings: &ExperimentSettings,
    mode: &str,
    buffers: &str,
    size: u64,
    pushes: u64,
    rate: Option<u64>,
) -> Result<Measured, LabError> {
    let program = settings.peers.join("gst-push");
    if !program.exists() {
        let how = "the GStreamer peer is not built; apt install libgstreamer1.0-dev, then make build";
        return Err(LabError::Missing(how.to_owned()));
    }
    let mut args = vec![mode.to_owned(), size.to_string()];
    args.extend(["--count", &pushes.to_string(), "--alloc", buffers].map(str::to_owned));
    args.extend(rate.into_iter().flat_map(|r| ["--rate".to_owned(), r.to_string()]));
    let program = Program::new(program, args);
    let finished = program.run(true)?;
    let report: GstPush = serde_json::from_str(&finished.stdout).map_err(|e| LabError::Command {
        exit_code: None,
        command: program.text(),
        outcome: "printed no valid line of JSON".to_owned(),
        stderr: e.to_string(),
    })?;
    let us = |ns: u64| ns as f64 / 1e3;
    let mut measured = Measured {
        frames: report.pushes,
        wall_ns: report.wall_ns,
        cpu_ns: report.cpu_ns,
        latency: report.latency_ns.map(|l| LatencyUs {
            p50: us(l.p50),
            p95: us(l.p95),
            p99: us(l.p99),
            max: us(l.max),
        }),
        switches_per_frame: Some(
            (report.voluntary_switches + report.involuntary_switches) as f64 / report.pushes as f64,
        ),
        ..Measured::default()
    };
    per_push(&mut measured);
    Ok(measured)
}
