// SPDX-License-Identifier: MIT OR Apache-2.0
//! A decoder's reference to a slot.

use std::cell::UnsafeCell;
use std::ptr::NonNull;

use framepath_model::format::{Layout, LayoutError};
use framepath_model::stream::FrameMeta;

use super::{Frame, FrameTarget, checked};
use crate::memory::pool::{HOLD, Inner};
use crate::sync::atomics::AtomicU32;

/// Decoder's own reference to a slot. The decoder writes the slot, and later reads it as a reference picture.
#[derive(Debug)]
pub struct Hold {
    inner: NonNull<Inner>,
    pub(in crate::memory::pool) slot: u32,
}

// SAFETY: a hold only provides a raw pointer; code that accesses the memory is responsible for it.
unsafe impl Send for Hold {}
// SAFETY: as above; `frame` touches only atomics and the layout mutex.
unsafe impl Sync for Hold {}

impl Hold {
    /// Makes the only handle to a slot that was just taken, and whose count is [`HOLD`].
    pub(in crate::memory::pool) fn new(inner: NonNull<Inner>, slot: u32) -> Hold {
        Hold { inner, slot }
    }

    /// Returns the address of the first byte of the slot, page-aligned. The decoder may write
    /// until it outputs the picture by [`Hold::frame`], and may only read afterwards.
    pub fn as_ptr(&self) -> *mut u8 {
        // SAFETY: Inner is alive while this handle is.
        unsafe { self.inner.as_ref() }.slot_ptr(self.slot).as_ptr()
    }

    /// Returns the number of bytes of the slot.
    pub fn len(&self) -> usize {
        // SAFETY: Inner is alive while this handle is.
        unsafe { self.inner.as_ref() }.slot_bytes
    }

    /// Returns false: a slot has at least a page.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Makes a frame of the picture in the slot. The slot is in use until both this hold and the frame are
    /// dropped. May be called several times, with different metadata. Panics if the slot already has 65,535
    /// readers.
    ///
    /// # Errors
    /// The layout is larger than the slot.
    pub fn frame(&self, layout: &Layout, meta: FrameMeta) -> Result<Frame, LayoutError> {
        // SAFETY: Inner is alive while this handle is.
        let inner = unsafe { self.inner.as_ref() };
        let layout = inner.intern(checked(layout, inner.slot_bytes)?);
        // Makes a target for each frame, because a decoder may output one picture several times, with
        // different metadata.
        let mut place = FrameTarget::new(self.inner, self.slot, inner.slot_ptr(self.slot), layout);
        place.handles = AtomicU32::new(1);
        place.written.meta = UnsafeCell::new(meta);
        place.add_reader();
        Ok(Frame { place: NonNull::from(Box::leak(Box::new(place))) })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // SAFETY: this handle owns one hold's share of the slot.
        unsafe { Inner::release(self.inner, self.slot, HOLD) }
    }
}
