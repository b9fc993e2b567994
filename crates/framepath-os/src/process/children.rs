// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for a child process, its resource usage, and signals to processes.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

/// Time after the first SIGINT or SIGTERM to this process at which [`wait`] kills a child that has not ended:
/// longer than framepath, as the child, needs to end after SIGTERM.
const PATIENCE: Duration = Duration::from_millis(700);

/// Resources used by an ended child and by its descendants that had ended and whose parents waited for
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    /// User and system CPU time, nanoseconds.
    pub cpu_ns: u64,
    /// Largest resident set of a single one of these processes, KiB. Includes the child's memory before its
    /// exec, which it has from the process that started it.
    pub peak_memory_kib: u64,
    /// Number of context switches, voluntary and involuntary.
    pub switches: u64,
    /// Number of voluntary switches among `switches`; each is a sleep and a later wake-up.
    pub voluntary_switches: u64,
    /// Exit code of the child; `None` if a signal ended it.
    pub exit_code: Option<i32>,
    /// Number of the signal that ended the child; `None` if the child exited.
    pub signal: Option<i32>,
}

impl ResourceUsage {
    /// Converts the status and the usage that wait4(2) returned.
    pub(crate) fn of(status: libc::c_int, usage: &libc::rusage) -> ResourceUsage {
        let nanos = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000;
        ResourceUsage {
            cpu_ns: nanos(usage.ru_utime) + nanos(usage.ru_stime),
            peak_memory_kib: usage.ru_maxrss as u64,
            switches: (usage.ru_nvcsw + usage.ru_nivcsw) as u64,
            voluntary_switches: usage.ru_nvcsw as u64,
            exit_code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
            signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        }
    }
}

/// Waits for `child` to end (wait4(2)) and returns its resource usage. Takes the child by value,
/// because its id may be reused afterwards. If SIGINT or SIGTERM arrives at this process before or during the
/// wait, sends SIGTERM to the child, and SIGKILL if it has not ended 700 ms after the signal. This
/// needs [`signal::install`](crate::process::signal::install) and an interruptible calling thread. If the
/// calling thread's run was requested to stop before the call, sends SIGTERM, too, but no SIGKILL. A stop
/// request during the wait does not interrupt the wait.
pub fn wait(child: Child) -> io::Result<ResourceUsage> {
    wait_for(child.id() as libc::pid_t)
}

/// Waits for the child `pid`, which was not waited for yet, as [`wait`] does.
pub(crate) fn wait_for(pid: libc::pid_t) -> io::Result<ResourceUsage> {
    let (mut asked_to_end, mut killed) = (false, false);
    // SAFETY: plain system call; the child is unreaped, so the id still belongs to it.
    let signal = |number: i32| unsafe { libc::kill(pid, number) };
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    loop {
        if crate::process::signal::interrupted() && !asked_to_end {
            asked_to_end = true;
            // Fails only if the child may not be signalled, for example because it changed its user.
            signal(libc::SIGTERM);
        }
        if asked_to_end && !killed && crate::process::signal::since().is_some_and(|since| since > PATIENCE) {
            killed = true;
            signal(libc::SIGKILL);
        }
        // SAFETY: both pointers are valid for the call, and all-zero is a valid rusage if the
        // kernel does not fill it.
        let waited = unsafe { libc::wait4(pid, &mut status, 0, usage.as_mut_ptr()) };
        if waited == pid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: wait4 succeeded and filled it.
    let usage = unsafe { usage.assume_init() };
    Ok(ResourceUsage::of(status, &usage))
}

/// Sends the signal with number `signal` to `child`, which was not waited for yet. Succeeds without an effect
/// if the child has ended.
pub fn signal(child: &Child, signal: i32) -> io::Result<()> {
    // SAFETY: plain system call; the child is unreaped, so the id still belongs to it.
    if unsafe { libc::kill(child.id() as libc::pid_t, signal) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Sends `signal` to the process group of `child`, which is the group's first process
/// (`CommandExt::process_group(0)`) and was not waited for yet.
///
/// # Errors
/// No process of the group is left, or the signal is not permitted.
pub fn signal_group(child: &Child, signal: i32) -> io::Result<()> {
    // SAFETY: plain system call; the child is unreaped, so its id and the group's id still belong
    // to it.
    if unsafe { libc::kill(-(child.id() as libc::pid_t), signal) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Sends `signal` to the process `pid`. The caller must know that the id still belongs to the
/// intended process.
///
/// # Errors
/// There is no such process, the kernel does not permit the signal (the process belongs to another user, for
/// example), `signal` is no signal's number, or `pid` is 0, 1 or above `i32::MAX`.
pub fn signal_process(pid: u32, signal: i32) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 1).ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: plain system call; the number is one process and no group.
    if unsafe { libc::kill(pid, signal) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Changes `command`, which is not started yet, so that its child gets a process group of its own, which
/// Ctrl-C does not reach, and so that the kernel kills the child when the thread that starts it ends.
/// Returns `command`.
pub fn on_a_lead(command: &mut Command) -> &mut Command {
    command.process_group(0);
    // SAFETY: prctl(2) is async-signal-safe, and nothing else is called.
    unsafe {
        command.pre_exec(|| {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_group_ends_as_one() {
        let mut command = Command::new("sh");
        let child = on_a_lead(command.args(["-c", "sleep 100 & sleep 100; exit 3"])).spawn().unwrap();
        signal_group(&child, libc::SIGKILL).unwrap();
        assert_eq!(wait(child).unwrap().signal, Some(libc::SIGKILL));
        assert!(signal_process(1, 0).is_err() && signal_process(u32::MAX, 0).is_err());
        signal_process(std::process::id(), 0).unwrap();
    }

    #[test]
    fn exit_codes_signals_and_cpu_are_told() {
        let run = |script: &str| wait(Command::new("sh").args(["-c", script]).spawn().unwrap()).unwrap();
        assert_eq!(run("exit 7").exit_code, Some(7));
        assert_eq!(run("kill -9 $$").signal, Some(9));
        let busy = run("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done");
        assert!(busy.cpu_ns > 0 && busy.peak_memory_kib > 0);
    }
}
