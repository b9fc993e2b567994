// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU affinity of the calling thread or of another process's main thread, and scheduling priority of the
//! calling thread.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns the numbers of the CPUs on which the calling thread may run, in rising order. Fails with EINVAL if
/// the kernel supports more than 1024 CPUs.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Returns the numbers of the machine's CPUs that are online, in rising order. Reads /sys, or /proc/stat in a chroot or
/// container without /sys. Without both, the C library's number of CPUs counts: they are those from 0 on, and those on which
/// the calling thread may run.
///
/// # Errors
/// Neither file can be read, and the system does not know the number.
pub fn online_cpus() -> io::Result<Vec<usize>> {
    let listed = std::fs::read_to_string("/sys/devices/system/cpu/online").map(|text| cpu_list(&text));
    let counted = || std::fs::read_to_string("/proc/stat").map(|text| cpus_in_stat(&text));
    for cpus in [listed, counted()] {
        if let Some(cpus) = cpus.ok().filter(|cpus| !cpus.is_empty()) {
            return Ok(cpus);
        }
    }
    // SAFETY: sysconf has no precondition.
    let number = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    let number = usize::try_from(number).map_err(|_| io::Error::last_os_error())?;
    let allowed = allowed_cpus()?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| *cpu < number || allowed.contains(cpu)).collect())
}

/// Returns the numbers of the CPUs in the text of /proc/stat (proc(5)), which has a line `cpuN ...` for each CPU that is online.
fn cpus_in_stat(text: &str) -> Vec<usize> {
    let number = |line: &str| line.strip_prefix("cpu")?.split(' ').next()?.parse().ok();
    text.lines().filter_map(number).collect()
}

/// Returns the numbers in a list of the kernel, such as `0-3,6`; leaves out words that are no numbers.
fn cpu_list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// Pins the calling thread to CPU number `cpu`; EINVAL if the thread may not run there or there is no
/// such CPU.
pub fn pin_to(cpu: usize) -> io::Result<()> {
    Ok(sched_setaffinity(None, &only(cpu)?)?)
}

/// Pins the main thread of process `pid` to CPU number `cpu`, not its other threads. ESRCH if there is no
/// such process, EINVAL if the thread may not run there or there is no such CPU, EPERM if the caller may not
/// change the process (it belongs to another user, for example).
pub fn pin_process_to(pid: u32, cpu: usize) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(rustix::thread::Pid::from_raw);
    // 0 would mean the calling thread.
    let pid = pid.ok_or(rustix::io::Errno::SRCH)?;
    Ok(sched_setaffinity(Some(pid), &only(cpu)?)?)
}

fn only(cpu: usize) -> io::Result<CpuSet> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(rustix::io::Errno::INVAL.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(set)
}

/// Gives the calling thread the policy SCHED_FIFO with the lowest real-time priority, so that it
/// runs before every ordinary thread of its CPU. Fails with EPERM without CAP_SYS_NICE and without an
/// RLIMIT_RTPRIO of at least 1.
pub fn become_realtime() -> io::Result<()> {
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: `param` outlives the call; 0 names the calling thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lists_of_cpus_have_numbers_and_ranges() {
        assert_eq!(cpu_list("0-2,5,7-8\n"), [0, 1, 2, 5, 7, 8]);
        assert_eq!(cpu_list("0\n"), [0]);
        assert!(cpu_list("\n").is_empty());
    }

    #[test]
    fn the_lines_of_the_statistics_have_the_numbers_of_cpus() {
        let text = "cpu  10 0 20 30\ncpu0 5 0 10 15\ncpu12 5 0 10 15\nintr 7 0\ncpufreq 1\n";
        assert_eq!(cpus_in_stat(text), [0, 12]);
        assert!(cpus_in_stat("").is_empty());
    }

    #[test]
    fn both_sources_have_the_same_cpus() {
        let stat = std::fs::read_to_string("/proc/stat").unwrap();
        assert_eq!(cpus_in_stat(&stat), online_cpus().unwrap());
    }

    #[test]
    fn a_cpu_beyond_all_sets_is_an_error() {
        for cpu in [CpuSet::MAX_CPU, usize::MAX] {
            assert_eq!(pin_to(cpu).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        }
    }
}
