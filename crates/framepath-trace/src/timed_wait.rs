// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls that wait until something happens, at most until a time.
//!
//! Source: the manual pages futex(2), poll(2), select(2), epoll_wait(2), semop(2) and sigwaitinfo(2), and linux/futex.h.

/// How a system call has its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitKind {
    /// As a number.
    Milliseconds,
    /// In a struct timespec.
    Nanoseconds,
    /// In a struct timeval.
    Microseconds,
    /// In a struct timespec: a duration, or a time, as the operation of the futex says, which is the second argument.
    Futex,
    /// In a struct timespec: a time of CLOCK_MONOTONIC.
    Time,
    /// In a struct timespec: a duration, or a time, as the flags say, which are the second argument.
    Sleep,
}

/// System call that has a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimedWait {
    /// Its number.
    pub(crate) number: i64,
    /// Place of the limit in the list of its arguments, from 0 on.
    pub(crate) place: usize,
    pub(crate) limit: LimitKind,
}

const fn wait(number: i64, place: usize, limit: LimitKind) -> TimedWait {
    TimedWait { number, place, limit }
}

/// All of them.
#[cfg(target_arch = "x86_64")]
pub(crate) const TIMED_WAITS: [TimedWait; 13] = [
    wait(libc::SYS_nanosleep, 0, LimitKind::Nanoseconds),
    wait(libc::SYS_clock_nanosleep, 2, LimitKind::Sleep),
    wait(libc::SYS_futex, 3, LimitKind::Futex),
    wait(libc::SYS_poll, 2, LimitKind::Milliseconds),
    wait(libc::SYS_ppoll, 2, LimitKind::Nanoseconds),
    wait(libc::SYS_epoll_wait, 3, LimitKind::Milliseconds),
    wait(libc::SYS_epoll_pwait, 3, LimitKind::Milliseconds),
    wait(libc::SYS_select, 4, LimitKind::Microseconds),
    wait(libc::SYS_pselect6, 4, LimitKind::Nanoseconds),
    wait(libc::SYS_epoll_pwait2, 3, LimitKind::Nanoseconds),
    wait(libc::SYS_semtimedop, 3, LimitKind::Nanoseconds),
    wait(libc::SYS_rt_sigtimedwait, 2, LimitKind::Nanoseconds),
    wait(libc::SYS_futex_waitv, 3, LimitKind::Time),
];
#[cfg(target_arch = "aarch64")]
pub(crate) const TIMED_WAITS: [TimedWait; 10] = [
    wait(libc::SYS_nanosleep, 0, LimitKind::Nanoseconds),
    wait(libc::SYS_clock_nanosleep, 2, LimitKind::Sleep),
    wait(libc::SYS_futex, 3, LimitKind::Futex),
    wait(libc::SYS_ppoll, 2, LimitKind::Nanoseconds),
    wait(libc::SYS_epoll_pwait, 3, LimitKind::Milliseconds),
    wait(libc::SYS_pselect6, 4, LimitKind::Nanoseconds),
    wait(libc::SYS_epoll_pwait2, 3, LimitKind::Nanoseconds),
    wait(libc::SYS_semtimedop, 3, LimitKind::Nanoseconds),
    wait(libc::SYS_rt_sigtimedwait, 2, LimitKind::Nanoseconds),
    wait(libc::SYS_futex_waitv, 3, LimitKind::Time),
];

/// Flag of clock_nanosleep(2).
const TIMER_ABSTIME: u64 = 1;

/// Operations of a futex that wait, and the flag that the time is that of CLOCK_REALTIME.
const FUTEX_WAIT: u64 = 0;
const FUTEX_WAIT_BITSET: u64 = 9;
const FUTEX_PRIVATE: u64 = 128;
const FUTEX_REALTIME: u64 = 256;

/// Returns the time at which a wait ends that began at `at_ns` and that nothing else ended; `None` if it has no limit.
/// `operation` is the second argument of the call `number`, `limit` the argument with the limit, `words` are what is at that
/// address. All times are CLOCK_MONOTONIC; CLOCK_REALTIME is ahead of that by `ahead_ns`.
pub(crate) fn limit_ns(
    at_ns: u64,
    number: i64,
    [operation, limit]: [u64; 2],
    words: [u64; 2],
    ahead_ns: u64,
) -> Option<u64> {
    let wait = TIMED_WAITS.iter().find(|wait| wait.number == number)?;
    let has_address = wait.limit != LimitKind::Milliseconds;
    if has_address && limit == 0 {
        return None;
    }
    let time_ns =
        |unit_ns: u64| words[0].checked_mul(1_000_000_000)?.checked_add(words[1].checked_mul(unit_ns)?);
    match wait.limit {
        // -1 is without a limit.
        LimitKind::Milliseconds => {
            let limit = u64::try_from(limit as i32).ok()?;
            at_ns.checked_add(limit * 1_000_000)
        }
        LimitKind::Nanoseconds => at_ns.checked_add(time_ns(1)?),
        LimitKind::Microseconds => at_ns.checked_add(time_ns(1000)?),
        LimitKind::Time => time_ns(1),
        LimitKind::Sleep if operation & TIMER_ABSTIME != 0 => time_ns(1),
        LimitKind::Sleep => at_ns.checked_add(time_ns(1)?),
        LimitKind::Futex => match operation & !FUTEX_PRIVATE {
            FUTEX_WAIT => at_ns.checked_add(time_ns(1)?),
            FUTEX_WAIT_BITSET => time_ns(1),
            operation if operation == FUTEX_WAIT_BITSET | FUTEX_REALTIME => time_ns(1)?.checked_sub(ahead_ns),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_time_or_a_duration_or_none() {
        let of = |number, operation, limit, words| {
            limit_ns(5_000_000_000, number, [operation, limit], words, 1000)
        };
        let futex = |operation, limit| of(libc::SYS_futex, operation, limit, [6, 7]);
        assert_eq!(futex(FUTEX_WAIT_BITSET | FUTEX_PRIVATE, 8), Some(6_000_000_007));
        assert_eq!(futex(FUTEX_WAIT_BITSET | FUTEX_PRIVATE | FUTEX_REALTIME, 8), Some(5_999_999_007));
        assert_eq!(futex(FUTEX_WAIT, 8), Some(11_000_000_007));
        // Without a limit, another operation, and a time that is none.
        assert_eq!([futex(FUTEX_WAIT, 0), futex(5, 8)], [None, None]);
        assert_eq!(of(libc::SYS_futex, FUTEX_WAIT, 8, [u64::MAX, 0]), None);
        assert_eq!(of(libc::SYS_ppoll, 0, 8, [1, 2]), Some(6_000_000_002));
        assert_eq!(of(libc::SYS_pselect6, 0, 0, [1, 2]), None);
        assert_eq!(of(libc::SYS_epoll_pwait, 0, 3, [0, 0]), Some(5_003_000_000));
        assert_eq!(of(libc::SYS_epoll_pwait, 0, u64::from(u32::MAX), [0, 0]), None);
        assert_eq!(of(libc::SYS_read, 0, 3, [0, 0]), None);
    }
}
