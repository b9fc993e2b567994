// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames drawn by one of SDL's renderers: uploaded as a texture, scaled and
//! converted to RGB by the GPU, except for colours that SDL cannot convert.

use framepath_codec::{PaintArea, Painter, PixelOrder, planar8};
use framepath_model::colors::{BT470BG, BT709, ColorRange, SMPTE170M};
use framepath_model::format::{Layout, PixelFormat, PlaneLayout};
use framepath_os::display::texture_cache::TextureCache;
use framepath_os::display::yuv::YuvMode;
use framepath_os::measure::meter;
use framepath_os::memory::pool::Frame;
use sdl2::pixels::PixelFormatEnum;
use sdl2::rect::Rect;
use sdl2::render::WindowCanvas;

/// A canvas and the textures of the last pictures.
pub(super) struct Textured {
    /// One texture for each [`Key`]. The cache limits their number, because the stream chooses the sizes.
    cache: TextureCache<Key>,
    /// Key of the texture with the last uploaded frame; `None` before the first, and after an error.
    current: Option<Key>,
    painter: Painter,
}

/// Key of a texture: format, SDL's mode for its YUV (`None` for RGB), and width and height of the picture
/// in the texture, pixels.
type Key = (PixelFormatEnum, Option<YuvMode>, u32, u32);

impl Textured {
    pub(super) fn new(canvas: WindowCanvas) -> Textured {
        Textured { cache: TextureCache::new(canvas), current: None, painter: Painter::new() }
    }

    pub(super) fn window_mut(&mut self) -> &mut sdl2::video::Window {
        self.cache.window_mut()
    }

    /// Returns the width and height of the render target, pixels.
    pub(super) fn output_size(&self) -> Result<(u32, u32), String> {
        self.cache.canvas().output_size()
    }

    /// Uploads the frame; [`Textured::draw`] shows it.
    pub(super) fn upload(&mut self, frame: &Frame) -> Result<(), String> {
        let layout = *frame.layout();
        let key = key_of(&layout);
        let (format, mode, width, height) = key;
        if let Some(mode) = mode {
            mode.set(self.cache.canvas());
        }
        // Chroma of odd sizes rounds up, and so do textures here.
        let even = (width.next_multiple_of(2), height.next_multiple_of(2));
        let rows = even.1 as usize;
        let painted = mode.is_none() && layout.format != PixelFormat::Rgba;
        let painter = &mut self.painter;
        self.current = None;
        self.cache.upload(key, format, even, |bytes, pitch| {
            if !painted {
                fill(frame, bytes, pitch, rows);
                return Ok(());
            }
            // Paints everything, because locking a texture discards its content.
            painter.forget();
            let whole = PaintArea { x: 0, y: 0, width: width as usize, height: height as usize };
            painter.paint(frame, bytes, pitch, whole, PixelOrder::Rgbx).map_err(|error| error.to_string())
        })??;
        self.current = Some(key);
        Ok(())
    }

    /// Draws the last uploaded frame in `area` of the window, and shows it. Does nothing if there is none.
    pub(super) fn draw(&mut self, area: PaintArea) -> Result<(), String> {
        let Some((_, mode, width, height)) = self.current else { return Ok(()) };
        if let Some(mode) = mode {
            mode.set(self.cache.canvas());
        }
        let to = Rect::new(area.x as i32, area.y as i32, area.width as u32, area.height as u32);
        self.cache.draw(Rect::new(0, 0, width, height), to)
    }
}

fn key_of(layout: &Layout) -> Key {
    let mode = match layout.format {
        PixelFormat::Rgba => None,
        _ => mode_of(layout),
    };
    let format = match (layout.format, mode) {
        (_, None) => PixelFormatEnum::RGBA32,
        (PixelFormat::Nv12, _) => PixelFormatEnum::NV12,
        _ => PixelFormatEnum::IYUV,
    };
    (format, mode, layout.width, layout.height)
}

/// Returns SDL's mode for the colours of a YUV picture; `None` if SDL cannot convert them.
fn mode_of(layout: &Layout) -> Option<YuvMode> {
    match (layout.colors.shown_by(layout.width), layout.colors.range) {
        (BT709, ColorRange::Full) => None,
        (BT709, _) => Some(YuvMode::Bt709),
        (BT470BG | SMPTE170M, ColorRange::Full) => Some(YuvMode::Jpeg),
        (BT470BG | SMPTE170M, _) => Some(YuvMode::Bt601),
        _ => None,
    }
}

/// Copies the picture into a locked texture of `rows` rows of `pitch` bytes,
/// chroma behind them. Converts the formats that SDL lacks to 8-bit planar YUV.
fn fill(frame: &Frame, to: &mut [u8], pitch: usize, rows: usize) {
    let layout = frame.layout();
    let plane = |index: usize, offset: usize, stride: usize| {
        let PlaneLayout { width, rows, .. } = layout.planes()[index];
        PlaneLayout { offset, stride, width, rows }
    };
    let chroma = pitch * rows;
    match layout.format {
        PixelFormat::Rgba => copy_plane(frame, 0, to, &plane(0, 0, pitch)),
        PixelFormat::Nv12 => {
            copy_plane(frame, 0, to, &plane(0, 0, pitch));
            copy_plane(frame, 1, to, &plane(1, chroma, pitch));
        }
        PixelFormat::Yuv420p => {
            copy_plane(frame, 0, to, &plane(0, 0, pitch));
            copy_plane(frame, 1, to, &plane(1, chroma, pitch / 2));
            copy_plane(frame, 2, to, &plane(2, chroma + pitch / 2 * (rows / 2), pitch / 2));
        }
        _ => {
            let (width, height) = (layout.width as usize, layout.height as usize);
            let (wide, high) = (width.div_ceil(2), height.div_ceil(2));
            let of = |offset, stride, width, rows| PlaneLayout { offset, stride, width, rows };
            let planes = [
                of(0, pitch, width, height),
                of(chroma, pitch / 2, wide, high),
                of(chroma + pitch / 2 * (rows / 2), pitch / 2, wide, high),
            ];
            let laid_out = Layout::from_planes(PixelFormat::Yuv420p, layout.width, layout.height, &planes);
            // A texture has at least the picture's width and rows.
            planar8(frame, to, &laid_out.expect("a texture holds its picture"));
        }
    }
}

fn copy_plane(frame: &Frame, index: usize, to: &mut [u8], plane: &PlaneLayout) {
    meter::copy(plane.width * plane.rows, || {
        for y in 0..plane.rows {
            let at = plane.offset + y * plane.stride;
            frame.row(index, y).copy_to(&mut to[at..at + plane.width]);
        }
    });
}
