// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls of a decoder on x86_64.

use crate::process::sandbox::policy::condition::*;
use crate::process::sandbox::policy::{When, table};

table! {
    /// System calls allowed in [`crate::process::sandbox::SandboxRole::Decode`] and
    /// [`crate::process::sandbox::SandboxRole::Plugin`]. The other roles add calls and replace some rules.
    DECODE on "x86_64":
    // Memory that is not executable.
    SYS_mmap = 9 if NOT_EXECUTABLE,
    SYS_mprotect = 10 if NOT_EXECUTABLE,
    SYS_munmap = 11,
    SYS_mremap = 25,
    SYS_madvise = 28 if OWN_PAGES,
    SYS_brk = 12,
    // Threads of this process. clone3 fails with ENOSYS, because its flags are in memory, where a
    // filter cannot check them; glibc then calls clone.
    SYS_clone = 56 if THREAD_ONLY,
    SYS_clone3 = 435 if When::Absent,
    SYS_set_robust_list = 273,
    SYS_rseq = 334,
    SYS_futex = 202 if NO_SLEEPER_MOVED,
    SYS_futex_waitv = 449,
    SYS_membarrier = 324,
    SYS_sched_yield = 24,
    SYS_sched_getaffinity = 204,
    SYS_getcpu = 309,
    SYS_prctl = 157 if NAME_AND_RECORDS,
    // Files that the worker has or receives: memfds, sockets, pipes. The worker can neither open
    // nor create a file.
    SYS_read = 0,
    SYS_write = 1,
    SYS_readv = 19,
    SYS_writev = 20,
    SYS_pread64 = 17,
    SYS_pwrite64 = 18,
    SYS_lseek = 8,
    SYS_fstat = 5,
    SYS_fstatfs = 138,
    SYS_close = 3,
    SYS_fcntl = 72 if FD_AND_SEALS,
    // The socket to the parent. No sendmsg: the kernel limits the unread descriptors of a user, so a
    // worker that could send descriptors could block all other workers of its user.
    SYS_recvmsg = 47,
    SYS_sendto = 44 if NO_ADDRESS,
    SYS_recvfrom = 45,
    SYS_shutdown = 48,
    SYS_poll = 7,
    SYS_ppoll = 271,
    // Time, random numbers, and queries about the process itself.
    SYS_clock_gettime = 228,
    SYS_clock_getres = 229,
    SYS_clock_nanosleep = 230,
    SYS_nanosleep = 35,
    SYS_gettimeofday = 96,
    SYS_time = 201,
    SYS_getrandom = 318,
    SYS_getpid = 39,
    SYS_gettid = 186,
    SYS_getrusage = 98,
    // Signals: the process's own handlers, and abort(3), which sends a signal to itself.
    SYS_rt_sigaction = 13,
    SYS_rt_sigprocmask = 14,
    SYS_rt_sigreturn = 15,
    SYS_sigaltstack = 131,
    SYS_tgkill = 234 if When::OwnPid(0),
    SYS_restart_syscall = 219,
    // Exit.
    SYS_exit = 60,
    SYS_exit_group = 231,
}

table! {
    /// System calls allowed in [`crate::process::sandbox::SandboxRole::DecodeByDevice`], in
    /// addition to those of `DECODE`.
    BY_DEVICE on "x86_64":
    SYS_ioctl = 16 if OF_DECODING,
}
