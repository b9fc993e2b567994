// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rotate` and `flip`: pictures turned by quarters, or mirrored.

use framepath_model::format::{Layout, PixelFormat};
use framepath_model::path::{Arg, DefaultValue, Definition, ValueKind};
use framepath_model::stream::{Rational, StreamInfo};
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
        ValueKind::choice(&["90", "180", "270"]),
        DefaultValue::Required,
        "angle in degrees, clockwise",
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
        let turn = match hop.choice("angle") {
            "90" => Turn::Quarter,
            "180" => Turn::Half,
            _ => Turn::ThreeQuarters,
        };
        Ok(TurnStage { turn, copies: place.copy_pool(), band: Vec::new() })
    })
}

pub(crate) fn flip() -> Element {
    Element::stage(&FLIP, |hop, place| {
        let turn = if hop.choice("direction") == "horizontal" { Turn::Mirror } else { Turn::UpsideDown };
        Ok(TurnStage { turn, copies: place.copy_pool(), band: Vec::new() })
    })
}

/// Number of rows that are read before they are written as columns: a cache line of 8-bit samples.
const BAND: usize = 64;

/// Movement of the pixels of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Left and right change places.
    Mirror,
    /// Top and bottom change places.
    UpsideDown,
    /// Clockwise by 90 degrees.
    Quarter,
    /// By 180 degrees.
    Half,
    /// Clockwise by 270 degrees.
    ThreeQuarters,
}

impl Turn {
    /// Returns true if rows become columns.
    fn swaps_sides(self) -> bool {
        matches!(self, Turn::Quarter | Turn::ThreeQuarters)
    }

    /// Returns an error if the samples of `format` cannot be moved like this.
    fn check(self, format: PixelFormat) -> Result<(), StageError> {
        let (across, down) = format.block();
        let takes = match format {
            PixelFormat::Yuyv | PixelFormat::Uyvy => "formats with a plane for luma; put `convert` in front",
            _ if self.swaps_sides() && across != down => {
                "formats whose chroma has the same step both ways, such as YUV420P and YUV444P; put `convert` in front"
            }
            _ => return Ok(()),
        };
        Err(StageError::Format { format, takes })
    }
}

/// Stage that writes each picture, turned, into a slot of its own pool.
struct TurnStage {
    turn: Turn,
    copies: CopyPool,
    /// Rows of the input that are being moved.
    band: Vec<u8>,
}

impl TurnStage {
    fn turned(&mut self, frame: &Frame) -> Result<FrameMut, StageError> {
        let from = *frame.layout();
        self.turn.check(from.format)?;
        let (width, height) =
            if self.turn.swaps_sides() { (from.height, from.width) } else { (from.width, from.height) };
        let layout = Layout::packed(from.format, width, height)?.with_colors(from.colors);
        let mut made = self.copies.slot(&layout)?;
        for index in 0..from.planes().len() {
            let bytes = layout.planes()[index].width * layout.planes()[index].rows;
            meter::convert(bytes, || {
                if from.format == PixelFormat::Pal8 && index == 1 {
                    frame.row(index, 0).copy_to(made.plane_mut(index));
                    return;
                }
                let moved = Plane { frame, index, turn: self.turn };
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

/// A plane of the input, and its movement.
struct Plane<'a> {
    frame: &'a Frame,
    index: usize,
    turn: Turn,
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
            match self.turn {
                Turn::Mirror | Turn::UpsideDown | Turn::Half => {
                    for row in 0..rows {
                        let at = first + row;
                        let at = if self.turn == Turn::Mirror { at } else { from.rows - 1 - at };
                        let target = &mut to[at * stride..][..from.width];
                        if self.turn == Turn::UpsideDown {
                            target.copy_from_slice(&band[row * from.width..][..from.width]);
                            continue;
                        }
                        let places = target.chunks_exact_mut(N).enumerate();
                        places.for_each(|(at, to)| to.copy_from_slice(&pixel(row, columns - 1 - at)));
                    }
                }
                // Row y becomes column rows - 1 - y.
                Turn::Quarter => {
                    for column in 0..columns {
                        let start = column * stride + (from.rows - first - rows) * N;
                        let places = to[start..][..rows * N].chunks_exact_mut(N);
                        places.enumerate().for_each(|(at, to)| {
                            to.copy_from_slice(&pixel(rows - 1 - at, column));
                        });
                    }
                }
                // Column x becomes row columns - 1 - x.
                Turn::ThreeQuarters => {
                    for column in 0..columns {
                        let start = (columns - 1 - column) * stride + first * N;
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
        if let Some(format) = info.format {
            self.turn.check(format)?;
        }
        if !self.turn.swaps_sides() {
            return Ok(*info);
        }
        let aspect = info.sample_aspect;
        Ok(StreamInfo {
            width: info.height,
            height: info.width,
            sample_aspect: Rational::new(aspect.den, aspect.num),
            ..*info
        })
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|error| out.fail(error))?;
        let meta = frame.meta();
        let turned = self.turned(&frame).map_err(|error| out.fail(error))?;
        drop(frame);
        out.push(Item::Frame(turned.freeze(meta)))
    }
}
