// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ring of one perf event, in which the kernel writes records.
//!
//! Format: perf_event_open(2), "MMAP layout".

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use perf_event_open_sys as sys;
use rustix::param::page_size;
use sys::bindings as perf;

/// Size of the smallest record, bytes: the header, the process and thread, and the time.
const RECORD_BYTES: u64 = 24;

/// Returns the attributes of a dummy software event, which counts nothing. Each of its records ends with process,
/// thread and time (CLOCK_MONOTONIC, nanoseconds), samples too if they have no more fields behind these. The event has
/// switch records.
pub(super) fn attributes() -> perf::perf_event_attr {
    let mut attr = perf::perf_event_attr {
        type_: perf::PERF_TYPE_SOFTWARE,
        size: size_of::<perf::perf_event_attr>() as u32,
        config: u64::from(perf::PERF_COUNT_SW_DUMMY),
        sample_type: u64::from(perf::PERF_SAMPLE_TID | perf::PERF_SAMPLE_TIME),
        clockid: libc::CLOCK_MONOTONIC,
        ..Default::default()
    };
    attr.set_context_switch(1);
    attr.set_sample_id_all(1);
    attr.set_use_clockid(1);
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    attr
}

/// Opens an event for thread `thread` (0: the calling thread) on CPU number `cpu` (-1: every CPU).
///
/// # Errors
/// The kernel denies it (`perf_event_paranoid` above 2, a sandbox, another user's thread, a kernel without perf),
/// there is no such thread, or there are too many descriptors.
pub(super) fn open_event(attr: &mut perf::perf_event_attr, thread: i32, cpu: i32) -> io::Result<OwnedFd> {
    // SAFETY: `attr` is a valid, sized attribute block.
    let raw = unsafe { sys::perf_event_open(attr, thread, cpu, -1, perf::PERF_FLAG_FD_CLOEXEC.into()) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Makes the kernel write the records of `event` to the ring of `to`, an event on the same CPU.
///
/// # Errors
/// The system call failed.
pub(super) fn share_ring(event: &OwnedFd, to: &OwnedFd) -> io::Result<()> {
    // SAFETY: two open perf events; the operation takes the second one's number.
    let code = unsafe { sys::ioctls::SET_OUTPUT(event.as_raw_fd(), to.as_raw_fd()) };
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Mapped ring of an event. The mapping keeps the event, also after its descriptor is closed.
#[derive(Debug)]
pub(super) struct PerfRing {
    map: NonNull<u8>,
    data_bytes: usize,
}

// SAFETY: the mapping is shared memory of this process, and only `&mut self` reads the records.
unsafe impl Send for PerfRing {}

impl PerfRing {
    /// Maps the ring of `event`. `data_bytes`, the size without the control page, is a power of two of pages.
    ///
    /// # Errors
    /// There is no memory for the ring, or the event has one.
    pub(super) fn map(event: BorrowedFd<'_>, data_bytes: usize) -> io::Result<PerfRing> {
        // SAFETY: a new shared mapping of the event's ring: one control page and a power of two
        // of data pages.
        let map = unsafe {
            libc::mmap(
                ptr::null_mut(),
                page_size() + data_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = NonNull::new(map.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(PerfRing { map, data_bytes })
    }

    /// Calls `take` with each record since the last call of this function, in the order of the ring. Skips
    /// the rest after a record of an impossible size. No system call.
    pub(super) fn drain(&mut self, mut take: impl FnMut(PerfRecord<'_>)) {
        let control = self.map.as_ptr().cast::<perf::perf_event_mmap_page>();
        // SAFETY: the control page is mapped for as long as `self` lives and
        // both fields are aligned u64s that only the kernel (head) and the
        // owner of `self` (tail) write.
        let (head, tail) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*control).data_head),
                AtomicU64::from_ptr(&raw mut (*control).data_tail),
            )
        };
        // Acquire: pairs with the kernel's store of data_head after it has written the records.
        let end = head.load(Ordering::Acquire);
        let mut at = tail.load(Ordering::Relaxed);
        while at < end {
            let header = self.word(at);
            let size = header >> 48;
            if size < RECORD_BYTES {
                at = end;
                break;
            }
            take(PerfRecord { ring: self, at, size, kind: header as u32, misc: (header >> 32) as u16 });
            at += size;
        }
        // The kernel may overwrite data before data_tail once it sees the store, so all reads
        // above have to come first.
        fence(Ordering::SeqCst);
        tail.store(at, Ordering::Release);
    }

    /// Reads eight bytes at ring position `at`; records are 8-byte aligned.
    fn word(&self, at: u64) -> u64 {
        let offset = page_size() + (at as usize & (self.data_bytes - 1));
        // SAFETY: the masked offset stays inside the data pages, and all
        // record sizes are multiples of 8, so eight bytes fit before the end.
        unsafe { self.map.as_ptr().add(offset).cast::<u64>().read_volatile() }
    }
}

impl Drop for PerfRing {
    fn drop(&mut self) {
        // SAFETY: unmaps what `map` mapped; nothing refers to it any more.
        unsafe {
            libc::munmap(self.map.as_ptr().cast(), page_size() + self.data_bytes);
        }
    }
}

/// One record in a ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct PerfRecord<'a> {
    ring: &'a PerfRing,
    at: u64,
    /// Size of the record, bytes.
    size: u64,
    /// Type of the record (`PERF_RECORD_*`).
    pub(super) kind: u32,
    /// Flags of the record (`PERF_RECORD_MISC_*`).
    pub(super) misc: u16,
}

impl PerfRecord<'_> {
    /// Returns the process and the thread of the record, in the pid namespace of the thread that opened the event.
    /// For a record of lost records they have no meaning.
    pub(super) fn ids(&self) -> (i32, i32) {
        let ids = self.ring.word(self.at + self.size - 16);
        (ids as i32, (ids >> 32) as i32)
    }

    /// Returns the time of the record, CLOCK_MONOTONIC nanoseconds.
    pub(super) fn at_ns(&self) -> u64 {
        self.ring.word(self.at + self.size - 8)
    }

    /// Returns the words between the header and the ids at the end.
    pub(super) fn body(&self) -> impl Iterator<Item = u64> {
        (self.at + 8..self.at + self.size - 16).step_by(8).map(|at| self.ring.word(at))
    }
}
