// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles to a pool's slots: for writing, for reading, and for a decoder's references.

mod hold;
#[cfg(not(any(loom, miri)))]
mod memory;

use std::cell::{Cell, UnsafeCell};
use std::ptr::NonNull;

use framepath_model::changed_rows::ChangedRows;
use framepath_model::format::{Layout, LayoutError};
use framepath_model::stream::FrameMeta;

use super::foreign::ForeignPlace;
use super::give_back::Exported;
use super::plane::Plane;
use super::{FRAME, FRAMES, Inner};
use crate::sync::atomics::{AtomicU32, Ordering};

pub use hold::Hold;
#[cfg(not(any(loom, miri)))]
pub use memory::{GrantedPool, PoolMemory};

/// Maximum number of handles to one boxed target; [`Frame::share`] panics at this number.
const MOST_HANDLES: u32 = 1 << 30;

/// Target of the pointer in a [`Frame`] or [`FrameMut`]: slot, layout and metadata. The first cache lines of a
/// target in `Inner::places` do not change while the pool is in use, so these lines stay in the caches of
/// all cores. The fields that a producer writes for every frame are on other lines (`written`).
#[derive(Debug)]
#[repr(C)]
pub(super) struct FrameTarget {
    /// Part of the pool that its owner and all handles share. Dangling if `foreign` is true.
    inner: NonNull<Inner>,
    /// First byte of the slot.
    first: NonNull<u8>,
    /// Number of the slot in its pool, from 0; for a foreign frame, in the foreign pool.
    slot: u32,
    /// Number of handles to this target, if it is boxed: made by [`Hold::frame`] or for a foreign frame.
    /// Always 0 for a target in `Inner::places`, which lives as long as the pool.
    handles: AtomicU32,
    /// True if the target is the head of a [`ForeignPlace`]. Such a target is always boxed.
    foreign: bool,
    written: Written,
}

/// Fields of a [`FrameTarget`] that are written for every frame, on cache lines of their own.
#[derive(Debug)]
#[repr(align(128))]
struct Written {
    /// Layout, interned in the target's `inner`; for a foreign frame, owned by the [`ForeignPlace`].
    /// Written only while no [`Frame`] of this target exists.
    layout: UnsafeCell<NonNull<Layout>>,
    /// Metadata of the frame. Written only while no [`Frame`] of this target exists.
    meta: UnsafeCell<FrameMeta>,
    /// Number of the bytes that are in the slot ([`FrameMut::set_content`]); `None` if the bytes have no number.
    /// Used only by a [`FrameMut`], of which no second exists.
    content: Cell<Option<u64>>,
}

impl FrameTarget {
    /// Creates the target of slot `slot` of the pool `inner`. `first` is the slot's first byte. The target is
    /// not boxed: it counts no handles.
    pub(super) fn new(
        inner: NonNull<Inner>,
        slot: u32,
        first: NonNull<u8>,
        layout: NonNull<Layout>,
    ) -> FrameTarget {
        FrameTarget {
            inner,
            first,
            slot,
            handles: AtomicU32::new(0),
            foreign: false,
            written: Written {
                layout: UnsafeCell::new(layout),
                meta: UnsafeCell::new(FrameMeta::default()),
                content: Cell::new(None),
            },
        }
    }

    /// Creates the target of a slot of a foreign pool, with one handle. The caller sets the layout by
    /// [`set_layout`](FrameTarget::set_layout) when the target has its final address.
    pub(super) fn foreign(slot: u32, first: NonNull<u8>, meta: FrameMeta) -> FrameTarget {
        let mut place = FrameTarget::new(NonNull::dangling(), slot, first, NonNull::dangling());
        place.foreign = true;
        place.handles = AtomicU32::new(1);
        place.written.meta = UnsafeCell::new(meta);
        place
    }

    pub(super) fn slot(&self) -> u32 {
        self.slot
    }

    pub(super) fn set_layout(&mut self, layout: NonNull<Layout>) {
        *self.written.layout.get_mut() = layout;
    }

    /// Returns the shared part of the pool. Panics for a foreign target.
    fn inner(&self) -> &Inner {
        assert!(!self.foreign, "a foreign frame has no pool in this process");
        // SAFETY: the target is not foreign, so the handle to this target keeps Inner alive.
        unsafe { self.inner.as_ref() }
    }

    fn refs(&self) -> &AtomicU32 {
        &self.inner().slots[self.slot as usize].refs
    }

    fn add_reader(&self) {
        let before = self.refs().fetch_add(FRAME, Ordering::Relaxed);
        if before & FRAMES == FRAMES {
            // Subtracts before the panic, because a caller may catch the panic and try again: a count
            // that only grows would wrap, and free a slot in use.
            self.refs().fetch_sub(FRAME, Ordering::Relaxed);
            panic!("too many handles to one frame");
        }
    }

    fn is_boxed(&self) -> bool {
        // Relaxed: a count of 0 never changes, and the caller's handle keeps another count above 0.
        self.handles.load(Ordering::Relaxed) != 0
    }

    fn layout(&self) -> &Layout {
        // SAFETY: only a unique handle writes the layout; an interned layout lives as long as Inner,
        // and a foreign frame's layout as long as the target.
        unsafe { self.written.layout.get().read().as_ref() }
    }

    /// Drops one handle to the target, and the handle's share of the slot. If this was the last handle, frees a
    /// boxed target, and returns a foreign frame.
    ///
    /// # Safety
    /// `this` is live. The caller owns one reader's share of the target's slot, and uses neither the target nor
    /// the slot afterwards.
    #[inline]
    unsafe fn let_go(this: NonNull<FrameTarget>) {
        // SAFETY: as the caller promises.
        let place = unsafe { this.as_ref() };
        let (inner, slot) = (place.inner, place.slot);
        if place.is_boxed() {
            let foreign = place.foreign;
            // AcqRel: the thread that frees the box sees all other handles' last uses.
            let last = place.handles.fetch_sub(1, Ordering::AcqRel) == 1;
            match (last, foreign) {
                // SAFETY: this was the last handle to a foreign target.
                (true, true) => return unsafe { ForeignPlace::end(this.cast()) },
                (false, true) => return,
                // SAFETY: this was the last handle to a target that Hold::frame leaked.
                (true, false) => drop(unsafe { Box::from_raw(this.as_ptr()) }),
                (false, false) => {}
            }
        }
        // SAFETY: as the caller promises.
        unsafe { Inner::release(inner, slot, FRAME) }
    }
}

/// Handle for writing a slot. No other handle to the slot exists. Dropping the handle returns the slot to the
/// pool.
///
/// ```
/// use framepath_model::format::{Layout, PixelFormat};
/// use framepath_model::stream::FrameMeta;
/// use framepath_os::memory::pool::Pool;
///
/// let layout = Layout::packed(PixelFormat::Grey, 64, 48)?;
/// let mut pool = Pool::new(layout.size, 4)?;
/// let mut frame = pool.acquire()?;
/// frame.set_layout(&layout)?;
/// frame.plane_mut(0).fill(16);
/// let frame = frame.freeze(FrameMeta { seq: 7, ..FrameMeta::default() });
/// assert_eq!(frame.row(0, 47).to_vec(), [16; 64]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FrameMut {
    place: NonNull<FrameTarget>,
}

// SAFETY: no other handle to the slot exists, and Inner is Sync because shared fields are atomics.
unsafe impl Send for FrameMut {}

impl FrameMut {
    /// Makes the only handle to a slot that was just taken.
    #[inline]
    pub(super) fn new(place: NonNull<FrameTarget>, layout: NonNull<Layout>) -> FrameMut {
        let frame = FrameMut { place };
        // SAFETY: this is the only handle to the slot.
        unsafe { frame.place().written.layout.get().write(layout) };
        frame
    }

    fn place(&self) -> &FrameTarget {
        // SAFETY: a target lives at least as long as a handle to it.
        unsafe { self.place.as_ref() }
    }

    /// Returns the layout of the picture in the slot: opaque bytes until [`FrameMut::set_layout`], or the
    /// frame's layout after [`Frame::try_unique`].
    pub fn layout(&self) -> &Layout {
        self.place().layout()
    }

    /// Sets the layout of the picture in the slot.
    ///
    /// # Errors
    /// The layout is larger than the slot. The handle then keeps its former layout.
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

    /// Returns the bytes of plane `index` for writing, including the padding of all rows but the last.
    ///
    /// # Panics
    /// The layout has no such plane.
    pub fn plane_mut(&mut self, index: usize) -> &mut [u8] {
        self.place().written.content.set(None);
        let plane = self.layout().planes()[index];
        // SAFETY: the layout was checked against the slot, this is the only handle to the slot,
        // and the borrow is exclusive. No other process writes the memory: `Pool::acquire` and
        // `Frame::try_unique` make no handle to such memory.
        unsafe {
            let first = self.place().first.add(plane.offset);
            std::slice::from_raw_parts_mut(first.as_ptr(), plane.end() - plane.offset)
        }
    }

    /// Returns the number of bytes of the slot. The layout may use fewer.
    pub fn slot_bytes(&self) -> usize {
        self.place().inner().slot_bytes
    }

    /// Gives the bytes of the slot a number, by which the pool's owner recognises them when it takes the slot again.
    /// [`FrameMut::plane_mut`] removes the number, so whoever changes the bytes of a frame removes it, too. A decoder
    /// that writes by a [`Hold`] does not, so the owner of a pool with numbers takes no holds.
    pub fn set_content(&mut self, number: u64) {
        self.place().written.content.set(Some(number));
    }

    /// Returns the number of the bytes that are in the slot, from an earlier frame, which may have had another layout;
    /// `None` if they have no number, or were changed since.
    pub fn content(&self) -> Option<u64> {
        self.place().written.content.get()
    }

    /// Ends writing and returns a readable frame with the metadata `meta`.
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
        unsafe { FrameTarget::let_go(self.place) }
    }
}

/// Handle for reading a frame. No code in this process writes the pixels while the handle lives. The
/// owner of the memory may write the pixels at any time if the memory belongs to another process or a
/// device: a foreign frame ([`Frame::is_foreign`]) or a pool of `Pool::from_buffers`. The handle is one
/// pointer, so it passes from stage to stage in a register.
///
/// Rows are `stride` bytes apart; [`Frame::row`] returns the pixels of a row:
///
/// ```
/// # use framepath_model::format::{Layout, PixelFormat};
/// # use framepath_model::stream::FrameMeta;
/// # use framepath_os::memory::pool::{Frame, Pool};
/// fn mean_luma(frame: &Frame) -> u64 {
///     let (mut sum, mut count) = (0, 0);
///     for y in 0..frame.layout().height as usize {
///         frame.row(0, y).visit(|pixels| {
///             sum += pixels.iter().map(|&pixel| u64::from(pixel)).sum::<u64>();
///             count += pixels.len() as u64;
///         });
///     }
///     sum / count
/// }
/// # let layout = Layout::aligned(PixelFormat::Yuv420p, 30, 20, 64)?;
/// # let mut frame = Pool::new(layout.size, 1)?.acquire()?;
/// # frame.set_layout(&layout)?;
/// # frame.plane_mut(0).fill(9);
/// # assert_eq!(mean_luma(&frame.freeze(FrameMeta::default())), 9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Frame {
    place: NonNull<FrameTarget>,
}

// SAFETY: a frame only reads its slot, and Inner is Sync by its atomics.
unsafe impl Send for Frame {}
// SAFETY: as for Send: no method writes through a shared reference.
unsafe impl Sync for Frame {}

impl Frame {
    fn place(&self) -> &FrameTarget {
        // SAFETY: a target lives at least as long as a handle to it.
        unsafe { self.place.as_ref() }
    }

    /// Returns the format, size and planes.
    pub fn layout(&self) -> &Layout {
        self.place().layout()
    }

    /// Returns the metadata: sequence number, birth, presentation time and the others of [`FrameMeta`].
    pub fn meta(&self) -> FrameMeta {
        // SAFETY: written only while no Frame of the target exists.
        unsafe { self.place().written.meta.get().read() }
    }

    /// Returns the bytes of plane `index` from its first pixel to its last, including the padding
    /// of all rows but the last.
    ///
    /// # Panics
    /// The layout has no such plane.
    pub fn plane(&self, index: usize) -> Plane<'_> {
        let plane = self.layout().planes()[index];
        // SAFETY: the layout was checked against the slot. The slot is not written while a Frame
        // of it exists (FrameMut is unique, and decoders write a picture only before they output
        // it), unless the memory belongs to another process.
        unsafe {
            let first = self.place().first.add(plane.offset);
            Plane::new(first, plane.end() - plane.offset, self.may_change())
        }
    }

    /// Returns row `y` of plane `index`, pixels only.
    ///
    /// # Panics
    /// The layout has no such plane or row.
    pub fn row(&self, index: usize, y: usize) -> Plane<'_> {
        let plane = self.layout().planes()[index];
        assert!(y < plane.rows, "row {y} of {}", plane.rows);
        self.plane(index).sub(y * plane.stride..y * plane.stride + plane.width)
    }

    /// Returns the number of the slot in its pool, from 0.
    pub fn slot(&self) -> u32 {
        self.place().slot
    }

    /// Returns the rows that may differ from the frame of the same pool whose number ([`FrameMeta::seq`]) is less by
    /// one; `None` if all may. Only some frames of other processes have them, such as those of a screen.
    pub fn changed_rows(&self) -> Option<&ChangedRows> {
        self.foreign_place().and_then(ForeignPlace::changed_rows)
    }

    /// Returns the number of bytes of the slot. The layout may use fewer.
    pub fn slot_bytes(&self) -> usize {
        self.foreign_place().map_or_else(|| self.place().inner().slot_bytes, ForeignPlace::slot_bytes)
    }

    /// Returns true if another process or a device may change the pixels at any time.
    pub fn may_change(&self) -> bool {
        self.is_foreign() || self.place().inner().peer_owned
    }

    /// Returns true if the frame came from a [`ForeignPool`](super::ForeignPool), which another process or a
    /// device may write at any time. Returns false for a pool of `Pool::from_buffers`.
    pub fn is_foreign(&self) -> bool {
        self.place().foreign
    }

    /// Returns the number of the frame's pool, own or foreign. No other pool of this process has this number.
    pub fn pool_id(&self) -> u64 {
        match self.foreign_place() {
            Some(place) => place.pool_id(),
            None => self.place().inner().id,
        }
    }

    /// Returns the number of slots of the frame's pool; `None` for a frame of a
    /// [`ForeignPool`](super::ForeignPool).
    pub fn pool_slots(&self) -> Option<u32> {
        let is_own = !self.is_foreign();
        is_own.then(|| self.place().inner().slots.len() as u32)
    }

    /// Describes the pool's memory for another process that reads the memory. If the pool is shared, that
    /// process can only read. If the pool is not shared, that process cannot map the descriptor for writing,
    /// but could open the memory again through the descriptor's path in /proc; a sandbox has to prevent this.
    /// For a foreign frame, that process gets the same rights as this process has, or may only read.
    ///
    /// # Errors
    /// `Unsupported` if this process has no memfd of the memory: granted, anonymous or blank memory, buffers
    /// of another process or of a device, or a closed foreign pool. Other errors from the system calls.
    #[cfg(not(any(loom, miri)))]
    pub fn read_only_memory(&self) -> std::io::Result<PoolMemory> {
        if let Some(place) = self.foreign_place() {
            return place.memory();
        }
        let inner = self.place().inner();
        Ok(PoolMemory {
            id: inner.id,
            fd: inner.memory.read_only_fd()?,
            slots: inner.slots.len() as u32,
            slot_bytes: inner.slot_bytes,
            first_slot: inner.first_slot(),
        })
    }

    /// Describes the frame's pool if the pool is in [`GrantedMemory`](super::GrantedMemory); `None` for
    /// all other pools.
    #[cfg(not(any(loom, miri)))]
    pub fn granted_memory(&self) -> Option<GrantedPool> {
        if self.is_foreign() {
            return None;
        }
        let inner = self.place().inner();
        Some(GrantedPool {
            memory: inner.memory.granted()?,
            slots: inner.slots.len() as u32,
            slot_bytes: inner.slot_bytes,
            first_slot: inner.first_slot(),
        })
    }

    /// Returns the dmabuf of the slot, which begins at the slot's first byte, and the slot's size in bytes.
    /// Returns `None` unless the frame is in buffers of a V4L2 device, or in memory that this process made
    /// for devices (`DevicePool`), and that memory has a dmabuf. So the result is `None` for every frame of
    /// a [`Pool`](super::Pool), even one of `Pool::from_buffers`.
    #[cfg(not(any(loom, miri)))]
    pub fn dmabuf(&self) -> Option<(std::os::fd::BorrowedFd<'_>, usize)> {
        self.foreign_place().and_then(ForeignPlace::dmabuf)
    }

    /// Returns true if this is the only handle to the pixels: no other frame, no export and no decoder's
    /// reference exists for the slot. For a foreign frame, returns true if no other frame made from it by
    /// [`Frame::share`] is left.
    pub fn is_only(&self) -> bool {
        // Acquire: pairs with the Release of other handles' drops, so that their reads come
        // before the next use of the pixels.
        match self.is_foreign() {
            true => self.place().handles.load(Ordering::Acquire) == 1,
            false => self.place().refs().load(Ordering::Acquire) == FRAME,
        }
    }

    /// Lets another process read the frame until that process returns the slot. The pool's
    /// [`GiveBack`](super::GiveBack) keeps this handle until then. A frame may be exported several times;
    /// each export is returned separately.
    ///
    /// # Errors
    /// Returns the frame itself if it is foreign, or if its pool is not shared.
    pub fn export(self) -> Result<Exported, Frame> {
        if self.is_foreign() {
            return Err(self);
        }
        let inner = self.place().inner();
        let Some(range) = &inner.range else { return Err(self) };
        let (give_back, slot) = (range.give_back, range.first + self.slot());
        let exported = Exported { pool: inner.id, slot };
        give_back.keep(slot, self);
        Ok(exported)
    }

    fn foreign_place(&self) -> Option<&ForeignPlace> {
        // SAFETY: foreign targets are heads of a ForeignPlace, and live as long as their handles.
        self.is_foreign().then(|| unsafe { self.place.cast().as_ref() })
    }

    /// Makes the first handle to a foreign frame's target.
    ///
    /// # Safety
    /// The target was made by [`FrameTarget::foreign`], is leaked and has no handle.
    pub(super) unsafe fn from_foreign(place: NonNull<ForeignPlace>) -> Frame {
        Frame { place: place.cast() }
    }

    /// Converts this handle to a handle for writing, if it is the only handle to the slot.
    ///
    /// # Errors
    /// Returns the frame itself if it is not the only handle to the slot, or if the memory belongs to another
    /// process or a device.
    pub fn try_unique(self) -> Result<FrameMut, Frame> {
        if self.may_change() {
            return Err(self);
        }
        let refs = self.place().refs();
        // Acquire: pairs with the Release of other handles' drops, so that their reads come
        // before our writes.
        if refs.load(Ordering::Acquire) != FRAME {
            return Err(self);
        }
        let unique = FrameMut { place: self.place };
        std::mem::forget(self);
        Ok(unique)
    }

    /// Returns another handle to the same frame; copies no pixels. Panics if the slot already has 65,535
    /// readers or a foreign frame 2^30 handles.
    pub fn share(&self) -> Frame {
        if !self.is_foreign() {
            self.place().add_reader();
        }
        if self.place().is_boxed() {
            let before = self.place().handles.fetch_add(1, Ordering::Relaxed);
            if before >= MOST_HANDLES {
                // Subtracts before the panic, as `add_reader` does, and also what `add_reader` added.
                self.place().handles.fetch_sub(1, Ordering::Relaxed);
                if !self.is_foreign() {
                    self.place().refs().fetch_sub(FRAME, Ordering::Relaxed);
                }
                panic!("too many handles to one frame");
            }
        }
        Frame { place: self.place }
    }
}

impl Drop for Frame {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this handle owns one reader's share of the slot.
        unsafe { FrameTarget::let_go(self.place) }
    }
}

pub(super) fn checked(layout: &Layout, slot_bytes: usize) -> Result<&Layout, LayoutError> {
    if layout.planes().iter().all(|p| p.end() <= slot_bytes) {
        return Ok(layout);
    }
    let (format, width, height) = (layout.format, layout.width, layout.height);
    Err(LayoutError::Planes { format, width, height, detail: "larger than the pool's slots" })
}

#[cfg(all(test, not(loom)))]
impl FrameTarget {
    pub(super) fn pool_slots(&self) -> usize {
        self.inner().slots.len()
    }
}

#[cfg(all(test, not(loom)))]
impl FrameMut {
    pub(super) fn slot(&self) -> u32 {
        self.place().slot
    }

    pub(super) fn inner_ptr(&self) -> *mut u8 {
        self.place().first.as_ptr()
    }
}
