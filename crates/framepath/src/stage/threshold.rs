// SPDX-License-Identifier: MIT OR Apache-2.0
//! `threshold`: luma to black and white inside a region.

use framepath_model::format::PixelFormat;
use framepath_model::path::{Arg, DefaultValue, Definition, Hop, Hosts, ValueKind};
use framepath_model::stream::StreamInfo;
use framepath_os::memory::pool::FrameMut;

use crate::copy_pool::{COPY_SLOTS, CopyPool};
use crate::device::threshold::DeviceThreshold;
use crate::element::{Element, HopPlace};
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::stage::Stage;

static DEFINITION: Definition =
    Definition::stage("threshold", "sets luma at or above a level to white, and the rest to black")
        .args(&[
            Arg::option(
                "level",
                ValueKind::Level,
                DefaultValue::Is("128"),
                "lowest luma that becomes white; scaled to the depth of the format",
            ),
            Arg::option(
                "roi",
                ValueKind::Roi,
                DefaultValue::Unset("the whole frame"),
                "region to change, clamped to the frame",
            ),
            Arg::option(
                "device",
                ValueKind::Text("the path of a V4L2 node"),
                DefaultValue::Unset("the CPU"),
                "node of framepath's kernel module to run in, the measuring one (docs/device.md)",
            )
            .excluding(&["host"]),
            Arg::option(
                "io",
                ValueKind::choice(&["mmap", "dmabuf", "userptr"]),
                DefaultValue::Unset("dmabuf for frames in a dmabuf, else mmap"),
                "input memory of the device; mmap copies the frame, the others do not",
            )
            .needing("device"),
            Arg::option(
                "algo",
                ValueKind::choice(&["threshold", "none"]),
                DefaultValue::Is("threshold"),
                "the device's work; `none` leaves the pixels unchanged, to measure the cost of the transfer",
            )
            .needing("device"),
            Arg::option(
                "in_place",
                ValueKind::Flag,
                DefaultValue::Is("0"),
                "the device writes to the input frame, which must be a dmabuf that no other stage uses",
            )
            .needing("device"),
            Arg::option(
                "crc32",
                ValueKind::Flag,
                DefaultValue::Is("0"),
                "the device's record of a frame has the CRC-32 of the result: see `framepath meta`",
            )
            .needing("device"),
        ])
        .hosts(Hosts::Any);

pub(crate) fn element() -> Element {
    Element::boxed(&DEFINITION, make)
        .with_least_out(|hop, _| if hop.is_set("device") { 1 } else { COPY_SLOTS - 1 })
}

fn make(hop: &Hop, place: &HopPlace<'_>) -> Result<Box<dyn Stage>, StageError> {
    if hop.is_set("device") {
        return Ok(Box::new(DeviceThreshold::open(hop)?));
    }
    Ok(Box::new(Threshold { level: hop.level("level"), region: hop.roi("roi"), copies: place.copy_pool() }))
}

/// Stage that sets luma inside the region to the largest value of the format if it is at least `level`, else
/// to 0. The rest of the picture stays unchanged. Takes only formats whose first plane is luma, such as GREY,
/// YUV422P10 and NV12.
///
/// Works in place if the frame has no other reader and its memory belongs to this process, else on a counted copy.
pub(crate) struct Threshold {
    /// Lowest luma that becomes white, 0 to 255; scaled to the depth of the format.
    pub(crate) level: u8,
    /// Region to change: x, y, width, height in pixels; clamped to the frame. `None` is the whole frame.
    pub(crate) region: Option<(u32, u32, u32, u32)>,
    /// Pool for frames that cannot be changed in place.
    pub(crate) copies: CopyPool,
}

impl Stage for Threshold {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|e| out.fail(e))?;
        let meta = frame.meta();
        let format = frame.layout().format;
        if !format.has_luma_plane() {
            let takes = "the formats with a plane of luma, such as GREY, YUV422P10 and NV12";
            return Err(out.fail(StageError::Format { format, takes }));
        }
        let mut frame = self.copies.writable(frame).map_err(|e| out.fail(e))?;
        self.apply(&mut frame);
        out.push(Item::Frame(frame.freeze(meta)))
    }
}

impl Threshold {
    fn apply(&self, frame: &mut FrameMut) {
        let layout = *frame.layout();
        let (x, y, width, height) = self.region.unwrap_or((0, 0, layout.width, layout.height));
        let left = x.min(layout.width) as usize;
        let right = x.saturating_add(width).min(layout.width) as usize;
        let top = y.min(layout.height) as usize;
        let bottom = y.saturating_add(height).min(layout.height) as usize;
        let sample = layout.format.luma_bytes();
        let stride = layout.planes()[0].stride;
        let luma = frame.plane_mut(0);
        for row in top..bottom {
            let pixels = &mut luma[row * stride + left * sample..row * stride + right * sample];
            match layout.format {
                PixelFormat::P010 => self.wide(pixels, 8, 0xffc0),
                format if sample == 2 => {
                    let depth = format.depth();
                    self.wide(pixels, depth - 8, ((1u32 << depth) - 1) as u16);
                }
                _ => {
                    for pixel in pixels {
                        *pixel = if *pixel >= self.level { 0xff } else { 0 };
                    }
                }
            }
        }
    }

    /// Sets samples of 16 bits to `white` or 0. The limit is the 8-bit level shifted left by `shift`.
    fn wide(&self, pixels: &mut [u8], shift: u32, white: u16) {
        let level = u16::from(self.level) << shift;
        for pixel in pixels.chunks_exact_mut(2) {
            let value = u16::from_le_bytes([pixel[0], pixel[1]]);
            let new = if value >= level { white } else { 0 };
            pixel.copy_from_slice(&new.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use framepath_model::format::Layout;
    use framepath_model::stream::FrameMeta;
    use framepath_os::memory::pool::Pool;

    fn run(format: PixelFormat, region: Option<(u32, u32, u32, u32)>, fill: &[u8]) -> Vec<u8> {
        let layout = Layout::packed(format, 4, 2).unwrap();
        let mut pool = Pool::new(layout.size, 1).unwrap();
        let mut frame = pool.acquire().unwrap();
        frame.set_layout(&layout).unwrap();
        frame.plane_mut(0).copy_from_slice(fill);
        Threshold { level: 128, region, copies: CopyPool::new() }.apply(&mut frame);
        frame.freeze(FrameMeta::default()).plane(0).to_vec()
    }

    #[test]
    fn the_level_itself_is_white() {
        let grey = run(PixelFormat::Grey, None, &[0, 127, 128, 255, 1, 2, 200, 129]);
        assert_eq!(grey, [0, 0, 255, 255, 0, 0, 255, 255]);
    }

    #[test]
    fn the_region_is_clamped_and_the_rest_untouched() {
        let fill = [10, 200, 10, 200, 10, 200, 10, 200];
        assert_eq!(run(PixelFormat::Grey, Some((2, 1, 99, 99)), &fill), [10, 200, 10, 200, 10, 200, 0, 255]);
        assert_eq!(run(PixelFormat::Grey, Some((9, 9, 1, 1)), &fill), fill);
        assert_eq!(run(PixelFormat::Grey, Some((0, 0, u32::MAX, 1)), &fill)[..4], [0, 255, 0, 255]);
    }

    #[test]
    fn ten_bit_samples_use_the_bits_of_their_format() {
        let words = |values: [u16; 8]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
        let low = run(PixelFormat::Yuv420p10, None, &words([511, 512, 0, 1023, 0, 0, 0, 0]));
        assert_eq!(low[..8], words([0, 1023, 0, 1023, 0, 0, 0, 0])[..8]);
        let high = run(PixelFormat::P010, None, &words([511 << 6, 512 << 6, 0, 1023 << 6, 0, 0, 0, 0]));
        assert_eq!(high[..8], words([0, 1023 << 6, 0, 1023 << 6, 0, 0, 0, 0])[..8]);
    }
}
