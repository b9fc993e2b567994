// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small cache of the textures of one SDL canvas.
//!
//! The textures of the crate `sdl2` have no owner: without a call of `SDL_DestroyTexture` they
//! live as long as their renderer. This cache owns the canvas and its textures together, so that
//! a texture is destroyed only while the canvas is alive.

use sdl2::pixels::PixelFormatEnum;
use sdl2::rect::Rect;
use sdl2::render::{Texture, WindowCanvas};

/// Maximum number of textures in a cache: the current one, and two for streams that alternate
/// between sizes.
pub const TEXTURES: usize = 3;

/// Canvas and its most recently used textures, each with a key.
pub struct TextureCache<K> {
    canvas: WindowCanvas,
    /// Textures made by `canvas`; the last is the most recently used. No reference to a texture leaves
    /// this module: with a `&mut Texture`, a caller could put a texture of another canvas in its place.
    textures: Vec<(K, Texture)>,
}

impl<K: PartialEq> TextureCache<K> {
    /// Makes an empty cache for `canvas`.
    pub fn new(canvas: WindowCanvas) -> TextureCache<K> {
        TextureCache { canvas, textures: Vec::with_capacity(TEXTURES) }
    }

    /// Returns the canvas. The reference is shared, so that the caller cannot replace the canvas
    /// to which the textures belong.
    pub fn canvas(&self) -> &WindowCanvas {
        &self.canvas
    }

    /// Returns the window of the canvas.
    pub fn window_mut(&mut self) -> &mut sdl2::video::Window {
        self.canvas.window_mut()
    }

    /// Calls `fill` with the pixels and the pitch (bytes per row) of the texture for `key`, and returns
    /// its result. Makes a streaming texture of `format` and `size` (width and height, pixels) if there is
    /// none for `key`, and before that destroys the least recently used texture if the cache is full
    /// ([`TEXTURES`]). A texture that exists keeps its format and size.
    ///
    /// # Errors
    /// SDL's message. [`TextureCache::draw`] may use another texture afterwards.
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
                    // SAFETY: `self.canvas` made the texture and is alive: it is dropped together
                    // with this cache, and only leaves it as `&WindowCanvas`. The handle was
                    // removed from the private list, so no other handle exists. SDL draws the
                    // queued uses of a texture before it destroys the texture.
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

    /// Draws the part `from` of the last uploaded texture at `to`, over a cleared canvas, and
    /// presents it. Does nothing before the first upload.
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
