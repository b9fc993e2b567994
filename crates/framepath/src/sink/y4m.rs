// SPDX-License-Identifier: MIT OR Apache-2.0
//! `y4m`: YUV4MPEG2, which most video tools read.
//!
//! Format: yuv4mpeg(5) of mjpegtools; the formats of more than 8 bits and `Cmono` are extensions
//! that FFmpeg and others share, as is XCOLORRANGE: without it the range is
//! limited. Planar formats only: NV12 and P010 would have to be taken apart.

use framepath_model::colors::ColorRange;
use framepath_model::format::{Layout, PixelFormat};
use framepath_model::path::Definition;
use framepath_model::stream::StreamInfo;
use framepath_os::memory::pool::Frame;

use crate::element::Element;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::sink::output::{FILE, SinkOutput};
use crate::stage::Stage;

static DEFINITION: Definition =
    Definition::sink("y4m", "writes a YUV4MPEG2 stream").args(&[FILE]).known_as(&["filesink"]);

pub(crate) fn element() -> Element {
    Element::stage(&DEFINITION, |hop, _| Ok(Y4m::new(hop.text("file"))))
}

pub(crate) struct Y4m {
    target: String,
    output: Option<SinkOutput>,
    info: Option<StreamInfo>,
    first: Option<Layout>,
}

impl Y4m {
    pub(crate) fn new(target: &str) -> Y4m {
        Y4m { target: target.to_owned(), output: None, info: None, first: None }
    }

    fn write(&mut self, frame: &Frame) -> Result<(), StageError> {
        let (Some(output), Some(info)) = (&mut self.output, &self.info) else { return Ok(()) };
        let layout = frame.layout();
        match &self.first {
            None => {
                output.text(&header(layout, info)?)?;
                self.first = Some(*layout);
            }
            Some(first) => output.check_same(first, layout, "y4m")?,
        }
        output.text("FRAME\n")?;
        output.picture(frame)
    }
}

fn header(layout: &Layout, info: &StreamInfo) -> Result<String, StageError> {
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
    let rate = if info.frame_rate.value().is_some() { info.frame_rate } else { info.time_base };
    let range = if layout.colors.range == ColorRange::Full { " XCOLORRANGE=FULL" } else { "" };
    Ok(format!(
        "YUV4MPEG2 W{} H{} F{}:{} Ip A{}:{} C{colour}{range}\n",
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

#[cfg(test)]
mod tests {
    use framepath_model::colors::Colors;
    use framepath_model::stream::Rational;

    use super::*;

    #[test]
    fn a_full_range_is_in_the_header() {
        let layout = Layout::packed(PixelFormat::Yuv420p, 16, 8).unwrap();
        let info = StreamInfo::from_layout(&layout, Rational::new(25, 1));
        assert_eq!(header(&layout, &info).unwrap(), "YUV4MPEG2 W16 H8 F25:1 Ip A1:1 C420jpeg\n");
        let full = layout.with_colors(Colors { range: ColorRange::Full, ..Colors::UNKNOWN });
        assert!(header(&full, &info).unwrap().ends_with(" C420jpeg XCOLORRANGE=FULL\n"));
    }
}
