// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reservation of memory for memfds.
//!
//! The kernel allocates the pages of a memfd on first access, even by a reader. With
//! `vm.overcommit_memory=2` the kernel may then have no memory left, and the process that accesses the
//! page dies of SIGBUS. In this mode only, all pages of the memfd of a pool or of memory for another process
//! are allocated when the memfd is made, and a lack of memory is an error.

use std::os::fd::AsFd;

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};
use rustix::io::Errno;

/// Allocates all pages of a memfd of `bytes` bytes if `vm.overcommit_memory` is 2; does nothing if it has
/// another value or cannot be read.
///
/// # Errors
/// There is not enough memory, or fallocate(2) fails for another reason. The error contains the name of the
/// call and the kernel's error.
pub(crate) fn reserve(memfd: impl AsFd, bytes: u64) -> Result<(), (&'static str, Errno)> {
    if is_strict(&std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap_or_default()) {
        take(memfd, bytes)?;
    }
    Ok(())
}

/// Returns true if `overcommit`, the text of vm.overcommit_memory, is `2` (white space around it does not
/// count). In this mode the first access to a page can fail.
fn is_strict(overcommit: &str) -> bool {
    overcommit.trim() == "2"
}

/// Allocates all pages of a memfd of `bytes` bytes, in every mode. The error contains the name of the call
/// and the kernel's error.
fn take(memfd: impl AsFd, bytes: u64) -> Result<(), (&'static str, Errno)> {
    loop {
        match fallocate(&memfd, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::INTR) => {}
            other => return other.map_err(|errno| ("fallocate", errno)),
        }
    }
}

/// Makes memory in which another process makes a pool
/// ([`GrantedMemory`](crate::memory::pool::GrantedMemory)): a memfd of `bytes` zeroed bytes, at least 1, sealed
/// against a change of its size, to which further seals can be added.
///
/// # Errors
/// The name of the failed call and its error.
pub fn grant(bytes: u64) -> Result<std::os::fd::OwnedFd, (&'static str, Errno)> {
    let failed = |call| move |errno| (call, errno);
    let fd = memfd_create("framepath-pool", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(failed("memfd_create"))?;
    ftruncate(&fd, bytes).map_err(failed("ftruncate"))?;
    reserve(&fd, bytes)?;
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW).map_err(failed("fcntl(F_ADD_SEALS)"))?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mode_2_lets_a_first_touch_fail() {
        assert_eq!(["0\n", "1\n", "2\n", "", "22"].map(is_strict), [false, false, true, false, false]);
    }

    #[test]
    fn memory_that_was_taken_has_all_its_pages() {
        let file = crate::memory::memory_file("taken").unwrap();
        file.set_len(1 << 20).unwrap();
        let taken = || rustix::fs::fstat(&file).unwrap().st_blocks * 512;
        assert_eq!(taken(), 0);
        take(&file, 1 << 20).unwrap();
        assert_eq!(taken(), 1 << 20);
    }
}
