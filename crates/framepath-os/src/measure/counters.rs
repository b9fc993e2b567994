// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of the calling thread: CPU time, time off the CPU, switches, faults, and hardware
//! events if the machine has them.

use std::fs::File;
use std::ops::{Add, Sub};
use std::os::unix::fs::FileExt;

use crate::measure::pmu::{HardwareCounts, Pmu};
use crate::measure::switches::SwitchLog;
use crate::time::thread_cpu_ns;

/// Counter values of one thread at one reading, or the difference of two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// CPU time of the thread, nanoseconds.
    pub cpu_ns: u64,
    /// Time in which the thread was runnable but did not run, nanoseconds: from the kernel's switch
    /// records, or the run delay of schedstat if these are not available; 0 without both.
    pub preempted_ns: u64,
    /// Time asleep, from the kernel's switch records, nanoseconds; 0 if these are not available.
    pub slept_ns: u64,
    /// Number of context switches caused by waits of the thread.
    pub voluntary_switches: u64,
    /// Number of context switches forced by the kernel.
    pub involuntary_switches: u64,
    /// Number of page faults that needed no I/O.
    pub minor_faults: u64,
    /// Hardware events in user mode; zeros if they cannot be counted (see [`Counters::has_pmu`]).
    pub events: HardwareCounts,
}

impl Counts {
    /// All counts zero.
    pub const ZERO: Counts = Counts {
        cpu_ns: 0,
        preempted_ns: 0,
        slept_ns: 0,
        voluntary_switches: 0,
        involuntary_switches: 0,
        minor_faults: 0,
        events: HardwareCounts { cycles: 0, instructions: 0, cache_misses: 0 },
    };

    fn zip(self, other: Counts, f: impl Fn(u64, u64) -> u64) -> Counts {
        Counts {
            cpu_ns: f(self.cpu_ns, other.cpu_ns),
            preempted_ns: f(self.preempted_ns, other.preempted_ns),
            slept_ns: f(self.slept_ns, other.slept_ns),
            voluntary_switches: f(self.voluntary_switches, other.voluntary_switches),
            involuntary_switches: f(self.involuntary_switches, other.involuntary_switches),
            minor_faults: f(self.minor_faults, other.minor_faults),
            events: HardwareCounts {
                cycles: f(self.events.cycles, other.events.cycles),
                instructions: f(self.events.instructions, other.events.instructions),
                cache_misses: f(self.events.cache_misses, other.events.cache_misses),
            },
        }
    }
}

impl Add for Counts {
    type Output = Counts;
    fn add(self, other: Counts) -> Counts {
        self.zip(other, u64::saturating_add)
    }
}

impl Sub for Counts {
    type Output = Counts;
    fn sub(self, other: Counts) -> Counts {
        self.zip(other, u64::saturating_sub)
    }
}

/// Open counters of the thread that called [`Counters::open`]. They count only that thread, and
/// only that thread may read them.
#[derive(Debug)]
pub struct Counters {
    switch_log: Option<SwitchLog>,
    schedstat: Option<File>,
    pmu: Option<Pmu>,
}

impl Counters {
    /// Opens the counters of the calling thread that the machine provides. Ignores counters that cannot be
    /// opened; [`Counts`] says which values they affect.
    pub fn open() -> Counters {
        Counters {
            switch_log: SwitchLog::open().ok(),
            schedstat: File::open("/proc/thread-self/schedstat").ok(),
            pmu: Pmu::open().ok(),
        }
    }

    /// Returns true if hardware events are counted.
    pub fn has_pmu(&self) -> bool {
        self.pmu.is_some()
    }

    /// Returns true if the kernel's switch records are available. Otherwise the ledger knows only
    /// the waits that framepath itself measures.
    pub fn has_switch_log(&self) -> bool {
        self.switch_log.is_some()
    }

    /// Reads all counters: two to four system calls.
    pub fn read(&mut self) -> Counts {
        // Before the switch records: a thread is often preempted in these two calls, probably because they bring the
        // scheduler's accounts up to date. Behind the records, the preemption would be in no count, and unexplained.
        let (usage, cpu_ns) = (thread_usage(), thread_cpu_ns());
        let (preempted_ns, slept_ns) = match &mut self.switch_log {
            Some(log) => {
                let off_cpu = log.read();
                (off_cpu.preempted_ns, off_cpu.slept_ns)
            }
            None => (self.run_delay_ns(), 0),
        };
        Counts {
            cpu_ns,
            preempted_ns,
            slept_ns,
            voluntary_switches: usage.ru_nvcsw as u64,
            involuntary_switches: usage.ru_nivcsw as u64,
            minor_faults: usage.ru_minflt as u64,
            events: self.pmu.as_ref().and_then(|p| p.read().ok()).unwrap_or_default(),
        }
    }

    fn run_delay_ns(&self) -> u64 {
        let mut text = [0; 96];
        let read = self.schedstat.as_ref().and_then(|f| f.read_at(&mut text, 0).ok());
        read.and_then(|n| std::str::from_utf8(&text[..n]).ok()).and_then(parse_run_delay).unwrap_or(0)
    }
}

/// Returns the second field of `text`, the content of `/proc/*/schedstat`: nanoseconds spent waiting on
/// a run queue (Documentation/scheduler/sched-stats.rst). Returns `None` if there is no such number.
fn parse_run_delay(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn thread_usage() -> libc::rusage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the struct; all-zero is a valid value if the call fails.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_delay_is_the_second_field() {
        assert_eq!(parse_run_delay("123456 789 42\n"), Some(789));
        assert_eq!(parse_run_delay("123456"), None);
        assert_eq!(parse_run_delay("a b c"), None);
    }

    #[test]
    fn a_sleep_is_a_voluntary_switch_and_no_cpu() {
        let mut counters = Counters::open();
        let before = counters.read();
        std::thread::sleep(std::time::Duration::from_millis(5));
        let passed = counters.read() - before;
        assert!(passed.voluntary_switches >= 1);
        if counters.has_switch_log() {
            assert!(passed.slept_ns >= 4_000_000, "slept {} ns", passed.slept_ns);
        }
    }
}
