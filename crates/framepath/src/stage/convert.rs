// SPDX-License-Identifier: MIT OR Apache-2.0
//! `convert`: frames of another pixel format.
//!
//! Of a screen's frames, it converts only the rows that have changed since the picture that is still in the slot.

mod picture_history;

use framepath_codec::Converter;
use framepath_model::format::{Layout, PixelFormat};
use framepath_model::path::{Arg, DefaultValue, Definition, Hosts, ValueKind};
use framepath_model::stream::StreamInfo;
use framepath_os::memory::pool::{Frame, FrameMut, GiveBack, Pool};

use crate::copy_pool::slot_in;
use crate::element::Element;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::stage::Stage;
use picture_history::PictureHistory;

/// Names of the formats to which libswscale converts: all but PAL8.
const FORMATS: [&str; PixelFormat::ALL.len() - 1] = [
    "grey",
    "yuv420p",
    "nv12",
    "yuv420p10",
    "p010",
    "rgba",
    "grey10",
    "grey12",
    "grey16",
    "ya8",
    "yuv422p",
    "yuv444p",
    "yuv422p10",
    "yuv444p10",
    "yuv420p12",
    "yuv422p12",
    "yuv444p12",
    "yuva420p",
    "yuva422p",
    "yuva444p",
    "yuva420p10",
    "yuva422p10",
    "yuva444p10",
    "yuva422p12",
    "yuva444p12",
    "yuyv",
    "uyvy",
    "rgb24",
    "bgr24",
    "bgra",
    "bgr0",
    "gbrp",
    "gbrp10",
    "gbrp12",
    "gbrap",
    "gbrap10",
    "gbrap12",
];

static DEFINITION: Definition = Definition::stage(
    "convert",
    "converts frames to another pixel format by libswscale; passes on frames that have that format",
)
.args(&[Arg::option(
    "format",
    ValueKind::choice(&FORMATS),
    DefaultValue::Required,
    "pixel format of the output",
)])
.hosts(Hosts::Any)
.known_as(&["videoconvert"]);

pub(crate) fn element() -> Element {
    Element::stage(&DEFINITION, |hop, place| Ok(Convert::new(hop.choice("format").parse()?, place.give_back)))
        .with_least_out(|_, _| SLOTS - 1)
}

/// Number of slots of the stage's own pool: one for the frame being written, the others for frames in the
/// hops behind. The stage waits while all are in use.
const SLOTS: u32 = 8;

/// Alignment of strides in bytes, because libswscale loads and stores whole vectors.
const STRIDE_ALIGN: usize = 64;

/// Stage that converts every frame into a slot of its own pool. A frame that already has the format passes
/// unchanged.
pub(crate) struct Convert {
    to: PixelFormat,
    converter: Converter,
    /// In a worker: table of the frames that the process that runs the path still reads, with the shared
    /// words by which that process returns them; `None` outside a worker.
    give_back: Option<&'static GiveBack>,
    /// Pool of the output frames; `None` before the first conversion.
    pool: Option<Pool>,
    /// Layout of the last output frame; `None` before the first.
    layout: Option<Layout>,
    history: PictureHistory,
}

impl Convert {
    pub(crate) fn new(to: PixelFormat, give_back: Option<&'static GiveBack>) -> Convert {
        Convert {
            to,
            converter: Converter::new(to),
            give_back,
            pool: None,
            layout: None,
            history: PictureHistory::default(),
        }
    }

    /// Returns `frame` in the format `to`, as it is or converted. Keeps the converter of the last conversion in
    /// `converter`.
    pub(crate) fn frame_in(
        to: PixelFormat,
        frame: Frame,
        converter: &mut Option<Convert>,
    ) -> Result<Frame, StageError> {
        if frame.layout().format == to {
            return Ok(frame);
        }
        let converter = match converter {
            Some(converter) if converter.to == to => converter,
            place => place.insert(Convert::new(to, None)),
        };
        Ok(converter.convert(&frame)?.freeze(frame.meta()))
    }

    /// Returns `frame` in the stage's format, in a slot of the stage's pool.
    fn convert(&mut self, frame: &Frame) -> Result<FrameMut, StageError> {
        let Layout { width, height, .. } = *frame.layout();
        let colors = self.converter.colors(frame.layout());
        let layout = match self.layout {
            Some(last) if (last.width, last.height, last.colors) == (width, height, colors) => last,
            _ => {
                let laid_out = Layout::aligned(self.to, width, height, STRIDE_ALIGN)?;
                *self.layout.insert(laid_out.with_colors(colors))
            }
        };
        let mut into = slot_in(&mut self.pool, Converter::slot_bytes(&layout), SLOTS, self.give_back)?;
        into.set_layout(&layout)?;
        let number = self.history.add(frame);
        let since = into.content().filter(|_| self.converter.takes_rows(frame.layout().format));
        let changed = since.and_then(|content| self.history.changed_since(content));
        self.converter.convert_rows(frame, &mut into, changed.as_ref())?;
        into.set_content(number);
        Ok(into)
    }
}

impl Stage for Convert {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(StreamInfo { format: Some(self.to), ..*info })
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|e| out.fail(e))?;
        if frame.layout().format == self.to {
            return out.push(Item::Frame(frame));
        }
        let converted = self.convert(&frame).map_err(|e| out.fail(e))?.freeze(frame.meta());
        drop(frame);
        out.push(Item::Frame(converted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_but_a_palette_has_a_name() {
        let mut named: Vec<PixelFormat> = FORMATS.iter().map(|name| name.parse().unwrap()).collect();
        named.push(PixelFormat::Pal8);
        assert!(PixelFormat::ALL.into_iter().all(|format| named.contains(&format)));
    }
}
