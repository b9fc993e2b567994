// SPDX-License-Identifier: MIT OR Apache-2.0
//! `y4m`: YUV4MPEG2, which most video tools read.
//!
//! Format: yuv4mpeg(5) of mjpegtools; the formats of more than 8 bits and `Cmono` are extensions
//! that FFmpeg and others share, as is XCOLORRANGE: without it the range is
//! limited. Planar formats only: NV12 and P010 would have to be taken apart. The field order is that of the
//! first frame: the header has a letter for streams that mix orders, but FFmpeg does not read such streams.

use framepath_model::colors::ColorRange;
use framepath_model::format::{Layout, PixelFormat};
use framepath_model::path::Definition;
use framepath_model::stream::{FieldOrder, Rational, StreamInfo};
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
    Definition::sink("y4m", "writes a YUV4MPEG2 stream").args(&[FILE]).known_as(&["filesink"]);

pub(crate) fn element() -> Element {
    Element::stage(&DEFINITION, |hop, place| Ok(Y4m::new(hop.text("file"), place.outcomes.notes.clone())))
}

pub(crate) struct Y4m {
    target: String,
    output: Option<SinkOutput>,
    info: Option<StreamInfo>,
    first: Option<Layout>,
    note: UnheldNote,
}

/// Properties of frames that the format holds.
const HELD: HeldProperties =
    HeldProperties { orientation: false, fields: HeldFields::First, times: false, alpha: true };

impl Y4m {
    fn new(target: &str, notes: Notes) -> Y4m {
        let note = UnheldNote::new("y4m", HELD, notes);
        Y4m { target: target.to_owned(), output: None, info: None, first: None, note }
    }

    fn write(&mut self, frame: &Frame) -> Result<(), StageError> {
        let (Some(output), Some(info)) = (&mut self.output, &self.info) else { return Ok(()) };
        let layout = frame.layout();
        match &self.first {
            None => {
                output.text(&header(layout, info, frame.meta().field_order)?)?;
                self.first = Some(*layout);
            }
            Some(first) => output.check_same(first, layout, "y4m")?,
        }
        self.note.look(frame);
        output.text("FRAME\n")?;
        output.picture(frame)
    }
}

fn header(layout: &Layout, info: &StreamInfo, order: FieldOrder) -> Result<String, StageError> {
    let colour = match layout.format {
        PixelFormat::Grey => "mono",
        PixelFormat::Grey10 => "mono10",
        PixelFormat::Grey12 => "mono12",
        PixelFormat::Grey16 => "mono16",
        PixelFormat::Yuv420p => "420jpeg",
        PixelFormat::Yuv422p => "422",
        PixelFormat::Yuv444p => "444",
        PixelFormat::Yuva444p => "444alpha",
        PixelFormat::Yuv420p10 => "420p10",
        PixelFormat::Yuv422p10 => "422p10",
        PixelFormat::Yuv444p10 => "444p10",
        PixelFormat::Yuv420p12 => "420p12",
        PixelFormat::Yuv422p12 => "422p12",
        PixelFormat::Yuv444p12 => "444p12",
        format => {
            let takes = "GREY to GREY16, planar YUV such as YUV420P, and with alpha only YUVA444P; put `convert` in front";
            return Err(StageError::Format { format, takes });
        }
    };
    let interlacing = match order {
        FieldOrder::Progressive => 'p',
        FieldOrder::TopFirst => 't',
        FieldOrder::BottomFirst => 'b',
    };
    // 0:0 is the format's word for an unknown rate.
    let rate = if info.frame_rate.value().is_some() { info.frame_rate } else { Rational::new(0, 0) };
    let range = if layout.colors.range == ColorRange::Full { " XCOLORRANGE=FULL" } else { "" };
    Ok(format!(
        "YUV4MPEG2 W{} H{} F{}:{} I{interlacing} A{}:{} C{colour}{range}\n",
        layout.width,
        layout.height,
        rate.num,
        rate.den,
        info.sample_aspect.num.max(0),
        info.sample_aspect.den.max(0),
    ))
}

impl Stage for Y4m {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        self.output = Some(SinkOutput::create(&self.target)?);
        self.info = Some(*info);
        self.note.start(info);
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|e| out.fail(e))?;
        self.write(&frame).map_err(|e| out.fail(e))
    }

    fn flush(&mut self, _: &mut Out<'_>) -> Result<(), HopFailure> {
        self.note.flush();
        Ok(())
    }

    fn drain(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        self.output.as_mut().map_or(Ok(()), SinkOutput::flush).map_err(|e| out.fail(e))
    }
}

#[cfg(test)]
mod tests {
    use framepath_model::colors::Colors;

    use super::*;

    #[test]
    fn the_header_has_range_field_order_and_rate() {
        let layout = Layout::packed(PixelFormat::Yuv420p, 16, 8).unwrap();
        let info = StreamInfo::from_layout(&layout, Rational::new(25, 1));
        assert_eq!(
            header(&layout, &info, FieldOrder::Progressive).unwrap(),
            "YUV4MPEG2 W16 H8 F25:1 Ip A1:1 C420jpeg\n"
        );
        let full = layout.with_colors(Colors { range: ColorRange::Full, ..Colors::UNKNOWN });
        assert!(
            header(&full, &info, FieldOrder::TopFirst)
                .unwrap()
                .ends_with(" It A1:1 C420jpeg XCOLORRANGE=FULL\n")
        );
        let unknown = StreamInfo { frame_rate: Rational::new(0, 1), ..info };
        assert!(header(&layout, &unknown, FieldOrder::BottomFirst).unwrap().contains(" F0:0 Ib "));
    }
}
