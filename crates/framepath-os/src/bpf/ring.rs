// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ring through which programs send records to this process (BPF_MAP_TYPE_RINGBUF).
//!
//! Format: Documentation/bpf/ringbuf.rst of the kernel.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::param::page_size;

use super::map::CreateMap;
use super::{Operation, call_for_descriptor};

const BPF_MAP_TYPE_RINGBUF: u32 = 27;
/// Bit of a record's header: the program has not finished it.
const BUSY: u32 = 1 << 31;
/// Bit of a record's header: the program has discarded it.
const DISCARDED: u32 = 1 << 30;
const HEADER_BYTES: u64 = 8;

/// Ring with the records of programs.
#[derive(Debug)]
pub struct Ring {
    map: OwnedFd,
    /// Page with the consumer's position, which this process writes.
    consumer: NonNull<u8>,
    /// Page with the producer's position, then the data twice in a row, so that no record is divided. Read only.
    producer: NonNull<u8>,
    data_bytes: usize,
}

// SAFETY: the mappings belong to the value alone, and only `&mut self` reads records.
unsafe impl Send for Ring {}

impl Ring {
    /// Makes a ring for `data_bytes` bytes of records, a power of two of at least a page.
    ///
    /// # Errors
    /// EPERM without the capabilities; EINVAL for another size; ENOMEM.
    pub fn new(data_bytes: usize) -> io::Result<Ring> {
        let attributes = CreateMap {
            map_type: BPF_MAP_TYPE_RINGBUF,
            entries: u32::try_from(data_bytes).map_err(|_| io::ErrorKind::InvalidInput)?,
            ..CreateMap::default()
        };
        let map = call_for_descriptor(Operation::MapCreate, &attributes)?;
        let pages = |bytes: usize, protection: i32, offset: usize| {
            // SAFETY: a new shared mapping of the map's pages.
            let at = unsafe {
                libc::mmap(
                    ptr::null_mut(),
                    bytes,
                    protection,
                    libc::MAP_SHARED,
                    map.as_raw_fd(),
                    offset as i64,
                )
            };
            if at == libc::MAP_FAILED { None } else { NonNull::new(at.cast::<u8>()) }
        };
        let consumer = pages(page_size(), libc::PROT_READ | libc::PROT_WRITE, 0);
        let consumer = consumer.ok_or_else(io::Error::last_os_error)?;
        let Some(producer) = pages(page_size() + 2 * data_bytes, libc::PROT_READ, page_size()) else {
            let error = io::Error::last_os_error();
            // SAFETY: unmaps what was mapped above; nothing refers to it.
            unsafe { libc::munmap(consumer.as_ptr().cast(), page_size()) };
            return Err(error);
        };
        Ok(Ring { map, consumer, producer, data_bytes })
    }

    /// Calls `take` with the words of each finished record since the last call, in the order in which the programs
    /// began them.
    pub fn drain(&mut self, mut take: impl FnMut(&[u64])) {
        // SAFETY: both positions are aligned u64s in pages that are mapped as long as `self` lives; the kernel
        // writes the producer's, only the owner of `self` the consumer's.
        let (consumer, producer) = unsafe {
            (
                AtomicU64::from_ptr(self.consumer.as_ptr().cast()),
                AtomicU64::from_ptr(self.producer.as_ptr().cast()),
            )
        };
        let mut at = consumer.load(Ordering::Relaxed);
        // Acquire: pairs with the kernel's release of the producer's position.
        let end = producer.load(Ordering::Acquire);
        let mut words = Vec::new();
        while at < end {
            // SAFETY: the position is masked to the data, and records are 8-byte aligned, so the header is an aligned
            // u32 of the mapping.
            let header = unsafe { AtomicU32::from_ptr(self.data(at).cast()) };
            // Acquire: pairs with the kernel's exchange that clears BUSY behind the record's bytes.
            let header = header.load(Ordering::Acquire);
            if header & BUSY != 0 {
                break;
            }
            let bytes = u64::from(header & !DISCARDED);
            if bytes > self.data_bytes as u64 {
                at = end;
                break;
            }
            if header & DISCARDED == 0 {
                words.clear();
                words.extend((0..bytes / 8).map(|n| {
                    // SAFETY: the data are mapped twice in a row and the record is not longer than the data once, so
                    // its words lie in the mapping from the masked position on.
                    unsafe {
                        self.data(at).add((HEADER_BYTES + 8 * n) as usize).cast::<u64>().read_volatile()
                    }
                }));
                take(&words);
            }
            at += HEADER_BYTES + bytes.next_multiple_of(8);
            // Release: the reads above come before the kernel may write here again.
            consumer.store(at, Ordering::Release);
        }
        consumer.store(at, Ordering::Release);
    }

    /// Returns the address of the data at position `at` of the ring.
    fn data(&self, at: u64) -> *mut u8 {
        let offset = page_size() + (at as usize & (self.data_bytes - 1));
        // SAFETY: the masked offset lies in the first copy of the data.
        unsafe { self.producer.as_ptr().add(offset) }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: unmaps what `new` mapped; nothing refers to it any more.
        unsafe {
            libc::munmap(self.consumer.as_ptr().cast(), page_size());
            libc::munmap(self.producer.as_ptr().cast(), page_size() + 2 * self.data_bytes);
        }
    }
}
