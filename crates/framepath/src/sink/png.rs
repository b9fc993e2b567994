// SPDX-License-Identifier: MIT OR Apache-2.0
//! `png`: each frame as a picture file `frame-N.png`; N has six digits or more and counts from 0.
//!
//! Grey formats, RGB24 and RGBA keep their pixels; grey of more than 8 bits becomes 16-bit samples. All others become
//! RGB of 8 bits, as `convert` makes it. Alpha is kept.

use std::fs;
use std::path::PathBuf;

use framepath_model::format::{ColorFamily, PixelFormat};
use framepath_model::path::{Arg, Definition, ValueKind};
use framepath_model::stream::StreamInfo;
use framepath_os::measure::meter;
use framepath_os::memory::pool::Frame;
use png::{BitDepth, ColorType, Compression, Encoder};

use crate::element::Element;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::sink::output::SinkOutput;
use crate::sink::unheld::{HeldFields, HeldProperties, UnheldNote};
use crate::stage::Stage;
use crate::stage::convert::Convert;

static DEFINITION: Definition =
    Definition::sink("png", "writes every frame as a PNG file `frame-N.png` in a folder").args(&[Arg::word(
        "dir",
        ValueKind::Text("the path of a folder"),
        "folder for the pictures; created if it is missing",
    )]);

pub(crate) fn element() -> Element {
    Element::stage(&DEFINITION, |hop, place| {
        let note = UnheldNote::new("png", HELD, place.outcomes.notes.clone());
        Ok(Png { folder: hop.text("dir").into(), next: 0, converter: None, pixels: Vec::new(), note })
    })
}

struct Png {
    folder: PathBuf,
    /// Number of the next picture.
    next: u64,
    /// Converter of the last conversion; `None` before the first.
    converter: Option<Convert>,
    /// Rows of the picture as PNG has them.
    pixels: Vec<u8>,
    note: UnheldNote,
}

/// Properties of frames that the pictures hold.
const HELD: HeldProperties =
    HeldProperties { orientation: false, fields: HeldFields::Progressive, times: false, alpha: true };

/// Returns the format in which frames of `format` are encoded: grey formats, Ya8, Rgb24 and Rgba stay; others become
/// Rgba if they have alpha, else Rgb24.
fn written_format(format: PixelFormat) -> PixelFormat {
    use PixelFormat::{Grey, Grey10, Grey12, Grey16, Rgb24, Rgba, Ya8};
    match format {
        Grey | Grey10 | Grey12 | Grey16 | Ya8 | Rgb24 | Rgba => format,
        _ if format.has_alpha() => Rgba,
        _ => Rgb24,
    }
}

/// Returns PNG's description of the samples of a written format.
fn color_type(format: PixelFormat) -> (ColorType, BitDepth) {
    let depth = if format.depth() > 8 { BitDepth::Sixteen } else { BitDepth::Eight };
    let color = match (format.family(), format.has_alpha()) {
        (ColorFamily::Grey, false) => ColorType::Grayscale,
        (ColorFamily::Grey, true) => ColorType::GrayscaleAlpha,
        (_, false) => ColorType::Rgb,
        (_, true) => ColorType::Rgba,
    };
    (color, depth)
}

impl Png {
    fn write(&mut self, frame: Frame) -> Result<(), StageError> {
        self.note.look(&frame);
        let frame = Convert::frame_in(written_format(frame.layout().format), frame, &mut self.converter)?;
        let layout = *frame.layout();
        let plane = layout.planes()[0];
        let shift = 16 - layout.format.depth().max(8);
        let pixels = &mut self.pixels;
        pixels.clear();
        for y in 0..plane.rows {
            frame.row(0, y).visit(|bytes| {
                if layout.format.depth() == 8 {
                    pixels.extend_from_slice(bytes);
                } else {
                    // PNG has the high byte first, and its samples use the whole range of 16 bits.
                    let samples = bytes.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]]));
                    pixels.extend(samples.flat_map(|sample| widened(sample, shift).to_be_bytes()));
                }
            });
        }
        let name = self.folder.join(format!("frame-{:06}.png", self.next));
        self.next += 1;
        let mut output = SinkOutput::create(&name.to_string_lossy())?;
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, layout.width, layout.height);
        let (color, depth) = color_type(layout.format);
        encoder.set_color(color);
        encoder.set_depth(depth);
        encoder.set_compression(Compression::Fast);
        let failed = |error: png::EncodingError| StageError::Other(error.into());
        let mut writer = encoder.write_header().map_err(failed)?;
        writer.write_image_data(pixels).map_err(failed)?;
        writer.finish().map_err(failed)?;
        output.pixels(&file)?;
        output.flush()
    }
}

/// Returns a sample of `16 - shift` bits with 16 bits: its highest bits are repeated below, so that white stays
/// white.
fn widened(sample: u16, shift: u32) -> u16 {
    if shift == 0 { sample } else { sample << shift | sample >> (16 - 2 * shift) }
}

impl Stage for Png {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        let name = self.folder.to_string_lossy().into_owned();
        meter::blocked(|| fs::create_dir_all(&self.folder)).map_err(StageError::io(name))?;
        self.note.start(info);
        Ok(*info)
    }

    fn flush(&mut self, _: &mut Out<'_>) -> Result<(), HopFailure> {
        self.note.flush();
        Ok(())
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|error| out.fail(error))?;
        self.write(frame).map_err(|error| out.fail(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_stays_white() {
        assert_eq!([widened(1023, 6), widened(4095, 4), widened(65535, 0)], [65535; 3]);
        assert_eq!([widened(0, 6), widened(512, 6)], [0, 512 << 6 | 32]);
    }

    #[test]
    fn formats_keep_what_png_has() {
        for format in PixelFormat::ALL {
            let written = written_format(format);
            assert_eq!(written.has_alpha(), format.has_alpha(), "{format}");
            assert!(written.plane_count() == 1);
        }
        assert_eq!(color_type(PixelFormat::Grey10), (ColorType::Grayscale, BitDepth::Sixteen));
    }
}
