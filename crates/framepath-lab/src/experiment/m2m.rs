// SPDX-License-Identifier: MIT OR Apache-2.0
//! `m2m`: the questions of vpipe. Measures the cost of capturing a frame by each type of memory,
//! and of sending a frame through a memory-to-memory device: with or without a copy into the
//! device's buffer, and with a copy by the device or in place.
//!
//! ```text
//! capture          vivid ──read|mmap|dmabuf|userptr──▶ null
//! vivid-ALGO       vivid ──mmap|dmabuf|userptr──▶ measuring node ──▶ null
//! heap-ALGO        dma-heap or udmabuf ──dmabuf──▶ measuring node ──▶ null
//!                  plain memory ──mmap|userptr──▶ measuring node ──▶ null
//! heap-none        also: dma-heap or udmabuf ──dmabuf──▶ vim2m
//! *-threshold      also: the same source ──▶ `threshold` in this process ──▶ null
//! ```

mod nodes;
mod run;
mod vim2m;

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use framepath::{Level, Options};
use framepath_model::path::quote;
use framepath_os::time::thread_cpu_ns;
use tempfile::TempDir;

use crate::error::LabError;
use crate::experiment::{ExperimentResult, ExperimentSettings, Size};
use crate::kept::KeptLedger;
use crate::measure::Contender;
use crate::pairs::{self, Comparison};
use crate::progress::ProgressView;
use crate::temporary_folder::temporary_folder;

use nodes::Nodes;
use run::PathRun;

/// Width and height of the frames in pixels, with format GREY. vim2m gets half the width at two bytes
/// per pixel.
const SIZE: (u32, u32) = (640, 480);

/// Frames per second requested from vivid: its maximum at [`SIZE`].
const RATE: u32 = 60;

const LEVEL: u8 = 128;

/// One of framepath's contenders: its path, and the devices and memory that the path needs.
struct Way {
    contender: &'static str,
    path: String,
    needs: Vec<Need>,
    /// Index of the measuring node's hop, from 0; `None` for a path without the node.
    device_hop: Option<u16>,
}

/// Device or memory that a path requires: vivid, the measuring node, or a dma-heap or udmabuf. A contender
/// without it is skipped.
#[derive(Clone, Copy)]
enum Need {
    Camera,
    Measuring,
    Heap,
}

impl Need {
    fn met(self, nodes: &Nodes) -> Result<(), LabError> {
        match self {
            Need::Camera => Nodes::of(&nodes.camera).map(drop),
            Need::Measuring => Nodes::of(&nodes.measuring).map(drop),
            Need::Heap => nodes.heap.clone().map_err(LabError::Missing),
        }
    }
}

/// Contenders that use the measuring node: name, and arguments of the stage `threshold`.
const DEVICE: [(&str, &str); 4] = [
    ("device-mmap", "io=mmap"),
    ("device-userptr", "io=userptr"),
    ("device-dmabuf", "io=dmabuf"),
    ("device-dmabuf-in-place", "io=dmabuf in_place=1"),
];

/// Returns the names of all cases, those that run only with `--full` included.
pub(super) fn cases() -> Vec<String> {
    ["capture", "vivid-none", "vivid-threshold", "heap-none", "heap-threshold"].map(str::to_owned).into()
}

pub(super) fn run(
    settings: &ExperimentSettings,
    watch: &dyn ProgressView,
    findings: &mut ExperimentResult,
) -> Result<(), LabError> {
    let quick = settings.size == Size::Quick;
    let frames = if quick { 120 } else { 600 };
    let rounds = settings.rounds(2, 6);
    let nodes = Nodes::find();
    let picture = Fixture::make()?;
    let cases = ways(&nodes, &picture.file, frames);
    let wanted: Vec<_> = cases.into_iter().filter(|(case, _)| settings.wants(case)).collect();
    // The case heap-none has one more contender, vim2m.
    let contenders: usize =
        wanted.iter().map(|(case, ways)| ways.len() + usize::from(*case == "heap-none")).sum();
    watch.begin("m2m", (contenders * rounds) as u64);
    for (case, ways) in wanted {
        let runs: Vec<(PathRun, RefCell<Option<framepath::Report>>)> = ways
            .into_iter()
            .map(|way| (PathRun { way, frames, nodes: &nodes }, RefCell::new(None)))
            .collect();
        let mut contenders: Vec<Contender<'_>> = runs
            .iter()
            .map(|(run, kept)| {
                Contender::new(run.way.contender, || {
                    let (measured, report) = run.measured()?;
                    *kept.borrow_mut() = Some(report);
                    Ok(measured)
                })
            })
            .collect();
        if case == "heap-none" {
            contenders.push(Contender::new("vim2m", || vim2m::measured(&nodes, &picture.pixels, frames)));
        }
        pairs::run(case, contenders, &comparisons(case), rounds, watch, &mut findings.summary)?;
        for (run, kept) in runs {
            let name = format!("m2m {case} {}", run.way.contender);
            findings.ledgers.extend(kept.into_inner().map(|report| KeptLedger { name, report }));
        }
    }
    findings.summary.notes.extend(notes(frames));
    Ok(())
}

fn notes(frames: u64) -> Vec<String> {
    let (width, height) = SIZE;
    let mut notes = vec![
        format!(
            "{frames} frames of {width}x{height} GREY per run, the ledger at `full`; vivid sends {RATE} frames per \
             second, a dma-heap sends at full speed; latency begins at the driver's timestamp (`read` has none: \
             at the copy), or before the copy into the heap"
        ),
        "every frame through the measuring node has its own record, in order; only frames that the camera's \
         driver counted as dropped are missing; any other run fails"
            .to_owned(),
        "`copied` counts bytes copied by this process, `kernel copied` bytes that the node reports; a frame \
         is one buffer queued on each queue; CPU is that of this process, without the kernel's own threads"
            .to_owned(),
        "vim2m waits 1 ms for each frame, its minimum, in steps of its kernel's timer; it moves the same number \
         of bytes, as 320x480 of RGB565".to_owned(),
    ];
    if let Err(error) = framepath_os::machine::pmu() {
        notes.push(format!("this machine does not count cycles and cache misses ({error})"));
    }
    let step_ns = cpu_clock_step_ns();
    if step_ns > COARSE_NS {
        notes.push(format!(
            "this kernel's CPU clock has steps of {} ms: compute, copy and unexplained are meaningless here; \
             latency, device, counts and records are valid",
            step_ns / 1_000_000
        ));
    }
    notes
}

/// Step of the CPU clock, in nanoseconds, above which the clock is too coarse for a stage's work.
const COARSE_NS: u64 = 100_000;

/// Measures the step of the thread's CPU clock in nanoseconds; 10,000,000 (10 ms) in User-Mode Linux.
fn cpu_clock_step_ns() -> u64 {
    let next = |from: u64| loop {
        let now = thread_cpu_ns();
        if now > from {
            return now;
        }
    };
    let first = next(thread_cpu_ns());
    next(first) - first
}

fn ways(nodes: &Nodes, picture: &Path, frames: u64) -> Vec<(&'static str, Vec<Way>)> {
    let (width, height) = SIZE;
    let text = |path: &Path| quote(&path.to_string_lossy());
    let name =
        |node: &Result<PathBuf, String>| node.as_ref().map_or_else(|_| "none".to_owned(), |path| text(path));
    let (vivid, measuring) = (name(&nodes.camera), name(&nodes.measuring));
    let camera = |io: &str| {
        format!("v4l2 {vivid} io={io} size={width}x{height} format=grey rate={RATE} frames={frames}")
    };
    let heap = |heap: &str| format!("fixture {} frames={frames}{heap}", text(picture));
    let captures = ["read", "mmap", "dmabuf", "userptr"].map(|io| Way {
        contender: io,
        path: format!("{} ! null", camera(io)),
        needs: if io == "dmabuf" { vec![Need::Camera, Need::Heap] } else { vec![Need::Camera] },
        device_hop: None,
    });
    let mut cases = vec![("capture", Vec::from(captures))];
    for (case, algo) in [
        ("vivid-none", "none"),
        ("vivid-threshold", "threshold"),
        ("heap-none", "none"),
        ("heap-threshold", "threshold"),
    ] {
        // Sources with mmap or user pointers need no dmabuf.
        let source = |dmabuf: bool| match (case.starts_with("vivid"), dmabuf) {
            (true, _) => (camera("mmap"), Need::Camera),
            (false, true) => (heap(""), Need::Heap),
            (false, false) => (heap(" heap=pages"), Need::Measuring),
        };
        let mut ways: Vec<Way> = DEVICE
            .iter()
            .map(|(contender, arguments)| {
                let (source, need) = source(arguments.contains("dmabuf"));
                let stage = format!("threshold level={LEVEL} algo={algo} device={measuring} {arguments}");
                let path = format!("{source} ! {stage} ! null");
                Way { contender, path, needs: vec![Need::Measuring, need], device_hop: Some(1) }
            })
            .collect();
        if algo == "threshold" {
            let (source, need) = source(true);
            let path = format!("{source} ! threshold level={LEVEL} ! null");
            ways.push(Way { contender: "inline-threshold", path, needs: vec![need], device_hop: None });
        }
        cases.push((case, ways));
    }
    cases
}

/// Returns the comparisons of `case`. `capture` compares each type of memory with `read`. The other
/// cases compare dmabufs with copies into the device's buffers, and work in place with copying by the
/// device. The cases `*-threshold` also compare the device with the stage in this process, and `heap-none`
/// compares the device with vim2m.
fn comparisons(case: &str) -> Vec<Comparison<'static>> {
    if case == "capture" {
        return ["mmap", "dmabuf", "userptr"].map(|io| ("cpu_us_per_frame", io, "read")).into();
    }
    let mut comparisons = Vec::new();
    for metric in ["latency_p50_us", "latency_p99_us", "cpu_us_per_frame"] {
        comparisons.push((metric, "device-dmabuf", "device-mmap"));
        comparisons.push((metric, "device-dmabuf-in-place", "device-dmabuf"));
    }
    if case.ends_with("-threshold") {
        comparisons.push(("latency_p50_us", "device-dmabuf", "inline-threshold"));
        comparisons.push(("latency_p50_us", "device-dmabuf-in-place", "inline-threshold"));
    }
    if case == "heap-none" {
        comparisons.push(("latency_p50_us", "device-dmabuf", "vim2m"));
        comparisons.push(("latency_p50_us", "device-dmabuf-in-place", "vim2m"));
    }
    comparisons
}

/// Picture for the frames that come from a heap, as a file and as pixels. The folder of the file is
/// removed when this value is dropped.
struct Fixture {
    _folder: TempDir,
    file: PathBuf,
    pixels: Vec<u8>,
}

impl Fixture {
    fn make() -> Result<Fixture, LabError> {
        let folder = temporary_folder()?;
        let file = folder.path().join("frame-000000.pgm");
        let place = quote(&folder.path().to_string_lossy());
        let (width, height) = SIZE;
        let text = format!("test size={width}x{height} format=grey frames=1 ! pgm {place}");
        let path = framepath::path::parse(&text)?;
        let report = framepath::run(&path, &Options { level: Level::Off, ..Options::default() })?;
        if let Some(error) = report.error {
            return Err(error.into());
        }
        let picture = framepath::pgm::PgmPicture::open(&file)
            .map_err(|error| LabError::Unknown(format!("reading the fixture: {error}")))?;
        Ok(Fixture { _folder: folder, file, pixels: picture.pixels })
    }
}
