// SPDX-License-Identifier: MIT OR Apache-2.0
//! Textures of one SDL canvas, a few at a time.
//!
//! The binding's textures have no owner: without a call of `SDL_DestroyTexture` they
//! live as long as their renderer. This cache owns the canvas and its textures together,
//! so that a texture can be destroyed while the canvas certainly lives.

use sdl2::pixels::PixelFormatEnum;
use sdl2::rect::Rect;
use sdl2::render::{Texture, WindowCanvas};

/// Textures that a cache keeps: the one in use, and two for streams that alternate
/// between sizes.
pub const TEXTURES: usize = 3;

/// A canvas and the textures that were used last, each with its key.
pub struct TextureCache<K> {
    canvas: WindowCanvas,
    /// Made by `canvas`; the most recently used is the last. No reference to a texture
    /// leaves this module: `&mut` would be enough to exchange it for another canvas's.
    textures: Vec<(K, Texture)>,
}

impl<K: PartialEq> TextureCache<K> {
    /// Makes an empty cache for `canvas`.
    pub fn new(canvas: WindowCanvas) -> TextureCache<K> {
        TextureCache { canvas, textures: Vec::with_capacity(TEXTURES) }
    }

    /// Returns the canvas; a shared reference, because the textures belong to this canvas
    /// and no other may take its place.
    pub fn canvas(&self) -> &WindowCanvas {
        &self.canvas
    }

    /// Returns the window of the canvas.
    pub fn window_mut(&mut self) -> &mut sdl2::video::Window {
        self.canvas.window_mut()
    }

    /// Calls `fill` with the pixels and the pitch of the texture with that key, a new
    /// streaming one of `size` if there is none. The least recently used texture is
    /// destroyed where there would be too many.
    ///
    /// # Errors
    /// SDL's message; the texture to draw may then be another.
    pub fn upload<R>(
        &mut self,
        key: K,
        format: PixelFormatEnum,
        size: (u32, u32),
        fill: impl FnOnce(&mut [u8], usize) -> R,
    ) -> Result<R, String> {
        let mut texture = match self.textures.iter().position(|(known, _)| *known == key) {
            Some(at) => self.textures.remove(at),
            None => {
                while self.textures.len() >= TEXTURES {
                    let (_, oldest) = self.textures.remove(0);
                    // SAFETY: `self.canvas` made the texture and lives: it is dropped with this
                    // cache, and lent as `&WindowCanvas` only. The handle came out of the list,
                    // which is private and lends nothing, so that no other handle exists. SDL draws
                    // the queued uses of a texture before it destroys the texture.
                    unsafe { oldest.destroy() };
                }
                let made = self.canvas.create_texture_streaming(format, size.0, size.1);
                (key, made.map_err(|error| error.to_string())?)
            }
        };
        let filled = texture.1.with_lock(None, fill);
        self.textures.push(texture);
        filled
    }

    /// Draws the part `from` of the texture uploaded last at `to`, over a cleared canvas,
    /// and shows it. Does nothing before the first upload.
    ///
    /// # Errors
    /// SDL's message.
    pub fn draw(&mut self, from: Rect, to: Rect) -> Result<(), String> {
        let Some((_, texture)) = self.textures.last() else { return Ok(()) };
        self.canvas.clear();
        self.canvas.copy(texture, from, to)?;
        self.canvas.present();
        Ok(())
    }
}
