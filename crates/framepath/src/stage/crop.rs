// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crop`: a part of each picture.
//!
//! A frame without another reader is cropped without a copy: only its layout changes. Of other frames, such as
//! those of decoders, which keep their pictures as references, the part is copied.

use framepath_model::format::Layout;
use framepath_model::path::{Arg, DefaultValue, Definition, ValueKind};
use framepath_model::stream::StreamInfo;
use framepath_os::memory::pool::{Frame, FrameMut};

use crate::copy_pool::CopyPool;
use crate::element::Element;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::stage::Stage;

static DEFINITION: Definition = Definition::stage("crop", "a part of each picture")
    .args(&[Arg::option(
        "roi",
        ValueKind::Roi,
        DefaultValue::Required,
        "part to keep, in pixels, inside the picture; X and Y are rounded down to whole chroma samples",
    )])
    .known_as(&["videocrop"]);

pub(crate) fn element() -> Element {
    Element::stage(&DEFINITION, |hop, place| {
        let roi = hop.roi("roi").unwrap_or_default();
        Ok(Crop { roi, copies: place.copy_pool() })
    })
}

/// Stage that passes the part `roi` (left, top, width, height) of each picture.
pub(crate) struct Crop {
    roi: (u32, u32, u32, u32),
    copies: CopyPool,
}

impl Crop {
    fn part(&self, layout: &Layout) -> Result<Layout, StageError> {
        let (left, top, width, height) = self.roi;
        Ok(layout.cropped(left, top, width, height)?)
    }

    fn crop(&mut self, frame: Frame) -> Result<FrameMut, StageError> {
        let part = self.part(frame.layout())?;
        match frame.try_unique() {
            Ok(mut own) => {
                own.set_layout(&part)?;
                Ok(own)
            }
            Err(shared) => self.copies.copy_part(&shared, &part),
        }
    }
}

impl Stage for Crop {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        let Some(format) = info.format else { return Ok(*info) };
        let Ok(whole) = Layout::packed(format, info.width, info.height) else { return Ok(*info) };
        let Layout { width, height, .. } = self.part(&whole)?;
        Ok(StreamInfo { width, height, ..*info })
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|error| out.fail(error))?;
        let meta = frame.meta();
        let part = self.crop(frame).map_err(|error| out.fail(error))?;
        out.push(Item::Frame(part.freeze(meta)))
    }
}
