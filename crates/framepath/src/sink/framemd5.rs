// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framemd5`: writes one line for each frame, as `ffmpeg -f framemd5` does.
//!
//! One tick is the duration of one frame, as in ffmpeg for a stream of constant rate. If the frame rate is
//! unknown, one tick is the unit of the stream's timestamps. The `software` line of the header names
//! framepath.

use framepath_model::path::Definition;
use framepath_model::stream::{FrameMeta, Rational, StreamInfo};
use framepath_os::memory::pool::Frame;

use crate::element::Element;
use crate::error::StageError;
use crate::item::Item;
use crate::notes::Notes;
use crate::out::{HopFailure, Out};
use crate::sink::output::{FILE, SinkOutput};
use crate::sink::unheld::{HeldFields, HeldProperties, UnheldNote};
use crate::stage::Stage;

static DEFINITION: Definition =
    Definition::sink("framemd5", "writes the MD5 of every frame, as `ffmpeg -f framemd5` does").args(&[FILE]);

pub(crate) fn element() -> Element {
    Element::stage(&DEFINITION, |hop, place| {
        Ok(FrameMd5::new(hop.text("file"), place.outcomes.notes.clone()))
    })
}

pub(crate) struct FrameMd5 {
    target: String,
    /// Open output; `None` before the start.
    output: Option<SinkOutput>,
    /// Unit of the input's timestamps, seconds.
    from: Rational,
    /// Unit of the written times, seconds.
    tick: Rational,
    sample_aspect: Rational,
    header_written: bool,
    /// Time that the next frame gets if it has no timestamp, ticks.
    next: i64,
    note: UnheldNote,
}

/// Properties of frames that the lines hold, or that are no part of a picture's digest.
const HELD: HeldProperties =
    HeldProperties { orientation: false, fields: HeldFields::All, times: true, alpha: true };

impl FrameMd5 {
    fn new(target: &str, notes: Notes) -> FrameMd5 {
        let unknown = Rational::new(0, 1);
        FrameMd5 {
            target: target.to_owned(),
            output: None,
            from: unknown,
            tick: unknown,
            sample_aspect: unknown,
            header_written: false,
            next: 0,
            note: UnheldNote::new("framemd5", HELD, notes),
        }
    }

    fn header(&self, frame: &Frame) -> String {
        let layout = frame.layout();
        format!(
            "#format: frame checksums\n#version: 2\n#hash: MD5\n#software: framepath {}\n#tb 0: {}/{}\n\
             #media_type 0: video\n#codec_id 0: rawvideo\n#dimensions 0: {}x{}\n#sar 0: {}/{}\n\
             #stream#, dts,        pts, duration,     size, hash\n",
            env!("CARGO_PKG_VERSION"),
            self.tick.num,
            self.tick.den,
            layout.width,
            layout.height,
            self.sample_aspect.num,
            self.sample_aspect.den,
        )
    }

    /// Returns the time of the frame in ticks. A frame without a timestamp, or in a stream without a time
    /// base, is one tick after the previous frame; the first frame is then at 0.
    fn tick_of(&mut self, meta: &FrameMeta) -> i64 {
        let stamped = meta.pts.and_then(|pts| self.from.rescale(pts, self.tick));
        let tick = stamped.unwrap_or(self.next);
        self.next = tick + 1;
        tick
    }

    fn write(&mut self, frame: &Frame) -> Result<(), StageError> {
        let header = (!self.header_written).then(|| self.header(frame));
        self.header_written = true;
        self.note.look(frame);
        let tick = self.tick_of(&frame.meta());
        let size = frame.layout().pixel_bytes();
        let line = format!("0, {tick:>10}, {tick:>10}, {:>8}, {size:>8}, {:x}\n", 1, digest(frame));
        let Some(output) = &mut self.output else { return Ok(()) };
        if let Some(header) = header {
            output.text(&header)?;
        }
        output.text(&line)
    }
}

/// Returns the MD5 of the pixels of all planes in order, without the padding of the rows.
fn digest(frame: &Frame) -> md5::Digest {
    let mut context = md5::Context::new();
    for (index, plane) in frame.layout().planes().iter().enumerate() {
        if plane.stride == plane.width {
            frame.plane(index).visit(|bytes| context.consume(bytes));
        } else {
            for y in 0..plane.rows {
                frame.row(index, y).visit(|bytes| context.consume(bytes));
            }
        }
    }
    context.finalize()
}

impl Stage for FrameMd5 {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        self.output = Some(SinkOutput::create(&self.target)?);
        self.from = info.time_base;
        self.sample_aspect = info.sample_aspect;
        self.tick = Rational::new(info.frame_rate.den, info.frame_rate.num);
        if self.tick.value().is_none() {
            self.tick = info.time_base;
        }
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|e| out.fail(e))?;
        self.write(&frame).map_err(|e| out.fail(e))
    }

    fn drain(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        self.output.as_mut().map_or(Ok(()), SinkOutput::flush).map_err(|e| out.fail(e))
    }
}
