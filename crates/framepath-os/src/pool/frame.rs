// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handles to a pool's slots: written, read, and kept by a decoder.

use std::cell::UnsafeCell;
use std::ptr::NonNull;

use framepath_model::format::{Layout, LayoutError};
use framepath_model::stream::FrameMeta;

use super::{FRAME, FRAMES, HOLD, Inner};
use crate::sync::{AtomicU32, Ordering};

/// What a frame's handle points at. The first cache lines never change while
/// the pool is in use and so stay in all caches; what a producer writes for
/// every frame lies apart from them.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Place {
    inner: NonNull<Inner>,
    slot: u32,
    /// Handles to a place in a box of its own, made by [`Hold::frame`]; 0 for
    /// the one that belongs to the slot and lives as long as the pool.
    handles: AtomicU32,
    written: Written,
}

/// See [`Place`].
#[derive(Debug)]
#[repr(align(128))]
struct Written {
    /// Interned in `inner`. Written by the only handle to the slot.
    layout: UnsafeCell<NonNull<Layout>>,
    /// Written by the only handle to the slot.
    meta: UnsafeCell<FrameMeta>,
}

impl Place {
    pub(super) fn new(inner: NonNull<Inner>, slot: u32, layout: NonNull<Layout>) -> Place {
        Place {
            inner,
            slot,
            handles: AtomicU32::new(0),
            written: Written { layout: UnsafeCell::new(layout), meta: UnsafeCell::new(FrameMeta::default()) },
        }
    }

    fn inner(&self) -> &Inner {
        // SAFETY: the handle that led here keeps Inner alive.
        unsafe { self.inner.as_ref() }
    }

    fn refs(&self) -> &AtomicU32 {
        &self.inner().slots[self.slot as usize].refs
    }

    fn add_reader(&self) {
        let before = self.refs().fetch_add(FRAME, Ordering::Relaxed);
        assert!(before & FRAMES != FRAMES, "too many handles to one frame");
    }

    fn is_boxed(&self) -> bool {
        // A count that is 0 stays 0, and one above is kept there by our handle.
        self.handles.load(Ordering::Relaxed) != 0
    }

    fn first_byte(&self) -> NonNull<u8> {
        self.inner().slot_ptr(self.slot)
    }

    fn layout(&self) -> &Layout {
        // SAFETY: written only by an only handle; interned layouts live as
        // long as Inner.
        unsafe { self.written.layout.get().read().as_ref() }
    }

    /// Drops one handle to the place, and its share of the slot.
    ///
    /// # Safety
    /// `this` is live, and the caller owns one reader's share of its slot and
    /// uses neither again.
    #[inline]
    unsafe fn let_go(this: NonNull<Place>) {
        // SAFETY: as the caller promises.
        let place = unsafe { this.as_ref() };
        let (inner, slot) = (place.inner, place.slot);
        // AcqRel: whoever frees the box sees all other handles' last uses.
        if place.is_boxed() && place.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: the last handle to a place that Hold::frame leaked.
            drop(unsafe { Box::from_raw(this.as_ptr()) });
        }
        // SAFETY: as the caller promises.
        unsafe { Inner::release(inner, slot, FRAME) }
    }
}

/// A slot being written: the only handle to it.
#[derive(Debug)]
pub struct FrameMut {
    place: NonNull<Place>,
}

// SAFETY: the handle is the only one to its slot; Inner is Sync by its atomics.
unsafe impl Send for FrameMut {}

impl FrameMut {
    /// The only handle to a slot just taken.
    #[inline]
    pub(super) fn new(place: NonNull<Place>, layout: NonNull<Layout>) -> FrameMut {
        let frame = FrameMut { place };
        // SAFETY: nobody else has a handle to the slot.
        unsafe { frame.place().written.layout.get().write(layout) };
        frame
    }

    fn place(&self) -> &Place {
        // SAFETY: a place lives at least as long as a handle to it.
        unsafe { self.place.as_ref() }
    }

    /// Format, size and planes; opaque bytes until [`FrameMut::set_layout`].
    pub fn layout(&self) -> &Layout {
        self.place().layout()
    }

    /// Says how the picture lies in the slot.
    ///
    /// # Errors
    /// Where the layout is larger than the slot.
    pub fn set_layout(&mut self, layout: &Layout) -> Result<(), LayoutError> {
        if layout == self.layout() {
            return Ok(());
        }
        let inner = self.place().inner();
        let layout = inner.intern(checked(layout, inner.slot_bytes)?);
        // SAFETY: this is the only handle to the slot.
        unsafe { self.place().written.layout.get().write(layout) };
        Ok(())
    }

    /// The bytes of plane `index`, padding included, to write.
    ///
    /// # Panics
    /// Where the layout has no such plane.
    pub fn plane_mut(&mut self, index: usize) -> &mut [u8] {
        let plane = self.layout().planes()[index];
        // SAFETY: the layout was checked against the slot, this is the only
        // handle to the slot, and the borrow is exclusive.
        unsafe {
            let first = self.place().first_byte().add(plane.offset);
            std::slice::from_raw_parts_mut(first.as_ptr(), plane.end() - plane.offset)
        }
    }

    /// Ends writing.
    #[inline]
    pub fn freeze(self, meta: FrameMeta) -> Frame {
        // SAFETY: this is the only handle to the slot.
        unsafe { self.place().written.meta.get().write(meta) };
        let frame = Frame { place: self.place };
        std::mem::forget(self);
        frame
    }
}

impl Drop for FrameMut {
    fn drop(&mut self) {
        // SAFETY: this handle owns one reader's share of the slot.
        unsafe { Place::let_go(self.place) }
    }
}

/// A frame: pixels nobody writes as long as it lives. The handle is one
/// pointer, so that it passes in a register from stage to stage.
#[derive(Debug)]
pub struct Frame {
    place: NonNull<Place>,
}

// SAFETY: a frame only reads its slot, and Inner is Sync by its atomics.
unsafe impl Send for Frame {}
// SAFETY: as for Send: no method writes through a shared reference.
unsafe impl Sync for Frame {}

impl Frame {
    fn place(&self) -> &Place {
        // SAFETY: a place lives at least as long as a handle to it.
        unsafe { self.place.as_ref() }
    }

    /// Format, size and planes.
    pub fn layout(&self) -> &Layout {
        self.place().layout()
    }

    /// Sequence number, birth and presentation time.
    pub fn meta(&self) -> FrameMeta {
        // SAFETY: written only while no Frame of the place exists.
        unsafe { self.place().written.meta.get().read() }
    }

    /// The bytes of plane `index`, from its first pixel to its last, the
    /// padding of all rows but the last included.
    ///
    /// # Panics
    /// Where the layout has no such plane.
    pub fn plane(&self, index: usize) -> &[u8] {
        let plane = self.layout().planes()[index];
        // SAFETY: the layout was checked against the slot; the slot is not
        // written while a Frame of it exists (FrameMut is unique, decoders
        // write a picture only before they give it out).
        unsafe {
            let first = self.place().first_byte().add(plane.offset);
            std::slice::from_raw_parts(first.as_ptr(), plane.end() - plane.offset)
        }
    }

    /// Row `y` of plane `index`, pixels only.
    ///
    /// # Panics
    /// Where the layout has no such plane or row.
    pub fn row(&self, index: usize, y: usize) -> &[u8] {
        let plane = self.layout().planes()[index];
        assert!(y < plane.rows, "row {y} of {}", plane.rows);
        &self.plane(index)[y * plane.stride..y * plane.stride + plane.width]
    }

    /// The frame as its only owner, to write in place; the frame itself where
    /// another reader or a decoder still uses it.
    pub fn try_unique(self) -> Result<FrameMut, Frame> {
        let refs = self.place().refs();
        // Acquire: pairs with the release of other handles' drops, so that
        // their reads come before our writes.
        if refs.load(Ordering::Acquire) != FRAME {
            return Err(self);
        }
        let unique = FrameMut { place: self.place };
        std::mem::forget(self);
        Ok(unique)
    }

    /// Another handle to the same pixels.
    pub fn share(&self) -> Frame {
        self.place().add_reader();
        if self.place().is_boxed() {
            self.place().handles.fetch_add(1, Ordering::Relaxed);
        }
        Frame { place: self.place }
    }
}

impl Drop for Frame {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this handle owns one reader's share of the slot.
        unsafe { Place::let_go(self.place) }
    }
}

/// A decoder's own reference to a slot it writes, and reads as a reference
/// picture afterwards.
#[derive(Debug)]
pub struct Hold {
    inner: NonNull<Inner>,
    pub(super) slot: u32,
}

// SAFETY: a hold only hands out a raw pointer; its users answer for it.
unsafe impl Send for Hold {}
// SAFETY: as above; `frame` touches only atomics and the layout mutex.
unsafe impl Sync for Hold {}

impl Hold {
    /// The only handle to a slot just taken.
    pub(super) fn new(inner: NonNull<Inner>, slot: u32) -> Hold {
        Hold { inner, slot }
    }

    /// First byte of the slot, page-aligned. The decoder may write until it
    /// has given the picture out by [`Hold::frame`], and only read after.
    pub fn as_ptr(&self) -> *mut u8 {
        // SAFETY: Inner is alive while this handle is.
        unsafe { self.inner.as_ref() }.slot_ptr(self.slot).as_ptr()
    }

    /// Bytes of the slot.
    pub fn len(&self) -> usize {
        // SAFETY: Inner is alive while this handle is.
        unsafe { self.inner.as_ref() }.slot_bytes
    }

    /// Never: a slot has at least a page.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Gives the picture out as a frame.
    ///
    /// # Errors
    /// Where the layout is larger than the slot.
    pub fn frame(&self, layout: &Layout, meta: FrameMeta) -> Result<Frame, LayoutError> {
        // SAFETY: Inner is alive while this handle is.
        let inner = unsafe { self.inner.as_ref() };
        let layout = inner.intern(checked(layout, inner.slot_bytes)?);
        // A place of its own: a decoder may show one picture several times,
        // under other numbers.
        let mut place = Place::new(self.inner, self.slot, layout);
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

fn checked(layout: &Layout, slot_bytes: usize) -> Result<&Layout, LayoutError> {
    if layout.planes().iter().all(|p| p.end() <= slot_bytes) {
        return Ok(layout);
    }
    let (format, width, height) = (layout.format, layout.width, layout.height);
    Err(LayoutError::Planes { format, width, height, detail: "larger than the pool's slots" })
}

#[cfg(test)]
impl FrameMut {
    pub(super) fn slot(&self) -> u32 {
        self.place().slot
    }

    #[cfg(not(loom))]
    pub(super) fn inner_ptr(&self) -> *mut u8 {
        self.place().first_byte().as_ptr()
    }
}

#[cfg(test)]
impl Frame {
    pub(super) fn slot(&self) -> u32 {
        self.place().slot
    }
}
