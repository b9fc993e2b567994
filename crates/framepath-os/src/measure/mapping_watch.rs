// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wake-up when the threads of another process, or those that they start, map a file from which they can execute code.
//!
//! The records of [`ProcessEvents`](super::process_events::ProcessEvents) say what was mapped, but wake up nobody. Here the kernel
//! wakes up this process at each record, which only mappings have. A breakpoint in the loader would tell the same, but it is in
//! the loader of every program on the machine: debuggers set theirs at the same place, and emulators translate the
//! breakpoint.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::param::page_size;

use super::perf_ring::{PerfRing, attributes, open_event, share_ring};
use crate::process::affinity::online_cpus;

/// Size of a CPU's ring without its control page, pages: more than the longest path.
const DATA_PAGES: usize = 4;

/// Watch for mappings of files with code. They are not watched any more when the value is dropped.
#[derive(Debug)]
pub struct MappingWatch {
    /// One for each CPU.
    rings: Vec<PerfRing>,
    /// Events whose rings these are.
    leaders: Vec<OwnedFd>,
    /// Events of further threads.
    _others: Vec<OwnedFd>,
}

impl MappingWatch {
    /// Watches `threads` and what they start later. With `at_exec`, the watch begins when the process executes a program. Threads for
    /// which there is no descriptor left are not watched.
    ///
    /// # Errors
    /// The kernel denies it, or no thread is left.
    pub fn of_threads(threads: &[i32], at_exec: bool) -> io::Result<MappingWatch> {
        let mut attr = attributes();
        attr.set_context_switch(0);
        attr.set_mmap(1);
        attr.set_inherit(1);
        // One byte in the ring wakes up.
        attr.set_watermark(1);
        attr.__bindgen_anon_2.wakeup_watermark = 1;
        attr.set_disabled(at_exec.into());
        attr.set_enable_on_exec(at_exec.into());
        let (mut rings, mut leaders, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for cpu in online_cpus()? {
            let known = leaders.len();
            for thread in threads {
                match open_event(&mut attr, *thread, cpu as i32) {
                    Ok(event) if leaders.len() > known => {
                        share_ring(&event, &leaders[known])?;
                        others.push(event);
                    }
                    Ok(event) => {
                        rings.push(PerfRing::map(event.as_fd(), DATA_PAGES * page_size())?);
                        leaders.push(event);
                    }
                    // A thread may end at any time.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(error)
                        if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
                            && !leaders.is_empty() =>
                    {
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        if leaders.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(MappingWatch { rings, leaders, _others: others })
    }

    /// Waits until a file has been mapped since the last call, at most for `limit`. Returns true if one was.
    pub fn wait(&mut self, limit: Duration) -> bool {
        let limit = Timespec::try_from(limit).ok();
        let mut events: Vec<PollFd<'_>> =
            self.leaders.iter().map(|event| PollFd::new(event, PollFlags::IN)).collect();
        // A signal ends the wait, too.
        let _ = poll(&mut events, limit.as_ref());
        let mut is_mapped = false;
        for ring in &mut self.rings {
            ring.drain(|_| is_mapped = true);
        }
        is_mapped
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_maps_code_wakes_up_its_watch() {
        let mut watch = match MappingWatch::of_threads(&[std::process::id() as i32], false) {
            Ok(watch) => watch,
            // The kernel of a sandbox may deny it.
            Err(error) => return assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        };
        assert!(!watch.wait(Duration::ZERO));
        // The child maps its program and its loader. It inherits the watch of the thread that starts it.
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let mut watch = MappingWatch::of_threads(&[thread], false).unwrap();
        assert!(Command::new("true").status().unwrap().success());
        assert!(watch.wait(Duration::from_secs(5)));
        // Nothing more has come.
        assert!(!watch.wait(Duration::ZERO));
    }
}
