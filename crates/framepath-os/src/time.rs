// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clocks: CLOCK_MONOTONIC for every stamp, the thread's CPU clock for work.

use std::mem::MaybeUninit;
#[cfg(not(loom))]
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Returns CLOCK_MONOTONIC in nanoseconds. On common clock sources the vDSO answers, without a
/// system call. Any thread.
#[inline]
pub fn now_ns() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// Returns the CPU time used by this thread, nanoseconds. One system call.
pub fn thread_cpu_ns() -> u64 {
    nanos(clock_gettime(ClockId::ThreadCPUTime))
}

/// CPU clock of one thread of this process. Any thread of the process may read the clock.
#[cfg(not(loom))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadClock(libc::clockid_t);

#[cfg(not(loom))]
impl ThreadClock {
    /// Returns the clock of the calling thread.
    pub fn current() -> ThreadClock {
        ThreadClock::of(rustix::thread::gettid().as_raw_nonzero().get())
    }

    /// Returns the clock of the thread of this process with the id `id`, as `gettid` returns it. The clock of
    /// any other id cannot be read.
    pub fn of(id: i32) -> ThreadClock {
        // linux/posix-timers_types.h: the complement of the id, shifted by three, 4 for a thread and 2
        // for scheduled time.
        ThreadClock((!id << 3) | 4 | 2)
    }

    /// Returns the id of the thread.
    pub fn id(self) -> i32 {
        !(self.0 >> 3)
    }

    /// Returns the CPU time of the thread, nanoseconds; `None` if it has ended, or if the id is of no thread
    /// of this process. One system call.
    pub fn read(self) -> Option<u64> {
        read_clock(self.0)
    }
}

/// Returns the CPU time used by all threads of this process, nanoseconds.
pub fn process_cpu_ns() -> u64 {
    nanos(clock_gettime(ClockId::ProcessCPUTime))
}

/// Sleeps until CLOCK_MONOTONIC reads `deadline_ns` (nanoseconds), or a signal arrives.
///
/// Returns immediately if the deadline has passed.
pub fn sleep_until(deadline_ns: u64) {
    let deadline = libc::timespec {
        tv_sec: (deadline_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (deadline_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `deadline` outlives the call; a null remainder is allowed with
    // TIMER_ABSTIME.
    unsafe {
        libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &deadline, std::ptr::null_mut());
    }
}

/// Returns the CPU time of all threads of the process `pid` (0: this process), nanoseconds; `None` if there
/// is no such process. One system call.
pub fn cpu_ns_of(pid: u32) -> Option<u64> {
    // linux/posix-timers_types.h: the complement of the id, shifted by three,
    // and 2 for scheduled time.
    read_clock((!(pid as libc::clockid_t) << 3) | 2)
}

fn read_clock(id: libc::clockid_t) -> Option<u64> {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: any clock may be asked for; the structure is ours.
    let refused = unsafe { libc::clock_gettime(id, time.as_mut_ptr()) } != 0;
    // SAFETY: zeroed is a valid timespec.
    let time = unsafe { time.assume_init() };
    (!refused).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Converts a time limit for system calls. A limit that is too long for the result becomes the longest
/// possible.
#[cfg(not(loom))]
pub(crate) fn timespec(limit: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    }
}

fn nanos(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
