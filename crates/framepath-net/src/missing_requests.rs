// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times at which a viewer asks for missing packets. No clock and no I/O: the caller says what is missing, and asks.
//!
//! A new gap is asked for at once, and again if the answer does not come within a round trip, because the request or the answer may be
//! lost as well. The time to the next request grows each time: str0m asks for a packet at most five times, and these
//! should last as long as a frame waits for its packets.

/// Round trip before the first measurement, nanoseconds.
const FIRST_ROUND_TRIP_NS: u64 = 20_000_000;
/// Shortest time between two requests, nanoseconds. Each request asks for all missing packets.
const LEAST_INTERVAL_NS: u64 = 8_000_000;
/// Longest time between two requests for the same packets, nanoseconds.
const MOST_INTERVAL_NS: u64 = 100_000_000;

/// Schedule of the requests for missing packets. All times are of one clock, in nanoseconds.
#[derive(Debug)]
pub(crate) struct MissingRequests {
    /// Time from a request to the packet, smoothed.
    round_trip_ns: u64,
    /// First missing packet, and the number of requests since it is the first one.
    asked_for: Option<(u64, u32)>,
    /// Time of the last request; `None` before the first.
    asked_ns: Option<u64>,
    /// True if packets are missing that no request was sent for.
    is_new: bool,
}

impl Default for MissingRequests {
    fn default() -> MissingRequests {
        MissingRequests { round_trip_ns: FIRST_ROUND_TRIP_NS, asked_for: None, asked_ns: None, is_new: false }
    }
}

impl MissingRequests {
    /// Takes the present state: the first missing packet, if there is one, and true if a packet was found missing since the last call.
    pub(crate) fn update(&mut self, first: Option<u64>, has_gap: bool, now_ns: u64) {
        self.is_new = first.is_some() && (self.is_new || has_gap);
        let Some((asked, requests)) = self.asked_for else { return };
        if first == Some(asked) {
            return;
        }
        // After two requests, it is not known which of them was answered.
        if let Some(asked_ns) = self.asked_ns.filter(|_| requests == 1) {
            let sample_ns = now_ns.saturating_sub(asked_ns);
            self.round_trip_ns = (self.round_trip_ns * 7 + sample_ns) / 8;
        }
        self.asked_for = None;
    }

    /// Returns the time of the next request; `None` if nothing is missing. `first` is the first missing packet.
    pub(crate) fn deadline_ns(&self, first: Option<u64>) -> Option<u64> {
        let first = first?;
        let asked_ns = self.asked_ns.unwrap_or(0);
        let requests =
            self.asked_for.filter(|(asked, _)| *asked == first).map_or(0, |(_, requests)| requests);
        let interval_ns = if self.is_new || requests == 0 {
            LEAST_INTERVAL_NS
        } else {
            let patience_ns = self.round_trip_ns.saturating_mul(3) / 2;
            (patience_ns.max(LEAST_INTERVAL_NS) << (requests - 1).min(4)).min(MOST_INTERVAL_NS)
        };
        Some(asked_ns + interval_ns)
    }

    /// Takes note of a request at `now_ns`, when the packet `first` was the first missing one.
    pub(crate) fn asked(&mut self, first: u64, now_ns: u64) {
        let before = self.asked_for.filter(|(asked, _)| *asked == first).map_or(0, |(_, requests)| requests);
        (self.asked_for, self.asked_ns, self.is_new) = (Some((first, before + 1)), Some(now_ns), false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_gap_is_asked_for_at_once_and_again_after_a_round_trip_and_then_later() {
        let mut requests = MissingRequests::default();
        requests.update(None, false, 1000 * MS);
        assert_eq!(requests.deadline_ns(None), None);
        requests.update(Some(7), true, 1000 * MS);
        assert!(requests.deadline_ns(Some(7)).unwrap() <= 1000 * MS);
        requests.asked(7, 1000 * MS);
        requests.update(Some(7), false, 1001 * MS);
        assert_eq!(requests.deadline_ns(Some(7)), Some(1030 * MS));
        requests.asked(7, 1030 * MS);
        assert_eq!(requests.deadline_ns(Some(7)), Some(1090 * MS));
        requests.asked(7, 1090 * MS);
        assert_eq!(requests.deadline_ns(Some(7)), Some(1190 * MS));
        requests.update(None, false, 1200 * MS);
        assert_eq!(requests.deadline_ns(None), None);
    }

    #[test]
    fn a_further_gap_waits_a_little_for_others() {
        let mut requests = MissingRequests::default();
        requests.update(Some(7), true, 1000 * MS);
        requests.asked(7, 1000 * MS);
        requests.update(Some(7), true, 1002 * MS);
        assert_eq!(requests.deadline_ns(Some(7)), Some(1008 * MS));
        // The first one arrives, and the further one is still missing.
        requests.update(Some(9), false, 1005 * MS);
        assert_eq!(requests.deadline_ns(Some(9)), Some(1008 * MS));
    }

    #[test]
    fn the_round_trip_is_measured_by_packets_that_were_asked_for_once() {
        let mut requests = MissingRequests::default();
        for number in 0..60 {
            let now_ns = (1 + number) * 1000 * MS;
            requests.update(Some(number), true, now_ns);
            requests.asked(number, now_ns);
            if number % 2 == 1 {
                requests.asked(number, now_ns + 50 * MS);
            }
            requests.update(None, false, now_ns + if number % 2 == 1 { 51 * MS } else { 10 * MS });
        }
        requests.update(Some(99), true, 100_000 * MS);
        requests.asked(99, 100_000 * MS);
        let again_ns = requests.deadline_ns(Some(99)).unwrap() - 100_000 * MS;
        assert!((15 * MS..16 * MS).contains(&again_ns), "{again_ns}");
    }
}
