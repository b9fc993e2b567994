// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls of a decoder on aarch64.

use crate::process::sandbox::policy::condition::*;
use crate::process::sandbox::policy::{When, table};

table! {
    /// System calls allowed in [`crate::process::sandbox::SandboxRole::Decode`] and
    /// [`crate::process::sandbox::SandboxRole::Plugin`]. The other roles add calls and replace some rules.
    DECODE on "aarch64":
    // Memory that is not executable.
    SYS_mmap = 222 if NOT_EXECUTABLE,
    SYS_mprotect = 226 if NOT_EXECUTABLE,
    SYS_munmap = 215,
    SYS_mremap = 216,
    SYS_madvise = 233 if OWN_PAGES,
    SYS_brk = 214,
    // Threads of this process. clone3 fails with ENOSYS, because its flags are in memory, where a
    // filter cannot check them; glibc then calls clone.
    SYS_clone = 220 if THREAD_ONLY,
    SYS_clone3 = 435 if When::Absent,
    SYS_set_robust_list = 99,
    SYS_rseq = 293,
    SYS_futex = 98 if NO_SLEEPER_MOVED,
    SYS_futex_waitv = 449,
    SYS_membarrier = 283,
    SYS_sched_yield = 124,
    SYS_sched_getaffinity = 123,
    SYS_getcpu = 168,
    SYS_prctl = 167 if NAME_AND_RECORDS,
    // Files that the worker has or receives: memfds, sockets, pipes. The worker can neither open
    // nor create a file.
    SYS_read = 63,
    SYS_write = 64,
    SYS_readv = 65,
    SYS_writev = 66,
    SYS_pread64 = 67,
    SYS_pwrite64 = 68,
    SYS_lseek = 62,
    SYS_fstat = 80,
    SYS_fstatfs = 44,
    SYS_close = 57,
    SYS_fcntl = 25 if FD_AND_SEALS,
    // The socket to the parent. No sendmsg: the kernel limits the unread descriptors of a user, so a
    // worker that could send descriptors could block all other workers of its user.
    SYS_recvmsg = 212,
    SYS_sendto = 206 if NO_ADDRESS,
    SYS_recvfrom = 207,
    SYS_shutdown = 210,
    SYS_ppoll = 73,
    // Time, random numbers, and queries about the process itself.
    SYS_clock_gettime = 113,
    SYS_clock_getres = 114,
    SYS_clock_nanosleep = 115,
    SYS_nanosleep = 101,
    SYS_gettimeofday = 169,
    SYS_getrandom = 278,
    SYS_getpid = 172,
    SYS_gettid = 178,
    SYS_getrusage = 165,
    // Signals: the process's own handlers, and abort(3), which sends a signal to itself.
    SYS_rt_sigaction = 134,
    SYS_rt_sigprocmask = 135,
    SYS_rt_sigreturn = 139,
    SYS_sigaltstack = 132,
    SYS_tgkill = 131 if When::OwnPid(0),
    SYS_restart_syscall = 128,
    // Exit.
    SYS_exit = 93,
    SYS_exit_group = 94,
}

table! {
    /// System calls allowed in [`crate::process::sandbox::SandboxRole::DecodeByDevice`], in
    /// addition to those of `DECODE`.
    BY_DEVICE on "aarch64":
    SYS_ioctl = 29 if OF_DECODING,
}
