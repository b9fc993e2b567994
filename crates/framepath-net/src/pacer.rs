// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pace of a viewer's packets: a token bucket. A frame of usual size leaves at once, a larger one spread over time.
//!
//! A frame that the network carries within a frame interval waits in no queue for long, however fast it leaves, so pacing it would only
//! delay it. A keyframe that leaves at once overflows the buffers of switches and receivers. Without clock and sockets.

use std::time::{Duration, Instant};

/// Time of which the bucket holds the bytes: about a frame interval. A smaller bucket delays frames of usual size, and a larger one
/// lets a keyframe fill the queue of a slow network.
const DEPTH: Duration = Duration::from_millis(20);
/// Most bytes that leave at once: a third of the receive buffer of a default kernel (212,992 bytes, which count with overhead).
const MOST: f64 = 64_000.0;
/// Shortest time from one burst of a large frame to the next, so that its packets share system calls.
const INTERVAL: Duration = Duration::from_micros(500);
/// Smallest burst, bytes: a run of datagrams for one system call.
const LEAST: f64 = 9000.0;

/// Token bucket of bytes.
#[derive(Debug)]
pub(crate) struct Pacer {
    /// Bytes that may leave; negative after a packet that was larger than the rest.
    allowance: f64,
    refilled: Instant,
}

impl Pacer {
    /// Makes a full bucket.
    pub(crate) fn new(now: Instant) -> Pacer {
        Pacer { allowance: MOST, refilled: now }
    }

    /// Returns the number of bytes that may leave at `now`; the last packet may exceed it. The bucket fills with `pace` bits per second.
    pub(crate) fn refill(&mut self, now: Instant, pace: f64) -> usize {
        let passed = now.duration_since(self.refilled).as_secs_f64();
        let depth = (pace / 8.0 * DEPTH.as_secs_f64()).clamp(LEAST, MOST);
        self.allowance = (self.allowance + pace / 8.0 * passed).min(depth);
        self.refilled = now;
        self.allowance.max(0.0) as usize
    }

    /// Records that so many bytes leave.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.allowance -= bytes as f64;
    }

    /// Returns the time of the next burst at `pace` bits per second.
    pub(crate) fn next_burst(&self, pace: f64) -> Instant {
        let least = (pace / 8.0 * INTERVAL.as_secs_f64()).max(LEAST);
        self.refilled + Duration::from_secs_f64(((least - self.allowance) * 8.0 / pace).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets `bytes` leave in packets of 1,000 bytes from `now` on. Returns the time of the last packet.
    fn leave(pacer: &mut Pacer, mut now: Instant, bytes: usize, pace: f64) -> Instant {
        let mut left = bytes;
        for _ in 0..10_000 {
            let packets = pacer.refill(now, pace).div_ceil(1000).min(left / 1000);
            pacer.spend(packets * 1000);
            left -= packets * 1000;
            if left == 0 {
                return now;
            }
            now = pacer.next_burst(pace).max(now + Duration::from_nanos(1));
        }
        panic!("{left} of {bytes} bytes never leave");
    }

    #[test]
    fn usual_frames_leave_at_once_and_large_ones_at_the_pace() {
        let begin = Instant::now();
        let (mut pacer, pace) = (Pacer::new(begin), 16_000_000.0);
        for frame in 1..=10 {
            let at = begin + frame * Duration::from_millis(16);
            assert_eq!(leave(&mut pacer, at, 30_000, pace), at);
        }
        // 40,000 bytes at once, and the rest at 2 bytes per microsecond; a burst is 9,000 bytes.
        let at = begin + Duration::from_secs(1);
        let took = leave(&mut pacer, at, 240_000, pace) - at;
        assert!((Duration::from_millis(90)..=Duration::from_millis(105)).contains(&took), "{took:?}");
    }

    #[test]
    fn a_pause_allows_no_more_than_a_full_bucket() {
        let begin = Instant::now();
        let mut pacer = Pacer::new(begin);
        for pace in [1_000.0, 10_000_000.0, 256_000_000.0] {
            let allowed = pacer.refill(begin + Duration::from_secs(3600), pace);
            assert!((LEAST as usize..=MOST as usize).contains(&allowed), "{allowed}");
        }
    }
}
