// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files from which the threads of another process, or those that they start, can execute code, at the moment at which they map them.
//!
//! [`ProcessEvents`](super::process_events::ProcessEvents) can report the same, but wake up nobody. Here the kernel
//! wakes up this process at each record: mappings, starts and ends of threads. A breakpoint in the loader would tell the same, but it is in
//! the loader of every program on the machine: debuggers set theirs at the same place, and emulators translate the
//! breakpoint.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::param::page_size;

use super::perf_ring::{PerfRing, attributes, open_event, share_ring};
use super::process_events::{ThreadEvent, ThreadEventKind, parse};
use crate::process::affinity::online_cpus;

/// Size of a CPU's ring without its control page, pages: two thousand mappings.
const DATA_PAGES: usize = 64;

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
    /// Watches `threads` and what they start later. With `at_exec`, the watch begins when the process executes a program.
    ///
    /// # Errors
    /// The kernel denies it, no thread is left, or there are too many descriptors: it needs one for each thread and CPU.
    pub fn of_threads(threads: &[i32], at_exec: bool) -> io::Result<MappingWatch> {
        let mut attr = attributes();
        attr.set_context_switch(0);
        attr.set_mmap(1);
        attr.set_mmap2(1);
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
    pub fn wait(&self, limit: Duration) -> bool {
        let limit = Timespec::try_from(limit).ok();
        let mut events: Vec<PollFd<'_>> =
            self.leaders.iter().map(|event| PollFd::new(event, PollFlags::IN)).collect();
        // A signal ends the wait, too.
        poll(&mut events, limit.as_ref()).is_ok_and(|ready| ready > 0)
    }

    /// Calls `take` with each event since the last call: mappings, and lost events.
    pub fn drain(&mut self, mut take: impl FnMut(ThreadEvent)) {
        let is_wanted = |event: &ThreadEvent| {
            // The kernel gives such an event the starts and ends of threads, too; `ProcessEvents` has them.
            matches!(event.kind, ThreadEventKind::Mapped { .. } | ThreadEventKind::Lost { .. })
        };
        for ring in &mut self.rings {
            ring.drain(|record| parse(&record).filter(is_wanted).into_iter().for_each(&mut take));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_maps_code_wakes_up_its_watch() {
        let watch = match MappingWatch::of_threads(&[std::process::id() as i32], false) {
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
        let mut names = Vec::new();
        watch.drain(|event| match event.kind {
            ThreadEventKind::Mapped { path, .. } => names.push(path.file_name().unwrap().to_owned()),
            other => panic!("{other:?}"),
        });
        assert!(names.iter().any(|name| name.to_string_lossy().starts_with("ld-")), "{names:?}");
        // The ring is empty again.
        assert!(!watch.wait(Duration::ZERO));
    }
}
