// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resources used by a running process: this one, or another by its id.

use std::fs;
use std::io;
use std::mem::MaybeUninit;

use crate::time::{cpu_ns_of, process_cpu_ns};

/// Resources used by the threads of a process since its start, or between two times
/// ([`Used::since`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// User and system CPU time, nanoseconds.
    pub cpu_ns: u64,
    /// Number of context switches, voluntary and involuntary. From [`of`], without the switches of threads
    /// that have ended.
    pub switches: u64,
}

impl Used {
    /// Returns the resources used since the earlier value `before`; 0 where `before` is larger.
    pub fn since(self, before: Used) -> Used {
        Used {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            switches: self.switches.saturating_sub(before.switches),
        }
    }
}

/// Returns the CPU time and the context switches of this process. Makes two system calls
/// (getrusage(2) for the switches).
pub fn own_usage() -> Used {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the struct; all-zero is a valid value if the call fails.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    Used { cpu_ns: process_cpu_ns(), switches: (usage.ru_nvcsw + usage.ru_nivcsw) as u64 }
}

/// Returns the memory of this process that is in RAM, bytes.
///
/// # Errors
/// /proc is not accessible, or not as in proc(5).
pub fn own_memory() -> io::Result<u64> {
    kibibytes("/proc/self/status", "VmRSS:")
}

/// Returns the memory that the kernel can give to programs without swapping, bytes: an estimate.
///
/// # Errors
/// As for [`own_memory`].
pub fn available_memory() -> io::Result<u64> {
    kibibytes("/proc/meminfo", "MemAvailable:")
}

/// Returns the size behind `name` in a file with lines such as `VmRSS:  1024 kB`, bytes.
fn kibibytes(file: &str, name: &str) -> io::Result<u64> {
    let text = fs::read_to_string(file)?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
    let kibibytes: Option<u64> = value.and_then(|value| value.parse().ok());
    kibibytes.map(|value| value << 10).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the usage of the process `pid`: the CPU time of all its threads, ended ones included, and the
/// context switches of its present threads. Several system calls.
///
/// # Errors
/// There is no such process, or its /proc is not accessible.
pub fn of(pid: u32) -> io::Result<Used> {
    let cpu_ns = cpu_ns_of(pid).ok_or(io::ErrorKind::NotFound)?;
    Ok(Used { cpu_ns, switches: switches(pid)? })
}

/// Returns the CPU time of the process `pid` and of the children that it waited for, nanoseconds,
/// in steps of the kernel's clock tick (usually 10 ms).
///
/// # Errors
/// There is no such process, or its file `stat` in /proc is not accessible or not as in proc(5).
pub fn with_children(pid: u32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    ticks_in(&stat)
        .map(|ticks| ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second())
        .ok_or_else(|| unexpected_format(pid))
}

/// Returns the sum of the fields 14 to 17 of a process's `stat` (proc(5)), clock ticks: utime and stime
/// of the process and of its children. Returns `None` if the text has no name in parentheses, or a
/// field is not a number; missing fields count as 0. The name may contain anything.
fn ticks_in(stat: &str) -> Option<u64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    // The first field after the name is field 3, the state.
    let times = behind_name.split_whitespace().skip(14 - 3).take(4);
    times.map(|ticks| ticks.parse::<u64>().ok()).sum()
}

/// Returns the state of the first thread of the process `pid` as in proc(5): `T` if it is stopped, for example.
/// Reads one file.
///
/// # Errors
/// There is no such process (any more), or its file `stat` in /proc is not accessible or not as in proc(5).
pub fn state(pid: u32) -> io::Result<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    state_in(&stat).ok_or_else(|| unexpected_format(pid))
}

/// Returns field 3 of a process's `stat`. Returns `None` if the text has no name in parentheses, or no such field.
fn state_in(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Returns true if the process `pid` has ended, or is in the kernel's exit function: it runs no more of
/// its program, although wait4(2) may not report it yet. Reads one file.
///
/// # Errors
/// There is no such process (any more), or its file `stat` in /proc is not accessible or not as in
/// proc(5).
pub fn is_exiting(pid: u32) -> io::Result<bool> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    exiting_in(&stat).ok_or_else(|| unexpected_format(pid))
}

/// Returns true if the flags in a process's `stat` (proc(5), field 9) contain PF_EXITING
/// (linux/sched.h). Returns `None` if the text has no name in parentheses, or no such number.
fn exiting_in(stat: &str) -> Option<bool> {
    const PF_EXITING: u32 = 0x4;
    let (_, behind_name) = stat.rsplit_once(')')?;
    let flags: u32 = behind_name.split_whitespace().nth(9 - 3)?.parse().ok()?;
    Some(flags & PF_EXITING != 0)
}

fn unexpected_format(pid: u32) -> io::Error {
    io::Error::other(format!("/proc/{pid}/stat: unexpected format; expected that of proc(5)"))
}

fn switches(pid: u32) -> io::Result<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread that has ended has no file any more.
        if let Ok(status) = fs::read_to_string(thread?.path().join("status")) {
            sum += switches_in(&status);
        }
    }
    Ok(sum)
}

/// Returns the sum of voluntary and involuntary switches in a thread's `status` (proc(5)).
fn switches_in(status: &str) -> u64 {
    let lines = status.lines().filter_map(|line| line.split_once(':'));
    lines
        .filter(|(name, _)| matches!(*name, "voluntary_ctxt_switches" | "nonvoluntary_ctxt_switches"))
        .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_switches_count() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
        assert_eq!(switches_in(status), 695);
        assert_eq!(switches_in("Name:\tx\n"), 0);
    }

    #[test]
    fn times_of_children_count() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 100 20 3 4000 20 0 1 0 5";
        assert_eq!(ticks_in(stat), Some(4123));
        assert_eq!(ticks_in("7 (x) S 1"), Some(0));
        assert!(with_children(std::process::id()).is_ok());
    }

    #[test]
    fn an_ended_child_is_exiting_before_it_is_waited_for() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert!(!is_exiting(child.id()).unwrap());
        drop(child.stdin.take());
        let pidfd = rustix::process::pidfd_open(
            rustix::process::Pid::from_raw(child.id() as i32).unwrap(),
            rustix::process::PidfdFlags::empty(),
        )
        .unwrap();
        rustix::event::poll(&mut [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)], None)
            .unwrap();
        assert!(is_exiting(child.id()).unwrap());
        crate::process::children::wait(child).unwrap();
        assert_eq!(exiting_in("7 (a) b) S 1 7 7 0 -1 4194564 1"), Some(true));
        assert_eq!(exiting_in("7 (x) S 1"), None);
        assert_eq!(state_in("7 (a) b) T 1 7 7"), Some('T'));
        assert_eq!((state_in("7 (x)"), state_in("7 x S")), (None, None));
    }

    #[test]
    fn this_process_is_the_one_with_its_id() {
        let before = own_usage();
        let by_id = of(std::process::id()).unwrap();
        let after = own_usage();
        assert!((before.cpu_ns..=after.cpu_ns).contains(&by_id.cpu_ns), "{before:?} {by_id:?} {after:?}");
        assert_eq!(before.since(after), Used::default());
    }

    #[test]
    fn own_memory_grows_with_what_is_used() {
        let before = own_memory().unwrap();
        let bytes = std::hint::black_box(vec![1u8; 64 << 20]);
        let more = own_memory().unwrap() - before;
        assert!((32 << 20..1 << 30).contains(&more), "{more} for {}", bytes.len());
        assert!(available_memory().unwrap() > 64 << 20);
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        let child = std::process::Command::new("true").spawn().unwrap();
        let id = child.id();
        crate::process::children::wait(child).unwrap();
        assert!(of(id).is_err());
    }
}
