// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output to a window or a terminal, and capture of a screen: shared memory for the X server, textures, the
//! terminal's size.

#[cfg(not(any(loom, miri)))]
pub mod canvas;
pub mod line_input;
#[cfg(all(feature = "pipewire", not(any(loom, miri))))]
pub mod pipewire_screen;
#[cfg(not(any(loom, miri)))]
pub mod scanout_buffer;
#[cfg(not(any(loom, miri)))]
pub mod screen_pool;
#[cfg(feature = "sdl")]
pub mod sdl;
pub mod terminal;
#[cfg(feature = "sdl")]
pub mod texture_cache;
#[cfg(feature = "sdl")]
pub mod yuv;
