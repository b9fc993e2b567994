// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections of live sources that are lost and made again: pauses between the attempts, and times that go on.

use std::sync::atomic::Ordering;
use std::time::Duration;

use framepath_os::time::now_ns;

use crate::error::StageError;
use crate::outcomes::Outcomes;

/// Pause before the first attempt to connect again. It doubles with every further attempt in a row.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause before an attempt to connect again.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Maximum number of reconnections that the report describes one by one.
const MOST_NOTES: u64 = 8;

/// Returns the pause before the attempt with this number, from 0, to connect again.
fn pause_before(attempt: u64) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << attempt.min(16)).min(LONGEST_PAUSE)
}

/// Lost connection.
pub(super) struct Lost {
    /// CLOCK_MONOTONIC time of the loss, nanoseconds.
    pub(super) since_ns: u64,
    /// Time before the loss in which nothing arrived, nanoseconds.
    silent_ns: u64,
    /// Number of packets that the connection delivered.
    pub(super) packets: u64,
    /// Error by which the connection was lost; `None` if the server has ended the stream.
    pub(super) error: Option<StageError>,
    /// Number of failed attempts so far to connect again.
    pub(super) attempts: u64,
    /// CLOCK_MONOTONIC time of the next attempt, nanoseconds.
    pub(super) due_ns: u64,
}

impl Lost {
    /// Makes the loss of a connection that is lost now.
    pub(super) fn now(packets: u64, error: Option<StageError>) -> Lost {
        let since_ns = now_ns();
        let due_ns = since_ns + pause_before(0).as_nanos() as u64;
        Lost { since_ns, silent_ns: 0, packets, error, attempts: 0, due_ns }
    }

    /// Adds the time in which nothing arrived before the loss was found.
    #[cfg(feature = "net")]
    pub(super) fn behind_silence(self, silence: Duration) -> Lost {
        Lost { silent_ns: u64::try_from(silence.as_nanos()).unwrap_or(u64::MAX), ..self }
    }

    /// Counts a failed attempt, and sets the time of the next.
    pub(super) fn failed(&mut self) {
        self.attempts += 1;
        self.due_ns = now_ns() + pause_before(self.attempts).as_nanos() as u64;
    }

    /// Counts the connection of the source `hop` that ends the loss, and notes it. Returns the time without a connection, nanoseconds.
    pub(super) fn reconnected(&self, hop: &str, outcomes: &Outcomes) -> u64 {
        let gap_ns = now_ns().saturating_sub(self.since_ns).saturating_add(self.silent_ns);
        let network = &outcomes.network;
        network.gap_ns.fetch_add(gap_ns, Ordering::Relaxed);
        if network.reconnects.fetch_add(1, Ordering::Relaxed) < MOST_NOTES {
            outcomes.notes.add(format!(
                "{hop}: connection lost after {} packets ({}); reconnected after {:.2} s",
                self.packets,
                self.reason(),
                gap_ns as f64 / 1e9
            ));
        }
        gap_ns
    }

    /// Returns the reason of the loss.
    pub(super) fn reason(&self) -> String {
        self.error.as_ref().map_or_else(|| "the server ended the stream".to_owned(), ToString::to_string)
    }
}

/// Presentation times of a stream that goes on over several connections.
#[derive(Debug, Default)]
pub(super) struct ConnectedTimes {
    /// Latest end of a packet so far, ticks; `None` before the first packet with a time.
    end: Option<i64>,
    /// Ticks to add to the times of the present connection; `None` until its first packet with a time.
    shift: Option<i64>,
    /// Ticks without a connection before the present one.
    gap: i64,
}

impl ConnectedTimes {
    /// Begins another connection, `gap` ticks after the end of the last one.
    pub(super) fn reconnect(&mut self, gap: i64) {
        (self.shift, self.gap) = (None, gap.max(0));
    }

    /// Returns the time of a packet in the whole stream, from its time and duration in its connection.
    pub(super) fn place(&mut self, pts: i64, duration: i64) -> i64 {
        let start = || self.end.map_or(0, |end| end.saturating_add(self.gap).saturating_sub(pts));
        let shift = *self.shift.get_or_insert_with(start);
        let placed = pts.saturating_add(shift);
        let end = placed.saturating_add(duration.max(1));
        self.end = Some(self.end.map_or(end, |latest| latest.max(end)));
        placed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_on_behind_a_gap() {
        let mut timeline = ConnectedTimes::default();
        let placed: Vec<i64> = [900, 1200, 1000, 1100].map(|pts| timeline.place(pts, 100)).into();
        assert_eq!(placed, [900, 1200, 1000, 1100], "the first connection's times are kept");
        timeline.reconnect(50);
        // The leading picture of the new connection's first point is discarded by the decoder.
        assert_eq!([0, 200, -100].map(|pts| timeline.place(pts, 100)), [1350, 1550, 1250]);
        timeline.reconnect(-7);
        assert_eq!(timeline.place(-5, 0), 1650);
    }

    #[test]
    fn a_reconnection_is_counted_and_the_first_ones_are_noted() {
        let outcomes = Outcomes::default();
        let lost = Lost::now(7, None);
        let gaps: u64 = (0..MOST_NOTES + 2).map(|_| lost.reconnected("recv", &outcomes)).sum();
        assert_eq!(outcomes.network.reconnects.load(Ordering::Relaxed), MOST_NOTES + 2);
        assert_eq!(outcomes.network.gap_ns.load(Ordering::Relaxed), gaps);
        let notes = outcomes.notes.take();
        assert_eq!(notes.len() as u64, MOST_NOTES);
        assert!(notes[0].starts_with(
            "recv: connection lost after 7 packets (the server ended the stream); reconnected after "
        ));
    }

    #[test]
    fn pauses_double_up_to_five_seconds() {
        let pauses: Vec<u128> = (0..8).map(|attempt| pause_before(attempt).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(pause_before(u64::MAX), LONGEST_PAUSE);
    }
}
