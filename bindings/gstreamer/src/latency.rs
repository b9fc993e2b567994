// SPDX-License-Identifier: MIT OR Apache-2.0
//! Number of packets that a decoder needs before it gives the first of their frames.

/// Frames after which the number is known: no codec's pictures wait for more than 16 others.
const SURE: u64 = 32;

/// Estimate of the number, from how many packets went in when each frame came out. Packets that only wait for the decoder make it too
/// large, never too small, so the least of the first frames counts.
#[derive(Debug, Default)]
pub(crate) struct DelayEstimate {
    packets: u64,
    frames: u64,
    least: Option<u64>,
    told: Option<u64>,
}

impl DelayEstimate {
    /// Counts a packet.
    pub(crate) fn packet(&mut self) {
        self.packets += 1;
    }

    /// Counts a frame. Returns the delay in frames if it is to be told: with the first frame, so that it is not late, and once it is sure.
    pub(crate) fn frame(&mut self) -> Option<u64> {
        self.frames += 1;
        if self.frames > SURE {
            return None;
        }
        let delay = self.packets.saturating_sub(self.frames);
        let least = self.least.map_or(delay, |least| least.min(delay));
        self.least = Some(least);
        let is_told = (self.frames == 1 || self.frames == SURE) && self.told != Some(least);
        is_told.then(|| *self.told.insert(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_wait_count_only_until_the_delay_is_sure() {
        let mut delay = DelayEstimate::default();
        // The decoder starts late: five packets wait.
        (0..5).for_each(|_| delay.packet());
        assert_eq!(delay.frame(), Some(4));
        // It catches up: two are needed.
        (0..2).for_each(|_| assert_eq!(delay.frame(), None));
        let told: Vec<u64> = (0..40)
            .filter_map(|_| {
                delay.packet();
                delay.frame()
            })
            .collect();
        assert_eq!(told, [2]);
    }
}
