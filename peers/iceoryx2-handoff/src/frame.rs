// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first 16 bytes of a frame, and the clocks.

use std::mem::MaybeUninit;

use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};

/// Size of the header in bytes: sequence number and timestamp.
pub const HEADER: usize = 16;
/// Sequence number of the frame that starts the clocks.
pub const MARK: u64 = u64::MAX - 1;
/// Sequence number of the warm-up frames, which come before the mark.
pub const WARM_UP: u64 = u64::MAX;

/// Writes the sequence number and the timestamp into the first 16 bytes of a frame, and
/// nothing else.
pub fn write_header(frame: &mut [MaybeUninit<u8>], sequence: u64, stamp_ns: u64) {
    let bytes = sequence.to_ne_bytes().into_iter().chain(stamp_ns.to_ne_bytes());
    for (to, byte) in frame.iter_mut().zip(bytes) {
        to.write(byte);
    }
}

/// Returns the sequence number and the timestamp (nanoseconds) of a frame, which has at
/// least 16 bytes.
pub fn read_header(frame: &[u8]) -> (u64, u64) {
    let word = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&frame[at..at + 8]);
        u64::from_ne_bytes(bytes)
    };
    (word(0), word(8))
}

/// Returns CLOCK_MONOTONIC in nanoseconds, which is the same in both processes.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has CLOCK_MONOTONIC");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// Resource usage of this process: CPU time, and voluntary and involuntary context
/// switches, of all threads.
#[derive(Clone, Copy, Default)]
pub struct Usage {
    pub cpu_ns: u64,
    pub switches: u64,
}

impl Usage {
    pub fn now() -> Usage {
        let usage = getrusage(UsageWho::RUSAGE_SELF).expect("getrusage of oneself");
        let ns = |t: nix::sys::time::TimeVal| t.tv_sec() as u64 * 1_000_000_000 + t.tv_usec() as u64 * 1000;
        Usage {
            cpu_ns: ns(usage.user_time()) + ns(usage.system_time()),
            switches: (usage.voluntary_context_switches() + usage.involuntary_context_switches()) as u64,
        }
    }

    pub fn since(self, start: Usage) -> Usage {
        Usage { cpu_ns: self.cpu_ns - start.cpu_ns, switches: self.switches - start.switches }
    }
}
