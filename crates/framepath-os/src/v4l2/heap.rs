// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dmabufs made by this process, from a dma-heap or from a memfd through udmabuf, and a pool of
//! frames in them. Devices use these frames without a further copy.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use framepath_model::format::Layout;
use framepath_model::stream::FrameMeta;
use rustix::fs::{MemfdFlags, OFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, opcode};

use super::V4l2Error;
use super::call::call;
use super::region::{CpuAccess, Region};
use crate::c_layout::{Facts, numbers, structure};
use crate::measure::meter;
use crate::memory::pool::{ForeignPool, Frame, Returns};

/// Source of the memory of buffers that this process makes for devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heap {
    /// Dma-heap with this device file; makes dmabufs.
    Dma(PathBuf),
    /// `/dev/udmabuf`, which makes dmabufs of memfds.
    Udmabuf,
    /// Pages of this process: no dmabufs, for devices that accept user pointers.
    Pages,
}

const SYSTEM_HEAP: &str = "/dev/dma_heap/system";
const UDMABUF: &str = "/dev/udmabuf";

#[repr(C)]
struct HeapAllocation {
    len: u64,
    fd: u32,
    fd_flags: u32,
    heap_flags: u64,
}

#[repr(C)]
struct UdmabufCreate {
    memfd: u32,
    flags: u32,
    offset: u64,
    size: u64,
}

const HEAP_ALLOC: Opcode = opcode::read_write::<HeapAllocation>(b'H', 0);
const UDMABUF_CREATE: Opcode = opcode::write::<UdmabufCreate>(b'u', 0x42);
const DMA_BUF_SYNC: Opcode = opcode::write::<u64>(b'b', 0);
const UDMABUF_CLOEXEC: u32 = 1;

const SYNC_READ: u64 = 1;
const SYNC_WRITE: u64 = 2;
const SYNC_END: u64 = 4;

pub(super) fn list_layout(facts: &mut Facts) {
    structure!(facts, None, HeapAllocation = "struct dma_heap_allocation_data" {
        len = "len", fd = "fd", fd_flags = "fd_flags", heap_flags = "heap_flags",
    });
    structure!(facts, None, UdmabufCreate = "struct udmabuf_create" {
        memfd = "memfd", flags = "flags", offset = "offset", size = "size",
    });
    numbers!(facts {
        HEAP_ALLOC => "DMA_HEAP_IOCTL_ALLOC",
        UDMABUF_CREATE => "UDMABUF_CREATE",
        DMA_BUF_SYNC => "DMA_BUF_IOCTL_SYNC",
        UDMABUF_CLOEXEC => "UDMABUF_FLAGS_CLOEXEC",
        SYNC_READ => "DMA_BUF_SYNC_READ",
        SYNC_WRITE => "DMA_BUF_SYNC_WRITE",
        SYNC_END => "DMA_BUF_SYNC_END",
    });
}

impl Heap {
    /// Returns the heap named `udmabuf` or `pages`; any other name is the path of a dma-heap's device
    /// file. Does not check that the heap exists.
    pub fn named(name: &str) -> Heap {
        match name {
            "udmabuf" => Heap::Udmabuf,
            "pages" => Heap::Pages,
            path => Heap::Dma(path.into()),
        }
    }

    /// Returns udmabuf if it exists and the system's dma-heap does not. Otherwise returns the system's
    /// dma-heap, even if it does not exist.
    pub fn any() -> Heap {
        let system = Path::new(SYSTEM_HEAP);
        if system.exists() || !Path::new(UDMABUF).exists() { Heap::Dma(system.into()) } else { Heap::Udmabuf }
    }

    /// Returns true if the heap exists; pages always do.
    pub fn exists(&self) -> bool {
        *self == Heap::Pages || self.path().exists()
    }

    fn path(&self) -> PathBuf {
        match self {
            Heap::Dma(path) => path.clone(),
            Heap::Udmabuf => UDMABUF.into(),
            Heap::Pages => "memory".into(),
        }
    }

    /// Makes `count` slots of at least `bytes` bytes of this heap's memory, mapped for `access`; pages are
    /// always writable.
    pub(super) fn region(&self, bytes: usize, count: u32, access: CpuAccess) -> Result<Region, V4l2Error> {
        let path = self.path();
        let failed = |call| {
            let path = path.clone();
            move |errno| V4l2Error::of(&path, call, errno)
        };
        let bytes = bytes.next_multiple_of(4096);
        if *self == Heap::Pages {
            return Region::map_pages(bytes, count).map_err(failed("mmap"));
        }
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(|error| {
            V4l2Error::Open { node: path.clone(), errno: Errno::from_io_error(&error).unwrap_or(Errno::IO) }
        })?;
        let make = || match self {
            Heap::Udmabuf => wrap_memfd(&file, bytes).map_err(failed("UDMABUF_CREATE")),
            _ => allocate_from_heap(&file, bytes).map_err(failed("DMA_HEAP_IOCTL_ALLOC")),
        };
        let fds = (0..count).map(|_| make()).collect::<Result<Vec<OwnedFd>, V4l2Error>>()?;
        Region::map_dmabufs(fds, bytes, access).map_err(failed("mmap of a dmabuf"))
    }
}

fn allocate_from_heap(heap: &File, bytes: usize) -> Result<OwnedFd, Errno> {
    let fd_flags = (OFlags::RDWR | OFlags::CLOEXEC).bits();
    let mut allocation = HeapAllocation { len: bytes as u64, fd: 0, fd_flags, heap_flags: 0 };
    // SAFETY: the structure of the ioctl. If the file is not a heap, the kernel does not know the
    // number.
    unsafe { call(heap.as_fd(), HEAP_ALLOC, &mut allocation) }?;
    // SAFETY: a new descriptor that the kernel made for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(allocation.fd as i32) })
}

fn wrap_memfd(udmabuf: &File, bytes: usize) -> Result<OwnedFd, Errno> {
    let memfd = memfd_create("framepath-dmabuf", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memfd, bytes as u64)?;
    // udmabuf requires memory that cannot shrink.
    fcntl_add_seals(&memfd, SealFlags::SHRINK)?;
    let mut create = UdmabufCreate {
        memfd: memfd.as_raw_fd() as u32,
        flags: UDMABUF_CLOEXEC,
        offset: 0,
        size: bytes as u64,
    };
    // SAFETY: the structure of the ioctl.
    let fd = unsafe { call(udmabuf.as_fd(), UDMABUF_CREATE, &mut create) }?;
    // SAFETY: a new descriptor that the kernel made for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Announces to the exporter of the dmabuf `fd` that the CPU begins its access, or ends it if `end` is
/// true, for caches that are not coherent (DMA_BUF_IOCTL_SYNC). Ignores a failure.
pub(crate) fn sync(fd: BorrowedFd<'_>, access: CpuAccess, end: bool) {
    let way = if access == CpuAccess::Write { SYNC_READ | SYNC_WRITE } else { SYNC_READ };
    let mut flags = way | if end { SYNC_END } else { 0 };
    // A failure is ignored, because there is no alternative.
    // SAFETY: the structure of the ioctl is one u64.
    let _ = unsafe { call(fd, DMA_BUF_SYNC, &mut flags) };
}

/// Pool of frames in memory that devices use too, made by this process from a [`Heap`].
pub struct DevicePool {
    shared: Arc<Shared>,
    frames: ForeignPool,
}

struct Shared {
    region: Arc<Region>,
    free: Mutex<Vec<u32>>,
    returned: Condvar,
}

impl Returns for Shared {
    fn give_back(&self, slot: u32) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
        self.returned.notify_one();
    }
}

impl DevicePool {
    /// Makes `slots` slots of at least `bytes` bytes from `heap`.
    ///
    /// # Errors
    /// There is no such heap, it cannot be opened, or it has no memory left; or the memory cannot be mapped.
    pub fn new(heap: &Heap, bytes: usize, slots: u32) -> Result<DevicePool, V4l2Error> {
        let region = Arc::new(heap.region(bytes, slots, CpuAccess::Write)?);
        let free = Mutex::new((0..slots).rev().collect());
        let shared = Arc::new(Shared { region: region.clone(), free, returned: Condvar::new() });
        Ok(DevicePool { frames: ForeignPool::from_region(region, shared.clone()), shared })
    }

    /// Takes a free slot to write a frame into. Waits without a limit while there is none; the time is
    /// recorded as blocked.
    pub fn acquire(&mut self) -> DeviceFrame<'_> {
        let mut free = self.shared.free.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = loop {
            match free.pop() {
                Some(slot) => break slot,
                None => {
                    let wait = || self.shared.returned.wait(free).unwrap_or_else(PoisonError::into_inner);
                    free = meter::blocked(wait);
                }
            }
        };
        drop(free);
        if let Some(fd) = self.shared.region.dmabuf(slot) {
            sync(fd, CpuAccess::Write, false);
        }
        DeviceFrame { pool: self, slot }
    }
}

/// Slot of a [`DevicePool`] that is being written. Dropping it returns the slot to the pool.
pub struct DeviceFrame<'a> {
    pool: &'a DevicePool,
    slot: u32,
}

impl DeviceFrame<'_> {
    /// Copies `bytes` to the slot, from the byte `offset` on; the meter counts the copy.
    ///
    /// # Panics
    /// The bytes do not fit.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        // SAFETY: mapped writable, and the slot is neither on the list of free slots nor in any
        // frame.
        meter::copy(bytes.len(), || unsafe { self.pool.shared.region.copy_in(self.slot, offset, bytes) });
    }

    /// Ends the writing and makes a frame of the slot.
    ///
    /// # Errors
    /// The layout is larger than the slot; the slot then returns to the pool.
    pub fn freeze(
        self,
        layout: &Layout,
        meta: FrameMeta,
    ) -> Result<Frame, crate::memory::pool::ForeignError> {
        self.pool.frames.frame(self.slot, layout, meta).inspect(|_| {
            // The frame owns the slot now.
            let this = std::mem::ManuallyDrop::new(self);
            this.end();
        })
    }

    fn end(&self) {
        if let Some(fd) = self.pool.shared.region.dmabuf(self.slot) {
            sync(fd, CpuAccess::Write, true);
        }
    }
}

impl Drop for DeviceFrame<'_> {
    fn drop(&mut self) {
        self.end();
        self.pool.shared.give_back(self.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use framepath_model::format::PixelFormat;

    #[test]
    fn frames_of_device_memory_come_back_to_their_slot() {
        let layout = Layout::packed(PixelFormat::Grey, 64, 4).unwrap();
        let mut pool = DevicePool::new(&Heap::Pages, layout.size, 2).unwrap();
        let frames: Vec<Frame> = (0..2u8)
            .map(|n| {
                let mut slot = pool.acquire();
                slot.write(0, &[n; 256]);
                slot.freeze(&layout, FrameMeta { seq: n.into(), ..FrameMeta::default() }).unwrap()
            })
            .collect();
        assert_eq!(meter::take().copied_bytes, 512);
        for (n, frame) in frames.iter().enumerate() {
            assert!(frame.is_foreign() && frame.dmabuf().is_none());
            assert_eq!((frame.meta().seq, frame.plane(0).to_vec()), (n as u64, vec![n as u8; 256]));
        }
        drop(frames);
        for _ in 0..5 {
            drop(pool.acquire());
        }
        let frame = pool.acquire().freeze(&layout, FrameMeta::default()).unwrap();
        drop(pool);
        // Frames outlive their pool.
        assert_eq!(frame.plane(0).len(), 256);
    }

    #[test]
    fn a_frame_larger_than_its_slot_is_refused_and_the_slot_kept() {
        let mut pool = DevicePool::new(&Heap::Pages, 100, 1).unwrap();
        let large = Layout::packed(PixelFormat::Grey, 64, 4097).unwrap();
        assert!(pool.acquire().freeze(&large, FrameMeta::default()).is_err());
        // Waits forever if the slot was lost.
        drop(pool.acquire());
    }

    #[test]
    fn a_heap_that_is_not_there_is_named() {
        let error = DevicePool::new(&Heap::named("/dev/dma_heap/none"), 1, 1).err().unwrap();
        assert!(error.to_string().starts_with("cannot open /dev/dma_heap/none: "), "{error}");
    }

    #[test]
    fn ioctls_have_the_kernels_numbers() {
        assert_eq!(HEAP_ALLOC, 0xc018_4800);
        assert_eq!(UDMABUF_CREATE, 0x4018_7542);
        assert_eq!(DMA_BUF_SYNC, 0x4008_6200);
    }
}
