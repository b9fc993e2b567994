// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decoding times made from presentation times.

/// Maker of decoding times for packets in decoding order, from their presentation times and the number of pictures
/// by which the stream reorders. The decoding time is the smallest of the last presentation times.
#[derive(Debug)]
pub(super) struct DecodeTimes {
    /// Number of pictures by which the stream reorders.
    delay: usize,
    /// Duration of a picture in ticks.
    step: i64,
    /// The last presentation times that were no decoding times, smallest first: `delay` of them, none before the
    /// first packet.
    waiting: Vec<i64>,
}

impl DecodeTimes {
    pub(super) fn new(delay: usize, step: i64) -> DecodeTimes {
        DecodeTimes { delay, step, waiting: Vec::new() }
    }

    /// True if the order of the packets may differ from the order of presentation.
    pub(super) fn reorders(&self) -> bool {
        self.delay > 0
    }

    /// Forgets the earlier packets, because the stream restarts.
    pub(super) fn restart(&mut self) {
        self.waiting.clear();
    }

    /// Returns the decoding time of the packet with the presentation time `pts`.
    pub(super) fn next(&mut self, pts: i64) -> i64 {
        if self.waiting.is_empty() {
            // The first packets are decoded before the first picture is shown.
            let before = |pictures: usize| pts.saturating_sub(self.step.saturating_mul(pictures as i64));
            self.waiting = (1..=self.delay).rev().map(before).collect();
        }
        let place = self.waiting.partition_point(|waiting| *waiting <= pts);
        self.waiting.insert(place, pts);
        self.waiting.remove(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_times_rise_and_are_not_late() {
        let mut times = DecodeTimes::new(2, 10);
        // I0 P3 B1 b2 ... with two pictures of delay.
        let shown = [0, 40, 20, 10, 30, 80, 60, 50, 70];
        let decoded = shown.map(|pts| times.next(pts));
        assert_eq!(decoded, [-20, -10, 0, 10, 20, 30, 40, 50, 60]);
        assert!(decoded.iter().zip(shown).all(|(decoded, shown)| *decoded <= shown));
        times.restart();
        assert_eq!([0, 40].map(|pts| times.next(pts)), [-20, -10]);
    }

    #[test]
    fn without_delay_both_times_are_equal() {
        let mut times = DecodeTimes::new(0, 10);
        assert_eq!([5, 3, 9].map(|pts| times.next(pts)), [5, 3, 9]);
    }
}
