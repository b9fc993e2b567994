// SPDX-License-Identifier: MIT OR Apache-2.0
//! `scale`: pictures of another size, by libswscale.

use framepath_codec::{Converter, ScaleFilter};
use framepath_model::format::{Layout, PixelFormat};
use framepath_model::path::{Arg, DefaultValue, Definition, Hop, Hosts, ValueKind};
use framepath_model::stream::{Rational, StreamInfo};
use framepath_os::memory::pool::{Frame, FrameMut, GiveBack, Pool};

use crate::copy_pool::slot_in;
use crate::element::{Element, HopPlace};
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::stage::Stage;

static DEFINITION: Definition = Definition::stage("scale", "pictures of another size, by libswscale")
    .args(&[
        Arg::option(
            "size",
            ValueKind::Size,
            DefaultValue::Unset("from `width` or `height`"),
            "size of the output; one of `size`, `width` and `height` is required",
        ),
        Arg::option(
            "width",
            ValueKind::count(1, Layout::MAX_SIDE as u64),
            DefaultValue::Unset(
                "from `height` and the input's proportions, rounded to the nearest even number",
            ),
            "width of the output in pixels",
        )
        .excluding(&["size"]),
        Arg::option(
            "height",
            ValueKind::count(1, Layout::MAX_SIDE as u64),
            DefaultValue::Unset(
                "from `width` and the input's proportions, rounded to the nearest even number",
            ),
            "height of the output in pixels",
        )
        .excluding(&["size"]),
        Arg::option(
            "filter",
            ValueKind::choice(&["nearest", "bilinear", "bicubic", "area", "lanczos"]),
            DefaultValue::Is("bicubic"),
            "how the pixels are calculated; area is for an output that is much smaller than the input",
        ),
    ])
    .hosts(Hosts::Any)
    .known_as(&["videoscale"]);

pub(crate) fn element() -> Element {
    Element::stage(&DEFINITION, make).with_least_out(|_, _| SLOTS - 1)
}

fn make(hop: &Hop, place: &HopPlace<'_>) -> Result<Scale, StageError> {
    let side = |name| hop.is_set(name).then(|| hop.count(name) as u32);
    let size = match (hop.is_set("size").then(|| hop.size("size")), side("width"), side("height")) {
        (Some((width, height)), ..) => ScaledSize::Fixed(width, height),
        (None, Some(width), Some(height)) => ScaledSize::Fixed(width, height),
        (None, Some(width), None) => ScaledSize::Width(width),
        (None, None, Some(height)) => ScaledSize::Height(height),
        (None, None, None) => return Err(StageError::Option("set size=, width= or height=".to_owned())),
    };
    let filter = match hop.choice("filter") {
        "nearest" => ScaleFilter::Nearest,
        "bilinear" => ScaleFilter::Bilinear,
        "area" => ScaleFilter::Area,
        "lanczos" => ScaleFilter::Lanczos,
        _ => ScaleFilter::Bicubic,
    };
    Ok(Scale { size, filter, give_back: place.give_back, current: None, pool: None })
}

/// Number of slots of the stage's own pool: one for the frame being written, the others for frames in the
/// hops behind. The stage waits while all are in use.
const SLOTS: u32 = 8;

/// Alignment of strides in bytes, because libswscale loads and stores whole vectors.
const STRIDE_ALIGN: usize = 64;

/// Size of the output pictures.
#[derive(Clone, Copy, Debug)]
enum ScaledSize {
    Fixed(u32, u32),
    /// This width, and a height in proportion.
    Width(u32),
    /// This height, and a width in proportion.
    Height(u32),
}

impl ScaledSize {
    /// Returns the size for pictures of `width` x `height` pixels. A side in proportion is the nearest even
    /// number, at least 2.
    fn of(self, (width, height): (u32, u32)) -> (u32, u32) {
        let even = |side: u32, of: u32, other: u32| {
            let half = (u64::from(side) * u64::from(of) + u64::from(other)) / (2 * u64::from(other));
            u32::try_from(half * 2).unwrap_or(u32::MAX).max(2)
        };
        match self {
            ScaledSize::Fixed(width, height) => (width, height),
            ScaledSize::Width(to) => (to, even(to, height, width)),
            ScaledSize::Height(to) => (even(to, width, height), to),
        }
    }
}

/// Stage that scales every frame into a slot of its own pool, in the frame's format (a palette becomes BGRA).
struct Scale {
    size: ScaledSize,
    filter: ScaleFilter,
    /// In a worker: table of the frames that the process that runs the path still reads, with the shared
    /// words by which that process returns them; `None` outside a worker.
    give_back: Option<&'static GiveBack>,
    /// Converter and layout for the last input; `None` before the first frame.
    current: Option<Current>,
    /// Pool of the output frames; `None` before the first frame.
    pool: Option<Pool>,
}

struct Current {
    /// Layout of the input frames.
    from: Layout,
    to: Layout,
    converter: Converter,
}

impl Scale {
    fn scaled(&mut self, frame: &Frame) -> Result<FrameMut, StageError> {
        let from = *frame.layout();
        let described = |l: &Layout| (l.format, l.width, l.height, l.colors);
        let current = match &mut self.current {
            Some(current) if described(&current.from) == described(&from) => current,
            place => {
                let (width, height) = self.size.of((from.width, from.height));
                let format = if from.format == PixelFormat::Pal8 { PixelFormat::Bgra } else { from.format };
                let converter = Converter::scaling(format, (width, height), self.filter);
                let to = Layout::aligned(format, width, height, STRIDE_ALIGN)?;
                let to = to.with_colors(converter.colors(&from));
                place.insert(Current { from, to, converter })
            }
        };
        let mut into = slot_in(&mut self.pool, Converter::slot_bytes(&current.to), SLOTS, self.give_back)?;
        into.set_layout(&current.to)?;
        current.converter.convert(frame, &mut into)?;
        Ok(into)
    }
}

impl Stage for Scale {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        if info.width == 0 || info.height == 0 {
            return Ok(*info);
        }
        let (width, height) = self.size.of((info.width, info.height));
        let format =
            info.format.map(|format| if format == PixelFormat::Pal8 { PixelFormat::Bgra } else { format });
        // Pixels become wider or narrower where the picture changes its proportions.
        let aspect = info.sample_aspect;
        let sample_aspect = match aspect.value() {
            Some(_) => {
                let num = i64::from(aspect.num) * i64::from(height) * i64::from(info.width);
                let den = i64::from(aspect.den) * i64::from(width) * i64::from(info.height);
                reduced(num, den)
            }
            None => aspect,
        };
        Ok(StreamInfo { format, width, height, sample_aspect, ..*info })
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|error| out.fail(error))?;
        let scaled = self.scaled(&frame).map_err(|error| out.fail(error))?.freeze(frame.meta());
        drop(frame);
        out.push(Item::Frame(scaled))
    }
}

/// Returns `num / den` in lowest terms; unknown (0) if its parts are too large.
fn reduced(num: i64, den: i64) -> Rational {
    let (mut a, mut b) = (num, den);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    let part = |value: i64| i32::try_from(value / a.max(1));
    match (part(num), part(den)) {
        (Ok(num), Ok(den)) => Rational::new(num, den),
        _ => Rational::new(0, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_in_proportion_is_even() {
        assert_eq!(ScaledSize::Width(640).of((1920, 1080)), (640, 360));
        assert_eq!(ScaledSize::Width(640).of((720, 405)), (640, 360));
        assert_eq!(ScaledSize::Height(100).of((99, 57)), (174, 100));
        assert_eq!(ScaledSize::Width(2).of((16384, 2)), (2, 2));
        assert_eq!(ScaledSize::Fixed(3, 5).of((10, 10)), (3, 5));
        assert_eq!(reduced(16 * 9, 9 * 12), Rational::new(4, 3));
        assert_eq!(reduced(i64::MAX, 2), Rational::new(0, 1));
    }
}
