// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of captured pictures, which the compositor writes (wl_shm).

use framepath_model::format::{Layout, PixelFormat};
use framepath_os::display::screen_pool::ScreenPool;
use wayland_client::protocol::wl_buffer::WlBuffer;
use wayland_client::protocol::wl_shm::Format;
use wayland_client::protocol::wl_shm_pool::WlShmPool;

use super::compositor::{Compositor, CopyForm};
use crate::error::StageError;

/// Pool of pictures of one form.
pub(super) struct WaylandImages {
    pub(super) pool: ScreenPool,
    pub(super) layout: Layout,
    pub(super) form: CopyForm,
    shared: WlShmPool,
    /// Buffer of each slot.
    buffers: Vec<WlBuffer>,
}

impl WaylandImages {
    /// Makes a pool of `slots` pictures.
    ///
    /// # Errors
    /// The form is not supported, memory is short, or the pool has 2 GiB.
    pub(super) fn new(
        compositor: &Compositor,
        form: CopyForm,
        slots: u32,
    ) -> Result<WaylandImages, StageError> {
        let layout = layout(form)?;
        let memory = |error| StageError::Io {
            what: format!("memory for {slots} pictures of {} bytes", layout.size),
            error,
        };
        let pool = ScreenPool::new(layout.size, slots).map_err(memory)?;
        let too_large = || {
            let bytes = layout.size;
            StageError::Screen(format!(
                "pool={slots}: pictures of {bytes} bytes fill 2 GiB; use a smaller pool"
            ))
        };
        // The protocol has 31 bits for a size.
        let bytes = i32::try_from(pool.slot_bytes() as u64 * u64::from(slots)).map_err(|_| too_large())?;
        let handle = compositor.handle();
        let shared = compositor.shm()?.create_pool(pool.memfd().map_err(memory)?, bytes, handle, ());
        let CopyForm { format, width, height, stride } = form;
        let buffer = |slot: u32| {
            let offset = slot as usize * pool.slot_bytes();
            // The layout has checked the sizes, and the pool the offset.
            shared.create_buffer(
                offset as i32,
                width as i32,
                height as i32,
                stride as i32,
                format,
                handle,
                (),
            )
        };
        let buffers = (0..slots).map(buffer).collect();
        Ok(WaylandImages { pool, layout, form, shared, buffers })
    }

    /// Returns the compositor's buffer for a slot.
    pub(super) fn buffer(&self, slot: u32) -> &WlBuffer {
        &self.buffers[slot as usize]
    }
}

impl Drop for WaylandImages {
    /// Lets the compositor release the memory. Frames of the pool stay valid.
    fn drop(&mut self) {
        self.buffers.iter().for_each(WlBuffer::destroy);
        self.shared.destroy();
    }
}

/// Returns the pixel format of a format of wl_shm; `None` if it is not supported.
pub(super) fn pixel_format(format: Format) -> Option<PixelFormat> {
    match format {
        Format::Xrgb8888 | Format::Argb8888 => Some(PixelFormat::Bgr0),
        Format::Xbgr8888 | Format::Abgr8888 => Some(PixelFormat::Rgba),
        _ => None,
    }
}

/// Returns the layout of pictures of this form.
fn layout(form: CopyForm) -> Result<Layout, StageError> {
    let CopyForm { format, width, height, stride } = form;
    let pixels = pixel_format(format).ok_or_else(|| {
        StageError::Screen(format!(
            "the compositor's pictures are {format:?}; supported: Xrgb8888, Argb8888, Xbgr8888, Abgr8888"
        ))
    })?;
    let layout = Layout::packed(pixels, width, height)
        .map_err(|error| StageError::Screen(format!("the compositor's picture: {error}")))?;
    let packed = layout.size / layout.height.max(1) as usize;
    if packed != stride as usize {
        return Err(StageError::Screen(format!(
            "rows of the compositor's pictures have {stride} bytes, expected {packed}"
        )));
    }
    Ok(layout)
}
