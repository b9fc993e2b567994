// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reasons of waits: by the system call in which it does, and by the object behind the call's descriptor.

/// Thing for which a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum WaitReason {
    /// A time: nothing but a clock was waited for, or a limit that nothing came before.
    Timer,
    /// A condition variable (futex), a lock that cannot be told from one, or a semaphore: mostly for what another thread makes.
    Lock,
    /// A lock that another thread has.
    Mutex,
    Socket,
    Pipe,
    File,
    Device,
    Terminal,
    /// A counter with which threads wake up one another.
    EventFd,
    /// Changes in a folder, signals as a descriptor, and other descriptors of the kernel.
    Descriptor,
    /// Several objects of different kinds, or such that are not known, at once.
    Poll,
    Child,
    Signal,
    Ioctl,
    IoUring,
    /// A page that was not in memory.
    Fault,
    /// The kernel makes room, because the memory limit of the group or the memory of the machine is used up.
    Reclaim,
    /// A change of the process's memory map: another thread changes it, too.
    MemoryMap,
    /// Another system call.
    Other,
    /// The level of the recording does not show the reason.
    Unknown,
}

impl WaitReason {
    /// Returns the name of what the thread waited for.
    pub(crate) fn name(self) -> &'static str {
        match self {
            WaitReason::Timer => "timer",
            WaitReason::Lock | WaitReason::Mutex => "lock",
            WaitReason::Socket => "socket",
            WaitReason::Pipe => "pipe",
            WaitReason::File => "file",
            WaitReason::Device => "device",
            WaitReason::Terminal => "terminal",
            WaitReason::EventFd => "eventfd",
            WaitReason::Descriptor => "descriptor",
            WaitReason::Poll => "poll",
            WaitReason::Child => "child",
            WaitReason::Signal => "signal",
            WaitReason::Ioctl => "ioctl",
            WaitReason::IoUring => "io_uring",
            WaitReason::Fault => "page fault",
            WaitReason::Reclaim => "memory limit",
            WaitReason::MemoryMap => "memory map",
            WaitReason::Other => "other",
            WaitReason::Unknown => "unknown",
        }
    }

    /// True for a wait that another thread of the traced programs can have ended itself, so that the waker says something. The
    /// waker of other waits may be any thread that an interrupt met: a timer's, a disk's, a network's.
    pub(crate) fn has_waker(self) -> bool {
        matches!(
            self,
            WaitReason::Lock
                | WaitReason::Mutex
                | WaitReason::Pipe
                | WaitReason::EventFd
                | WaitReason::Poll
                | WaitReason::Socket
        )
    }

    /// True for a wait that is not for what another thread of the process makes: a thread that keeps a frame meanwhile is held
    /// up.
    pub(crate) fn is_outside(self) -> bool {
        !matches!(self, WaitReason::Lock | WaitReason::EventFd | WaitReason::Poll | WaitReason::Unknown)
    }
}

/// Thing that a system call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitCall {
    /// This, whatever the arguments are.
    For(WaitReason),
    /// The object behind the descriptor that is the first argument; `true` if the call writes.
    Object(WaitReason, bool),
    /// One of the objects of an array of struct pollfd.
    Poll,
    /// One of the objects of sets of bits.
    Select,
}

impl WaitCall {
    /// Returns what the system call `number` waits for; negative outside of calls.
    pub(crate) fn of(number: i64) -> WaitCall {
        use WaitCall::{For, Object};
        match number {
            libc::SYS_nanosleep | libc::SYS_clock_nanosleep => For(WaitReason::Timer),
            libc::SYS_futex | libc::SYS_futex_waitv | libc::SYS_semop | libc::SYS_semtimedop => {
                For(WaitReason::Lock)
            }
            libc::SYS_read
            | libc::SYS_pread64
            | libc::SYS_readv
            | libc::SYS_preadv
            | libc::SYS_preadv2
            | libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_recvmmsg
            | libc::SYS_accept
            | libc::SYS_accept4
            | libc::SYS_splice
            | libc::SYS_getdents64 => Object(WaitReason::File, false),
            libc::SYS_write
            | libc::SYS_pwrite64
            | libc::SYS_writev
            | libc::SYS_pwritev
            | libc::SYS_pwritev2
            | libc::SYS_connect
            | libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_sendmmsg
            | libc::SYS_fsync
            | libc::SYS_fdatasync
            | libc::SYS_sync_file_range
            | libc::SYS_fallocate
            | libc::SYS_ftruncate
            | libc::SYS_flock
            | libc::SYS_fcntl
            | libc::SYS_sendfile => Object(WaitReason::File, true),
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => Object(WaitReason::Poll, false),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => Object(WaitReason::Poll, false),
            libc::SYS_ppoll => WaitCall::Poll,
            libc::SYS_pselect6 => WaitCall::Select,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => WaitCall::Poll,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => WaitCall::Select,
            libc::SYS_wait4 | libc::SYS_waitid => For(WaitReason::Child),
            libc::SYS_rt_sigtimedwait | libc::SYS_rt_sigsuspend => For(WaitReason::Signal),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_pause => For(WaitReason::Signal),
            libc::SYS_ioctl => Object(WaitReason::Ioctl, false),
            libc::SYS_io_uring_enter => For(WaitReason::IoUring),
            libc::SYS_openat
            | libc::SYS_newfstatat
            | libc::SYS_statx
            | libc::SYS_close
            | libc::SYS_unlinkat
            | libc::SYS_faccessat
            | libc::SYS_sync => For(WaitReason::File),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open | libc::SYS_stat | libc::SYS_access | libc::SYS_unlink => For(WaitReason::File),
            libc::SYS_mmap
            | libc::SYS_munmap
            | libc::SYS_mprotect
            | libc::SYS_madvise
            | libc::SYS_mremap
            | libc::SYS_brk => For(WaitReason::MemoryMap),
            ..0 => For(WaitReason::Fault),
            _ => For(WaitReason::Other),
        }
    }
}
