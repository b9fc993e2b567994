// SPDX-License-Identifier: MIT OR Apache-2.0
//! Switch records of threads that cannot open a [`SwitchLog`](super::switches::SwitchLog), because a sandbox
//! denies perf: rings that the process opened before, and that new threads inherit.
//!
//! An inherited event needs a ring for each CPU (perf_event_open(2), "inherit"), so the records of a thread
//! are in several rings, and are sorted by time here.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::param::page_size;
use rustix::thread::gettid;

use super::switches::{self, SwitchRecord, SwitchRing, ThreadRecord};
use crate::process::affinity::allowed_cpus;

/// Size of a CPU's ring without its control page, bytes: 682 switches between reads. On a machine with larger
/// pages, a ring has one page.
const DATA_BYTES: usize = 16 << 10;

/// Maximum number of CPUs with a ring. The number is limited because each new thread copies the events of all
/// these CPUs.
const MOST_CPUS: usize = 64;

/// Maximum number of records that are kept for a thread until they are read. A further record replaces all of
/// them by a [`SwitchRecord::Lost`] and itself.
const MOST_RECORDS: usize = 4096;

static RINGS: OnceLock<Mutex<InheritedRings>> = OnceLock::new();

/// Opens a ring for each CPU on which the calling thread may run, for a process that enters a sandbox
/// afterwards. Call this function in the process's only thread. The kernel writes no record before the first
/// packet at level `full`. Keeps no descriptor.
///
/// # Errors
/// The kernel denies perf, the thread may run on more than 64 CPUs, or there is no memory for the rings. Then
/// the records are not available.
pub fn prepare() -> io::Result<()> {
    let cpus = allowed_cpus()?;
    if cpus.len() > MOST_CPUS {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    }
    let data_bytes = DATA_BYTES.max(page_size());
    let rings = cpus.into_iter().map(|cpu| SwitchRing::of_descendants(cpu, data_bytes));
    let rings = rings.collect::<io::Result<_>>()?;
    // A second call keeps the rings of the first.
    let _ = RINGS.set(Mutex::new(InheritedRings { rings, threads: BTreeMap::new() }));
    Ok(())
}

/// Makes the kernel write records to the rings from now on, for all threads that inherited them. Has an
/// effect only if the thread that called [`prepare`] calls it.
pub(super) fn enable() {
    if RINGS.get().is_some() {
        switches::enable();
    }
}

/// Log of the switch records of one thread in the inherited rings. Dropping it drops the thread's records.
#[derive(Debug)]
pub(super) struct InheritedLog {
    thread: i32,
}

impl InheritedLog {
    /// Returns the log of the calling thread, from now on; `None` if [`prepare`] has opened no rings.
    pub(super) fn of_this_thread() -> Option<InheritedLog> {
        let thread = gettid().as_raw_nonzero().get();
        let mut rings = lock(RINGS.get()?);
        rings.collect();
        rings.threads.insert(thread, Kept::default());
        Some(InheritedLog { thread })
    }

    /// Calls `take` with each record since the last call of this function, in the order of their times.
    /// Leaves out a record that is older than one passed before. No system call.
    pub(super) fn drain(&mut self, take: impl FnMut(SwitchRecord)) {
        if let Some(rings) = RINGS.get() {
            let mut rings = lock(rings);
            rings.collect();
            if let Some(kept) = rings.threads.get_mut(&self.thread) {
                kept.drain(take);
            }
        }
    }
}

impl Drop for InheritedLog {
    fn drop(&mut self) {
        if let Some(rings) = RINGS.get() {
            lock(rings).threads.remove(&self.thread);
        }
    }
}

fn lock(rings: &Mutex<InheritedRings>) -> MutexGuard<'_, InheritedRings> {
    // No code under the lock can leave the rings half changed.
    rings.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Rings of all CPUs of [`prepare`], and the records of threads with a log that were read from the rings.
#[derive(Debug)]
struct InheritedRings {
    rings: Vec<SwitchRing>,
    /// Records that were read and not yet returned, by the id of a thread that has a log.
    threads: BTreeMap<i32, Kept>,
}

impl InheritedRings {
    /// Reads all rings.
    fn collect(&mut self) {
        let threads = &mut self.threads;
        for ring in &mut self.rings {
            ring.drain(|record| match record.record {
                // The lost records may be those of any thread.
                SwitchRecord::Lost => threads.values_mut().for_each(|kept| kept.push(record)),
                _ => drop(threads.get_mut(&record.thread).map(|kept| kept.push(record))),
            });
        }
    }
}

/// Records of one thread that its log has not returned yet. Does no I/O, so that tests can use it.
#[derive(Debug, Default)]
struct Kept {
    records: Vec<ThreadRecord>,
    /// Time of the last record that was returned, CLOCK_MONOTONIC nanoseconds.
    returned_ns: u64,
}

impl Kept {
    fn push(&mut self, record: ThreadRecord) {
        if self.records.len() == MOST_RECORDS {
            self.records.clear();
            self.records.push(ThreadRecord { record: SwitchRecord::Lost, ..record });
        }
        self.records.push(record);
    }

    /// Calls `take` with each record in the order of their times, and removes the records. Leaves out a
    /// record that is older than the last record of an earlier call: a CPU published it too late.
    fn drain(&mut self, mut take: impl FnMut(SwitchRecord)) {
        self.records.sort_by_key(|record| record.at_ns);
        for record in self.records.drain(..) {
            if record.at_ns >= self.returned_ns {
                self.returned_ns = record.at_ns;
                take(record.record);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(at_ns: u64, is_out: bool) -> ThreadRecord {
        let record =
            if is_out { SwitchRecord::Out { at_ns, preempted: false } } else { SwitchRecord::In { at_ns } };
        ThreadRecord { thread: 7, at_ns, record }
    }

    fn drained(kept: &mut Kept) -> Vec<SwitchRecord> {
        let mut records = Vec::new();
        kept.drain(|record| records.push(record));
        records
    }

    #[test]
    fn records_of_several_cpus_are_in_the_order_of_their_times() {
        let mut kept = Kept::default();
        for (at_ns, is_out) in [(10, true), (40, true), (20, false), (50, false)] {
            kept.push(record(at_ns, is_out));
        }
        let ordered = [(10, true), (20, false), (40, true), (50, false)];
        assert_eq!(drained(&mut kept), ordered.map(|(at_ns, is_out)| record(at_ns, is_out).record));
        // A record that came too late.
        kept.push(record(45, true));
        kept.push(record(60, true));
        assert_eq!(drained(&mut kept), [record(60, true).record]);
    }

    #[test]
    fn too_many_records_are_lost_records() {
        let mut kept = Kept::default();
        for at_ns in 0..=MOST_RECORDS as u64 {
            kept.push(record(at_ns, true));
        }
        let last = record(MOST_RECORDS as u64, true).record;
        assert_eq!(drained(&mut kept), [SwitchRecord::Lost, last]);
    }

    /// The rings belong to a thread of this test, so the threads of other tests are not recorded.
    #[test]
    fn threads_inherit_the_rings_of_the_thread_that_opened_them() {
        std::thread::spawn(|| {
            if prepare().is_err() {
                // No perf here; the log of a thread is then refused, too.
                assert!(switches::SwitchLog::open().is_err());
                return;
            }
            enable();
            let sleeper = std::thread::spawn(|| {
                let mut log = InheritedLog::of_this_thread().expect("the rings are open");
                std::thread::sleep(std::time::Duration::from_millis(5));
                let mut records = Vec::new();
                log.drain(|record| records.push(record));
                records
            });
            let records = sleeper.join().unwrap();
            let slept = records.windows(2).filter_map(|pair| match pair {
                [SwitchRecord::Out { at_ns: out_ns, preempted: false }, SwitchRecord::In { at_ns }] => {
                    Some(at_ns - out_ns)
                }
                _ => None,
            });
            assert!(slept.max() >= Some(4_000_000), "{records:?}");
        })
        .join()
        .unwrap();
    }
}
