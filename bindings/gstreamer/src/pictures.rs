// SPDX-License-Identifier: MIT OR Apache-2.0
//! Source of a path: the pictures that a pipeline of GStreamer gives it.

use std::sync::Arc;

use framepath::format::Layout;
use framepath::{
    CopyPool, FrameMeta, HopFailure, Item, Out, Rational, Source, StageError, StreamInfo, counted_copy,
};
use gst_video::{VideoFrameExt, VideoFrameRef, VideoInfo};

use crate::fields::field_order;
use crate::format::{NANOSECONDS, colors, pixel_format};
use crate::handover::{LOOK, Taken};
use crate::sink::Pictures;

/// Picture of a pipeline.
pub(crate) struct GivenPicture {
    pub(crate) buffer: gst::Buffer,
    pub(crate) info: VideoInfo,
    /// Running time of the pipeline at which the picture is due.
    pub(crate) time: Option<gst::ClockTime>,
}

/// Source of the pictures; copies each once, into a slot of its own.
pub(crate) struct PictureSource {
    pictures: Arc<Pictures>,
    stream: StreamInfo,
    copies: CopyPool,
    next: u64,
}

impl PictureSource {
    /// Makes a source of pictures that are at first as `info` says.
    ///
    /// # Errors
    /// Text of the reason: framepath has no such format or size.
    pub(crate) fn new(pictures: Arc<Pictures>, info: &VideoInfo) -> Result<PictureSource, String> {
        let layout = layout(info)?;
        let fraction = |value: gst::Fraction| Rational::new(value.numer(), value.denom());
        let stream = StreamInfo {
            time_base: NANOSECONDS,
            sample_aspect: fraction(info.par()),
            ..StreamInfo::from_layout(&layout, fraction(info.fps()))
        };
        Ok(PictureSource { pictures, stream, copies: CopyPool::new(), next: 0 })
    }
}

/// Returns the layout of a copy.
fn layout(info: &VideoInfo) -> Result<Layout, String> {
    let format = pixel_format(info.format()).ok_or_else(|| format!("no pixel format {}", info.name()))?;
    let layout = Layout::aligned(format, info.width(), info.height(), 64);
    Ok(layout.map_err(|error| error.to_string())?.with_colors(colors(info.colorimetry())))
}

impl Source for PictureSource {
    fn name(&self) -> &str {
        "gstreamer"
    }

    fn info(&self) -> StreamInfo {
        self.stream
    }

    fn is_live(&self) -> bool {
        // The pipeline's clock has said when a picture is due.
        true
    }

    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, HopFailure> {
        let GivenPicture { buffer, info, time } = match self.pictures.take(LOOK) {
            Taken::Value(picture) => picture,
            Taken::Nothing => return Ok(true),
            Taken::AtEnd => return Ok(false),
        };
        let birth_ns = out.birth();
        let other = |text: String| StageError::Other(text.into());
        let layout = layout(&info).map_err(|text| out.fail(other(text)))?;
        let mut frame = self.copies.slot(&layout).map_err(|error| out.fail(error))?;
        let picture = VideoFrameRef::from_buffer_ref_readable(&buffer, &info)
            .map_err(|_| out.fail(other(format!("a buffer of {} bytes is no {info:?}", buffer.size()))))?;
        for (index, plane) in layout.planes().iter().enumerate() {
            let stride = picture.plane_stride()[index] as usize;
            let from =
                picture.plane_data(index as u32).map_err(|error| out.fail(other(error.to_string())))?;
            let to = frame.plane_mut(index);
            let rows = from.chunks(stride).zip(to.chunks_mut(plane.stride)).take(plane.rows);
            counted_copy(plane.width * plane.rows, || {
                rows.for_each(|(from, to)| to[..plane.width].copy_from_slice(&from[..plane.width]));
            });
        }
        let ns = |time: gst::ClockTime| i64::try_from(time.nseconds()).ok();
        let duration = buffer.duration().and_then(ns).unwrap_or(0);
        let meta = FrameMeta {
            seq: self.next,
            birth_ns,
            pts: time.and_then(ns),
            duration,
            field_order: field_order(picture.flags()),
            ..FrameMeta::default()
        };
        self.next += 1;
        out.push(Item::Frame(frame.freeze(meta)))?;
        Ok(true)
    }
}
