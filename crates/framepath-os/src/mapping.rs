// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a pool: one sealed memfd, mapped once. The model checkers
//! have no memfd and get zeroed pages of the heap.

use std::ptr::NonNull;

use rustix::io::Errno;

#[cfg(any(loom, miri))]
pub(crate) use heap::Mapping;
#[cfg(not(any(loom, miri)))]
pub(crate) use memfd::Mapping;

#[cfg(not(any(loom, miri)))]
mod memfd {
    use super::*;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::ptr;

    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

    /// Zeroed bytes, from a page boundary on.
    #[derive(Debug)]
    pub(crate) struct Mapping {
        base: NonNull<u8>,
        bytes: usize,
        fd: OwnedFd,
    }

    impl Mapping {
        /// Maps `bytes` bytes, at least 1; the error names the call that failed.
        pub(crate) fn new(bytes: usize) -> Result<Mapping, (&'static str, Errno)> {
            let failed = |call| move |errno| (call, errno);
            let fd = memfd_create("framepath-pool", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .map_err(failed("memfd_create"))?;
            ftruncate(&fd, bytes as u64).map_err(failed("ftruncate"))?;
            fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
                .map_err(failed("fcntl(F_ADD_SEALS)"))?;
            // SAFETY: a new mapping at an address the kernel chooses.
            let base = unsafe {
                mmap(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &fd, 0)
            }
            .map_err(failed("mmap"))?;
            if bytes >= 2 << 20 {
                // Fewer TLB misses and faults where the kernel allows it; a
                // refusal changes nothing else.
                // SAFETY: the range is the mapping just made.
                let _ = unsafe { madvise(base, bytes, Advice::LinuxHugepage) };
            }
            let base = NonNull::new(base.cast()).ok_or(("mmap", Errno::FAULT))?;
            Ok(Mapping { base, bytes, fd })
        }

        /// The first byte.
        #[inline]
        pub(crate) fn base(&self) -> NonNull<u8> {
            self.base
        }

        /// The memfd, sealed against another size.
        pub(crate) fn fd(&self) -> BorrowedFd<'_> {
            self.fd.as_fd()
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: unmaps what `new` mapped; who drops it has no pointer
            // into it left.
            let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        }
    }
}

#[cfg(any(loom, miri))]
mod heap {
    use super::*;
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    #[derive(Debug)]
    pub(crate) struct Mapping {
        base: NonNull<u8>,
        layout: Layout,
    }

    impl Mapping {
        pub(crate) fn new(bytes: usize) -> Result<Mapping, (&'static str, Errno)> {
            let no_memory = ("alloc", Errno::NOMEM);
            let layout = Layout::from_size_align(bytes, 4096).map_err(|_| no_memory)?;
            // SAFETY: a pool has at least one byte.
            let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(no_memory)?;
            Ok(Mapping { base, layout })
        }

        pub(crate) fn base(&self) -> NonNull<u8> {
            self.base
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: allocated by `new` with this layout.
            unsafe { dealloc(self.base.as_ptr(), self.layout) }
        }
    }
}
