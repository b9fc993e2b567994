// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames that Python keeps.
//!
//! A frame holds a slot of a pool, and the pool has room for [`MOST_SLOTS`] frames of the program. A program that keeps more, as by
//! `list(frames)`, gets copies, so that the decoder goes on. All functions of a path and its iterator share the number, because they may
//! keep frames of the same pool.

use std::mem::ManuallyDrop;
use std::process;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use framepath::format::Layout;
use framepath::{Frame, FrameMut, Pool, PoolError, counted_copy};

/// Number of slots that Python keeps while it takes further frames (see `framepath::Frames`).
const MOST_SLOTS: usize = 4;

/// Number of slots that Python keeps now, of all frames of one path.
#[derive(Default)]
pub(crate) struct KeptSlots(AtomicUsize);

/// Frame that Python keeps: the object for the frame, its planes, and the views of their memory share it.
pub(crate) struct HeldFrame {
    frame: ManuallyDrop<Frame>,
    /// Number in which the frame's slot counts; `None` for a copy.
    slot_of: Option<Arc<KeptSlots>>,
    /// Process that took the frame.
    pid: u32,
}

impl HeldFrame {
    /// Keeps `frame`, or a copy of it if Python keeps too many slots; adds the bytes of the copy to `copied_bytes`.
    ///
    /// # Errors
    /// There is no memory for the copy.
    pub(crate) fn new(
        frame: Frame,
        kept: &Arc<KeptSlots>,
        copied_bytes: &AtomicU64,
    ) -> Result<HeldFrame, PoolError> {
        // Counted first, because several threads may share an iterator.
        if kept.0.fetch_add(1, Ordering::Relaxed) < MOST_SLOTS {
            let mut held = HeldFrame::apart(frame);
            held.slot_of = Some(kept.clone());
            return Ok(held);
        }
        kept.0.fetch_sub(1, Ordering::Relaxed);
        let copied = copy(&frame)?;
        copied_bytes.fetch_add(copied.layout().pixel_bytes() as u64, Ordering::Relaxed);
        Ok(HeldFrame::apart(copied))
    }

    /// Keeps a frame that has memory of its own.
    pub(crate) fn apart(frame: Frame) -> HeldFrame {
        HeldFrame { frame: ManuallyDrop::new(frame), slot_of: None, pid: process::id() }
    }

    pub(crate) fn frame(&self) -> &Frame {
        &self.frame
    }
}

impl Drop for HeldFrame {
    fn drop(&mut self) {
        // The child of a fork has only copies of the pool's counters, or shares them with the process that uses the slot on.
        if self.pid != process::id() {
            return;
        }
        // SAFETY: dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.frame) };
        if let Some(kept) = &self.slot_of {
            kept.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Memory of the pools for frames of Python's own, bytes: a larger pool leaves more unused, a smaller one needs more descriptors.
const OWN_POOL: usize = 64 << 20;
/// Most slots of such a pool.
const MOST_OWN: usize = 64;

/// Pool for frames of Python's own, and the process that made it: the child of a fork shares the memory with its parent.
static OWN: Mutex<Option<(u32, Pool)>> = Mutex::new(None);

/// Returns a writable frame with at least `bytes` bytes of memory that no decoder waits for. Never waits. A pool stays until all of its
/// frames are gone, and the last one until a frame of a much other size is made.
pub(crate) fn own_frame(bytes: usize) -> Result<FrameMut, PoolError> {
    let bytes = bytes.max(1);
    let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    match own.take() {
        Some((pid, pool)) if pid != process::id() => std::mem::forget(pool),
        Some((pid, mut pool)) if (bytes..=4 * bytes).contains(&pool.slot_bytes()) => {
            if let Some(frame) = pool.try_acquire() {
                *own = Some((pid, pool));
                return Ok(frame);
            }
        }
        _ => {}
    }
    let slots = (OWN_POOL / bytes).clamp(1, MOST_OWN);
    let mut pool = Pool::new(bytes, slots as u32)?;
    let frame = pool.acquire();
    *own = Some((process::id(), pool));
    frame
}

/// Copies a frame into memory of its own, without the padding of its rows.
fn copy(frame: &Frame) -> Result<Frame, PoolError> {
    let of = frame.layout();
    // The size fits: the frame has it already.
    let packed = Layout::packed(of.format, of.width, of.height).unwrap_or(*of).with_colors(of.colors);
    let mut copy = own_frame(packed.size)?;
    if copy.set_layout(&packed).is_ok() {
        // In a thread of the path, the ledger counts the copy.
        counted_copy(packed.pixel_bytes(), || {
            for (index, plane) in packed.planes().iter().enumerate() {
                let to = copy.plane_mut(index);
                for (y, row) in to.chunks_mut(plane.stride).enumerate() {
                    frame.row(index, y).copy_to(&mut row[..plane.width]);
                }
            }
        });
    }
    Ok(copy.freeze(frame.meta()))
}
