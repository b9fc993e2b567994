// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTP timestamps of one stream, extended to 64 bits.

/// Time of a timestamp 0 in the first cycle of 2^32 ticks. There is room for timestamps in front of the first one.
const FIRST_CYCLE: u64 = 1 << 32;

/// Extension of RTP timestamps, so that they do not wrap.
///
/// str0m extends them, too, but not each one to the nearest time: behind a pause of 1.5 seconds, it adds 2^31 ticks to a
/// timestamp that is earlier than the last one. B frames have such timestamps, and files that are repeated.
#[derive(Debug, Default)]
pub(crate) struct RtpTimes {
    /// Time of the last packet; `None` before the first.
    last: Option<u64>,
}

impl RtpTimes {
    /// Returns the time of the next packet, which is the nearest one to that of the last packet.
    pub(crate) fn extend(&mut self, timestamp: u32) -> u64 {
        let last = self.last.unwrap_or(FIRST_CYCLE + u64::from(timestamp));
        let step = timestamp.wrapping_sub(last as u32) as i32;
        *self.last.insert(last.wrapping_add_signed(i64::from(step)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(timestamps: &[u32]) -> Vec<i64> {
        let mut times = RtpTimes::default();
        let extended: Vec<u64> = timestamps.iter().map(|timestamp| times.extend(*timestamp)).collect();
        extended.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]) as i64).collect()
    }

    #[test]
    fn times_follow_timestamps_forwards_backwards_and_over_the_wrap() {
        assert_eq!(steps(&[9000, 12_600, 5400, 9000]), [3600, -7200, 3600]);
        assert_eq!(steps(&[u32::MAX - 99, 3500, u32::MAX - 99]), [3600, -3600]);
        assert_eq!(steps(&[100, u32::MAX - 3499, 100]), [-3600, 3600]);
    }

    #[test]
    fn timestamps_without_order_do_not_overflow() {
        let half = 1_u32 << 31;
        let downwards: Vec<u32> = (0..8_u32).map(|count| count.wrapping_mul(half)).collect();
        assert_eq!(steps(&downwards), [i64::from(i32::MIN); 7]);
    }
}
