// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of the threads of another process: when each ran, why it stopped, and its name.
//!
//! The events are perf's records of a software event, which every thread and process that the observed
//! process starts inherits. They need no PMU and, with the usual `perf_event_paranoid` of 2 or less, no
//! privilege for a process of the same user.

use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use perf_event_open_sys::bindings as perf;
use rustix::param::page_size;

use super::perf_ring::{PerfRecord, PerfRing, attributes, open_event, share_ring};
use super::switches::SwitchRecord;
use crate::process::affinity::online_cpus;

/// Size of a CPU's ring without its control page, bytes: 21,845 switches between two calls of
/// [`ProcessEvents::drain`].
const DATA_BYTES: usize = 512 << 10;

/// Observer of the threads of a process, and of the processes and threads that they start.
#[derive(Debug)]
pub struct ProcessEvents {
    rings: Vec<PerfRing>,
    /// Events of the observed threads, one for each CPU: dropping them ends the observation.
    events: Vec<OwnedFd>,
}

/// One event of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadEvent {
    /// Id of the thread's process, in the pid namespace of the caller; 0 for lost events.
    pub process: i32,
    /// Id of the thread, in the pid namespace of the caller; 0 for lost events.
    pub thread: i32,
    /// Time of the event, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// Kind of the event.
    pub kind: ThreadEventKind,
}

/// Kind of a [`ThreadEvent`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadEventKind {
    /// The thread runs on a CPU again.
    SwitchedIn,
    /// The thread left its CPU.
    SwitchedOut {
        /// True if the thread was runnable; false if it waited.
        preempted: bool,
    },
    /// The thread has a new name, of at most 15 bytes.
    Named {
        /// The name; bytes that are no UTF-8 are replaced.
        name: String,
        /// True if the process has executed a program.
        is_exec: bool,
    },
    /// The thread has started this thread.
    Started {
        /// Id of the new thread.
        thread: i32,
        /// Id of the new thread's process.
        process: i32,
    },
    /// The thread has ended.
    Ended,
    /// The process has mapped a part of a file from which it can execute code.
    Mapped {
        /// Addresses of the part in the process.
        range: Range<u64>,
        /// Numbers of the file's device (major and minor) and inode, and the inode's generation: a new file with the inode of a
        /// removed one has another.
        file: [u64; 4],
        /// Path of the file, as the process sees it. It may have been renamed or removed since.
        path: PathBuf,
    },
    /// The thread ran this instruction of the program, not of the kernel, when its time between samples was over.
    Sampled {
        /// Address of the instruction.
        address: u64,
    },
    /// Events of any threads are missing, because the observer read too slowly.
    Lost {
        /// Number of the missing events; 0 if not known.
        count: u64,
    },
}

/// Reason why threads cannot be observed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// The threads have ended.
    #[error("the threads have ended")]
    NoThread,
    /// The kernel denies perf for the threads: they are another user's, or `perf_event_paranoid` is above 2.
    #[error("the kernel denies perf for the threads")]
    Denied,
    /// The events need more descriptors than this process may have: one for each thread and CPU.
    #[error("too many threads for the limit of open files")]
    TooManyFiles,
    /// Another system call failed.
    #[error(transparent)]
    System(io::Error),
}

impl From<io::Error> for ObserveError {
    fn from(error: io::Error) -> ObserveError {
        match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => ObserveError::Denied,
            Some(libc::EMFILE | libc::ENFILE) => ObserveError::TooManyFiles,
            _ => ObserveError::System(error),
        }
    }
}

impl ProcessEvents {
    /// Observes `threads`, which are all threads of a process, and what they start later. With `at_exec`, the
    /// observation begins when the process executes a program. With `sample_every`, each thread has a sample whenever it
    /// has been on a CPU for this time. With `maps`, the files with code that the processes map are reported.
    ///
    /// # Errors
    /// [`ObserveError`]; [`ObserveError::NoThread`] only if all threads have ended.
    pub fn of_threads(
        threads: &[i32],
        at_exec: bool,
        sample_every: Option<Duration>,
        maps: bool,
    ) -> Result<ProcessEvents, ObserveError> {
        let mut attr = attributes();
        if let Some(time) = sample_every {
            attr.config = perf::PERF_COUNT_SW_CPU_CLOCK.into();
            attr.__bindgen_anon_1.sample_period = time.as_nanos() as u64;
            attr.sample_type |= u64::from(perf::PERF_SAMPLE_IP);
        }
        attr.set_mmap(maps.into());
        attr.set_mmap2(maps.into());
        attr.set_inherit(1);
        attr.set_comm(1);
        attr.set_comm_exec(1);
        attr.set_task(1);
        attr.set_disabled(at_exec.into());
        attr.set_enable_on_exec(at_exec.into());
        let mut observer = ProcessEvents { rings: Vec::new(), events: Vec::new() };
        for cpu in online_cpus()? {
            let mut first = None;
            for thread in threads {
                match open_event(&mut attr, *thread, cpu as i32) {
                    Ok(event) => {
                        match first {
                            // Records of all threads on this CPU go to the ring of the first.
                            Some(first) => share_ring(&event, &observer.events[first])?,
                            None => {
                                let data_bytes = DATA_BYTES.max(page_size());
                                // EPERM here is a lack of memory: `perf_event_mlock_kb` and RLIMIT_MEMLOCK.
                                let ring = PerfRing::map(event.as_fd(), data_bytes);
                                observer.rings.push(ring.map_err(ObserveError::System)?);
                                first = Some(observer.events.len());
                            }
                        }
                        observer.events.push(event);
                    }
                    // A thread may end at any time.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        if observer.events.is_empty() { Err(ObserveError::NoThread) } else { Ok(observer) }
    }

    /// Calls `take` with each event since the last call. The events of one CPU are in the order of their times;
    /// those of different CPUs are not. A CPU may write an event a few microseconds after its time.
    pub fn drain(&mut self, mut take: impl FnMut(ThreadEvent)) {
        for ring in &mut self.rings {
            ring.drain(|record| {
                if let Some(event) = parse(&record) {
                    take(event);
                }
            });
        }
    }
}

/// Returns the event of a record; `None` for a record that says nothing about threads.
pub(super) fn parse(record: &PerfRecord<'_>) -> Option<ThreadEvent> {
    let ((process, thread), at_ns) = (record.ids(), record.at_ns());
    let event = |kind| Some(ThreadEvent { process, thread, at_ns, kind });
    match record.kind {
        perf::PERF_RECORD_SWITCH => match SwitchRecord::parse(record.kind, record.misc, at_ns) {
            SwitchRecord::Out { preempted, .. } => event(ThreadEventKind::SwitchedOut { preempted }),
            _ => event(ThreadEventKind::SwitchedIn),
        },
        perf::PERF_RECORD_COMM => {
            // Process and thread, which another one may have given its name; then the name.
            let mut words = record.body();
            let ids = words.next()?;
            let bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
            let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            let name = String::from_utf8_lossy(name).into_owned();
            let is_exec = u32::from(record.misc) & perf::PERF_RECORD_MISC_COMM_EXEC != 0;
            let kind = ThreadEventKind::Named { name, is_exec };
            Some(ThreadEvent { process: ids as i32, thread: (ids >> 32) as i32, at_ns, kind })
        }
        perf::PERF_RECORD_FORK | perf::PERF_RECORD_EXIT => {
            // Process and its parent, thread and the thread that started it.
            let mut words = record.body();
            let (processes, threads) = (words.next()?, words.next()?);
            if record.kind == perf::PERF_RECORD_EXIT {
                let (process, thread) = (processes as i32, threads as i32);
                return Some(ThreadEvent { process, thread, at_ns, kind: ThreadEventKind::Ended });
            }
            let started = ThreadEventKind::Started { thread: threads as i32, process: processes as i32 };
            let (process, thread) = ((processes >> 32) as i32, (threads >> 32) as i32);
            Some(ThreadEvent { process, thread, at_ns, kind: started })
        }
        perf::PERF_RECORD_MMAP2 => {
            // Process and thread, address, length, offset, numbers of the device, inode, its generation, protection, path.
            let words: Vec<u64> = record.body().collect();
            let [_, address, length, _, device, inode, generation, _] = *words.first_chunk()?;
            let path = words[8..].iter().flat_map(|word| word.to_ne_bytes());
            let path: Vec<u8> = path.take_while(|byte| *byte != 0).collect();
            event(ThreadEventKind::Mapped {
                range: address..address.checked_add(length)?,
                file: [device & 0xffff_ffff, device >> 32, inode, generation],
                path: OsString::from_vec(path).into(),
            })
        }
        perf::PERF_RECORD_SAMPLE => event(ThreadEventKind::Sampled { address: record.body().next()? }),
        perf::PERF_RECORD_LOST => {
            let count = record.body().nth(1).unwrap_or(0);
            Some(ThreadEvent { process: 0, thread: 0, at_ns, kind: ThreadEventKind::Lost { count } })
        }
        _ => None,
    }
}
