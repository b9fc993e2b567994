// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames in memory that another process or a device writes. Another process's pool is mapped
//! read-only. The frames pass through the path like any other, and are returned when the last handle
//! is dropped.

#[cfg(not(any(loom, miri)))]
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use framepath_model::changed_rows::ChangedRows;
use framepath_model::format::{Layout, LayoutError};
use framepath_model::stream::FrameMeta;

#[cfg(not(any(loom, miri)))]
use super::frame::PoolMemory;
use super::frame::{Frame, FrameTarget, checked};
use crate::memory::mapping::ReadOnly;
#[cfg(not(any(loom, miri)))]
use crate::memory::mapping::{MapError, read_only};
#[cfg(not(any(loom, miri)))]
use crate::v4l2::Region;

/// Receiver of the frames of a [`ForeignPool`] that this process no longer uses.
pub trait Returns: Send + Sync {
    /// Returns the frame that was made by [`ForeignPool::frame`] with the number `slot`, after the frame's
    /// last handle was dropped. Called once for each call of that function that succeeded, on the thread
    /// that dropped the handle. Must not panic.
    fn give_back(&self, slot: u32);
}

/// Reason why a [`ForeignPool`] cannot be made, or a frame in it is rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForeignError {
    /// Zero slots, zero bytes, a slot size that is not a multiple of 64 bytes, slot numbers beyond 32
    /// bits, or more bytes than the address space can hold.
    #[error(
        "pool of another process or a device: {slots} slots of {slot_bytes} bytes from number {first_slot} are out of range"
    )]
    Size {
        /// Reported bytes per slot.
        slot_bytes: usize,
        /// Reported number of slots.
        slots: u32,
        /// Reported number of the first slot.
        first_slot: u32,
    },
    /// The memory is of a kind that this process does not map: it is no memfd, its size can change, its pages
    /// are huge, or it has neither the seal F_SEAL_FUTURE_WRITE nor a read-only descriptor.
    #[error(
        "pool of another process or a device: the memory is {what}; expected a sealed memfd of ordinary pages"
    )]
    Memory {
        /// Description of the defect, such as `not a memfd`.
        what: &'static str,
    },
    /// The memory is smaller than the slots that the other process reports.
    #[error("pool of another process or a device: the memory has {bytes} bytes; expected {expected}")]
    Short {
        /// Size of the memory, bytes.
        bytes: u64,
        /// Size that the slots need, bytes.
        expected: usize,
    },
    /// A system call failed.
    #[error("pool of another process or a device: {call} for {bytes} bytes: {errno}")]
    Os {
        /// Name of the system call that failed.
        call: &'static str,
        /// Size of the whole pool, bytes.
        bytes: usize,
        /// The kernel's error.
        errno: rustix::io::Errno,
    },
    /// The pool does not have the slot that the other process or the device named for a frame.
    #[error("frame of another process or a device: no slot {slot}; the pool has {first_slot} to {}", first_slot + (slots - 1))]
    Slot {
        /// Reported number of the slot.
        slot: u32,
        /// Number of the pool's first slot.
        first_slot: u32,
        /// Number of slots in the pool.
        slots: u32,
    },
    /// The frame's layout is larger than a slot of the pool.
    #[error("frame of another process or a device: {0}")]
    Layout(#[from] LayoutError),
}

/// Handle of a pool of another process, or of memory that a device uses. This process makes and reads frames
/// of it. Frames may outlive this handle.
pub struct ForeignPool {
    memory: Arc<Memory>,
}

/// Memory of a foreign pool, kept by the pool's handle and by every frame.
struct Memory {
    /// Number of the pool, unique in this process.
    id: u64,
    mapping: Mapped,
    slot_bytes: usize,
    slots: u32,
    /// Number by which the other side names the first slot.
    first_slot: u32,
    returns: Arc<dyn Returns>,
}

/// Mapped memory of a foreign pool.
enum Mapped {
    /// Memfd of another process's pool (or memory that this process granted to it), or blank memory in its
    /// place.
    Memfd(ReadOnly),
    /// Buffers of a device, or memory that this process made for devices.
    #[cfg(not(any(loom, miri)))]
    Device(Arc<Region>),
}

impl Mapped {
    fn base(&self) -> NonNull<u8> {
        match self {
            Mapped::Memfd(mapping) => mapping.base(),
            #[cfg(not(any(loom, miri)))]
            Mapped::Device(region) => region.base(),
        }
    }
}

/// Size of a foreign pool, bytes, at and above which a failure to map the pool does not count as a lack of
/// this process: no worker may allocate so much, so the size is a false report.
const LARGEST: usize = 1 << 40;

impl ForeignError {
    /// Returns true for an [`Os`](ForeignError::Os) error by which this process lacks memory, mappings or
    /// descriptors (EMFILE, ENFILE, ENOMEM, ENOBUFS, ETOOMANYREFS), which is not an error of the pool's owner.
    /// Returns false for a pool of 1 TiB or more, and for all other errors.
    pub fn is_lack(&self) -> bool {
        match self {
            ForeignError::Os { bytes, errno, .. } => {
                *bytes < LARGEST && crate::process::lack::errno_is_lack(*errno)
            }
            _ => false,
        }
    }
}

impl ForeignPool {
    /// Makes a pool of all slots of `region`, which is a device's memory or memory for devices, numbered from
    /// 0. Frames are returned through `returns`.
    #[cfg(not(any(loom, miri)))]
    pub(crate) fn from_region(region: Arc<Region>, returns: Arc<dyn Returns>) -> ForeignPool {
        let (id, slot_bytes, slots) = (super::next_id(), region.slot_bytes(), region.slots());
        let mapping = Mapped::Device(region);
        ForeignPool { memory: Arc::new(Memory { id, mapping, slot_bytes, slots, first_slot: 0, returns }) }
    }

    /// Maps `slots` slots of `slot_bytes` bytes each, read-only. `fd` is the other process's memory
    /// ([`Frame::read_only_memory`]), or memory that this process granted to it. The other process reports the
    /// numbers. Frames are returned through `returns`.
    ///
    /// # Errors
    /// The memory is not a memfd of ordinary pages, is not sealed against a change of its size, has neither
    /// the seal F_SEAL_FUTURE_WRITE nor a read-only descriptor, or is smaller than reported; the numbers are
    /// out of range; or a system call failed.
    #[cfg(not(any(loom, miri)))]
    pub fn new(
        fd: OwnedFd,
        slot_bytes: usize,
        slots: u32,
        first_slot: u32,
        returns: Arc<dyn Returns>,
    ) -> Result<ForeignPool, ForeignError> {
        let bytes = checked_bytes(slot_bytes, slots, first_slot)?;
        let mapping = ReadOnly::new(fd, bytes).map_err(|refused| refused_as(refused, bytes))?;
        Ok(ForeignPool::of(mapping, slot_bytes, slots, first_slot, returns))
    }

    /// Makes a pool of buffers that this process gave to the other process, which uses them
    /// through [`Pool::from_buffers`](super::Pool::from_buffers). This process does not map them:
    /// all pixels of its frames read as 0.
    ///
    /// # Errors
    /// [`ForeignError::Size`] and [`ForeignError::Os`], as [`ForeignPool::new`].
    #[cfg(not(any(loom, miri)))]
    pub fn unmapped(
        slot_bytes: usize,
        slots: u32,
        first_slot: u32,
        returns: Arc<dyn Returns>,
    ) -> Result<ForeignPool, ForeignError> {
        let bytes = checked_bytes(slot_bytes, slots, first_slot)?;
        let mapping = ReadOnly::blank(bytes).map_err(|refused| refused_as(refused, bytes))?;
        Ok(ForeignPool::of(mapping, slot_bytes, slots, first_slot, returns))
    }

    /// Makes a pool in `mapping`, which has at least `slots * slot_bytes` bytes.
    #[cfg_attr(any(loom, miri), allow(dead_code, reason = "the checkers' tests make such pools"))]
    pub(super) fn of(
        mapping: ReadOnly,
        slot_bytes: usize,
        slots: u32,
        first_slot: u32,
        returns: Arc<dyn Returns>,
    ) -> ForeignPool {
        let (id, mapping) = (super::next_id(), Mapped::Memfd(mapping));
        ForeignPool { memory: Arc::new(Memory { id, mapping, slot_bytes, slots, first_slot, returns }) }
    }

    /// Closes the descriptor of the memory, which stays mapped; [`Frame::read_only_memory`] fails from then
    /// on. For a process that does not pass the memory on. Does nothing while a frame of the pool exists, or
    /// for a device's memory.
    #[cfg(not(any(loom, miri)))]
    pub fn close(&mut self) {
        if let Some(Memory { mapping: Mapped::Memfd(mapping), .. }) = Arc::get_mut(&mut self.memory) {
            mapping.close();
        }
    }

    /// Returns the number of the pool, which is unique in this process; [`Frame::pool_id`] returns the
    /// same number for each frame of the pool.
    pub fn id(&self) -> u64 {
        self.memory.id
    }

    /// Makes a frame of the slot with number `slot`, as reported by the other side. Every frame
    /// made here is returned separately, once, through [`Returns`].
    ///
    /// # Errors
    /// The pool does not have the slot, or the layout is larger than a slot. In this case
    /// [`Returns::give_back`] is not called.
    pub fn frame(&self, slot: u32, layout: &Layout, meta: FrameMeta) -> Result<Frame, ForeignError> {
        self.changed_frame(slot, layout, meta, None)
    }

    /// Makes a frame as [`frame`](ForeignPool::frame), with the rows that have changed since the frame of this pool
    /// whose number ([`FrameMeta::seq`]) is less by one; `None` if they are not known.
    ///
    /// # Errors
    /// As for [`frame`](ForeignPool::frame).
    pub fn changed_frame(
        &self,
        slot: u32,
        layout: &Layout,
        meta: FrameMeta,
        changed: Option<ChangedRows>,
    ) -> Result<Frame, ForeignError> {
        let memory = &self.memory;
        let index = slot.checked_sub(memory.first_slot).filter(|index| *index < memory.slots);
        let Some(index) = index else {
            let Memory { first_slot, slots, .. } = **memory;
            return Err(ForeignError::Slot { slot, first_slot, slots });
        };
        let layout = *checked(layout, memory.slot_bytes)?;
        // SAFETY: index < slots and the mapping has slots * slot_bytes bytes.
        let first = unsafe { memory.mapping.base().add(index as usize * memory.slot_bytes) };
        let place = FrameTarget::foreign(index, first, meta);
        let place = Box::new(ForeignPlace { place, layout, changed, memory: memory.clone() });
        let place = NonNull::from(Box::leak(place));
        // SAFETY: leaked above, and no other code has the pointer. The layout is in the same box
        // as the target that points to it.
        unsafe {
            let layout = NonNull::from(&(*place.as_ptr()).layout);
            (*place.as_ptr()).place.set_layout(layout);
            Ok(Frame::from_foreign(place))
        }
    }
}

/// Alignment of every slot, bytes: makes the samples of a checked layout aligned. Pools of this
/// crate consist of whole pages.
#[cfg(not(any(loom, miri)))]
const SLOT_ALIGN: usize = 64;

/// Returns the number of bytes of all slots; an error if the reported numbers are out of range.
#[cfg(not(any(loom, miri)))]
fn checked_bytes(slot_bytes: usize, slots: u32, first_slot: u32) -> Result<usize, ForeignError> {
    let bytes = slot_bytes.checked_mul(slots as usize).filter(|n| (1..=isize::MAX as usize).contains(n));
    match (bytes, first_slot.checked_add(slots)) {
        (Some(bytes), Some(_)) if slot_bytes % SLOT_ALIGN == 0 => Ok(bytes),
        _ => Err(ForeignError::Size { slot_bytes, slots, first_slot }),
    }
}

/// Converts the error of mapping a pool of `needed` bytes.
#[cfg(not(any(loom, miri)))]
fn refused_as(refused: MapError, needed: usize) -> ForeignError {
    match refused {
        MapError::Kind(what) => ForeignError::Memory { what },
        MapError::Short(bytes) => ForeignError::Short { bytes, expected: needed },
        MapError::Os(call, errno) => ForeignError::Os { call, bytes: needed, errno },
    }
}

impl std::fmt::Debug for ForeignPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Memory { slots, slot_bytes, first_slot, .. } = *self.memory;
        let mut pool = f.debug_struct("ForeignPool");
        pool.field("slots", &slots).field("slot_bytes", &slot_bytes).field("first_slot", &first_slot);
        pool.finish_non_exhaustive()
    }
}

/// Target of a foreign frame's handle. The [`FrameTarget`] comes first, so that the handle is the
/// same pointer as for any frame.
#[repr(C)]
pub(super) struct ForeignPlace {
    place: FrameTarget,
    /// Layout of this frame only. Another process may send a new layout with every frame, so a
    /// table of layouts would grow without limit.
    layout: Layout,
    /// Rows that differ from the frame before; `None` if they are not known.
    changed: Option<ChangedRows>,
    memory: Arc<Memory>,
}

impl ForeignPlace {
    pub(super) fn changed_rows(&self) -> Option<&ChangedRows> {
        self.changed.as_ref()
    }

    pub(super) fn pool_id(&self) -> u64 {
        self.memory.id
    }

    /// Returns the number of bytes of the slot.
    pub(super) fn slot_bytes(&self) -> usize {
        self.memory.slot_bytes
    }

    /// Describes the pool's memory for a third process, which can only read it. `Unsupported` for a device's
    /// memory, blank memory, or a closed descriptor.
    #[cfg(not(any(loom, miri)))]
    pub(super) fn memory(&self) -> std::io::Result<PoolMemory> {
        let Memory { id, ref mapping, slots, slot_bytes, first_slot, .. } = *self.memory;
        let fd = match mapping {
            Mapped::Memfd(mapping) => mapping.read_only_fd()?,
            // Without a memfd, each slot is a separate file, or memory of this process.
            Mapped::Device(region) => read_only(region.memfd().ok_or(std::io::ErrorKind::Unsupported)?)?,
        };
        Ok(PoolMemory { id, fd, slots, slot_bytes, first_slot })
    }

    /// Returns the dmabuf of the frame's slot and the slot's size in bytes; `None` if the memory is not a
    /// [`Region`], or the region has no dmabuf of the slot.
    #[cfg(not(any(loom, miri)))]
    pub(super) fn dmabuf(&self) -> Option<(BorrowedFd<'_>, usize)> {
        match &self.memory.mapping {
            Mapped::Memfd(_) => None,
            Mapped::Device(region) => Some((region.dmabuf(self.place.slot())?, region.slot_bytes())),
        }
    }

    /// Returns the frame to the pool's owner through [`Returns`], and frees the target.
    ///
    /// # Safety
    /// `this` came from [`ForeignPool::frame`], and no handle to it is left.
    pub(super) unsafe fn end(this: NonNull<ForeignPlace>) {
        // SAFETY: leaked by `frame`, ended once.
        let place = unsafe { Box::from_raw(this.as_ptr()) };
        let memory = &place.memory;
        memory.returns.give_back(memory.first_slot + place.place.slot());
    }
}
