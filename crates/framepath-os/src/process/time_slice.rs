// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time slice of a thread: how long it runs before other threads of the same share get their turn.
//!
//! From Linux 6.12 on, a thread chooses its own slice (`sched_attr::sched_runtime`, linux/Documentation/scheduler/sched-eevdf.rst).
//! A thread with a shorter one has its turn earlier when it wakes, and no more time altogether, so this needs no privilege.
//! Earlier kernels ignore the value.

use std::io;

/// Shortest slice that the kernel gives, nanoseconds.
const SHORTEST_NS: u64 = 100_000;
/// Size of `sched_attr`, bytes.
const SIZE: u32 = size_of::<libc::sched_attr>() as u32;

/// Shortest slice for the calling thread, and for the threads and processes that it starts, until this is dropped on the same thread.
/// Those that were started meanwhile keep theirs.
#[derive(Debug)]
pub struct ShortSlice {
    /// Attributes of the thread before; `None` if they were not changed.
    before: Option<libc::sched_attr>,
}

impl ShortSlice {
    /// Gives the calling thread the shortest slice. Does nothing for a thread that is real-time or idle, and where the kernel refuses.
    pub fn begin() -> ShortSlice {
        let before = attributes().ok().filter(|attributes| attributes.sched_policy == libc::SCHED_OTHER as u32);
        let changed = before.filter(|before| {
            let short = libc::sched_attr { sched_runtime: SHORTEST_NS, ..*before };
            set(&short).inspect_err(|error| log::debug!("sched_setattr: {error}")).is_ok()
        });
        ShortSlice { before: changed }
    }
}

impl Drop for ShortSlice {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // It was accepted before.
            let _ = set(before);
        }
    }
}

/// Returns the attributes of the calling thread.
fn attributes() -> io::Result<libc::sched_attr> {
    let mut attributes = libc::sched_attr {
        size: SIZE,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel writes at most SIZE bytes to `attributes`, which outlives the call; 0 is the calling thread.
    let done = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, SIZE, 0) };
    if done == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
}

/// Sets the attributes of the calling thread.
fn set(attributes: &libc::sched_attr) -> io::Result<()> {
    // SAFETY: the kernel reads `size` bytes of `attributes`, which outlives the call; 0 is the calling thread.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *attributes, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the slice of the calling thread, nanoseconds; 0 before Linux 6.12.
    fn slice_ns() -> u64 {
        attributes().unwrap().sched_runtime
    }

    #[test]
    fn threads_that_are_started_meanwhile_have_a_short_slice() {
        let before = slice_ns();
        let short = ShortSlice::begin();
        let expected = if before == 0 { 0 } else { SHORTEST_NS };
        assert_eq!(slice_ns(), expected);
        let (go_on, wait) = std::sync::mpsc::channel();
        let child = std::thread::spawn(move || {
            wait.recv().unwrap();
            slice_ns()
        });
        drop(short);
        assert_eq!(slice_ns(), before);
        go_on.send(()).unwrap();
        assert_eq!(child.join().unwrap(), expected);
    }

    #[test]
    fn a_realtime_thread_stays_as_it_is() {
        let policy = |thread: std::thread::JoinHandle<u32>| thread.join().unwrap();
        let realtime = std::thread::spawn(|| {
            let is_realtime = super::super::affinity::become_realtime().is_ok();
            let before = attributes().unwrap().sched_policy;
            let _short = ShortSlice::begin();
            assert!(!is_realtime || before == libc::SCHED_FIFO as u32);
            before.abs_diff(attributes().unwrap().sched_policy)
        });
        assert_eq!(policy(realtime), 0);
    }
}
