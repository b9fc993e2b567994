// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rotate` and `flip`: pictures turned by quarters, or mirrored.

use framepath_model::format::{Layout, PixelFormat};
use framepath_model::orientation::Orientation;
use framepath_model::path::{Arg, DefaultValue, Definition, ValueKind};
use framepath_model::stream::{FieldOrder, FrameMeta, Rational, StreamInfo};
use framepath_os::measure::meter;
use framepath_os::memory::pool::{Frame, FrameMut};

use crate::copy_pool::CopyPool;
use crate::element::Element;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::stage::Stage;

static ROTATE: Definition = Definition::stage("rotate", "turns pictures clockwise")
    .args(&[Arg::option(
        "angle",
        ValueKind::choice(&["auto", "90", "180", "270"]),
        DefaultValue::Required,
        "angle in degrees, clockwise; `auto` makes the pictures upright, as the file declares",
    )])
    .known_as(&["transpose", "videoflip"]);

static FLIP: Definition = Definition::stage("flip", "mirrors pictures")
    .args(&[Arg::option(
        "direction",
        ValueKind::choice(&["horizontal", "vertical"]),
        DefaultValue::Required,
        "horizontal: left and right change places; vertical: top and bottom do",
    )])
    .known_as(&["hflip", "vflip"]);

pub(crate) fn rotate() -> Element {
    Element::stage(&ROTATE, |hop, place| {
        let movement = match hop.choice("angle") {
            "auto" => None,
            "90" => Some(Orientation::Rotated90),
            "180" => Some(Orientation::Rotated180),
            _ => Some(Orientation::Rotated270),
        };
        Ok(TurnStage { movement, turner: Turner::new(place.copy_pool()) })
    })
}

pub(crate) fn flip() -> Element {
    Element::stage(&FLIP, |hop, place| {
        let is_horizontal = hop.choice("direction") == "horizontal";
        let movement = if is_horizontal { Orientation::Mirrored } else { Orientation::UpsideDown };
        Ok(TurnStage { movement: Some(movement), turner: Turner::new(place.copy_pool()) })
    })
}

/// Number of rows that are read before they are written as columns: a cache line of 8-bit samples.
const BAND: usize = 64;

/// Returns an error if the samples of pictures of `format` cannot be moved by `movement`.
fn check(movement: Orientation, format: PixelFormat) -> Result<(), StageError> {
    let (across, down) = format.block();
    let takes = match format {
        _ if movement == Orientation::Upright => return Ok(()),
        PixelFormat::Yuyv | PixelFormat::Uyvy => "all formats but YUYV and UYVY; put `convert` in front",
        _ if movement.swaps_sides() && across != down => {
            "formats whose chroma has the same step both ways, such as YUV420P and YUV444P; put `convert` in front"
        }
        _ => return Ok(()),
    };
    Err(StageError::Format { format, takes })
}

/// Writer of turned pictures into slots of its own pool.
pub(crate) struct Turner {
    copies: CopyPool,
    /// Rows of the input that are being moved.
    band: Vec<u8>,
}

impl Turner {
    pub(crate) fn new(copies: CopyPool) -> Turner {
        Turner { copies, band: Vec::new() }
    }

    /// Returns true if pictures of `format` can be moved by `movement`.
    pub(crate) fn takes(movement: Orientation, format: PixelFormat) -> bool {
        check(movement, format).is_ok()
    }

    /// Returns the picture of `frame`, moved by `movement`, in a slot of this turner's pool. Waits while all
    /// slots are in use.
    ///
    /// # Errors
    /// Pictures of this format cannot be moved by `movement`, or the pool cannot be made.
    pub(crate) fn turned(&mut self, movement: Orientation, frame: &Frame) -> Result<FrameMut, StageError> {
        let from = *frame.layout();
        check(movement, from.format)?;
        let (width, height) =
            if movement.swaps_sides() { (from.height, from.width) } else { (from.width, from.height) };
        let layout = Layout::packed(from.format, width, height)?.with_colors(from.colors);
        let mut made = self.copies.slot(&layout)?;
        for index in 0..from.planes().len() {
            let bytes = layout.planes()[index].width * layout.planes()[index].rows;
            meter::convert(bytes, || {
                if from.format == PixelFormat::Pal8 && index == 1 {
                    frame.row(index, 0).copy_to(made.plane_mut(index));
                    return;
                }
                let moved = Plane { frame, index, movement };
                match from.format.plane_size(index, 1, 1).0 {
                    1 => moved.write::<1>(&mut made, &mut self.band),
                    2 => moved.write::<2>(&mut made, &mut self.band),
                    3 => moved.write::<3>(&mut made, &mut self.band),
                    _ => moved.write::<4>(&mut made, &mut self.band),
                }
            });
        }
        Ok(made)
    }
}

/// Returns `aspect` of a pixel after the movement.
pub(crate) fn turned_aspect(movement: Orientation, aspect: Rational) -> Rational {
    if movement.swaps_sides() { Rational::new(aspect.den, aspect.num) } else { aspect }
}

/// Stage that turns each picture.
struct TurnStage {
    /// Movement of each picture; `None` makes each picture upright.
    movement: Option<Orientation>,
    turner: Turner,
}

impl TurnStage {
    /// Returns the movement to apply to a picture with `orientation`, and the orientation of the result. A
    /// viewer that makes the result upright shows the upright input, moved.
    fn movement(&self, orientation: Orientation) -> (Orientation, Orientation) {
        match self.movement {
            None => (orientation, Orientation::Upright),
            Some(movement) => (movement, movement.inverse().then(orientation).then(movement)),
        }
    }
}

/// Returns the field order after the movement of a picture with `rows` rows. The order is reversed if the
/// movement exchanges top and bottom, keeps rows as rows, and the number of rows is even; else it stays the
/// same.
fn turned_order(movement: Orientation, order: FieldOrder, rows: u32) -> FieldOrder {
    let is_reversed = matches!(movement, Orientation::UpsideDown | Orientation::Rotated180);
    match order {
        FieldOrder::TopFirst if is_reversed && rows % 2 == 0 => FieldOrder::BottomFirst,
        FieldOrder::BottomFirst if is_reversed && rows % 2 == 0 => FieldOrder::TopFirst,
        order => order,
    }
}

/// A plane of the input, and its movement.
struct Plane<'a> {
    frame: &'a Frame,
    index: usize,
    movement: Orientation,
}

impl Plane<'_> {
    /// Writes the plane, whose pixels have `N` bytes, into `to`. `band` is scratch memory.
    fn write<const N: usize>(&self, to: &mut FrameMut, band: &mut Vec<u8>) {
        let from = self.frame.layout().planes()[self.index];
        let stride = to.layout().planes()[self.index].stride;
        let to = to.plane_mut(self.index);
        band.resize(from.width * BAND, 0);
        for first in (0..from.rows).step_by(BAND) {
            let rows = BAND.min(from.rows - first);
            for (row, bytes) in band.chunks_exact_mut(from.width).enumerate().take(rows) {
                self.frame.row(self.index, first + row).copy_to(bytes);
            }
            let columns = from.width / N;
            // The pixel in a row and column of the band.
            let pixel = |row: usize, column: usize| -> [u8; N] {
                let start = row * from.width + column * N;
                band[start..start + N].try_into().expect("N bytes")
            };
            match self.movement {
                // Never written: the picture stays as it is.
                Orientation::Upright => {}
                Orientation::Mirrored | Orientation::UpsideDown | Orientation::Rotated180 => {
                    for row in 0..rows {
                        let at = first + row;
                        let at = if self.movement == Orientation::Mirrored { at } else { from.rows - 1 - at };
                        let target = &mut to[at * stride..][..from.width];
                        if self.movement == Orientation::UpsideDown {
                            target.copy_from_slice(&band[row * from.width..][..from.width]);
                            continue;
                        }
                        let places = target.chunks_exact_mut(N).enumerate();
                        places.for_each(|(at, to)| to.copy_from_slice(&pixel(row, columns - 1 - at)));
                    }
                }
                // Row y becomes column rows - 1 - y.
                Orientation::Rotated90 | Orientation::Transversed => {
                    for column in 0..columns {
                        let is_turned = self.movement == Orientation::Rotated90;
                        let row = if is_turned { column } else { columns - 1 - column };
                        let start = row * stride + (from.rows - first - rows) * N;
                        let places = to[start..][..rows * N].chunks_exact_mut(N);
                        places.enumerate().for_each(|(at, to)| {
                            to.copy_from_slice(&pixel(rows - 1 - at, column));
                        });
                    }
                }
                // Row y becomes column y.
                Orientation::Rotated270 | Orientation::Transposed => {
                    for column in 0..columns {
                        let is_turned = self.movement == Orientation::Rotated270;
                        let row = if is_turned { columns - 1 - column } else { column };
                        let start = row * stride + first * N;
                        let places = to[start..][..rows * N].chunks_exact_mut(N);
                        places.enumerate().for_each(|(at, to)| {
                            to.copy_from_slice(&pixel(at, column));
                        });
                    }
                }
            }
        }
    }
}

impl Stage for TurnStage {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        let (movement, orientation) = self.movement(info.orientation);
        if let Some(format) = info.format {
            check(movement, format)?;
        }
        let sample_aspect = turned_aspect(movement, info.sample_aspect);
        let (width, height) =
            if movement.swaps_sides() { (info.height, info.width) } else { (info.width, info.height) };
        Ok(StreamInfo { width, height, sample_aspect, orientation, ..*info })
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|error| out.fail(error))?;
        let meta = frame.meta();
        let (movement, orientation) = self.movement(meta.orientation);
        if movement == Orientation::Upright {
            return out.push(Item::Frame(frame));
        }
        let field_order = turned_order(movement, meta.field_order, frame.layout().height);
        let turned = self.turner.turned(movement, &frame).map_err(|error| out.fail(error))?;
        drop(frame);
        out.push(Item::Frame(turned.freeze(FrameMeta { orientation, field_order, ..meta })))
    }
}
