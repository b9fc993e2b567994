// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memfd that two processes map to read and write. It is sealed against a change of its size;
//! otherwise an access could end in SIGBUS.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::memory::mapping::has_ordinary_pages;

/// Sealed memfd and its mapping, readable and writable. Another process may change the content at any
/// time.
#[derive(Debug)]
pub(super) struct Sealed {
    base: NonNull<u8>,
    bytes: usize,
    fd: OwnedFd,
}

/// Reason why a [`Sealed`] was not made or not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SealedError {
    /// The memory is not safe to map, with the reason: it is not sealed against a change of its size, its
    /// pages are huge, or it is too small.
    Kind(&'static str),
    /// A system call failed: its name and the kernel's error.
    Os(&'static str, Errno),
}

// SAFETY: owns a mapping that is not tied to a thread.
unsafe impl Send for Sealed {}
// SAFETY: the type only provides a raw pointer; its users are responsible for it.
unsafe impl Sync for Sealed {}

impl Sealed {
    /// Makes a memfd of `bytes` zeroed bytes, named `name` for debugging, seals its size, and maps it. With 0
    /// bytes the mapping fails. The kernel allocates the pages on first access, or in this call if
    /// `vm.overcommit_memory` is 2. Fails if a system call fails.
    pub(super) fn new(name: &str, bytes: usize) -> Result<Sealed, SealedError> {
        let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(failed("memfd_create"))?;
        ftruncate(&fd, bytes as u64).map_err(failed("ftruncate"))?;
        crate::memory::commit::reserve(&fd, bytes as u64)
            .map_err(|(call, errno)| SealedError::Os(call, errno))?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(failed("fcntl(F_ADD_SEALS)"))?;
        Sealed::map(fd, bytes)
    }

    /// Maps the first `bytes` bytes (at least 1) of a memfd made by another process. Fails if the memfd is
    /// not sealed against a change of its size, has huge pages, or is smaller than `bytes`, or if a system
    /// call fails.
    pub(super) fn open(fd: OwnedFd, bytes: usize) -> Result<Sealed, SealedError> {
        // Fails for a file that cannot have seals.
        let seals = fcntl_get_seals(&fd).map_err(failed("fcntl(F_GET_SEALS)"))?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(SealedError::Kind("the memfd is not sealed against a change of its size"));
        }
        if !has_ordinary_pages(&fd).map_err(failed("fstatfs"))? {
            return Err(SealedError::Kind("the memfd has huge pages; expected ordinary pages"));
        }
        let have = fstat(&fd).map_err(failed("fstat"))?.st_size;
        if u64::try_from(have).unwrap_or(0) < bytes as u64 {
            return Err(SealedError::Kind("the memfd is too small"));
        }
        Sealed::map(fd, bytes)
    }

    fn map(fd: OwnedFd, bytes: usize) -> Result<Sealed, SealedError> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address the kernel chooses.
        let base = unsafe { mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, &fd, 0) }
            .map_err(failed("mmap"))?;
        let base = NonNull::new(base.cast()).ok_or(SealedError::Os("mmap", Errno::FAULT))?;
        Ok(Sealed { base, bytes, fd })
    }

    /// Returns the address of the first byte, at a page boundary. The address is valid while `self` lives.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the memfd.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        // SAFETY: unmaps the mapping of `map`; when the owner drops this, it has no pointer into
        // the mapping left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

fn failed(call: &'static str) -> impl Fn(Errno) -> SealedError {
    move |errno| SealedError::Os(call, errno)
}
