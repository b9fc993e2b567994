// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that a device writes or reads. Its slots are mapped into one range of addresses, so
//! that a pool of foreign frames can use it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, OnceLock};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::{Direction, Node};

const PAGE: usize = 4096;

/// Slots of device memory, mapped one after the other. No Rust reference to them is made: they are read
/// and written by copies.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    slot_bytes: usize,
    slots: u32,
    dmabufs: Dmabufs,
    /// Memfd with all slots; `None` for other memory.
    memfd: Option<OwnedFd>,
}

/// Dmabufs of a region's slots.
#[derive(Debug)]
enum Dmabufs {
    /// No dmabufs: the slots are memory of this process.
    None,
    /// Dmabufs of which the slots were made, one per slot.
    Given(Vec<OwnedFd>),
    /// Buffers of a driver, each exported as a dmabuf when it is first asked for. An entry of `fds` is empty
    /// before that, and `None` if the driver did not export the buffer.
    Exported { node: Arc<Node>, direction: Direction, fds: Vec<OnceLock<Option<OwnedFd>>> },
}

// SAFETY: owns mappings that are not tied to a thread.
unsafe impl Send for Region {}
// SAFETY: through a shared reference slots are only read, by copies, or their addresses and
// descriptors are passed to the kernel.
unsafe impl Sync for Region {}

/// Access of the CPU to mapped slots: only reading, or reading and writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CpuAccess {
    Read,
    Write,
}

impl CpuAccess {
    fn flags(self) -> ProtFlags {
        match self {
            CpuAccess::Read => ProtFlags::READ,
            CpuAccess::Write => ProtFlags::READ | ProtFlags::WRITE,
        }
    }
}

impl Region {
    /// Reserves addresses for `slots` slots, without memory.
    fn reserve(slot_bytes: usize, slots: u32) -> Result<Region, Errno> {
        let padded = slot_bytes.checked_next_multiple_of(PAGE).filter(|n| *n > 0).ok_or(Errno::INVAL)?;
        let bytes = padded.checked_mul(slots as usize).filter(|n| (1..=isize::MAX as usize).contains(n));
        // SAFETY: a new mapping at an address the kernel chooses.
        let base = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                bytes.ok_or(Errno::INVAL)?,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::FAULT)?;
        Ok(Region { base, slot_bytes: padded, slots, dmabufs: Dmabufs::None, memfd: None })
    }

    /// Maps `bytes` bytes of `fd` from `offset` on at slot `slot`, to which no pointer exists yet. Fails
    /// with EINVAL if there is no such slot or it is too small, or with the error of mmap(2).
    fn map(
        &mut self,
        slot: u32,
        fd: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
        access: CpuAccess,
    ) -> Result<(), Errno> {
        if slot >= self.slots || bytes > self.slot_bytes {
            return Err(Errno::INVAL);
        }
        // SAFETY: replaces an unused part of our own reservation.
        unsafe {
            let at = self.base.add(slot as usize * self.slot_bytes);
            mmap(at.as_ptr().cast(), bytes, access.flags(), MapFlags::SHARED | MapFlags::FIXED, fd, offset)
        }
        .map(drop)
    }

    /// Maps the buffers of a queue of `node` in the driver's memory, from the offset and size of
    /// each.
    pub(super) fn map_driver(
        node: &Arc<Node>,
        direction: Direction,
        places: &[(u64, usize)],
        access: CpuAccess,
    ) -> Result<Region, Errno> {
        let most = places.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        let mut region = Region::reserve(most, places.len() as u32)?;
        for (slot, (offset, bytes)) in places.iter().enumerate() {
            region.map(slot as u32, node.fd(), *offset, *bytes, access)?;
        }
        let fds = places.iter().map(|_| OnceLock::new()).collect();
        region.dmabufs = Dmabufs::Exported { node: node.clone(), direction, fds };
        Ok(region)
    }

    /// Maps the dmabufs `fds`, each of at least `bytes` bytes, as one slot each.
    pub(crate) fn map_dmabufs(fds: Vec<OwnedFd>, bytes: usize, access: CpuAccess) -> Result<Region, Errno> {
        let mut region = Region::reserve(bytes, fds.len() as u32)?;
        for (slot, fd) in fds.iter().enumerate() {
            region.map(slot as u32, fd.as_fd(), 0, bytes, access)?;
        }
        region.dmabufs = Dmabufs::Given(fds);
        Ok(region)
    }

    /// Makes `slots` slots of at least `bytes` bytes in pages of this process. A driver reaches the slots by
    /// their addresses (user pointers).
    pub(super) fn map_pages(bytes: usize, slots: u32) -> Result<Region, Errno> {
        let region = Region::reserve(bytes, slots)?;
        let whole = region.bytes();
        // SAFETY: replaces our own reservation, which is not used yet.
        unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::FIXED;
            mmap_anonymous(region.base.as_ptr().cast(), whole, CpuAccess::Write.flags(), flags)
        }?;
        Ok(region)
    }

    /// Makes `slots` slots of at least `bytes` bytes one after the other in a memfd that another process may
    /// write, and that is sealed against a change of its size. The error contains the name of the call that
    /// failed.
    pub(crate) fn map_memfd(bytes: usize, slots: u32) -> Result<Region, (&'static str, Errno)> {
        let failed = |call| move |errno| (call, errno);
        let mut region = Region::reserve(bytes, slots).map_err(failed("mmap"))?;
        let (each, whole) = (region.slot_bytes, region.bytes() as u64);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memfd = memfd_create("framepath-screen", flags).map_err(failed("memfd_create"))?;
        ftruncate(&memfd, whole).map_err(failed("ftruncate"))?;
        crate::memory::commit::reserve(&memfd, whole)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&memfd, seals).map_err(failed("fcntl(F_ADD_SEALS)"))?;
        for slot in 0..slots {
            let offset = u64::from(slot) * each as u64;
            region.map(slot, memfd.as_fd(), offset, each, CpuAccess::Write).map_err(failed("mmap"))?;
        }
        region.memfd = Some(memfd);
        Ok(region)
    }

    /// Returns the memfd with all slots; `None` unless [`Region::map_memfd`] made the region.
    pub(crate) fn memfd(&self) -> Option<BorrowedFd<'_>> {
        self.memfd.as_ref().map(AsFd::as_fd)
    }

    fn bytes(&self) -> usize {
        self.slot_bytes * self.slots as usize
    }

    /// Returns the address of the first byte of the first slot.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the number of slots of the region.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Returns the number of bytes from one slot to the next.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Returns the address of the first byte of slot `slot`.
    ///
    /// # Panics
    /// There is no such slot.
    pub(super) fn slot_address(&self, slot: u32) -> usize {
        assert!(slot < self.slots);
        self.base.as_ptr() as usize + slot as usize * self.slot_bytes
    }

    /// Returns true if the slots were made of dmabufs ([`Region::map_dmabufs`]).
    pub(super) fn is_given(&self) -> bool {
        matches!(self.dmabufs, Dmabufs::Given(_))
    }

    /// Returns the dmabuf that starts at the slot's first byte; `None` if there is no such slot, it is
    /// memory of this process, or the driver does not export it.
    pub fn dmabuf(&self, slot: u32) -> Option<BorrowedFd<'_>> {
        let slot = slot as usize;
        match &self.dmabufs {
            Dmabufs::None => None,
            Dmabufs::Given(fds) => fds.get(slot).map(AsFd::as_fd),
            Dmabufs::Exported { node, direction, fds } => {
                let exported = fds.get(slot)?.get_or_init(|| node.export(*direction, slot as u32).ok());
                exported.as_ref().map(AsFd::as_fd)
            }
        }
    }

    /// Copies `bytes` to `offset` in slot `slot`.
    ///
    /// # Safety
    /// The slot is mapped writable, and no other thread copies into it or out of it at the same
    /// time.
    ///
    /// # Panics
    /// The bytes do not fit.
    pub(crate) unsafe fn copy_in(&self, slot: u32, offset: usize, bytes: &[u8]) {
        // SAFETY: the bytes are readable; the caller vouches for the rest.
        unsafe { self.copy_in_foreign(slot, offset, NonNull::from(bytes).cast(), bytes.len()) }
    }

    /// Copies `bytes` bytes at `from`, which another process may write, to `offset` in slot `slot`.
    ///
    /// # Safety
    /// As for [`copy_in`](Region::copy_in), and the bytes at `from` are readable.
    ///
    /// # Panics
    /// The bytes do not fit.
    pub(crate) unsafe fn copy_in_foreign(&self, slot: u32, offset: usize, from: NonNull<u8>, bytes: usize) {
        assert!(slot < self.slots && offset <= self.slot_bytes && bytes <= self.slot_bytes - offset);
        // SAFETY: inside the slot, by the assertion; the caller vouches for the
        // rest. No reference to the device's memory is made.
        unsafe {
            let to = self.base.add(slot as usize * self.slot_bytes + offset);
            ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), bytes);
        }
    }

    /// Copies bytes from `offset` in slot `slot` on to `to`, until `to` is full.
    ///
    /// # Safety
    /// The slot is mapped, and no other thread copies into it at the same time.
    ///
    /// # Panics
    /// The slot has fewer bytes.
    pub(crate) unsafe fn copy_out(&self, slot: u32, offset: usize, to: &mut [u8]) {
        assert!(slot < self.slots && offset <= self.slot_bytes && to.len() <= self.slot_bytes - offset);
        // SAFETY: as in `copy_in`.
        unsafe {
            let from = self.base.add(slot as usize * self.slot_bytes + offset);
            ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), to.len());
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: unmaps what `reserve` and `map` mapped; the owner has no pointer into
        // it left when it drops this.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes()) };
    }
}
