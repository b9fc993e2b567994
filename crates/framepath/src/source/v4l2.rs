// SPDX-License-Identifier: MIT OR Apache-2.0
//! `v4l2`: frames of a camera, in the driver's buffers, or copied with `io=read`; or packets of a camera that
//! compresses, always copied out of the buffers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use framepath_codec::{Codec, Packet, TrackInfo};
use framepath_model::access_point::{AccessPoints, RandomAccess};
use framepath_model::format::{Layout, PixelFormat};
use framepath_model::orientation::Orientation;
use framepath_model::path::{Arg, DefaultValue, Definition, Hop, ValueKind};
use framepath_model::stream::{FrameMeta, Rational, StreamInfo};
use framepath_os::measure::meter;
use framepath_os::memory::pool::Pool;
use framepath_os::process::signal;
use framepath_os::time::now_ns;
use framepath_os::v4l2::{
    CaptureBuffers, Direction, Fourcc, Heap, Io, Node, NodeRole, QueueFormat, Ready, V4l2Error,
};

use crate::device::{PATIENCE, SLICE, fourcc, io_of, layout_of, pixel_format};
use crate::element::{Element, HopPlace};
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::source::{HEAP, Source, frames, heap_of};

static DEFINITION: Definition = Definition::source(
    "v4l2",
    "frames or compressed packets of a camera or other V4L2 device",
)
.args(&[
    Arg::word("device", ValueKind::Text("the path of a V4L2 node"), "the node, such as /dev/video0"),
    Arg::option(
        "io",
        ValueKind::choice(&["mmap", "dmabuf", "userptr", "read"]),
        DefaultValue::Is("mmap"),
        "buffer memory: driver (mmap), dma-heap, user pointer, or read() copy",
    ),
    Arg::option(
        "size",
        ValueKind::Size,
        DefaultValue::Unset("the device's present value"),
        "size of the picture in pixels",
    ),
    Arg::option(
        "format",
        ValueKind::choice(&FORMATS),
        DefaultValue::Unset("the device's present pixel format, or the first of these that it offers"),
        "pixel format; or `mjpg` or `h264`: packets, for `decode`",
    ),
    Arg::option(
        "rate",
        ValueKind::Rate,
        DefaultValue::Unset("the device's present value"),
        "frames per second; 0: the device's present value",
    ),
    frames("300"),
    Arg::option(
        "buffers",
        ValueKind::count(2, 32),
        DefaultValue::Is("8"),
        "number of the device's buffers, which the driver may change; with io=read, number of frames in the \
             source's pool",
    ),
    HEAP,
]);

/// Values of the option `format`: pixel formats, and codecs.
const FORMATS: [&str; 17] = [
    "grey", "yuv420p", "nv12", "p010", "yuyv", "uyvy", "yuv422p", "rgb24", "bgr24", "bgr0", "bgra", "rgba",
    "grey10", "grey12", "grey16", MJPG, H264,
];

const MJPG: &str = "mjpg";
const H264: &str = "h264";

pub(crate) fn element() -> Element {
    Element::source(&DEFINITION, make)
}

fn make(hop: &Hop, place: &HopPlace<'_>) -> Result<V4l2, StageError> {
    let options = V4l2Options {
        node: hop.text("device").to_owned(),
        io: io_of(hop.choice("io")),
        size: hop.is_set("size").then(|| hop.size("size")),
        format: match hop.is_set("format").then(|| hop.choice("format")) {
            None => None,
            Some(MJPG) => {
                Some(CameraFormat::Packets(Fourcc::MJPG, Codec::named("mjpeg").ok_or_else(no_mjpeg)?))
            }
            Some(H264) => Some(CameraFormat::Packets(Fourcc::H264, Codec::H264)),
            Some(format) => Some(CameraFormat::Pixels(format.parse()?)),
        },
        rate: if hop.is_set("rate") { hop.rate("rate") } else { 0.0 },
        frames: hop.count("frames"),
        buffers: hop.count("buffers") as u32,
        heap: heap_of(hop),
    };
    V4l2::open(&options, place.outcomes.missed.clone())
}

/// Seconds in a tick of the frames' times: V4L2 has microseconds.
const TIME_BASE: Rational = Rational::new(1, 1_000_000);

fn no_mjpeg() -> StageError {
    StageError::Option("format=mjpg: the installed libavcodec has no decoder of MJPEG".to_owned())
}

/// Data that a camera delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CameraFormat {
    /// Frames of this pixel format.
    Pixels(PixelFormat),
    /// Packets of a codec, with V4L2's code for it.
    Packets(Fourcc, Codec),
}

/// Options of the `v4l2` source.
#[derive(Clone, Debug)]
pub(crate) struct V4l2Options {
    /// Path of the device's node, such as `/dev/video0`.
    pub(crate) node: String,
    /// Memory of the device's buffers; `None` for `io=read`, which has none.
    pub(crate) io: Option<Io>,
    /// Width and height in pixels; `None` keeps the device's size.
    pub(crate) size: Option<(u32, u32)>,
    /// Format; `None` keeps the device's pixel format if framepath supports it, else takes the first
    /// supported pixel format that the device offers.
    pub(crate) format: Option<CameraFormat>,
    /// Frame rate in Hz; 0 keeps the device's rate.
    pub(crate) rate: f64,
    /// Number of frames; 0: no limit.
    pub(crate) frames: u64,
    /// Number of the device's buffers, or of the pool's slots with `io=read`.
    pub(crate) buffers: u32,
    /// Allocator of the buffers' memory with `io=dmabuf`.
    pub(crate) heap: Heap,
}

/// The `v4l2` source. The birth of a frame is the driver's stamp if the driver stamps by CLOCK_MONOTONIC,
/// else the time when the source takes the frame. Its number is the driver's, minus that of the first frame,
/// so that a gap shows frames that the driver dropped; if the driver restarts its count, the numbers go on.
/// With `io=read`, the source counts the frames.
pub(crate) struct V4l2 {
    input: CameraInput,
    node: Arc<Node>,
    content: CameraContent,
    info: StreamInfo,
    /// Number of frames still to emit; `u64::MAX` at the start if there is no limit.
    left: u64,
    /// The driver's number and stamp (microseconds) of the first frame; `None` before.
    first: Option<(u64, u64)>,
    /// The driver's number of the next frame, if none is dropped.
    next: u64,
    /// Number of dropped and damaged frames, by the gaps in the driver's frame numbers, for the run's report.
    missed: Arc<AtomicU64>,
    /// True after streaming was started, from then on; with `io=read`, after the first call of `produce`.
    started: bool,
    silence: Silence,
}

/// Content of the device's buffers.
enum CameraContent {
    /// Pictures with this layout.
    Pictures(Layout),
    /// A packet of this track in each buffer.
    Packets(TrackInfo, AccessPoints),
}

/// Start of the time in which a device with queued buffers has delivered no frame; `None` after a frame, and
/// while no buffer is queued.
#[derive(Default)]
struct Silence(Option<Instant>);

/// Reason why a wait for a frame ended.
#[derive(Debug, PartialEq, Eq)]
enum Waited {
    /// There is a frame, or an error that the next call on the device returns.
    Frame,
    /// A signal or a stop request ends the run.
    Ended,
    /// A request waits for the thread.
    Request,
}

/// Transfer of frames from the device.
enum CameraInput {
    /// Frames in buffers of the device's CAPTURE queue.
    Queue(CaptureBuffers),
    /// Frames that read(2) copies into slots of this pool. The ledger counts the copy.
    Read(Pool),
}

impl V4l2 {
    /// Opens the device, sets its format and rate, and makes its buffers; streaming starts with the first
    /// call of `produce`. The number of frames that the driver drops or damages is added to `missed`.
    pub(crate) fn open(options: &V4l2Options, missed: Arc<AtomicU64>) -> Result<V4l2, StageError> {
        let node = Arc::new(Node::open(options.node.as_ref())?);
        node.must_be(NodeRole::Camera)?;
        let picture = set_format(&node, options)?;
        let rate = (options.rate > 0.0).then(|| ((options.rate * 1000.0).round() as u32, 1000));
        let (over, under) = node.set_rate(rate).unwrap_or((0, 1));
        let frame_rate = Rational::new(under.min(i32::MAX as u32) as i32, over.min(i32::MAX as u32) as i32);
        let unknown = StreamInfo {
            format: None,
            width: picture.width,
            height: picture.height,
            time_base: TIME_BASE,
            frame_rate,
            sample_aspect: Rational::new(1, 1),
            orientation: Orientation::Upright,
        };
        let (content, info, bytes) = match options.format {
            Some(CameraFormat::Packets(_, codec)) => {
                let track = TrackInfo::from_codec(codec, unknown)?;
                let (points, info) = (track.access_points(), track.stream);
                (CameraContent::Packets(track, points), info, picture.bytes as usize)
            }
            _ => {
                let layout = layout_of(&picture, None)?.with_colors(node.colors(Direction::Capture)?);
                let info = StreamInfo { format: Some(layout.format), ..unknown };
                (CameraContent::Pictures(layout), info, layout.size.max(picture.bytes as usize))
            }
        };
        let input = match options.io {
            Some(io) => CameraInput::Queue(CaptureBuffers::new(&node, io, options.buffers, &options.heap)?),
            None if node.can_read() => CameraInput::Read(Pool::new(bytes, options.buffers)?),
            None => {
                let what = format!("{} does not support read(2); use io=mmap", options.node);
                return Err(StageError::Option(what));
            }
        };
        let left = if options.frames == 0 { u64::MAX } else { options.frames };
        Ok(V4l2 {
            input,
            node,
            content,
            info,
            left,
            first: None,
            next: 0,
            missed,
            started: false,
            silence: Silence::default(),
        })
    }

    /// Waits until the device has a frame, a signal or a stop request ends the run, or a request arrives for
    /// the thread. Fails if the device fails, or has a buffer to fill and delivers no frame for [`PATIENCE`].
    fn wait(&mut self, out: &Out<'_>) -> Result<Waited, StageError> {
        let has_request = || out.has_request();
        let (node, input) = (&self.node, &self.input);
        wait_for_frame(&mut self.silence, has_request, || {
            if let CameraInput::Queue(buffers) = input {
                if buffers.queued() == 0 {
                    // All buffers are in frames downstream, so this wait does not count as silence.
                    buffers.wait_for_return(SLICE, has_request);
                    return Ok(None);
                }
            }
            node.wait_for_capture(SLICE, has_request).map(Some)
        })
        .map_err(|error| match error {
            NoFrame::Device(error) => error.into(),
            NoFrame::Silent { waited_ms } => {
                let node = node.path().to_owned();
                V4l2Error::Silent { node, awaited: "no frame", waited_ms }.into()
            }
        })
    }

    /// Returns the metadata of a frame with the driver's number `sequence` and stamp (microseconds). Counts
    /// a gap before this number as missed frames.
    fn meta(&mut self, sequence: u32, stamp_us: u64, birth_ns: u64) -> FrameMeta {
        // In 32 bits, because the driver's number wraps around.
        let (first, first_us) = *self.first.get_or_insert_with(|| {
            self.next = sequence.into();
            (sequence.into(), stamp_us)
        });
        let gap = u64::from(sequence.wrapping_sub(self.next as u32));
        // A smaller number means that the driver has restarted its count, not that frames were dropped.
        let gap = if gap > u64::from(u32::MAX / 2) { 0 } else { gap };
        self.missed.fetch_add(gap, Ordering::Relaxed);
        let number = self.next + gap;
        self.next = number + 1;
        let pts = i64::try_from(stamp_us.saturating_sub(first_us)).ok();
        FrameMeta { seq: number - first, birth_ns, pts, duration: 0, ..FrameMeta::default() }
    }

    /// Takes the next frame or packet from the device; `None` if there is none yet, or it is damaged. The thread
    /// has waited since `waited_since_ns` (CLOCK_MONOTONIC).
    fn take(&mut self, waited_since_ns: u64, out: &mut Out<'_>) -> Result<Option<Item>, StageError> {
        if let CameraInput::Queue(buffers) = &self.input {
            let Some(taken) = buffers.dequeue()? else { return Ok(None) };
            // A damaged frame counts as dropped by the driver, because its number is missing then.
            let least = match &self.content {
                CameraContent::Pictures(layout) => layout.pixel_bytes(),
                CameraContent::Packets(..) => 1,
            };
            if taken.failed || taken.bytes < least {
                buffers.give_back(&taken);
                return Ok(None);
            }
            let now_us = now_ns() / 1000;
            let stamp_us = if taken.monotonic { taken.timestamp_us } else { now_us };
            let birth_ns = out.recorder().captured(stamp_us * 1000, waited_since_ns);
            let meta = self.meta(taken.sequence, stamp_us, birth_ns);
            let CameraInput::Queue(buffers) = &self.input else { return Ok(None) };
            return match &mut self.content {
                CameraContent::Pictures(layout) => {
                    Ok(Some(Item::Frame(buffers.frame(&taken, layout, meta)?)))
                }
                CameraContent::Packets(_, points) => {
                    let end = taken.offset.saturating_add(taken.bytes);
                    let buffer = buffers.frame(&taken, &Layout::opaque(end), meta)?;
                    let bytes = buffer.plane(0).sub(taken.offset..end).to_vec();
                    packet(&bytes, meta, points).map(Some)
                }
            };
        }
        let CameraInput::Read(pool) = &mut self.input else { return Ok(None) };
        let mut frame = pool.acquire()?;
        // read(2) returns neither stamp nor number, so the start of the copy is the birth.
        let now = now_ns();
        let birth_ns = out.recorder().captured(now, waited_since_ns);
        // The slot as bytes, with the driver's padding.
        let to = frame.plane_mut(0);
        let expected = if let CameraContent::Pictures(layout) = &self.content { layout.size } else { 0 };
        let read = meter::copy(expected, || self.node.read(to))?;
        let Some(read) = read else { return Ok(None) };
        if read < expected {
            let what = format!("returned {read} bytes of a frame of {expected}");
            return Err(V4l2Error::Driver { node: self.node.path().to_owned(), what }.into());
        }
        if let CameraContent::Pictures(layout) = self.content {
            frame.set_layout(&layout)?;
            let meta = self.meta(self.next as u32, now / 1000, birth_ns);
            return Ok(Some(Item::Frame(frame.freeze(meta))));
        }
        meter::count_copied(read);
        let bytes = frame.plane_mut(0)[..read].to_vec();
        let meta = self.meta(self.next as u32, now / 1000, birth_ns);
        let CameraContent::Packets(_, points) = &mut self.content else { return Ok(None) };
        packet(&bytes, meta, points).map(Some)
    }
}

/// Makes a packet of a camera's bytes.
fn packet(bytes: &[u8], meta: FrameMeta, points: &mut AccessPoints) -> Result<Item, StageError> {
    // The driver's flag is not reliable: the bytes decide.
    let timed = meta.pts.is_some();
    let is_point =
        !points.needs(true, timed) || points.inspect(bytes, true, true) == Some(RandomAccess::Point);
    let packet = Packet::copied(bytes, meta, is_point);
    packet.map(Item::Packet).ok_or_else(|| StageError::Option("no memory for a packet".to_owned()))
}

impl Source for V4l2 {
    fn info(&self) -> StreamInfo {
        self.info
    }

    fn track_info(&self) -> Option<TrackInfo> {
        match &self.content {
            CameraContent::Pictures(_) => None,
            CameraContent::Packets(track, _) => Some(track.clone()),
        }
    }

    fn is_live(&self) -> bool {
        true
    }

    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, HopFailure> {
        if self.left == 0 {
            return Ok(false);
        }
        if !self.started && matches!(self.input, CameraInput::Queue(_)) {
            self.node.stream(Direction::Capture, true).map_err(|e| out.fail(e))?;
        }
        self.started = true;
        out.mark();
        let waited_since_ns = now_ns();
        loop {
            // With `io=read`, poll(2) also starts the device.
            match self.wait(out).map_err(|e| out.fail(e))? {
                Waited::Frame => {}
                Waited::Ended => return Ok(false),
                Waited::Request => return Ok(true),
            }
            if let Some(item) = self.take(waited_since_ns, out).map_err(|e| out.fail(e))? {
                self.silence = Silence::default();
                self.left -= 1;
                out.push(item)?;
                return Ok(true);
            }
        }
    }
}

/// Error that ends a wait for a frame.
#[derive(Debug)]
enum NoFrame {
    /// The device failed.
    Device(V4l2Error),
    /// The device had buffers to fill and delivered no frame for [`PATIENCE`].
    Silent {
        /// Time of the wait, milliseconds.
        waited_ms: u128,
    },
}

/// Calls `poll` until there is a frame or an error of the device, `has_request` is true, a signal or a stop
/// request ends the run, or the device was silent for [`PATIENCE`]. `poll` waits for a short time, returns
/// early if `has_request` is true, and returns `None` if the device has no buffer to fill.
fn wait_for_frame(
    silence: &mut Silence,
    has_request: impl Fn() -> bool,
    mut poll: impl FnMut() -> Result<Option<Ready>, V4l2Error>,
) -> Result<Waited, NoFrame> {
    while !signal::interrupted() {
        if has_request() {
            return Ok(Waited::Request);
        }
        // Kept across requests, because they do not end the device's silence.
        let since = *silence.0.get_or_insert_with(Instant::now);
        match poll().map_err(NoFrame::Device)? {
            None => silence.0 = None,
            // The next call on the device returns the error.
            Some(ready) if ready.capture || ready.error => return Ok(Waited::Frame),
            Some(_) if since.elapsed() >= PATIENCE => {
                return Err(NoFrame::Silent { waited_ms: since.elapsed().as_millis() });
            }
            Some(_) => {}
        }
    }
    Ok(Waited::Ended)
}

/// Sets the requested format and size. Returns the format that the device has chosen. Fails if the device
/// does not support the requested format or size, or, if no format is requested, offers no supported one.
fn set_format(node: &Node, options: &V4l2Options) -> Result<QueueFormat, StageError> {
    let now = node.format(Direction::Capture)?;
    let offered: Vec<_> = node.formats(Direction::Capture).into_iter().map(|offer| offer.fourcc).collect();
    let chosen = match options.format {
        Some(CameraFormat::Pixels(format)) => fourcc(format).filter(|name| offered.contains(name)),
        Some(CameraFormat::Packets(name, _)) => Some(name).filter(|name| offered.contains(name)),
        None if pixel_format(now.fourcc).is_some() => Some(now.fourcc),
        None => crate::device::FORMATS.iter().map(|(name, _)| *name).find(|name| offered.contains(name)),
    };
    let Some(fourcc) = chosen else {
        let requested = match options.format {
            Some(CameraFormat::Pixels(format)) => format!("{format} frames"),
            Some(CameraFormat::Packets(name, _)) => format!("{name} packets"),
            None => {
                "frames of a supported pixel format (format=mjpg and format=h264 take packets)".to_owned()
            }
        };
        return Err(node.lacks(Direction::Capture, &requested).into());
    };
    let (width, height) = options.size.unwrap_or((now.width, now.height));
    let requested = QueueFormat { width, height, fourcc, stride: 0, bytes: 0, memory_planes: 1 };
    let actual = node.set_format(Direction::Capture, &requested)?;
    if actual.fourcc != fourcc {
        return Err(node.lacks(Direction::Capture, &format!("{fourcc} frames of {width}x{height}")).into());
    }
    if options.size.is_some() && (actual.width, actual.height) != (width, height) {
        let what = format!(
            "size={width}x{height}: {} does not support it; the nearest size is {}x{}",
            options.node, actual.width, actual.height
        );
        return Err(StageError::Option(what));
    }
    Ok(actual)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const NONE: Ready = Ready { capture: false, output: false, event: false, error: false };

    #[test]
    fn a_request_ends_the_wait_for_a_frame_and_the_next_wait_goes_on() {
        let (polls, mut silence) = (Cell::new(0), Silence::default());
        let poll = || {
            polls.set(polls.get() + 1);
            Ok(Some(Ready { capture: polls.get() == 3, ..NONE }))
        };
        let waited = wait_for_frame(&mut silence, || polls.get() == 1, poll);
        assert_eq!((waited.unwrap(), polls.get()), (Waited::Request, 1));
        let since = silence.0;
        let waited = wait_for_frame(&mut silence, || false, poll);
        assert_eq!((waited.unwrap(), polls.get()), (Waited::Frame, 3));
        assert_eq!(since, silence.0, "a request is no frame");
    }

    #[test]
    fn a_device_without_buffers_to_fill_is_not_silent() {
        let mut silence = Silence(Some(Instant::now() - PATIENCE * 2));
        let polls = Cell::new(0);
        let poll = || {
            polls.set(polls.get() + 1);
            Ok(if polls.get() == 1 { None } else { Some(NONE) })
        };
        let waited = wait_for_frame(&mut silence, || polls.get() == 2, poll);
        assert_eq!(waited.unwrap(), Waited::Request);
        let mut silence = Silence(Some(Instant::now() - PATIENCE * 2));
        let waited = wait_for_frame(&mut silence, || false, || Ok(Some(NONE)));
        assert!(matches!(waited, Err(NoFrame::Silent { .. })), "{waited:?}");
    }
}
