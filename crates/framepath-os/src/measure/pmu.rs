// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hardware events of the calling thread in user mode: cycles, instructions, cache misses.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};

use perf_event_open_sys as sys;
use sys::bindings as perf;

/// Hardware event counts of one thread in user mode. If other users of the hardware counters took turns with
/// this thread, the counts are estimates, scaled up to the whole time; zeros if the counters never ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardwareCounts {
    /// Number of CPU cycles in user mode.
    pub cycles: u64,
    /// Number of instructions retired in user mode.
    pub instructions: u64,
    /// Number of cache misses in user mode, of the last cache level on most processors
    /// (PERF_COUNT_HW_CACHE_MISSES).
    pub cache_misses: u64,
}

/// Open hardware counters of one thread: a group of three events, read with one system call.
#[derive(Debug)]
pub struct Pmu {
    leader: File,
    _members: [File; 2],
}

impl Pmu {
    /// Opens the group for the calling thread. Fails with the kernel's error on machines without
    /// a PMU (most virtual machines), and where the kernel or a sandbox denies perf.
    pub fn open() -> io::Result<Pmu> {
        let leader = open_event(perf::PERF_COUNT_HW_CPU_CYCLES, -1)?;
        let group = leader.as_raw_fd();
        let members = [
            open_event(perf::PERF_COUNT_HW_INSTRUCTIONS, group)?,
            open_event(perf::PERF_COUNT_HW_CACHE_MISSES, group)?,
        ];
        Ok(Pmu { leader, _members: members })
    }

    /// Reads the counts since [`Pmu::open`]. Fails with the kernel's error, or if the kernel returns fewer
    /// bytes than expected.
    pub fn read(&self) -> io::Result<HardwareCounts> {
        let mut bytes = [0; 48];
        let read = (&self.leader).read(&mut bytes)?;
        parse_group(&bytes[..read])
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "short read of a perf event group"))
    }
}

fn open_event(config: u32, group: i32) -> io::Result<File> {
    let mut attr = perf::perf_event_attr {
        type_: perf::PERF_TYPE_HARDWARE,
        size: size_of::<perf::perf_event_attr>() as u32,
        config: u64::from(config),
        read_format: u64::from(
            perf::PERF_FORMAT_GROUP
                | perf::PERF_FORMAT_TOTAL_TIME_ENABLED
                | perf::PERF_FORMAT_TOTAL_TIME_RUNNING,
        ),
        ..Default::default()
    };
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    // SAFETY: `attr` is a valid, sized attribute block; pid 0 and cpu -1 mean
    // this thread on any CPU.
    let raw = unsafe { sys::perf_event_open(&mut attr, 0, -1, group, perf::PERF_FLAG_FD_CLOEXEC.into()) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a new descriptor without another owner.
    Ok(unsafe { File::from_raw_fd(raw) })
}

/// Parses a `struct read_format` with GROUP and both times (perf_event_open(2)): count, enabled,
/// running, then the values. Returns `None` unless there are exactly three values.
fn parse_group(bytes: &[u8]) -> Option<HardwareCounts> {
    let mut words = bytes.chunks_exact(8).map(|c| u64::from_ne_bytes(c.try_into().expect("eight bytes")));
    let (count, enabled, running) = (words.next()?, words.next()?, words.next()?);
    if count != 3 {
        return None;
    }
    let scale = |n: u64| {
        if running == 0 { 0 } else { (u128::from(n) * u128::from(enabled) / u128::from(running)) as u64 }
    };
    Some(HardwareCounts {
        cycles: scale(words.next()?),
        instructions: scale(words.next()?),
        cache_misses: scale(words.next()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    #[test]
    fn a_group_read_is_parsed_and_scaled() {
        let events = parse_group(&group(&[3, 100, 50, 1000, 2000, 3])).unwrap();
        assert_eq!(events, HardwareCounts { cycles: 2000, instructions: 4000, cache_misses: 6 });
    }

    #[test]
    fn a_group_that_never_ran_counts_nothing() {
        assert_eq!(parse_group(&group(&[3, 100, 0, 1, 2, 3])).unwrap(), HardwareCounts::default());
    }

    #[test]
    fn a_short_read_is_refused() {
        assert_eq!(parse_group(&group(&[3, 100, 100, 1])), None);
        assert_eq!(parse_group(&group(&[2, 1, 1, 1, 1])), None);
        assert_eq!(parse_group(&[]), None);
    }
}
