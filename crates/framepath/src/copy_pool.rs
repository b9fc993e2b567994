// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pool for copies of frames, which a stage may write.

use framepath_model::format::Layout;
use framepath_os::measure::meter;
use framepath_os::memory::pool::{Frame, FrameMut, GiveBack, Pool};

use crate::error::StageError;

/// Number of slots of a stage's own pool: one for the frame being written, the others for frames in
/// later hops. The stage waits while all are in use.
pub(crate) const COPY_SLOTS: u32 = 8;

/// A pool for writable copies of frames that other hops still read.
///
/// A decoder keeps its pictures as references, and several readers may share a frame. A stage that changes
/// pixels therefore calls [`writable`](CopyPool::writable).
///
/// ```
/// use framepath::{CopyPool, HopFailure, Frame, Item, Out};
///
/// # fn push(copies: &mut CopyPool, frame: Frame, out: &mut Out<'_>) -> Result<(), HopFailure> {
/// let meta = frame.meta();
/// let mut frame = copies.writable(frame).map_err(|error| out.fail(error))?;
/// frame.plane_mut(0).reverse();
/// out.push(Item::Frame(frame.freeze(meta)))
/// # }
/// ```
pub struct CopyPool {
    /// In a worker: table of the frames that the process that runs the path still reads, with the shared
    /// words by which that process returns them; `None` outside a worker.
    give_back: Option<&'static GiveBack>,
    slots: u32,
    pool: Option<Pool>,
    /// Layout of the last copied frame, and layout of its copy; `None` before the first copy.
    layouts: Option<(Layout, Layout)>,
}

impl CopyPool {
    /// Makes a pool of 8 buffers, which the first copy allocates. A copy waits while later hops keep
    /// all buffers.
    pub fn new() -> CopyPool {
        CopyPool::for_worker(None)
    }

    /// [`CopyPool::new`] for a stage that may run in a worker. There, the process that runs the path returns
    /// frames through `give_back`, which is `None` outside a worker.
    pub(crate) fn for_worker(give_back: Option<&'static GiveBack>) -> CopyPool {
        CopyPool::with_slots(give_back, COPY_SLOTS)
    }

    /// [`CopyPool::for_worker`] with `slots` buffers. While later hops hold all of them, a copy waits.
    pub(crate) fn with_slots(give_back: Option<&'static GiveBack>, slots: u32) -> CopyPool {
        CopyPool { give_back, slots, pool: None, layouts: None }
    }

    /// Returns `frame` for writing. Makes a copy without padding, which the ledger counts, if another
    /// reader, a decoder or another process uses the frame, or if its memory belongs to another process or a
    /// device. The copy waits while all buffers of the pool are in use.
    ///
    /// # Errors
    /// The pool cannot be made. The end of the run does not end the wait; the wait ends when a later hop
    /// drops a copy.
    pub fn writable(&mut self, frame: Frame) -> Result<FrameMut, StageError> {
        frame.try_unique().or_else(|shared| self.copy(&shared))
    }

    /// Returns a writable copy of `frame`, without padding. Allocates the pool for the first frame, and
    /// again for a frame that is larger than a slot. The meter counts every byte.
    pub(crate) fn copy(&mut self, frame: &Frame) -> Result<FrameMut, StageError> {
        let layout = self.packed(frame.layout());
        let mut copy = self.slot(&layout)?;
        for (index, plane) in layout.planes().iter().enumerate() {
            let stride = frame.layout().planes()[index].stride;
            let from = frame.plane(index);
            let to = copy.plane_mut(index);
            if stride == plane.stride {
                meter::copy(to.len(), || from.sub(0..to.len()).copy_to(to));
            } else {
                meter::copy(plane.width * plane.rows, || {
                    for (y, to) in to.chunks_mut(plane.stride).enumerate() {
                        from.sub(y * stride..y * stride + plane.width).copy_to(to);
                    }
                });
            }
        }
        Ok(copy)
    }

    /// Returns a writable copy of the part of `frame` that has the layout `part` ([`Layout::cropped`]), as
    /// [`copy`](CopyPool::copy) does.
    pub(crate) fn copy_part(&mut self, frame: &Frame, part: &Layout) -> Result<FrameMut, StageError> {
        let whole = *frame.layout();
        let packed = Layout::packed(part.format, part.width, part.height)?.with_colors(part.colors);
        let mut copy = self.slot(&packed)?;
        for (index, plane) in part.planes().iter().enumerate() {
            let (from, first) = (frame.plane(index), plane.offset - whole.planes()[index].offset);
            let to_stride = copy.layout().planes()[index].stride;
            let to = copy.plane_mut(index);
            meter::copy(plane.width * plane.rows, || {
                for y in 0..plane.rows {
                    let start = first + y * plane.stride;
                    from.sub(start..start + plane.width).copy_to(&mut to[y * to_stride..][..plane.width]);
                }
            });
        }
        Ok(copy)
    }

    /// Returns a slot for a picture with `layout`. Waits while all buffers are in use. Allocates the pool again for a picture that is
    /// larger than a slot. Copies into the slot count in the ledger if [`counted_copy`](crate::counted_copy) makes them.
    ///
    /// # Errors
    /// As [`writable`](CopyPool::writable).
    pub fn slot(&mut self, layout: &Layout) -> Result<FrameMut, StageError> {
        let mut slot = slot_in(&mut self.pool, layout.size, self.slots, self.give_back)?;
        slot.set_layout(layout)?;
        Ok(slot)
    }

    /// Returns layout `from` without padding; `from` itself if no picture can have its size. Keeps
    /// the last result, because the computation allocates.
    fn packed(&mut self, from: &Layout) -> Layout {
        match &self.layouts {
            Some((last, packed)) if last == from => *packed,
            _ => {
                // Opaque buffers may be wider than any picture.
                let packed = Layout::packed(from.format, from.width, from.height)
                    .map_or(*from, |packed| packed.with_colors(from.colors));
                self.layouts.insert((*from, packed)).1
            }
        }
    }
}

/// Takes a slot of at least `bytes` bytes from `pool`. Makes a pool of `slots` slots if there is none, or its slots
/// are smaller. Waits while all slots are in use.
///
/// # Errors
/// The pool cannot be made.
pub(crate) fn slot_in(
    pool: &mut Option<Pool>,
    bytes: usize,
    slots: u32,
    give_back: Option<&'static GiveBack>,
) -> Result<FrameMut, StageError> {
    if pool.as_ref().is_none_or(|pool| pool.slot_bytes() < bytes) {
        *pool = Some(Pool::for_stage(bytes, slots, give_back)?);
    }
    Ok(pool.as_mut().expect("made above").acquire()?)
}

impl Default for CopyPool {
    fn default() -> CopyPool {
        CopyPool::new()
    }
}
