// SPDX-License-Identifier: MIT OR Apache-2.0
//! `threshold device=PATH`: runs in the kernel's measuring node.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use framepath_model::format::{Layout, PixelFormat};
use framepath_model::path;
use framepath_model::stream::StreamInfo;
use framepath_os::measure::meter;
use framepath_os::memory::pool::Frame;
use framepath_os::process::signal;
use framepath_os::time::now_ns;
use framepath_os::v4l2::{
    CaptureBuffers, ControlValue, Delivered, Direction, Fourcc, Heap, InPlace, Io, Node, NodeRole,
    OutputBuffers, QueueFormat, V4l2Error, measuring as numbers,
};

use super::frame_records::FrameRecords;
use super::{PATIENCE, SLICE, io_of, layout_of};
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::stage::Stage;

/// Number of CAPTURE buffers: one that the device writes, and those in frames downstream.
const BUFFERS: u32 = 8;

/// Stage that runs in the measuring node. The stage queues one frame, waits for the result and passes
/// the result on.
pub(crate) struct DeviceThreshold {
    node: PathBuf,
    level: u8,
    roi: (u32, u32, u32, u32),
    algo: u32,
    in_place: bool,
    /// True if the node's records get a checksum.
    crc32: bool,
    /// Memory type of the option `io`; dmabuf with `in_place`; `None` if the memory of the frames determines
    /// the type.
    io: Option<Io>,
    /// The node, opened when the stage is made, so that no other program takes it before the first frame;
    /// `None` from the first frame on.
    opened: Option<Arc<Node>>,
    queues: Option<DeviceQueues>,
    /// Reader of the node's records, for the ledger; `None` before the start, and if they cannot be read.
    records: Option<FrameRecords>,
}

/// The queues for frames of one layout.
struct DeviceQueues {
    node: Arc<Node>,
    io: Io,
    /// Layout of input frames.
    from: Layout,
    /// Layout of output frames.
    to: Layout,
    /// Stride of the device's input, bytes.
    stride: usize,
    output: OutputBuffers,
    capture: Capture,
}

enum Capture {
    Own(CaptureBuffers),
    InPlace(InPlace),
}

impl DeviceThreshold {
    /// Makes the stage of `hop`, and opens its node.
    ///
    /// # Errors
    /// The node cannot be opened or is no measuring node, or `in_place=1` has another `io` than `dmabuf`.
    pub(crate) fn open(hop: &path::Hop) -> Result<DeviceThreshold, StageError> {
        let path = PathBuf::from(hop.text("device"));
        let in_place = hop.flag("in_place");
        let io = if hop.is_set("io") { io_of(hop.choice("io")) } else { None };
        if in_place && io.is_some_and(|io| io != Io::DmaBuf) {
            let what =
                "in_place=1 needs io=dmabuf: the device can only read and write the same buffer if it is a dmabuf"
                    .to_owned();
            return Err(StageError::Option(what));
        }
        let node = measuring(&path)?;
        Ok(DeviceThreshold {
            node: path,
            level: hop.level("level"),
            roi: hop.roi("roi").unwrap_or((0, 0, 0, 0)),
            algo: match hop.choice("algo") {
                "threshold" => numbers::ALGO_THRESHOLD,
                _ => numbers::ALGO_NONE,
            },
            in_place,
            crc32: hop.flag("crc32"),
            io: if in_place { Some(Io::DmaBuf) } else { io },
            opened: Some(node),
            queues: None,
            records: None,
        })
    }

    /// Returns the queues for frames with the layout of `frame`; sets up new queues if the layout has
    /// changed.
    ///
    /// # Errors
    /// The format is not GREY, the device does not support the size or stride, or the device cannot be opened
    /// or set up.
    fn queues_for(&mut self, frame: &Frame) -> Result<&mut DeviceQueues, StageError> {
        let from = *frame.layout();
        if self.queues.as_ref().is_some_and(|queues| queues.from == from) {
            return Ok(self.queues.as_mut().expect("checked above"));
        }
        if from.format != PixelFormat::Grey {
            return Err(StageError::Format { format: from.format, takes: "GREY" });
        }
        // Closes the queues of the previous layout, and their node. Frames downstream keep their memory.
        self.queues = None;
        let node = match self.opened.take() {
            Some(node) => node,
            None => measuring(&self.node)?,
        };
        let io = self.io.unwrap_or(if frame.dmabuf().is_some() { Io::DmaBuf } else { Io::Mmap });
        Ok(self.queues.insert(DeviceQueues::new(node, io, from, self.in_place, &self.controls())?))
    }

    fn controls(&self) -> Vec<(u32, ControlValue)> {
        let number = |value: u32| ControlValue::Int(value as i32);
        let (left, top, width, height) = self.roi;
        let mut controls = vec![
            (numbers::CID_ALGO, number(self.algo)),
            (numbers::CID_THRESHOLD, number(self.level.into())),
            (numbers::CID_ROI_LEFT, number(left)),
            (numbers::CID_ROI_TOP, number(top)),
            (numbers::CID_ROI_WIDTH, number(width)),
            (numbers::CID_ROI_HEIGHT, number(height)),
            (numbers::CID_IN_PLACE, ControlValue::Int(self.in_place.into())),
        ];
        // Older modules lack this control.
        if self.crc32 {
            controls.push((numbers::CID_CRC32, ControlValue::Int(1)));
        }
        controls
    }
}

fn measuring(path: &std::path::Path) -> Result<Arc<Node>, StageError> {
    let node = Node::open(path)?;
    node.must_be(NodeRole::Measuring)?;
    Ok(Arc::new(node))
}

impl DeviceQueues {
    fn new(
        node: Arc<Node>,
        io: Io,
        from: Layout,
        in_place: bool,
        controls: &[(u32, ControlValue)],
    ) -> Result<DeviceQueues, StageError> {
        let stride = from.planes()[0].stride as u32;
        let (width, height) = (from.width, from.height);
        let requested =
            QueueFormat { width, height, fourcc: Fourcc::GREY, stride, bytes: 0, memory_planes: 1 };
        let mismatch = |actual: &QueueFormat| {
            let size = format!("{}x{} with stride {}", actual.width, actual.height, actual.stride);
            StageError::Option(format!(
                "{} does not support frames of {width}x{height} with stride {stride}; it offers {size}",
                node.path().display()
            ))
        };
        let input = node.set_format(Direction::Output, &requested)?;
        let fits =
            (input.width, input.height) == (width, height) && (io == Io::Mmap || input.stride == stride);
        if !fits {
            return Err(mismatch(&input));
        }
        let result =
            node.set_format(Direction::Capture, &QueueFormat { stride: input.stride, ..requested })?;
        if (result.width, result.height) != (width, height) || (in_place && result.stride != stride) {
            return Err(mismatch(&result));
        }
        node.set_controls(controls)?;
        let output = OutputBuffers::new(&node, io, 1)?;
        let capture = match in_place {
            true => Capture::InPlace(InPlace::new(&node)?),
            false => Capture::Own(CaptureBuffers::new(&node, Io::Mmap, BUFFERS, &Heap::Pages)?),
        };
        node.stream(Direction::Output, true)?;
        node.stream(Direction::Capture, true)?;
        let to = if in_place { from } else { layout_of(&result, None)? };
        Ok(DeviceQueues { stride: input.stride as usize, node, io, from, to, output, capture })
    }

    /// Copies the frame into the driver's memory if the memory type is mmap. Returns the number of copied
    /// bytes, with the padding of rows that the device's stride needs; 0 for the other types.
    fn fill(&mut self, frame: &Frame) -> Result<usize, StageError> {
        if self.io != Io::Mmap {
            return Ok(0);
        }
        let plane = self.from.planes()[0];
        if plane.stride == self.stride || plane.rows == 1 {
            return Ok(self.output.fill(std::iter::once(frame.plane(0)))?);
        }
        let padding = vec![0; self.stride.saturating_sub(plane.width)];
        let rows =
            (0..plane.rows).flat_map(|y| [frame.row(0, y), framepath_os::memory::pool::Plane::of(&padding)]);
        Ok(self.output.fill(rows)?)
    }

    /// Runs the device on the frame, and waits for the result. With mmap, the first `bytes` bytes of the
    /// driver's buffer are the frame; otherwise `bytes` is not used. Returns the CAPTURE buffer; `None` if a
    /// signal or a stop request ends the run.
    ///
    /// # Errors
    /// The device failed, or returned no frame within [`PATIENCE`].
    fn run(&mut self, frame: &Frame, bytes: usize) -> Result<Option<Delivered>, StageError> {
        if let Capture::InPlace(capture) = &self.capture {
            capture.queue_frame(frame)?;
        }
        match self.io {
            Io::Mmap => self.output.send(bytes, 0)?,
            Io::DmaBuf | Io::UserPtr => self.output.queue_frame(frame, 0)?,
        }
        let since = Instant::now();
        while !signal::interrupted() {
            let ready = self.node.wait_for_capture(SLICE, || false)?;
            let taken = match &self.capture {
                _ if ready.is_none() => None,
                Capture::Own(capture) => capture.dequeue()?,
                Capture::InPlace(capture) => capture.take()?,
            };
            if let Some(taken) = taken {
                self.output.collect()?;
                if taken.failed {
                    let what = "failed to process a frame".to_owned();
                    return Err(V4l2Error::Driver { node: self.node.path().to_owned(), what }.into());
                }
                return Ok(Some(taken));
            }
            if since.elapsed() >= PATIENCE {
                let (node, waited_ms) = (self.node.path().to_owned(), since.elapsed().as_millis());
                return Err(V4l2Error::Silent { node, awaited: "no frame", waited_ms }.into());
            }
        }
        Ok(None)
    }

    /// Waits until the device has a CAPTURE buffer to write to, or until a signal or a stop request ends the
    /// run. Returns at once with `in_place=1`.
    fn wait_for_room(&self) {
        if let Capture::Own(capture) = &self.capture {
            while capture.queued() == 0 && !signal::interrupted() {
                capture.wait_for_return(SLICE, || false);
            }
        }
    }
}

impl Stage for DeviceThreshold {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        self.records = FrameRecords::open();
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|e| out.fail(e))?;
        let meta = frame.meta();
        if self.in_place && !frame.is_only() {
            let what = "in_place=1: another stage still uses the frame; leave in_place out".to_owned();
            return Err(out.fail(StageError::Option(what)));
        }
        let queues = self.queues_for(&frame).map_err(|e| out.fail(e))?;
        queues.wait_for_room();
        let bytes = queues.fill(&frame).map_err(|e| out.fail(e))?;
        let sequence = ControlValue::Wide(meta.seq as i64);
        queues.node.set_controls(&[(numbers::CID_SRC_SEQUENCE, sequence)]).map_err(|e| out.fail(e))?;
        let queued_ns = now_ns();
        let done = meter::in_device(|| queues.run(&frame, bytes)).map_err(|e| out.fail(e))?;
        let Some(taken) = done else { return Ok(()) };
        let result = match &queues.capture {
            Capture::Own(capture) => {
                drop(frame);
                capture.frame(&taken, &queues.to, meta).map_err(|e| out.fail(e))?
            }
            Capture::InPlace(_) => frame,
        };
        if let Some(record) = self.records.as_mut().and_then(|records| records.of(meta.seq, queued_ns)) {
            let queued = record.start_ns.saturating_sub(record.queued_ns);
            let run = record.end_ns.saturating_sub(record.start_ns);
            out.recorder().split_device(queued, run);
        }
        out.push(Item::Frame(result))
    }
}
