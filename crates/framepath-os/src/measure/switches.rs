// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's record of the times at which a thread left the CPU and returned: perf's
//! context-switch records on a dummy software event.
//!
//! The records need no PMU and, with the usual `perf_event_paranoid` of 2 or less, no privilege.
//! Format: perf_event_open(2), PERF_RECORD_SWITCH.

use std::io;
use std::os::fd::AsFd;

use perf_event_open_sys::bindings as perf;

use super::perf_ring::{PerfRing, attributes, open_event};

/// Size of a thread's ring without its control page, bytes. The ring holds 2,730 switches between reads. The
/// size is a power of two of pages for every page size up to 64 KiB.
const DATA_BYTES: usize = 64 << 10;

/// Time that the thread spent off the CPU since the log was opened, without periods whose records were
/// lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffCpu {
    /// Time switched out while the thread was runnable, nanoseconds.
    pub preempted_ns: u64,
    /// Time switched out because the thread waited, until it ran again, nanoseconds.
    pub slept_ns: u64,
}

/// One switch record. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SwitchRecord {
    /// The thread left the CPU.
    Out {
        at_ns: u64,
        /// True if the thread was runnable; false if it waited.
        preempted: bool,
    },
    /// The thread ran again.
    In { at_ns: u64 },
    /// Records are missing at this place: the kernel could not write them, or the reader dropped them. Also
    /// stands for a record of an unknown type.
    Lost,
}

/// Switch records of the thread that opened the log. Any thread may read them.
#[derive(Debug)]
pub struct SwitchLog {
    ring: SwitchRing,
    tally: Tally,
}

impl SwitchLog {
    /// Opens the log for the calling thread. Fails if the kernel denies it (`perf_event_paranoid`
    /// above 2, a sandbox, a kernel without perf), or if there is no memory for the ring.
    pub fn open() -> io::Result<SwitchLog> {
        Ok(SwitchLog { ring: SwitchRing::of_thread()?, tally: Tally::default() })
    }

    /// Reads the records that were not read yet, and returns the totals of all records since the log was
    /// opened, without those that `drain` returned. No system call.
    pub fn read(&mut self) -> OffCpu {
        let mut tally = self.tally;
        self.drain(|record| tally.record(record));
        self.tally = tally;
        tally.off_cpu
    }

    /// Calls `take` with each record since the last call of this function or of [`SwitchLog::read`], in their
    /// order. No system call.
    pub(crate) fn drain(&mut self, mut take: impl FnMut(SwitchRecord)) {
        self.ring.drain(|record| take(record.record));
    }
}

/// One switch record and its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThreadRecord {
    /// Id of the thread, in the pid namespace of the thread that opened the ring.
    pub(super) thread: i32,
    /// Time of the record, CLOCK_MONOTONIC nanoseconds.
    pub(super) at_ns: u64,
    pub(super) record: SwitchRecord,
}

/// Ring with switch records.
#[derive(Debug)]
pub(super) struct SwitchRing(PerfRing);

impl SwitchRing {
    /// Opens a ring for the calling thread, on every CPU.
    fn of_thread() -> io::Result<SwitchRing> {
        let event = open_event(&mut attributes(), 0, -1)?;
        PerfRing::map(event.as_fd(), DATA_BYTES).map(SwitchRing)
    }

    /// Opens a ring for the calling thread and all threads that it and they start later, while they run on
    /// CPU number `cpu`. The kernel writes records after [`enable`]. `data_bytes` is a power of two of pages.
    pub(super) fn of_descendants(cpu: usize, data_bytes: usize) -> io::Result<SwitchRing> {
        let mut attr = attributes();
        attr.set_inherit(1);
        attr.set_disabled(1);
        let cpu = i32::try_from(cpu).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        PerfRing::map(open_event(&mut attr, 0, cpu)?.as_fd(), data_bytes).map(SwitchRing)
    }

    /// Calls `take` with each record since the last call of this function, in the order of the ring. Skips
    /// the rest after a record of an impossible size. No system call.
    pub(super) fn drain(&mut self, mut take: impl FnMut(ThreadRecord)) {
        self.0.drain(|raw| {
            let ((_, thread), at_ns) = (raw.ids(), raw.at_ns());
            take(ThreadRecord { thread, at_ns, record: SwitchRecord::parse(raw.kind, raw.misc, at_ns) });
        });
    }
}

/// Makes the kernel write records to all rings that the calling thread opened for its descendants. Allowed in
/// every role of the sandbox except `PluginLoading`.
pub(super) fn enable() {
    // SAFETY: the operation has no arguments, and changes only perf events of this thread. It does not fail.
    unsafe { libc::prctl(libc::PR_TASK_PERF_EVENTS_ENABLE, 0, 0, 0, 0) };
}

/// Sum of switch records. Does no I/O, so that tests can use it.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Time at which the thread last left the CPU, nanoseconds, and true if it was preempted; `None` while
    /// it runs, or after lost records.
    left_at: Option<(u64, bool)>,
    off_cpu: OffCpu,
}

impl Tally {
    fn record(&mut self, record: SwitchRecord) {
        match record {
            // After lost records, half a pair is left; it is dropped.
            SwitchRecord::Lost => self.left_at = None,
            SwitchRecord::Out { at_ns, preempted } => self.left_at = Some((at_ns, preempted)),
            SwitchRecord::In { at_ns } => {
                let Some((left_ns, preempted)) = self.left_at.take() else { return };
                let away_ns = at_ns.saturating_sub(left_ns);
                *(if preempted { &mut self.off_cpu.preempted_ns } else { &mut self.off_cpu.slept_ns }) +=
                    away_ns;
            }
        }
    }
}

impl SwitchRecord {
    /// Parses a record of type `kind` with the flags `misc` and the time `at_ns`. A type that is not a switch
    /// counts as lost records.
    pub(super) fn parse(kind: u32, misc: u16, at_ns: u64) -> SwitchRecord {
        let has = |flag: u32| u32::from(misc) & flag != 0;
        if kind != perf::PERF_RECORD_SWITCH {
            SwitchRecord::Lost
        } else if has(perf::PERF_RECORD_MISC_SWITCH_OUT) {
            SwitchRecord::Out { at_ns, preempted: has(perf::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT) }
        } else {
            SwitchRecord::In { at_ns }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUT: u16 = perf::PERF_RECORD_MISC_SWITCH_OUT as u16;
    const PREEMPT: u16 = perf::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT as u16;

    #[test]
    fn pairs_of_records_add_up_by_kind() {
        let mut tally = Tally::default();
        for (misc, time) in [(OUT, 100), (0, 150), (OUT | PREEMPT, 200), (0, 207), (0, 900)] {
            tally.record(SwitchRecord::parse(perf::PERF_RECORD_SWITCH, misc, time));
        }
        assert_eq!(tally.off_cpu, OffCpu { preempted_ns: 7, slept_ns: 50 });
    }

    #[test]
    fn a_lost_record_breaks_the_pair() {
        let mut tally = Tally::default();
        tally.record(SwitchRecord::parse(perf::PERF_RECORD_SWITCH, OUT, 100));
        tally.record(SwitchRecord::parse(perf::PERF_RECORD_LOST, 0, 120));
        tally.record(SwitchRecord::parse(perf::PERF_RECORD_SWITCH, 0, 150));
        assert_eq!(tally.off_cpu, OffCpu::default());
    }
}
