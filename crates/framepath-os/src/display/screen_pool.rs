// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pool of frames that a display server fills with the pixels of a screen.
//!
//! The server has the pool's memfd mapped and may write it at any time. So no Rust reference to the memory is
//! made, and its frames are those of a [`ForeignPool`].

use std::io;
use std::os::fd::BorrowedFd;
#[cfg(feature = "pipewire")]
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use framepath_model::changed_rows::ChangedRows;
use framepath_model::format::Layout;
use framepath_model::stream::FrameMeta;

use crate::measure::meter;
use crate::memory::pool::{ForeignError, ForeignPool, Frame, Returns};
use crate::v4l2::Region;

/// Equal slots in one memfd, which a display server writes. Frames may outlive the pool.
pub struct ScreenPool {
    slots: Arc<ScreenSlots>,
    frames: ForeignPool,
}

/// Memory of a pool's slots, and the numbers of the free ones.
struct ScreenSlots {
    region: Arc<Region>,
    free: Mutex<Vec<u32>>,
    returned: Condvar,
}

impl Returns for ScreenSlots {
    fn give_back(&self, slot: u32) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
        self.returned.notify_one();
    }
}

impl ScreenPool {
    /// Makes `slots` slots of at least `bytes` bytes.
    ///
    /// # Errors
    /// One of the numbers is zero, or the kernel denies the memory.
    pub fn new(bytes: usize, slots: u32) -> io::Result<ScreenPool> {
        let region = Region::map_memfd(bytes, slots).map_err(|(call, errno)| {
            io::Error::new(io::Error::from(errno).kind(), format!("{call}: {errno}"))
        })?;
        let region = Arc::new(region);
        let free = Mutex::new((0..slots).rev().collect());
        let slots = Arc::new(ScreenSlots { region: region.clone(), free, returned: Condvar::new() });
        Ok(ScreenPool { frames: ForeignPool::from_region(region, slots.clone()), slots })
    }

    /// Returns the memfd, for the display server.
    ///
    /// # Errors
    /// Does not happen: the pool's memory is a memfd.
    pub fn memfd(&self) -> io::Result<BorrowedFd<'_>> {
        self.slots.region.memfd().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// Returns the number of bytes from one slot to the next.
    pub fn slot_bytes(&self) -> usize {
        self.slots.region.slot_bytes()
    }

    /// Takes a free slot. Waits for one, at most `limit`; `None` if there is none then.
    pub fn acquire(&self, limit: Duration) -> Option<ScreenSlot<'_>> {
        let mut free = self.slots.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.is_empty() {
            let wait = || self.slots.returned.wait_timeout_while(free, limit, |free| free.is_empty());
            free = meter::blocked(wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        free.pop().map(|slot| ScreenSlot { pool: self, slot })
    }
}

/// Slot of a [`ScreenPool`] that is in no frame. Dropping it returns the slot to the pool.
pub struct ScreenSlot<'a> {
    pool: &'a ScreenPool,
    slot: u32,
}

impl ScreenSlot<'_> {
    /// Returns the offset of the slot's first byte in the pool's memfd, bytes.
    pub fn offset(&self) -> usize {
        self.slot as usize * self.pool.slot_bytes()
    }

    /// Copies `bytes` to the slot, from the byte `offset` on; the meter counts the copy.
    ///
    /// # Panics
    /// The bytes do not fit.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        // SAFETY: mapped writable, and the slot is neither on the list of free slots nor in any frame, so
        // only this handle copies in this process.
        meter::copy(bytes.len(), || unsafe { self.pool.slots.region.copy_in(self.slot, offset, bytes) });
    }

    /// Copies `bytes` bytes at `from`, which another process may write, to the slot, from the byte `offset` on; the meter counts the copy.
    ///
    /// # Safety
    /// The bytes at `from` are readable.
    ///
    /// # Panics
    /// The bytes do not fit.
    #[cfg(feature = "pipewire")]
    pub(super) unsafe fn write_foreign(&mut self, offset: usize, from: NonNull<u8>, bytes: usize) {
        // SAFETY: as in `write`; the caller vouches for the source.
        meter::copy(bytes, || unsafe {
            self.pool.slots.region.copy_in_foreign(self.slot, offset, from, bytes)
        });
    }

    /// Copies bytes of the slot, from the byte `offset` on, to `to` until it is full; the meter counts the
    /// copy.
    ///
    /// # Panics
    /// The slot has fewer bytes.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        // SAFETY: as in `write`, which needs an exclusive borrow of this handle.
        meter::copy(to.len(), || unsafe { self.pool.slots.region.copy_out(self.slot, offset, to) });
    }

    /// Returns the number of the slot in its pool, from 0.
    pub fn number(&self) -> u32 {
        self.slot
    }

    /// Makes a frame of the slot. `changed` are the rows that may differ from the pool's frame before; `None` if all
    /// may.
    ///
    /// # Errors
    /// The layout is larger than the slot; the slot then returns to the pool.
    pub fn freeze(
        self,
        layout: &Layout,
        meta: FrameMeta,
        changed: Option<ChangedRows>,
    ) -> Result<Frame, ForeignError> {
        let frame = self.pool.frames.changed_frame(self.slot, layout, meta, changed)?;
        // The frame owns the slot now.
        std::mem::forget(self);
        Ok(frame)
    }
}

impl Drop for ScreenSlot<'_> {
    fn drop(&mut self) {
        self.pool.slots.give_back(self.slot);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use framepath_model::format::PixelFormat;

    use super::*;

    const AT_ONCE: Duration = Duration::ZERO;

    #[test]
    fn a_server_writes_the_pixels_of_a_frame() {
        let layout = Layout::packed(PixelFormat::Bgr0, 64, 20).unwrap();
        let pool = ScreenPool::new(layout.size, 2).unwrap();
        let server = File::from(pool.memfd().unwrap().try_clone_to_owned().unwrap());
        let slots: Vec<_> = (0..2).map(|_| pool.acquire(AT_ONCE).unwrap()).collect();
        assert!(pool.acquire(AT_ONCE).is_none());
        meter::take();
        let frames: Vec<Frame> = slots
            .into_iter()
            .zip(1..)
            .map(|(slot, number)| {
                server.write_all_at(&[number; 64 * 20 * 4], slot.offset() as u64).unwrap();
                slot.freeze(&layout, FrameMeta::default(), None).unwrap()
            })
            .collect();
        assert_eq!(meter::take().copied_bytes, 0);
        for (frame, number) in frames.iter().zip(1..) {
            assert!(frame.is_foreign() && frame.dmabuf().is_none());
            assert_eq!(frame.plane(0).to_vec(), vec![number; 64 * 20 * 4]);
        }
        // Another process can read the frames, and no more.
        let memory = frames[1].read_only_memory().unwrap();
        let reader = File::from(memory.fd);
        let mut byte = [0];
        reader.read_exact_at(&mut byte, memory.slot_bytes as u64).unwrap();
        assert_eq!((byte[0], memory.slots, frames[1].slot()), (2, 2, 1));
        assert!(reader.write_all_at(&byte, 0).is_err());
        drop(frames);
        assert!(pool.acquire(AT_ONCE).is_some());
        assert_eq!(server.metadata().unwrap().len(), 2 * pool.slot_bytes() as u64);
        assert!(server.set_len(0).is_err(), "the size is sealed");
    }

    #[test]
    fn a_copy_into_a_slot_and_back_is_counted() {
        let pool = ScreenPool::new(4096, 1).unwrap();
        let mut slot = pool.acquire(AT_ONCE).unwrap();
        meter::take();
        let mut bytes = [0; 3];
        slot.write(10, &[4, 5, 6]);
        slot.read(11, &mut bytes);
        assert_eq!((bytes, meter::take().copied_bytes), ([5, 6, 0], 6));
        let large = Layout::packed(PixelFormat::Grey, 64, 4097).unwrap();
        assert!(slot.freeze(&large, FrameMeta::default(), None).is_err());
        assert!(pool.acquire(AT_ONCE).is_some(), "a slot without a frame returns");
    }

    #[test]
    fn a_wait_for_a_slot_ends_when_a_frame_is_dropped() {
        let layout = Layout::packed(PixelFormat::Grey, 64, 4).unwrap();
        let pool = ScreenPool::new(layout.size, 1).unwrap();
        let frame = pool.acquire(AT_ONCE).unwrap().freeze(&layout, FrameMeta::default(), None).unwrap();
        let dropped = std::thread::spawn(move || drop(frame));
        assert!(pool.acquire(Duration::from_secs(3600)).is_some());
        dropped.join().unwrap();
        assert!(ScreenPool::new(0, 1).is_err() && ScreenPool::new(1, 0).is_err());
    }
}
