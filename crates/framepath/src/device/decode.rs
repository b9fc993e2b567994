// SPDX-License-Identifier: MIT OR Apache-2.0
//! `decode api=v4l2m2m device=PATH`: a client of the kernel's stateful decoder
//! interface (Documentation/userspace-api/media/v4l/dev-decoder.rst).

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use framepath_codec::{AnnexB, DecoderOptions, OutputFormat, Packet, TrackInfo};
use framepath_model::format::{Layout, PixelFormat};
use framepath_model::stream::{FrameMeta, Preroll, StreamInfo};
use framepath_os::memory::pool::{Frame, Plane};
use framepath_os::process::signal;
use framepath_os::v4l2::{
    CaptureBuffers, DecoderEvent, Delivered, Direction, Fourcc, Heap, Io, Node, NodeRole, OutputBuffers,
    QueueFormat, V4l2Error,
};

use super::{PATIENCE, SLICE, fourcc_of_codec, layout_of};
use crate::copy_pool::CopyPool;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::recorder::Gap;
use crate::stage::Stage;

/// Number of OUTPUT buffers, each for one packet.
const PACKETS: u32 = 16;

/// Maximum number of CAPTURE buffers: V4L2's limit for one queue.
const MOST_BUFFERS: u32 = 32;

/// Number of packets inside the device above which the stage forgets the metadata of those that were sent at least
/// half of this number of packets before the newest. These have hidden pictures, which never become a frame.
const MOST_INSIDE: u64 = 1024;

/// Stage that decodes with a V4L2 device. In the ledger, the time from a packet's submission until its
/// frame is dequeued is `device`.
pub(crate) struct DeviceDecode {
    node: Arc<Node>,
    track: TrackInfo,
    output: OutputFormat,
    /// Number of CAPTURE buffers in addition to those that decoding needs.
    spare_buffers: u32,
    /// Number of CAPTURE buffers that the options request. `None` if they request none, and in a worker: then
    /// the device's minimum and `spare_buffers` determine the number.
    pool_slots: Option<u32>,
    /// In a worker: pool for copies of frames, because the device's memory cannot be shared with the process
    /// that runs the path; else `None`.
    copies: Option<CopyPool>,
    packets: OutputBuffers,
    start_codes: AnnexB,
    /// Metadata of each packet inside the device, by the packet's stamp; `true` if the picture is discarded.
    inside: HashMap<u64, (FrameMeta, bool)>,
    /// Pictures to skip: the stamp of a packet, and the number of pictures to skip from this packet on, in
    /// presentation order. Sorted by stamp.
    skips: VecDeque<(u64, u64)>,
    /// Stamp of the next packet: the count of packets sent before.
    next_stamp: u64,
    /// True if no packet was sent since the start or the last [`DeviceDecode::restart`].
    is_fresh: bool,
    /// CAPTURE queue; `None` until the device has announced a format.
    frames: Option<Frames>,
    /// True if the device has announced a new format that is not set up yet.
    changed: bool,
    /// True if the last frame of the present format was dequeued.
    last_seen: bool,
    /// True if the device has reported the end of the stream, or counts as having ended.
    ended: bool,
    /// True from the start of a drain until a restart.
    draining: bool,
    /// Time from which the device counts as silent: its last sign of progress, or the start of a later wait
    /// for the device.
    progress: Instant,
}

/// The CAPTURE queue, set up for a format.
struct Frames {
    buffers: CaptureBuffers,
    layout: Layout,
}

impl DeviceDecode {
    /// Opens the node at `path` for packets of `track`.
    ///
    /// # Errors
    /// The node cannot be opened, is no stateful decoder, or does not support the codec; the track's parameter sets
    /// are invalid; or the OUTPUT buffers cannot be made.
    pub(crate) fn open(
        path: &str,
        track: TrackInfo,
        options: &DecoderOptions,
    ) -> Result<DeviceDecode, StageError> {
        DeviceDecode::by(Arc::new(Node::open(path.as_ref())?), track, options)
    }

    /// Makes the stage as [`DeviceDecode::open`] does, with a node that is open already. In a worker
    /// (`give_back` of the options), frames are copied into memory that the process that runs the path can
    /// map.
    pub(crate) fn by(
        node: Arc<Node>,
        track: TrackInfo,
        options: &DecoderOptions,
    ) -> Result<DeviceDecode, StageError> {
        node.must_be(NodeRole::Decoder)?;
        let Some(fourcc) = fourcc_of_codec(track.codec) else {
            return Err(node.lacks(Direction::Output, &format!("decoder of {}", track.codec)).into());
        };
        if !node.formats(Direction::Output).iter().any(|offer| offer.fourcc == fourcc) {
            return Err(node
                .lacks(Direction::Output, &format!("decoder of {} ({fourcc})", track.codec))
                .into());
        }
        node.subscribe()?;
        let (width, height) = (track.stream.width, track.stream.height);
        // Limit of a packet's size: one byte per pixel, but at least 1 MiB and at most 32 MiB.
        let bytes = (width.saturating_mul(height)).clamp(1 << 20, 1 << 25);
        let requested = QueueFormat { width, height, fourcc, stride: 0, bytes, memory_planes: 1 };
        let actual = node.set_format(Direction::Output, &requested)?;
        if actual.fourcc != fourcc {
            return Err(node
                .lacks(Direction::Output, &format!("decoder of {} ({fourcc})", track.codec))
                .into());
        }
        let start_codes = AnnexB::new(&track)?;
        let packets = OutputBuffers::new(&node, Io::Mmap, PACKETS)?;
        Ok(DeviceDecode {
            node,
            track,
            output: options.output,
            // No spare buffers for the hops behind, if frames are copied and so returned at once.
            spare_buffers: 2 + if options.give_back.is_some() {
                0
            } else {
                options.downstream_frames.min(64)
            },
            pool_slots: options.pool_slots.filter(|_| options.give_back.is_none()),
            copies: options.give_back.map(|words| {
                let slots = options.pool_slots.unwrap_or(options.downstream_frames.saturating_add(2));
                CopyPool::with_slots(Some(words), slots)
            }),
            packets,
            start_codes,
            inside: HashMap::new(),
            skips: VecDeque::new(),
            next_stamp: 0,
            is_fresh: true,
            frames: None,
            changed: false,
            last_seen: false,
            ended: false,
            draining: false,
            progress: Instant::now(),
        })
    }

    /// Sets up the CAPTURE queue for the format that the device has detected.
    fn set_up(&mut self) -> Result<(), StageError> {
        if let Some(old) = self.frames.take() {
            old.buffers.stop()?;
        }
        let detected = self.node.format(Direction::Capture)?;
        let fourcc = self.choose_format()?;
        let picture = self.node.set_format(Direction::Capture, &QueueFormat { fourcc, ..detected })?;
        if picture.fourcc != fourcc {
            return Err(self.node.lacks(Direction::Capture, &format!("{fourcc} frames")).into());
        }
        let layout =
            layout_of(&picture, self.node.visible())?.with_colors(self.node.colors(Direction::Capture)?);
        let needed = self.node.min_capture_buffers().unwrap_or(4);
        let count = self.pool_slots.unwrap_or(needed.saturating_add(self.spare_buffers));
        let count = count.clamp(needed.clamp(1, MOST_BUFFERS), MOST_BUFFERS);
        let buffers = CaptureBuffers::new(&self.node, Io::Mmap, count, &Heap::Pages)?;
        self.node.stream(Direction::Capture, true)?;
        self.frames = Some(Frames { buffers, layout });
        (self.changed, self.last_seen) = (false, false);
        Ok(())
    }

    /// Returns the CAPTURE format for the option `format`, among those that the device offers for the
    /// stream.
    ///
    /// # Errors
    /// The device offers no such format.
    fn choose_format(&self) -> Result<Fourcc, StageError> {
        let offered: Vec<Fourcc> =
            self.node.formats(Direction::Capture).into_iter().map(|offer| offer.fourcc).collect();
        let deep = self.track.stream.format.is_some_and(|format| format.depth() > 8);
        let (accepted, name): (&[Fourcc], _) = match self.output {
            OutputFormat::Nv12 => (&[Fourcc::NV12], "NV12 frames"),
            OutputFormat::P010 => (&[Fourcc::P010], "P010 frames"),
            OutputFormat::Native if deep => (&[Fourcc::P010], "P010 frames of a 10-bit stream"),
            OutputFormat::Native => (
                &[Fourcc::YU12, Fourcc::NV12, Fourcc::P010, Fourcc::GREY],
                "YUV420P, NV12, P010 or GREY frames",
            ),
        };
        let chosen = accepted.iter().find(|fourcc| offered.contains(fourcc));
        chosen.copied().ok_or_else(|| self.node.lacks(Direction::Capture, name).into())
    }

    /// Waits at most `time` for a free CAPTURE buffer, and then at most `time` for the device; handles the
    /// device's events, passes frames on, and sets up the CAPTURE queue for a new format.
    ///
    /// # Errors
    /// The device failed or rejected a packet, made no progress for [`PATIENCE`], or a later hop failed.
    fn poll_device(&mut self, time: Duration, out: &mut Out<'_>) -> Result<(), HopFailure> {
        if let Some(frames) = &self.frames {
            if !time.is_zero() && frames.buffers.queued() == 0 && !self.last_seen {
                // All buffers are downstream, so the device cannot fill one: this wait does not count as
                // silence.
                frames.buffers.wait_for_return(time, || false);
                self.progress = Instant::now();
            }
        }
        let ready = self.node.wait(time).map_err(|e| out.fail(e))?;
        out.mark();
        if ready.is_none() {
            return if time.is_zero() { Ok(()) } else { self.check_silence(out) };
        }
        if ready.output || ready.error {
            let collected = self.packets.collect().map_err(|e| out.fail(e))?;
            self.record_progress(collected.count > 0);
            if let Some(stamp) = collected.failed {
                return Err(out.fail(self.rejected(stamp)));
            }
        }
        if ready.event {
            self.take_events().map_err(|e| out.fail(e))?;
        }
        if ready.capture || ready.error {
            self.take_frames(out)?;
        }
        let old_is_over = self.frames.is_none() || self.last_seen;
        if self.changed && old_is_over {
            self.set_up().map_err(|e| out.fail(e))?;
            self.record_progress(true);
        }
        if ready.error && !(ready.capture || ready.output || ready.event) && !time.is_zero() {
            // No buffer is queued that could become ready, so poll(2) would return at once, again and
            // again.
            std::thread::sleep(Duration::from_millis(1));
            return self.check_silence(out);
        }
        Ok(())
    }

    fn take_events(&mut self) -> Result<(), StageError> {
        while let Some(event) = self.node.next_event()? {
            self.record_progress(true);
            match event {
                DecoderEvent::SourceChange => self.changed = true,
                DecoderEvent::EndOfStream => self.ended = true,
                DecoderEvent::Other(_) => {}
            }
        }
        Ok(())
    }

    fn take_frames(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        while let Some(frames) = &self.frames {
            let Some(taken) = frames.buffers.dequeue().map_err(|e| out.fail(e))? else { break };
            self.progress = Instant::now();
            let frame = self.frame(&taken).map_err(|e| out.fail(e))?;
            self.last_seen |= taken.last;
            if let Some(mut frame) = frame {
                if let Some(copies) = &mut self.copies {
                    let meta = frame.meta();
                    frame = copies.copy(&frame).map_err(|e| out.fail(e))?.freeze(meta);
                }
                out.resume_after(frame.meta().seq, Gap::Device);
                out.push(Item::Frame(frame))?;
                out.mark();
            }
        }
        Ok(())
    }

    /// Returns the picture in a buffer; `None` for an empty buffer, and for a picture to skip or discard,
    /// whose buffer goes back to the device.
    ///
    /// # Errors
    /// The device could not decode the picture, or returned a stamp that no packet has.
    fn frame(&mut self, taken: &Delivered) -> Result<Option<Frame>, StageError> {
        let Some(frames) = &self.frames else { return Ok(None) };
        if taken.bytes == 0 {
            // The last buffer is not queued again, because the device takes no buffer after it.
            if !taken.last {
                frames.buffers.give_back(taken);
            }
            return Ok(None);
        }
        if taken.failed {
            return Err(self.rejected(taken.timestamp_us));
        }
        let Some((meta, is_discarded)) = self.inside.remove(&taken.timestamp_us) else {
            let what =
                format!("returned a frame with the stamp {} us, which no packet has", taken.timestamp_us);
            return Err(V4l2Error::Driver { node: self.node.path().to_owned(), what }.into());
        };
        let frame = frames.buffers.frame(taken, &frames.layout, meta)?;
        let is_skipped = self.skips(taken.timestamp_us);
        // Dropping the frame returns its buffer to the device.
        Ok((!is_discarded && !is_skipped).then_some(frame))
    }

    /// Returns true if the picture of the packet with `stamp` is to be skipped, and counts it as skipped.
    fn skips(&mut self, stamp: u64) -> bool {
        while self.skips.get(1).is_some_and(|(from, _)| stamp >= *from) {
            self.skips.pop_front();
        }
        match self.skips.front_mut() {
            Some((from, left)) if *left > 0 && stamp >= *from => {
                *left -= 1;
                true
            }
            _ => false,
        }
    }

    fn rejected(&self, stamp: u64) -> StageError {
        let what = format!("could not decode packet {stamp}");
        V4l2Error::Driver { node: self.node.path().to_owned(), what }.into()
    }

    fn record_progress(&mut self, has_progressed: bool) {
        if has_progressed {
            self.progress = Instant::now();
        }
    }

    fn check_silence(&self, out: &Out<'_>) -> Result<(), HopFailure> {
        let waited = self.progress.elapsed();
        if waited < PATIENCE {
            return Ok(());
        }
        let (node, waited_ms) = (self.node.path().to_owned(), waited.as_millis());
        Err(out.fail(V4l2Error::Silent { node, awaited: "neither frame nor buffer", waited_ms }))
    }

    /// Copies the packet into a free buffer and queues the buffer. A packet whose bytes another process can write
    /// is copied into private memory before. The ledger counts the copies.
    fn send(&mut self, packet: Packet) -> Result<(), StageError> {
        let (meta, Preroll { discarded, skipped, .. }) = (packet.meta(), packet.preroll());
        if skipped > 0 {
            self.skips.push_back((self.next_stamp, skipped));
        }
        let packet =
            packet.private().ok_or_else(|| StageError::io("a packet")(io::ErrorKind::OutOfMemory.into()))?;
        let bytes = packet.bytes().expect("a private packet has its bytes in this process");
        let parts = self.start_codes.parts(bytes, self.is_fresh)?;
        let bytes = self.packets.fill(parts.into_iter().map(Plane::of))?;
        let stamp = self.next_stamp;
        self.packets.send(bytes, stamp)?;
        self.next_stamp += 1;
        self.is_fresh = false;
        self.inside.insert(stamp, (meta, discarded));
        if self.inside.len() as u64 > MOST_INSIDE {
            self.inside.retain(|old, _| old + MOST_INSIDE / 2 > stamp);
        }
        Ok(())
    }

    /// Stops both queues, which discards the packets and frames inside, and starts them again for packets
    /// from another position (dev-decoder, "Seek"). Also works after a drain.
    fn restart(&mut self) -> Result<(), StageError> {
        self.node.stream(Direction::Output, false)?;
        self.packets.reclaim();
        self.inside.clear();
        // Drops pending events: the device announces a change of format again.
        self.take_events()?;
        self.skips.clear();
        self.is_fresh = true;
        (self.draining, self.ended, self.last_seen) = (false, false, false);
        self.node.stream(Direction::Output, true)?;
        match self.frames {
            Some(_) => self.set_up()?,
            None => self.changed = false,
        }
        self.record_progress(true);
        Ok(())
    }

    /// True if the drain is over: the device has output its last frame and reported the end, or the packets
    /// had no picture.
    fn is_drained(&self) -> bool {
        match (&self.frames, self.changed) {
            (_, true) => false,
            (Some(_), false) => self.last_seen && self.ended,
            // The packets had no picture.
            (None, false) => self.ended,
        }
    }
}

impl Stage for DeviceDecode {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        self.node.stream(Direction::Output, true)?;
        self.progress = Instant::now();
        Ok(StreamInfo { format: None::<PixelFormat>, ..*info })
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let packet = item.into_packet().map_err(|e| out.fail(e))?;
        let seq = packet.meta().seq;
        if packet.preroll().restarts && !self.is_fresh {
            // The file is repeated, and pictures of the previous loop are still inside.
            self.drain(out)?;
            self.restart().map_err(|e| out.fail(e))?;
        }
        if !self.packets.has_free() {
            // Frames may be passed on in the meantime.
            out.hold(seq);
            // The time before this packet does not count as silence of the device.
            self.progress = Instant::now();
            while !self.packets.has_free() {
                if signal::interrupted() {
                    return Ok(());
                }
                self.poll_device(SLICE, out)?;
            }
        }
        let sent = self.send(packet);
        out.hold(seq);
        sent.map_err(|e| out.fail(e))?;
        self.poll_device(Duration::ZERO, out)
    }

    fn flush(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let inside = self.inside.values().filter(|(_, is_discarded)| !is_discarded).count();
        out.flushed(inside as u64);
        self.restart().map_err(|e| out.fail(e))
    }

    fn drain(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        out.mark();
        if self.is_fresh {
            return Ok(());
        }
        self.progress = Instant::now();
        if !self.draining {
            self.draining = true;
            // A device ignores a stop command before its CAPTURE queue streams (dev-decoder, "Drain").
            while self.frames.is_none() && self.progress.elapsed() < FIRST_FORMAT {
                if signal::interrupted() {
                    return Ok(());
                }
                self.poll_device(SLICE, out)?;
            }
            // Without a picture there is nothing to drain.
            self.ended |= self.frames.is_none();
            self.node.stop_decoding().map_err(|e| out.fail(e))?;
        }
        while !self.is_drained() {
            if signal::interrupted() {
                return Ok(());
            }
            self.poll_device(SLICE, out)?;
            if self.last_seen && !self.ended && !self.changed {
                // Some drivers send an event with the last buffer.
                self.take_events().map_err(|e| out.fail(e))?;
                self.ended |= !self.changed && self.progress.elapsed() > LAST_EVENT;
            }
        }
        Ok(())
    }
}

/// Time without progress in a drain after which, if the device has announced no format, its packets count as having
/// no picture.
const FIRST_FORMAT: Duration = Duration::from_secs(2);

/// Time limit, after the last frame, for a driver's event at the end of the stream. Some drivers send none,
/// so the stream then counts as ended.
const LAST_EVENT: Duration = Duration::from_millis(500);
