// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames as libavfilter reads them: read-only, and without a copy if libavfilter may read them in
//! place.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ffmpeg_sys_next as ff;
use framepath_model::format::{Layout, PixelFormat};
use framepath_os::measure::meter;
use framepath_os::memory::pool::{Frame, Pool};

use super::{GraphError, InputMemory, ROW_ALIGN, SLACK};
use crate::lent_frame::{FrameHolder, lend};
use crate::libav::PictureRef;
use crate::libav_format::libav_format;

/// Number of bytes that must be readable behind the last row: vector code reads beyond it.
const TOO_FAR: usize = 64;

/// Number of slots of the first pool for copies. Only used slots take memory.
const FIRST_COPIES: u32 = 16;

/// Maker of libavfilter's input frames, and list of those that libavfilter holds.
pub(super) struct InputFrames {
    memory: InputMemory,
    /// Pools for copies of frames that libavfilter must not read in place, each with twice as many slots as the
    /// one before it. Filters such as `reverse` hold all frames, so that a copy waits for no other.
    copies: Vec<Pool>,
    held: HeldFrames,
}

/// Addresses of the [`HeldFrame`]s of libavfilter, to tell their buffers from libavfilter's own.
#[derive(Clone, Default)]
struct HeldFrames(Arc<Mutex<Vec<usize>>>);

/// Frame that libavfilter holds through an `AVBufferRef`.
struct HeldFrame {
    frame: Frame,
    list: HeldFrames,
}

impl HeldFrames {
    fn addresses(&self) -> MutexGuard<'_, Vec<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FrameHolder for HeldFrame {
    fn frame(&self) -> &Frame {
        &self.frame
    }
}

impl Drop for HeldFrame {
    /// Removes the frame from the list, after libavfilter's last reference to it.
    fn drop(&mut self) {
        let address = (&raw const *self).addr();
        self.list.addresses().retain(|listed| *listed != address);
    }
}

impl InputFrames {
    pub(super) fn new(memory: InputMemory) -> InputFrames {
        InputFrames { memory, copies: Vec::new(), held: HeldFrames::default() }
    }

    /// Returns an `AVFrame` for libavfilter with the pixels of `frame`, or of a copy if libavfilter
    /// must not read the frame in place; the meter counts the copy. The `AVFrame` has `number` as a
    /// mark that filters copy to their output. Returns `None` if there is not enough memory.
    ///
    /// # Errors
    /// The frame is not a picture.
    pub(super) fn wrap(&mut self, frame: Frame, number: u64) -> Result<Option<PictureRef>, GraphError> {
        let layout = *frame.layout();
        // Opaque buffers may be wider than any picture, and the fields of a layout can be changed without its
        // planes.
        Layout::from_planes(layout.format, layout.width, layout.height, layout.planes())?;
        let ends = layout.planes().iter().map(|plane| plane.end()).max().unwrap_or(0);
        let is_short = frame.slot_bytes() < ends + TOO_FAR;
        // The hop in front waits for a free slot of its pool, so libavfilter gets at most half of them.
        let is_scarce =
            frame.pool_slots().is_some_and(|slots| self.held.addresses().len() >= slots as usize / 2);
        let is_copied = is_short || is_scarce || self.memory == InputMemory::Copied || frame.may_change();
        let frame = if is_copied {
            let Some(copy) = self.copy(&frame)? else { return Ok(None) };
            copy
        } else {
            frame
        };
        Ok(self.picture_of(frame, number))
    }

    fn copy(&mut self, frame: &Frame) -> Result<Option<Frame>, GraphError> {
        let from = frame.layout();
        let layout =
            Layout::aligned(from.format, from.width, from.height, ROW_ALIGN)?.with_colors(from.colors);
        let bytes = layout.size + SLACK;
        if self.copies.first().is_some_and(|pool| pool.slot_bytes() < bytes) {
            self.copies.clear();
        }
        let mut copy = match self.copies.iter_mut().find_map(Pool::try_acquire) {
            Some(copy) => copy,
            None => {
                let slots = self.copies.last().map_or(FIRST_COPIES, |pool| pool.slots() * 2);
                let Ok(pool) = Pool::new(bytes, slots) else { return Ok(None) };
                self.copies.push(pool);
                let Some(copy) = self.copies.last_mut().and_then(Pool::try_acquire) else { return Ok(None) };
                copy
            }
        };
        copy.set_layout(&layout)?;
        meter::copy(layout.pixel_bytes(), || {
            for (index, plane) in layout.planes().iter().enumerate() {
                let to = copy.plane_mut(index);
                for row in 0..plane.rows {
                    frame.row(index, row).copy_to(&mut to[row * plane.stride..][..plane.width]);
                }
            }
        });
        Ok(Some(copy.freeze(frame.meta())))
    }

    fn picture_of(&self, frame: Frame, number: u64) -> Option<PictureRef> {
        let held = Box::new(HeldFrame { frame, list: self.held.clone() });
        let address = (&raw const *held).addr();
        let picture = lend(held)?;
        self.held.addresses().push(address);
        // SAFETY: a frame of ours.
        unsafe { (*picture.as_ptr()).opaque = std::ptr::without_provenance_mut(number as usize) };
        Some(picture)
    }

    /// Returns the input frame, or the graph's copy of it, whose whole unchanged pixels `picture`
    /// shows in place; `None` if `picture` lies in other memory or is a part of the frame, and
    /// always with [`InputMemory::Copied`].
    ///
    /// # Safety
    /// `picture` is a valid frame.
    pub(super) unsafe fn same(&self, picture: *const ff::AVFrame) -> Option<Frame> {
        // SAFETY: guaranteed by the caller; the function only reads a field of the buffer.
        let held = unsafe {
            let buffer = (*picture).buf[0];
            if buffer.is_null() {
                return None;
            }
            ff::av_buffer_get_opaque(buffer).cast::<HeldFrame>()
        };
        if self.memory == InputMemory::Copied || !self.held.addresses().contains(&held.addr()) {
            return None;
        }
        // SAFETY: a listed address is a frame that is not released, because `picture` refers to its buffer.
        let frame = unsafe { &(*held).frame };
        let layout = frame.layout();
        // SAFETY: a valid frame.
        let is_whole = unsafe {
            let size = ((*picture).width as u32, (*picture).height as u32);
            let planes = layout.planes().iter().enumerate();
            size == (layout.width, layout.height)
                && (*picture).format == libav_format(layout.format) as c_int
                && planes.clone().all(|(index, plane)| {
                    (*picture).data[index].cast_const() == frame.plane(index).as_ptr()
                        && (layout.format == PixelFormat::Pal8
                            || (*picture).linesize[index] == plane.stride as c_int)
                })
        };
        is_whole.then(|| frame.share())
    }
}
