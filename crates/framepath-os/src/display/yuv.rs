// SPDX-License-Identifier: MIT OR Apache-2.0
//! SDL's conversion mode from YUV to RGB, which the crate `sdl2` does not provide.

use sdl2::render::WindowCanvas;
use sdl2::sys::{SDL_SetYUVConversionMode, SDL_YUV_CONVERSION_MODE};

/// Matrix and range by which SDL converts YUV values to RGB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum YuvMode {
    /// Matrix of BT.601, full range.
    Jpeg,
    /// Matrix of BT.601, limited range: SDL's default for every size.
    Bt601,
    /// Matrix of BT.709, limited range.
    Bt709,
}

impl YuvMode {
    /// Sets this mode for textures that are made, filled or drawn from now on. The mode applies
    /// to all of SDL, so any canvas is sufficient.
    pub fn set(self, _canvas: &WindowCanvas) {
        let mode = match self {
            YuvMode::Jpeg => SDL_YUV_CONVERSION_MODE::SDL_YUV_CONVERSION_JPEG,
            YuvMode::Bt601 => SDL_YUV_CONVERSION_MODE::SDL_YUV_CONVERSION_BT601,
            YuvMode::Bt709 => SDL_YUV_CONVERSION_MODE::SDL_YUV_CONVERSION_BT709,
        };
        // SAFETY: sets a variable that only SDL's rendering reads. SDL renders on the present
        // thread only, because a canvas cannot be sent or shared.
        unsafe { SDL_SetYUVConversionMode(mode) }
    }
}
