// SPDX-License-Identifier: MIT OR Apache-2.0
//! `encode`: RootStream's benchmark of a raw encoder. Measures the time that framepath's raw encoder takes
//! for each of 1000 frames of 1280x720 NV12, without and with a copy, and the time of a memcpy of the frame.

use framepath::{Level, Options};
use framepath_model::format::{Layout, PixelFormat};
use framepath_model::ledger::Latency;
use framepath_os::time::{now_ns, process_cpu_ns};

use crate::error::LabError;
use crate::experiment::{ExperimentResult, ExperimentSettings};
use crate::measure::{Contender, Measured, complete};
use crate::pairs;
use crate::progress::ProgressView;

const CASE: &str = "720p-nv12";
const FRAMES: usize = 1000;
const SIZE: (u32, u32) = (1280, 720);
/// Index of the encoder's hop in the path: behind the source, which is 0.
const ENCODER: u16 = 1;

/// Returns the names of all cases, those that run only with `--full` included.
pub(super) fn cases() -> Vec<String> {
    vec![CASE.to_owned()]
}

pub(super) fn run(
    settings: &ExperimentSettings,
    watch: &dyn ProgressView,
    findings: &mut ExperimentResult,
) -> Result<(), LabError> {
    let summary = &mut findings.summary;
    if !settings.wants(CASE) {
        return Ok(());
    }
    let rounds = settings.rounds(6, 20);
    watch.begin("encode", 3 * rounds as u64);
    let contenders = vec![
        Contender::new("raw", || encoder("raw")),
        Contender::new("raw-copy", || encoder("raw copy=1")),
        Contender::new("memcpy", memcpy),
    ];
    let comparisons = [("encode_p50_us", "raw", "memcpy"), ("encode_p50_us", "raw-copy", "memcpy")];
    pairs::run(CASE, contenders, &comparisons, rounds, watch, summary)?;
    summary.notes.push(format!(
        "{FRAMES} frames of {}x{} NV12; encode_* is the time of one frame in the encoder alone; wall time and CPU \
         include drawing the frames, except for memcpy",
        SIZE.0, SIZE.1
    ));
    Ok(())
}

fn encoder(arguments: &str) -> Result<Measured, LabError> {
    let (width, height) = SIZE;
    let text = format!("test size={width}x{height} frames={FRAMES} ! encode {arguments} ! null");
    let path = framepath::path::parse(&text)?;
    let mut report =
        complete(framepath::run(&path, &Options { level: Level::Times, ..Options::default() })?)?;
    let times = report.rows.iter().filter(|r| r.hop == ENCODER).map(|r| r.wall_ns()).collect();
    let mut measured = Measured::from_report(&mut report);
    add_times(&mut measured, times);
    Ok(measured)
}

/// Measures the lower bound of an encoder that copies: one memcpy of the bytes of each frame.
fn memcpy() -> Result<Measured, LabError> {
    let bytes = Layout::packed(PixelFormat::Nv12, SIZE.0, SIZE.1).map_or(0, |l| l.size);
    let from = vec![1u8; bytes];
    let mut to = vec![2u8; bytes];
    let (start_ns, start_cpu) = (now_ns(), process_cpu_ns());
    let times = (0..FRAMES)
        .map(|_| {
            let start = now_ns();
            framepath_os::measure::meter::copy_bytes(
                std::hint::black_box(&mut to),
                std::hint::black_box(&from),
            );
            now_ns() - start
        })
        .collect();
    let mut measured = Measured {
        frames: FRAMES as u64,
        wall_ns: now_ns() - start_ns,
        cpu_ns: process_cpu_ns() - start_cpu,
        copied_bytes_per_frame: Some(bytes as f64),
        ..Measured::default()
    };
    add_times(&mut measured, times);
    Ok(measured)
}

fn add_times(measured: &mut Measured, mut times: Vec<u64>) {
    times.sort_unstable();
    let Some(latency) = Latency::from_sorted(&times) else { return };
    let us = |ns: u64| ns as f64 / 1e3;
    let average = times.iter().sum::<u64>() / times.len() as u64;
    measured.extra.extend([
        ("encode_min_us".to_owned(), us(times[0])),
        ("encode_avg_us".to_owned(), us(average)),
        ("encode_p50_us".to_owned(), us(latency.p50)),
        ("encode_p99_us".to_owned(), us(latency.p99)),
        ("encode_max_us".to_owned(), us(latency.max)),
    ]);
}
