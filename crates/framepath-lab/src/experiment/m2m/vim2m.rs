// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contender `vim2m`: the kernel's own test device vim2m. Each frame is sent after the previous one has come
//! back, as `threshold device=` does with the measuring node of framepath's kernel module.

use std::sync::Arc;
use std::time::{Duration, Instant};

use framepath_model::format::{Layout, PixelFormat};
use framepath_model::stream::FrameMeta;
use framepath_model::summary::LatencyUs;
use framepath_os::measure::counters::Counters;
use framepath_os::measure::meter;
use framepath_os::process::signal;
use framepath_os::time::{now_ns, process_cpu_ns};
use framepath_os::v4l2::{
    CaptureBuffers, ControlValue, DevicePool, Direction, Fourcc, Heap, Io, Node, OutputBuffers, QueueFormat,
    V4l2Error,
};

use super::SIZE;
use super::nodes::Nodes;
use crate::error::LabError;
use crate::measure::Measured;

/// Id of vim2m's control for its delay per frame in milliseconds, from the driver's source.
const CID_TRANS_TIME: u32 = 0x0098_0900 + 0x1000;

/// Format with the byte count of the GREY picture: half the width, two bytes per pixel.
const FORMAT: Fourcc = Fourcc::new(b"RGBP");

/// Timeout for a frame to return from the device. After it the run fails.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends `frames` frames with `pixels` through the device, one after the other, and returns the
/// figures. The input frames are dmabufs of the heap that framepath's contenders use.
///
/// # Errors
/// [`LabError::Missing`] if vim2m or the heap is absent; [`LabError::Command`] if the device fails or
/// a frame does not return within ten seconds; [`LabError::Interrupted`] after SIGINT or SIGTERM.
pub(super) fn measured(nodes: &Nodes, pixels: &[u8], frames: u64) -> Result<Measured, LabError> {
    let node = Nodes::of(&nodes.vim2m)?;
    nodes.heap.clone().map_err(LabError::Missing)?;
    let failed = |error: V4l2Error| LabError::Command {
        exit_code: None,
        command: "lab m2m, contender vim2m".to_owned(),
        outcome: "failed".to_owned(),
        stderr: error.to_string(),
    };
    let mut device = Device::open(node, pixels.len()).map_err(failed)?;
    let mut latencies_ns = Vec::with_capacity(frames as usize);
    let mut counters = Counters::open();
    let (counts, wall_ns, cpu_ns) = (counters.read(), now_ns(), process_cpu_ns());
    meter::take();
    for seq in 0..frames {
        if signal::interrupted() {
            return Err(LabError::Interrupted);
        }
        latencies_ns.push(device.frame(pixels, seq).map_err(failed)?);
    }
    let wall_ns = now_ns() - wall_ns;
    let cpu_ns = process_cpu_ns() - cpu_ns;
    let counts = counters.read() - counts;
    let copied = meter::take().copied_bytes;
    latencies_ns.sort_unstable();
    let per_frame = |count: u64| count as f64 / frames as f64;
    Ok(Measured {
        frames,
        wall_ns,
        cpu_ns,
        latency: LatencyUs::of_sorted_ns(&latencies_ns),
        copied_bytes_per_frame: Some(per_frame(copied)),
        switches_per_frame: Some(per_frame(counts.voluntary_switches + counts.involuntary_switches)),
        extra: [("faults_per_frame".to_owned(), per_frame(counts.minor_faults)), ("dropped".to_owned(), 0.0)]
            .into(),
        ..Measured::default()
    })
}

struct Device {
    node: Arc<Node>,
    pool: DevicePool,
    layout: Layout,
    output: OutputBuffers,
    capture: CaptureBuffers,
}

impl Device {
    fn open(path: &std::path::Path, bytes: usize) -> Result<Device, V4l2Error> {
        let node = Arc::new(Node::open(path)?);
        let (width, height) = SIZE;
        let wanted =
            QueueFormat { width: width / 2, height, fourcc: FORMAT, stride: 0, bytes: 0, memory_planes: 1 };
        for direction in [Direction::Output, Direction::Capture] {
            let got = node.set_format(direction, &wanted)?;
            if got.bytes as usize != bytes {
                let what = format!("set a frame size of {} bytes, expected {bytes}", got.bytes);
                return Err(V4l2Error::Driver { node: node.path().to_owned(), what });
            }
        }
        node.set_controls(&[(CID_TRANS_TIME, ControlValue::Int(1))])?;
        let pool = DevicePool::new(&Heap::any(), bytes, 1)?;
        let output = OutputBuffers::new(&node, Io::DmaBuf, 1)?;
        let capture = CaptureBuffers::new(&node, Io::Mmap, 1, &Heap::Pages)?;
        node.stream(Direction::Output, true)?;
        node.stream(Direction::Capture, true)?;
        let layout =
            Layout::packed(PixelFormat::Grey, width, height).expect("a picture of the fixture's size");
        Ok(Device { node, pool, layout, output, capture })
    }

    /// Sends one frame through the device. Returns its latency in nanoseconds, from before its copy
    /// into the heap until its CAPTURE buffer is dequeued.
    fn frame(&mut self, pixels: &[u8], seq: u64) -> Result<u64, V4l2Error> {
        let mut slot = self.pool.acquire();
        let birth_ns = now_ns();
        slot.write(0, pixels);
        let meta = FrameMeta { seq, birth_ns, ..FrameMeta::default() };
        let frame = slot.freeze(&self.layout, meta).expect("the slot is as large as the picture");
        self.output.queue_frame(&frame, 0)?;
        drop(frame);
        let since = Instant::now();
        loop {
            self.node.wait_for_capture(PATIENCE, || false)?;
            if let Some(taken) = self.capture.dequeue()? {
                let latency_ns = now_ns() - birth_ns;
                // The device returned the OUTPUT buffer first.
                self.output.collect()?;
                self.capture.give_back(&taken);
                return Ok(latency_ns);
            }
            if since.elapsed() >= PATIENCE {
                let (node, waited_ms) = (self.node.path().to_owned(), since.elapsed().as_millis());
                return Err(V4l2Error::Silent { node, awaited: "no frame", waited_ms });
            }
        }
    }
}
