// SPDX-License-Identifier: MIT OR Apache-2.0
//! Removal of links by short-lived processes.
//!
//! The kernel waits for tens to hundreds of milliseconds until no CPU uses a link, so several processes remove them together
//! where the limits of processes have room. They do it in their exit: in close(2), a SIGKILL to this process would make the kernel
//! give up, and leave breakpoints in other programs (uprobe_unregister_nosync() in kernel/events/uprobes.c).
//!
//! The processes count in the cgroup of the observed program. A program that starts its last possible child must not find
//! the number taken: while it runs, there is mostly one of these processes, and none where the limits are tight.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::pipe::{PipeFlags, pipe_with};

use super::program::Link;
use crate::process::process_room::has_room_for;

/// Greatest number of processes that remove links together. The 30 links of a shell's trace are gone after 1.8 s with 4 or 32 of
/// them, and after 2.7 s with one; the 47 of ffmpeg's after 1.7 s with 32, 2.4 s with 4, and 3.5 s with one (Linux 6.18, 2 CPUs).
const REMOVERS: usize = 4;

/// Greatest number of links that wait for the end of another removal. Without room for a process, this one then removes them.
const MOST_WAITING: usize = 256;

/// Links that wait for their removal, and processes that remove others.
#[derive(Debug)]
struct LinkRemoval {
    waiting: Vec<Link>,
    /// Processes that were not waited for.
    removers: Vec<libc::pid_t>,
}

/// Removal of this process. The lock also keeps two removals apart: a process that is started meanwhile has a copy of the other one's
/// pipe, and would wait for one that has a copy of its own.
static REMOVAL: Mutex<LinkRemoval> = Mutex::new(LinkRemoval { waiting: Vec::new(), removers: Vec::new() });

/// Removes links while the observed program runs on: soon, at a later call, or at the call of [`remove_all`].
pub fn remove(links: Vec<Link>) {
    let mut removal = LinkRemoval::lock();
    removal.waiting.extend(links);
    removal.removers.retain(|remover| !has_ended(*remover));
    let are_many = removal.waiting.len() > MOST_WAITING;
    if (removal.removers.is_empty() || are_many) && has_room_for(1) {
        removal.start(1);
    } else if are_many {
        removal.waiting.clear();
    }
}

/// Removes links, and those that wait, at the end of an observation. Returns at once, and they are gone within a second or two, also
/// if this process ends before. Where the limits of processes are tight, returns when they are gone: then the end of this
/// process leaves all numbers free.
pub fn remove_all(links: Vec<Link>) {
    let mut removal = LinkRemoval::lock();
    removal.waiting.extend(links);
    let is_wide = has_room_for(REMOVERS as u64);
    removal.start(if is_wide { REMOVERS } else { 1 });
    let removers = std::mem::take(&mut removal.removers);
    if !is_wide {
        removers.into_iter().for_each(wait_for);
    } else {
        // Without a thread that waits for them, they stay as zombies until this process ends.
        let _ = thread::Builder::new().spawn(move || removers.into_iter().for_each(wait_for));
    }
}

impl LinkRemoval {
    fn lock() -> MutexGuard<'static, LinkRemoval> {
        // Lists are never half changed, so a poisoned lock is valid.
        REMOVAL.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts `count` processes at most that remove the waiting links. Those for which there can be none are removed here.
    fn start(&mut self, count: usize) {
        let links = std::mem::take(&mut self.waiting);
        let descriptors: Vec<i32> = links.iter().map(|link| link.descriptor.as_raw_fd()).collect();
        // Ends when this process has closed its copies: the last one to close a link removes it.
        let Ok((closed, closing)) = pipe_with(PipeFlags::CLOEXEC) else { return };
        for own in descriptors.chunks(descriptors.len().div_ceil(count).max(1)) {
            // SAFETY: the child only calls close(2), read(2) and _exit(2), which are async-signal-safe, and reads lists that were
            // made before.
            match unsafe { libc::fork() } {
                // SAFETY: the descriptors are this process's copies, which nothing uses any more.
                0 => unsafe {
                    // A signal for the group is not for this process, and nobody waits for its output.
                    libc::setpgid(0, 0);
                    (0..=2).for_each(|descriptor| _ = libc::close(descriptor));
                    for descriptor in descriptors.iter().filter(|descriptor| !own.contains(descriptor)) {
                        libc::close(*descriptor);
                    }
                    // Last, because the end of the pipe says that the others' links are closed here.
                    libc::close(closing.as_raw_fd());
                    let mut byte = 0u8;
                    while libc::read(closed.as_raw_fd(), (&raw mut byte).cast(), 1) < 0
                        && *libc::__errno_location() == libc::EINTR
                    {}
                    libc::_exit(0)
                },
                remover => self.removers.extend((remover > 0).then_some(remover)),
            }
        }
        drop(links);
        drop(closing);
    }
}

/// Returns true if the child `child`, which was not waited for yet, has ended. Then it was waited for.
fn has_ended(child: libc::pid_t) -> bool {
    // SAFETY: plain system call with a number.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::WNOHANG) != 0 }
}

/// Waits until the child `child`, which was not waited for yet, has ended.
pub(super) fn wait_for(child: libc::pid_t) {
    // SAFETY: plain system call with a number.
    while unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;
    use std::time::{Duration, Instant};

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    /// Returns true if a child of this process has an event open, as those have that remove the links of this test.
    fn has_remover() -> bool {
        let is_remover = |pid: u32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let parent = format!("PPid:\t{}\n", std::process::id());
            let events = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            let mut events = events.filter_map(|entry| fs::read_link(entry.path()).ok());
            status.contains(&parent) && events.any(|path| path.to_string_lossy().contains("[eventfd]"))
        };
        let processes = fs::read_dir("/proc").unwrap().flatten();
        processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).any(is_remover)
    }

    /// Each of several removals at once waits for its own processes, not for those of another one that have a copy of its pipe.
    #[test]
    fn removals_at_the_same_time_end() {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                thread::spawn(|| {
                    for number in 0..20 {
                        let link = |_| Link { descriptor: eventfd(0, EventfdFlags::CLOEXEC).unwrap() };
                        match number % 2 {
                            0 => remove((0..4).map(link).collect()),
                            _ => remove_all((0..4).map(link).collect()),
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        remove_all(Vec::new());
        let deadline = Instant::now() + Duration::from_secs(20);
        while has_remover() {
            assert!(Instant::now() < deadline, "a process that removes links does not end");
            thread::sleep(Duration::from_millis(20));
        }
    }
}
