// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames in memory that another process or a device writes: mapped to read, handed on
//! like any frame, and given back when the last handle goes.

#[cfg(not(any(loom, miri)))]
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use framepath_model::format::{Layout, LayoutError};
use framepath_model::stream::FrameMeta;

#[cfg(not(any(loom, miri)))]
use super::frame::PoolMemory;
use super::frame::{Frame, FrameTarget, checked};
#[cfg(not(any(loom, miri)))]
use crate::memory::mapping::MapError;
use crate::memory::mapping::ReadOnly;
#[cfg(not(any(loom, miri)))]
use crate::v4l2::Region;

/// Receiver of foreign frames that are given back.
pub trait Returns: Send + Sync {
    /// Gives back the frame delivered under `slot`, whose last handle is gone. Called
    /// once for each delivery, on the thread that dropped the handle; must not panic.
    fn give_back(&self, slot: u32);
}

/// Why another process's memory, or a frame in it, is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForeignError {
    /// Zero slots, zero bytes, slots that are not aligned, or more than numbers or the
    /// address space hold.
    #[error(
        "a foreign pool of {slots} slots of {slot_bytes} bytes from number {first_slot} on is not possible"
    )]
    Size {
        /// Claimed bytes per slot.
        slot_bytes: usize,
        /// Claimed number of slots.
        slots: u32,
        /// Claimed number of the first slot.
        first_slot: u32,
    },
    /// The descriptor is of a kind that cannot be read safely.
    #[error("the memory of a foreign pool is {what}")]
    Memory {
        /// The unusable kind of memory, such as `not a memfd`.
        what: &'static str,
    },
    /// The memory is smaller than claimed.
    #[error("the memory of a foreign pool has {bytes} bytes, {told} were told")]
    Short {
        /// Bytes of the memory.
        bytes: u64,
        /// Bytes that the slots need.
        told: usize,
    },
    /// A system call failed.
    #[error("{call} for a foreign pool of {bytes} bytes: {errno}")]
    Os {
        /// The system call.
        call: &'static str,
        /// Bytes of the whole pool.
        bytes: usize,
        /// The kernel's error.
        errno: rustix::io::Errno,
    },
    /// The pool does not have the slot of a frame.
    #[error("a foreign frame in slot {slot}, where the pool has {first_slot} to {}", first_slot + (slots - 1))]
    Slot {
        /// The claimed number.
        slot: u32,
        /// Number of the pool's first slot.
        first_slot: u32,
        /// Slots the pool has.
        slots: u32,
    },
    /// A frame larger than its slot.
    #[error("a foreign frame: {0}")]
    Layout(#[from] LayoutError),
}

/// Another process's pool. Its frames outlive it.
pub struct ForeignPool {
    memory: Arc<Memory>,
}

struct Memory {
    id: u64,
    mapping: Mapped,
    slot_bytes: usize,
    slots: u32,
    first_slot: u32,
    returns: Arc<dyn Returns>,
}

/// Memory of the slots.
enum Mapped {
    /// Another process's pool.
    Memfd(ReadOnly),
    /// Buffers of a device.
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

/// More than any worker may allocate: the owner of a pool this large makes a false claim.
const LARGEST: usize = 1 << 40;

impl ForeignError {
    /// True if this process lacks the memory, or the mappings, to read the pool: no fault
    /// of its owner.
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
    /// Makes a pool of all slots of a device's memory.
    #[cfg(not(any(loom, miri)))]
    pub(crate) fn from_region(region: Arc<Region>, returns: Arc<dyn Returns>) -> ForeignPool {
        let (id, slot_bytes, slots) = (super::next_id(), region.slot_bytes(), region.slots());
        let mapping = Mapped::Device(region);
        ForeignPool { memory: Arc::new(Memory { id, mapping, slot_bytes, slots, first_slot: 0, returns }) }
    }

    /// Maps `slots` slots of `slot_bytes` bytes each to read; `fd` and the numbers come
    /// from the other side's [`Frame::read_only_memory`]. Six system calls. Frames go
    /// back through `returns`.
    ///
    /// # Errors
    /// The memory could shrink, can be written through the descriptor, or is smaller than
    /// claimed.
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

    /// Makes the other side's pool of memory that this process gave it
    /// ([`Pool::from_buffers`](super::Pool::from_buffers)) and has no business to read: all pixels of its
    /// frames read as 0.
    ///
    /// # Errors
    /// As [`ForeignPool::new`].
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

    /// A pool in memory that is large enough.
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

    /// Closes the descriptor of the memory, which stays mapped: for a process that does
    /// not pass it on. Does nothing once a frame was made.
    #[cfg(not(any(loom, miri)))]
    pub fn close(&mut self) {
        if let Some(Memory { mapping: Mapped::Memfd(mapping), .. }) = Arc::get_mut(&mut self.memory) {
            mapping.close();
        }
    }

    /// See [`Frame::pool_id`].
    pub fn id(&self) -> u64 {
        self.memory.id
    }

    /// Makes the frame that lies, as the other side claims, in the slot numbered `slot`.
    /// Every frame made here is given back on its own, once.
    ///
    /// # Errors
    /// The pool does not have the slot, or the layout is larger than a slot. Nothing is
    /// given back then.
    pub fn frame(&self, slot: u32, layout: &Layout, meta: FrameMeta) -> Result<Frame, ForeignError> {
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
        let place = Box::new(ForeignPlace { place, layout, memory: memory.clone() });
        let place = NonNull::from(Box::leak(place));
        // SAFETY: leaked just now, and no other code has the pointer. The layout lies in
        // the same box as the place that points at it.
        unsafe {
            let layout = NonNull::from(&(*place.as_ptr()).layout);
            (*place.as_ptr()).place.set_layout(layout);
            Ok(Frame::from_foreign(place))
        }
    }
}

/// Alignment of every slot, so that the samples of a checked layout are aligned: pools
/// of this crate consist of whole pages.
#[cfg(not(any(loom, miri)))]
const SLOT_ALIGN: usize = 64;

/// Returns the number of bytes of all slots.
#[cfg(not(any(loom, miri)))]
fn checked_bytes(slot_bytes: usize, slots: u32, first_slot: u32) -> Result<usize, ForeignError> {
    let bytes = slot_bytes.checked_mul(slots as usize).filter(|n| (1..=isize::MAX as usize).contains(n));
    match (bytes, first_slot.checked_add(slots)) {
        (Some(bytes), Some(_)) if slot_bytes % SLOT_ALIGN == 0 => Ok(bytes),
        _ => Err(ForeignError::Size { slot_bytes, slots, first_slot }),
    }
}

#[cfg(not(any(loom, miri)))]
fn refused_as(refused: MapError, told: usize) -> ForeignError {
    match refused {
        MapError::Kind(what) => ForeignError::Memory { what },
        MapError::Short(bytes) => ForeignError::Short { bytes, told },
        MapError::Os(call, errno) => ForeignError::Os { call, bytes: told, errno },
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

/// Target of a foreign frame's handle: a place first, so that the handle is the same
/// pointer as for any frame.
#[repr(C)]
pub(super) struct ForeignPlace {
    place: FrameTarget,
    /// Layout of this frame alone: another process may send a new one with every frame,
    /// and a table of them would grow without end.
    layout: Layout,
    memory: Arc<Memory>,
}

impl ForeignPlace {
    pub(super) fn pool_id(&self) -> u64 {
        self.memory.id
    }

    /// Describes the memory for yet another process.
    #[cfg(not(any(loom, miri)))]
    pub(super) fn memory(&self) -> std::io::Result<PoolMemory> {
        let Memory { id, ref mapping, slots, slot_bytes, first_slot, .. } = *self.memory;
        let fd = match mapping {
            Mapped::Memfd(mapping) => mapping.read_only_fd()?,
            // Each slot is a file of its own, and no memfd.
            Mapped::Device(_) => return Err(std::io::ErrorKind::Unsupported.into()),
        };
        Ok(PoolMemory { id, fd, slots, slot_bytes, first_slot })
    }

    /// See [`Frame::dmabuf`].
    #[cfg(not(any(loom, miri)))]
    pub(super) fn dmabuf(&self) -> Option<(BorrowedFd<'_>, usize)> {
        match &self.memory.mapping {
            Mapped::Memfd(_) => None,
            Mapped::Device(region) => Some((region.dmabuf(self.place.slot())?, region.slot_bytes())),
        }
    }

    /// Gives the frame back.
    ///
    /// # Safety
    /// `this` came from [`ForeignPool::frame`], and no handle is left.
    pub(super) unsafe fn end(this: NonNull<ForeignPlace>) {
        // SAFETY: leaked by `frame`, ended once.
        let place = unsafe { Box::from_raw(this.as_ptr()) };
        let memory = &place.memory;
        memory.returns.give_back(memory.first_slot + place.place.slot());
    }
}
