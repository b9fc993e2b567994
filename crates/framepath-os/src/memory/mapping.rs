// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of a pool: a sealed memfd of this process, memory that another process provides for
//! writing, or another process's memfd that is mapped read-only; anonymous memory in a process that may
//! not create files. Under loom and Miri, zeroed heap pages take the place of all of these.

use std::ptr::NonNull;

use rustix::io::Errno;

#[cfg(any(loom, miri))]
pub(crate) use heap::{Mapping, ReadOnly};
#[cfg(not(any(loom, miri)))]
pub(crate) use memfd::{MapError, Mapping, ReadOnly, read_only};

/// Returns true if `memfd` is on tmpfs, as a memfd with ordinary pages is. Huge pages come from a reserve that
/// can be empty at a page fault, which causes SIGBUS. Fails if fstatfs(2) fails.
#[cfg(not(loom))]
pub(crate) fn has_ordinary_pages(memfd: &std::os::fd::OwnedFd) -> Result<bool, Errno> {
    /// File system type of a memfd with ordinary pages, from linux/magic.h.
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    Ok(rustix::fs::fstatfs(memfd)?.f_type as u64 == TMPFS_MAGIC)
}

#[cfg(not(any(loom, miri)))]
mod memfd {
    use super::*;
    use std::ffi::c_void;
    use std::io;
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
    use std::ptr;

    use crate::memory::pool::PoolError;
    use rustix::fs::{
        MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fcntl_getfl, fstat, ftruncate,
        memfd_create, open,
    };
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

    const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

    /// Range of addresses of this process; unmapped when dropped.
    #[derive(Debug)]
    struct Span {
        base: NonNull<u8>,
        bytes: usize,
    }

    impl Span {
        /// Reserves `bytes` bytes of addresses, which cannot be accessed until they are mapped again.
        fn reserved(bytes: usize) -> Result<Span, (&'static str, Errno)> {
            Span::anonymous(bytes, ProtFlags::empty())
        }

        /// Maps `bytes` zeroed bytes of private memory with the rights `access`.
        fn anonymous(bytes: usize, access: ProtFlags) -> Result<Span, (&'static str, Errno)> {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            // SAFETY: a new mapping at an address the kernel chooses.
            let base = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, flags) };
            Span::of(base.map_err(|errno| ("mmap", errno))?, bytes)
        }

        fn of(base: *mut c_void, bytes: usize) -> Result<Span, (&'static str, Errno)> {
            Ok(Span { base: NonNull::new(base.cast()).ok_or(("mmap", Errno::FAULT))?, bytes })
        }

        /// Requests transparent huge pages for a range of at least 2 MiB, for fewer TLB misses and faults;
        /// does nothing for a smaller range. Ignores a failure, because nothing else depends on it.
        fn prefer_huge_pages(&self) {
            if self.bytes >= 2 << 20 {
                // SAFETY: the range is this mapping.
                let _ = unsafe { madvise(self.base.as_ptr().cast(), self.bytes, Advice::LinuxHugepage) };
            }
        }
    }

    impl Drop for Span {
        fn drop(&mut self) {
            // SAFETY: unmaps this range; when the owner drops it, it has no pointer into the
            // range left.
            let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        }
    }

    /// Memory of a pool, mapped readable and writable; it begins at a page boundary.
    #[derive(Debug)]
    pub(crate) struct Mapping {
        span: Span,
        /// Memfd of the memory; `None` if another process made the memory, or for anonymous memory.
        fd: Option<OwnedFd>,
        /// True if the memory is a memfd that is sealed (F_SEAL_FUTURE_WRITE) so that no further writable
        /// mapping can be made. In granted memory, the other process may have an older one.
        only_writer: bool,
        /// Number under which another process granted the memory; `None` for other memory.
        granted: Option<u32>,
    }

    impl Mapping {
        /// Makes a memfd of `bytes` bytes (at least 1), maps it, and seals it against a change of its size.
        /// With `only_writer`, no process can write through the memfd, or map it writable, from then on.
        /// Without `only_writer`, a process that may not create files gets anonymous memory; with
        /// `only_writer`, the call fails in such a process. The error names the call that failed.
        pub(crate) fn new(bytes: usize, only_writer: bool) -> Result<Mapping, (&'static str, Errno)> {
            let failed = |call| move |errno| (call, errno);
            let made = memfd_create("framepath-pool", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
            let fd = match made {
                // A worker may not create files. A pool that no other process reads needs none.
                Err(Errno::PERM) if !only_writer => {
                    let span = Span::anonymous(bytes, READ_WRITE)?;
                    return Ok(Mapping { span, fd: None, only_writer: false, granted: None });
                }
                made => made.map_err(failed("memfd_create"))?,
            };
            ftruncate(&fd, bytes as u64).map_err(failed("ftruncate"))?;
            crate::memory::commit::reserve(&fd, bytes as u64)?;
            // SAFETY: a new mapping at an address the kernel chooses.
            let base = unsafe { mmap(ptr::null_mut(), bytes, READ_WRITE, MapFlags::SHARED, &fd, 0) };
            let span = Span::of(base.map_err(failed("mmap"))?, bytes)?;
            let mut seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
            if only_writer {
                // Added only now, because the seal would have forbidden the mapping above.
                seals |= SealFlags::FUTURE_WRITE;
            }
            fcntl_add_seals(&fd, seals).map_err(failed("fcntl(F_ADD_SEALS)"))?;
            span.prefer_huge_pages();
            Ok(Mapping { span, fd: Some(fd), only_writer, granted: None })
        }

        /// Maps `count` buffers of another process one after the other, `each` bytes of each
        /// buffer: whole pages, at least one. `buffer` returns the buffer with an index; the descriptor is
        /// closed after mapping. Other processes that have a buffer may write it, too. Fails if `buffer`
        /// fails, if a buffer is smaller than `each` bytes, or if a system call fails.
        pub(crate) fn map_buffers(
            count: u32,
            each: usize,
            mut buffer: impl FnMut(u32) -> Result<OwnedFd, PoolError>,
        ) -> Result<Mapping, PoolError> {
            let bytes = each.saturating_mul(count as usize);
            let failed = |(call, errno)| PoolError::Os { call, bytes, errno };
            let span = Span::reserved(bytes).map_err(failed)?;
            for index in 0..count {
                let buffer = buffer(index)?;
                // mmap(2) maps a memfd beyond its end without an error; an access to that part
                // faults.
                let size = fstat(&buffer).map_err(|errno| failed(("fstat", errno)))?.st_size;
                if u64::try_from(size).unwrap_or(0) < each as u64 {
                    return Err(failed(("mmap", Errno::OVERFLOW)));
                }
                // SAFETY: inside the span reserved above, which no code uses yet: count * each
                // bytes.
                unsafe {
                    let at = span.base.as_ptr().add(index as usize * each);
                    mmap(at.cast(), each, READ_WRITE, MapFlags::SHARED | MapFlags::FIXED, &buffer, 0)
                }
                .map_err(|errno| failed(("mmap", errno)))?;
            }
            Ok(Mapping { span, fd: None, only_writer: false, granted: None })
        }

        /// Maps the first `bytes` bytes, at least 1, of memory that another process granted under
        /// `number`. Seals the memory so that no further writable mapping can be made; writable mappings
        /// that exist stay. Closes the descriptor, so that a process with few descriptors can have many
        /// pools. Fails if the memory is not a memfd of ordinary pages and fixed size, cannot get further
        /// seals, or is smaller than `bytes`, or if a system call fails.
        pub(crate) fn map_granted(
            fd: OwnedFd,
            number: u32,
            bytes: usize,
        ) -> Result<Mapping, (&'static str, Errno)> {
            let failed = |call| move |errno| (call, errno);
            // Fails for a file that cannot have seals. An access to a memfd that can shrink could end in
            // SIGBUS.
            let seals = fcntl_get_seals(&fd).map_err(failed("fcntl(F_GET_SEALS)"))?;
            let fixed = seals.contains(SealFlags::SHRINK | SealFlags::GROW);
            if !fixed || !has_ordinary_pages(&fd).map_err(failed("fstatfs"))? {
                return Err(("fcntl(F_GET_SEALS)", Errno::INVAL));
            }
            let size = fstat(&fd).map_err(failed("fstat"))?.st_size;
            if u64::try_from(size).unwrap_or(0) < bytes as u64 {
                return Err(("fstat", Errno::OVERFLOW));
            }
            // SAFETY: a new mapping at an address the kernel chooses.
            let base = unsafe { mmap(ptr::null_mut(), bytes, READ_WRITE, MapFlags::SHARED, &fd, 0) };
            let span = Span::of(base.map_err(failed("mmap"))?, bytes)?;
            fcntl_add_seals(&fd, SealFlags::FUTURE_WRITE | SealFlags::SEAL)
                .map_err(failed("fcntl(F_ADD_SEALS)"))?;
            span.prefer_huge_pages();
            Ok(Mapping { span, fd: None, only_writer: true, granted: Some(number) })
        }

        /// Returns the number under which another process granted the memory; `None` for other memory.
        pub(crate) fn granted(&self) -> Option<u32> {
            self.granted
        }

        /// Returns the address of the first byte, valid as long as `self` lives.
        #[inline]
        pub(crate) fn base(&self) -> NonNull<u8> {
            self.span.base
        }

        /// Returns the memfd, sealed against a change of its size; `None` if another process made the
        /// memory, or for anonymous memory.
        pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
            self.fd.as_ref().map(AsFd::as_fd)
        }

        /// Returns a descriptor with which other processes can read the memory: a copy of the memfd's
        /// descriptor if a seal prevents writing, otherwise a new read-only one (opened through /proc).
        /// `Unsupported` if this process has no memfd of the memory ([`Mapping::fd`]).
        pub(crate) fn read_only_fd(&self) -> io::Result<OwnedFd> {
            let fd = self.fd.as_ref().ok_or(io::ErrorKind::Unsupported)?;
            if self.only_writer {
                return fd.try_clone();
            }
            read_only(fd.as_fd())
        }
    }

    /// Opens the file of `fd` again, for reading only (through /proc).
    pub(crate) fn read_only(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        Ok(open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Reason why another process's memory is not mapped.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum MapError {
        /// The memory is not a memfd of ordinary pages and fixed size, or it has neither the seal
        /// F_SEAL_FUTURE_WRITE nor a read-only descriptor. Contains a description.
        Kind(&'static str),
        /// The memory is smaller than expected; its size in bytes.
        Short(u64),
        /// A system call failed: its name and the kernel's error.
        Os(&'static str, Errno),
    }

    /// Another process's memory, mapped read-only, or zeroes in its place ([`ReadOnly::blank`]). The other
    /// process may change its memory at any time.
    #[derive(Debug)]
    pub(crate) struct ReadOnly {
        span: Span,
        /// Memfd of the memory; `None` after it was closed, and for blank memory.
        fd: Option<OwnedFd>,
    }

    // SAFETY: owns a mapping that is not tied to a thread.
    unsafe impl Send for ReadOnly {}
    // SAFETY: the type only provides a raw pointer; its users are responsible for it.
    unsafe impl Sync for ReadOnly {}

    impl ReadOnly {
        /// Maps the first `bytes` bytes (at least 1) of a memfd made by another process. Fails if `fd` is no
        /// memfd, can change its size, has huge pages or is smaller than `bytes`, if it has neither the seal
        /// F_SEAL_FUTURE_WRITE nor a read-only descriptor, or if a system call fails.
        pub(crate) fn new(fd: OwnedFd, bytes: usize) -> Result<ReadOnly, MapError> {
            let failed = |call| move |errno| MapError::Os(call, errno);
            // Fails for a file that cannot have seals. An access to a memfd that can shrink could end in
            // SIGBUS.
            let seals = fcntl_get_seals(&fd).map_err(|_| MapError::Kind("not a memfd"))?;
            if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
                return Err(MapError::Kind("not sealed against a change of its size"));
            }
            let access = fcntl_getfl(&fd).map_err(failed("fcntl(F_GETFL)"))?;
            if !seals.contains(SealFlags::FUTURE_WRITE) && access & OFlags::RWMODE != OFlags::RDONLY {
                return Err(MapError::Kind("neither sealed against writing nor opened read-only"));
            }
            if !has_ordinary_pages(&fd).map_err(failed("fstatfs"))? {
                return Err(MapError::Kind("made of huge pages"));
            }
            let size = fstat(&fd).map_err(failed("fstat"))?.st_size;
            let size = u64::try_from(size).unwrap_or(0);
            if size < bytes as u64 {
                return Err(MapError::Short(size));
            }
            // SAFETY: a new mapping at an address the kernel chooses.
            let base = unsafe { mmap(ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, &fd, 0) };
            let span = Span::of(base.map_err(failed("mmap"))?, bytes).map_err(|(c, e)| MapError::Os(c, e))?;
            Ok(ReadOnly { span, fd: Some(fd) })
        }

        /// Makes `bytes` bytes that read as 0, as a substitute for memory that this process
        /// should not see.
        pub(crate) fn blank(bytes: usize) -> Result<ReadOnly, MapError> {
            let span = Span::anonymous(bytes, ProtFlags::READ).map_err(|(c, e)| MapError::Os(c, e))?;
            Ok(ReadOnly { span, fd: None })
        }

        /// Closes the descriptor. The memory stays mapped, but [`ReadOnly::read_only_fd`] fails from now
        /// on.
        pub(crate) fn close(&mut self) {
            self.fd = None;
        }

        /// Returns the address of the first byte, valid as long as `self` lives.
        pub(crate) fn base(&self) -> NonNull<u8> {
            self.span.base
        }

        /// Returns a descriptor of the memory for other processes, with no more rights than this process
        /// has. `Unsupported` if the descriptor was closed, or for blank memory.
        pub(crate) fn read_only_fd(&self) -> io::Result<OwnedFd> {
            self.fd.as_ref().ok_or(io::ErrorKind::Unsupported)?.try_clone()
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
        pub(crate) fn new(bytes: usize, _only_writer: bool) -> Result<Mapping, (&'static str, Errno)> {
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

    /// Zeroed heap memory that takes the place of another process's memory under the model checkers.
    #[derive(Debug)]
    pub(crate) struct ReadOnly(Mapping);

    // SAFETY: owns memory that is not tied to a thread.
    unsafe impl Send for ReadOnly {}
    // SAFETY: the type only provides a raw pointer; its users are responsible for it.
    unsafe impl Sync for ReadOnly {}

    impl ReadOnly {
        #[cfg(all(test, not(loom)))]
        pub(crate) fn zeroed(bytes: usize) -> ReadOnly {
            ReadOnly(Mapping::new(bytes, false).expect("memory"))
        }

        pub(crate) fn base(&self) -> NonNull<u8> {
            self.0.base()
        }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    #[test]
    fn files_in_memory_have_ordinary_pages_and_others_not() {
        assert_eq!(has_ordinary_pages(&crate::memory::memory_file("pages").unwrap().into()), Ok(true));
        let other = std::fs::File::open("/proc/self/stat").unwrap();
        assert_eq!(has_ordinary_pages(&other.into()), Ok(false));
    }
}
