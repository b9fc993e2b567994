// SPDX-License-Identifier: MIT OR Apache-2.0
//! Meter of this thread's copies and waits. Copies of pixel and packet bytes, and waits, go through
//! this module, except the small copies of [`Plane::visit`](crate::memory::pool::Plane::visit).
//!
//! The meter is thread-local. It counts bytes at every level. It reads the clock only from
//! [`Level::Times`] on, and thread counters only at [`Level::Full`].

use std::cell::{Cell, RefCell};

use crate::measure::counters::{Counters, Counts};
use crate::time::{now_ns, thread_cpu_ns};

/// Level of detail of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    /// Records no times. Only copied bytes are counted.
    #[default]
    Off,
    /// Also records times, without system calls.
    Times,
    /// Also records thread counters, by system calls.
    Full,
}

/// Values that a thread recorded since its last [`take`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metered {
    /// Number of pixel and packet bytes copied by the CPU.
    pub copied_bytes: u64,
    /// Time in copies, nanoseconds: wall time at `Times`, CPU time at `Full`, 0 at `Off`.
    pub copy_ns: u64,
    /// Wall time in known waits ([`blocked`]), nanoseconds; 0 at `Off`.
    pub blocked_ns: u64,
    /// Wall time in deliberate waits ([`paced`]), nanoseconds; not in `blocked_ns`; 0 at `Off`.
    pub paced_ns: u64,
    /// Wall time of calls and waits for a device ([`in_device`]), nanoseconds; not in `blocked_ns`; 0 at
    /// `Off`.
    pub device_ns: u64,
}

struct Meter {
    level: Cell<Level>,
    copied_bytes: Cell<u64>,
    copy_ns: Cell<u64>,
    blocked_ns: Cell<u64>,
    paced_ns: Cell<u64>,
    device_ns: Cell<u64>,
    /// Change of the counters inside waits, for [`take_in_waits`].
    in_waits: Cell<Counts>,
    /// True inside [`copy`] and [`convert`], which already count the bytes.
    in_copy: Cell<bool>,
    /// Open counters of this thread; `None` unless the level is [`Level::Full`] or [`prepare`] opened them.
    counters: RefCell<Option<Counters>>,
}

thread_local! {
    static METER: Meter = const {
        Meter {
            level: Cell::new(Level::Off),
            copied_bytes: Cell::new(0),
            copy_ns: Cell::new(0),
            blocked_ns: Cell::new(0),
            paced_ns: Cell::new(0),
            device_ns: Cell::new(0),
            in_waits: Cell::new(Counts::ZERO),
            in_copy: Cell::new(false),
            counters: RefCell::new(None),
        }
    };
}

/// Opens this thread's counters early, for a thread that cannot open files later. They stay open until
/// [`set_level`] sets a level below [`Level::Full`].
pub fn prepare() {
    METER.with(|m| m.counters.borrow_mut().get_or_insert_with(Counters::open).read());
}

/// Sets this thread's level, and resets all recorded values. [`Level::Full`] opens the thread's counters
/// if they are not open yet; the other levels close them.
pub fn set_level(level: Level) {
    METER.with(|m| {
        m.level.set(level);
        let mut counters = m.counters.borrow_mut();
        match level {
            Level::Full => drop(counters.get_or_insert_with(Counters::open).read()),
            _ => *counters = None,
        }
    });
    take();
    take_in_waits();
}

/// Returns this thread's level.
pub fn level() -> Level {
    METER.with(|m| m.level.get())
}

/// Reads this thread's counters; zeros if they are not open. Only [`Level::Full`] and [`prepare`] open
/// them.
pub fn counts() -> Counts {
    METER.with(|m| m.counters.borrow_mut().as_mut().map_or(Counts::ZERO, Counters::read))
}

/// Returns the values that this thread recorded since the last call of this function or of [`set_level`],
/// and resets them to zero.
#[inline]
pub fn take() -> Metered {
    METER.with(|m| Metered {
        copied_bytes: m.copied_bytes.take(),
        copy_ns: m.copy_ns.take(),
        blocked_ns: m.blocked_ns.take(),
        paced_ns: m.paced_ns.take(),
        device_ns: m.device_ns.take(),
    })
}

/// Returns the change of this thread's counters inside [`blocked`], [`paced`] and [`in_device`] since the
/// last call of this function or of [`set_level`], and resets it; zeros below [`Level::Full`].
pub fn take_in_waits() -> Counts {
    METER.with(|m| m.in_waits.replace(Counts::ZERO))
}

/// Runs `f`, which copies `bytes` bytes of pixels or packets by the CPU, and returns its result. Counts
/// the bytes, and the time of `f` unless the level is [`Level::Off`].
#[inline]
pub fn copy<R>(bytes: usize, f: impl FnOnce() -> R) -> R {
    METER.with(|m| {
        m.copied_bytes.set(m.copied_bytes.get() + bytes as u64);
        let clock = match m.level.get() {
            Level::Off => return inside_copy(m, f),
            Level::Times => now_ns,
            Level::Full => thread_cpu_ns,
        };
        let start = clock();
        let result = inside_copy(m, f);
        m.copy_ns.set(m.copy_ns.get() + clock().saturating_sub(start));
        result
    })
}

/// Runs `f`, which computes pixels of another format or size from pixels and writes `bytes` bytes of them,
/// and returns its result. Counts the bytes as copied. Its time is computing, not copying, and is not
/// recorded.
#[inline]
pub fn convert<R>(bytes: usize, f: impl FnOnce() -> R) -> R {
    METER.with(|m| {
        m.copied_bytes.set(m.copied_bytes.get() + bytes as u64);
        inside_copy(m, f)
    })
}

fn inside_copy<R>(m: &Meter, f: impl FnOnce() -> R) -> R {
    let before = m.in_copy.replace(true);
    let result = f();
    m.in_copy.set(before);
    result
}

/// Counts `bytes` copied bytes, unless the caller runs inside [`copy`] or [`convert`], which already count
/// them.
#[inline]
pub fn count_once(bytes: usize) {
    METER.with(|m| {
        if !m.in_copy.get() {
            m.copied_bytes.set(m.copied_bytes.get() + bytes as u64);
        }
    });
}

/// Counts `bytes` bytes that a worker copied for this thread. The time of the copy is counted in the
/// worker, not here.
#[inline]
pub fn count_copied(bytes: usize) {
    METER.with(|m| m.copied_bytes.set(m.copied_bytes.get() + bytes as u64));
}

/// Copies `src` to `dst` and counts the bytes. Panics if the lengths differ.
#[inline]
pub fn copy_bytes(dst: &mut [u8], src: &[u8]) {
    copy(src.len(), || dst.copy_from_slice(src));
}

/// Runs `f`, records its time as a known wait (I/O, a futex of framepath, an empty pool), and returns its
/// result.
pub fn blocked<R>(f: impl FnOnce() -> R) -> R {
    METER.with(|m| waited(m, &m.blocked_ns, f))
}

/// Runs `f`, which waits deliberately until a given time, records its time as paced, and returns its
/// result.
pub fn paced<R>(f: impl FnOnce() -> R) -> R {
    METER.with(|m| waited(m, &m.paced_ns, f))
}

/// Runs `f`, which submits work to a device or waits for it, records its time as device time, and returns
/// its result.
pub fn in_device<R>(f: impl FnOnce() -> R) -> R {
    METER.with(|m| waited(m, &m.device_ns, f))
}

/// Runs `f` and adds its wall time to `sum`, and the change of the counters to the waits; at
/// [`Level::Off`] only runs `f`.
fn waited<R>(m: &Meter, sum: &Cell<u64>, f: impl FnOnce() -> R) -> R {
    if m.level.get() == Level::Off {
        return f();
    }
    let (sum_before, waits_before) = (sum.get(), m.in_waits.get());
    let before = counts();
    let start = now_ns();
    let result = f();
    // Set, not added, so that nested waits of the same kind count once.
    sum.set(sum_before + (now_ns() - start));
    m.in_waits.set(waits_before + (counts() - before));
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_bytes_at_every_level_and_resets() {
        for level in [Level::Off, Level::Times, Level::Full] {
            set_level(level);
            let mut dst = [0u8; 100];
            copy_bytes(&mut dst, &[7; 100]);
            copy(11, || ());
            convert(20, || count_once(7));
            assert_eq!(dst, [7; 100]);
            let taken = take();
            assert_eq!(taken.copied_bytes, 131);
            assert_eq!(taken.copy_ns > 0, level == Level::Times || taken.copy_ns > 0);
            assert_eq!(take(), Metered::default());
        }
        set_level(Level::Off);
    }

    #[test]
    fn level_off_takes_no_timestamps() {
        set_level(Level::Off);
        blocked(|| std::thread::sleep(std::time::Duration::from_millis(1)));
        paced(|| std::thread::sleep(std::time::Duration::from_millis(1)));
        in_device(|| std::thread::sleep(std::time::Duration::from_millis(1)));
        copy(1, || ());
        convert(1, || ());
        let taken = take();
        let waits = (taken.blocked_ns, taken.paced_ns, taken.device_ns);
        assert_eq!((waits, taken.copy_ns), ((0, 0, 0), 0));
    }
}
