// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time of a frame from its first packet on the network to the source that hands it on.

use framepath_model::ledger::{Cause, SpanPlace};
use framepath_os::measure::meter::Level;

use super::Recorder;
use super::stretch::Stretch;

/// Times of a frame that a receiver's thread has received from the network, CLOCK_MONOTONIC nanoseconds, in this order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameArrival {
    /// Arrival of the first packet: the frame's birth.
    pub(crate) first_ns: u64,
    /// Arrival of the last packet. Until then the frame waits for its packets.
    pub(crate) last_ns: u64,
    /// Time at which the receiver's thread took the last packet.
    pub(crate) taken_ns: u64,
    /// Time at which the frame was decrypted and reassembled.
    pub(crate) whole_ns: u64,
    /// CPU time of the receiver's thread from `taken_ns` to `whole_ns`, nanoseconds.
    pub(crate) cpu_ns: u64,
    /// Time at which the frame left the jitter buffer.
    pub(crate) released_ns: u64,
}

impl Recorder {
    /// Records that frame `seq` of the source has arrived from the network. The causes of its time are `blocked` (waits for its
    /// packets), `wakeup`, `compute` and `preempted` (reassembly), and `paced` (jitter buffer). The time since the release is
    /// as in [`Recorder::captured`]. Returns the frame's birth; 0 at level `off`.
    pub(crate) fn received(&mut self, arrival: &FrameArrival, seq: u64, waited_since_ns: u64) -> u64 {
        let released_ns = self.captured(arrival.released_ns, waited_since_ns);
        let Some(before) = &mut self.resumed else { return 0 };
        // Each time is at most the next one, whatever the receiver's clocks are.
        let whole_ns = arrival.whole_ns.min(released_ns);
        let taken_ns = arrival.taken_ns.min(whole_ns);
        let last_ns = arrival.last_ns.min(taken_ns);
        let first_ns = arrival.first_ns.min(last_ns);
        let cpu_ns = arrival.cpu_ns.min(whole_ns - taken_ns);
        let is_counted = self.level == Level::Full;
        before.stretch = Stretch {
            start_ns: first_ns,
            end_ns: released_ns,
            wakeup_ns: taken_ns - last_ns,
            blocked_ns: last_ns - first_ns,
            paced_ns: released_ns - whole_ns,
            compute_ns: if is_counted { cpu_ns } else { 0 },
            preempted_ns: if is_counted { whole_ns - taken_ns - cpu_ns } else { 0 },
            ..Stretch::default()
        };
        let times = [
            (Cause::Blocked, first_ns, last_ns),
            (Cause::Wakeup, last_ns, taken_ns),
            (Cause::Compute, taken_ns, whole_ns),
            (Cause::Paced, whole_ns, released_ns),
        ];
        for (cause, start_ns, end_ns) in times {
            self.spans.push((0, seq), SpanPlace::Inside(cause), start_ns, end_ns);
        }
        first_ns
    }
}

#[cfg(test)]
mod tests {
    use framepath_model::ledger::Row;
    use framepath_model::stream::FrameMeta;
    use framepath_os::time::now_ns;

    use super::*;

    /// Returns the row of a frame with this arrival, which the thread has waited for since `waited_since_ns`.
    fn row(level: Level, arrival: &FrameArrival, waited_since_ns: u64) -> Row {
        let mut recorder = Recorder::new(level, 0, 8);
        let birth_ns = recorder.received(arrival, 3, waited_since_ns);
        recorder.close(0, &FrameMeta { seq: 3, birth_ns, ..FrameMeta::default() }, 0);
        let rows = recorder.finish().rows;
        assert_eq!(rows.len(), 1);
        rows[0]
    }

    #[test]
    fn the_row_of_an_arrival_has_each_part_under_its_cause() {
        let first_ns = now_ns() - 50_000;
        let at = |ns: u64| first_ns + ns;
        let arrival = FrameArrival {
            first_ns,
            last_ns: at(7_000),
            taken_ns: at(8_000),
            whole_ns: at(11_000),
            cpu_ns: 2_500,
            released_ns: at(21_000),
        };
        for level in [Level::Times, Level::Full] {
            // The thread was idle, and busy.
            for waited_since_ns in [0, u64::MAX] {
                let row = row(level, &arrival, waited_since_ns);
                assert_eq!((row.birth_ns, row.enter_ns), (first_ns, first_ns));
                assert_eq!((row.blocked_ns, row.paced_ns), (7_000, 10_000));
                match waited_since_ns {
                    0 => assert!(row.wakeup_ns > 1_000 && row.queue_ns == 0, "{row:?}"),
                    _ => assert!(row.wakeup_ns == 1_000 && row.queue_ns > 0, "{row:?}"),
                }
                let counted = if level == Level::Full { (2_500, 500) } else { (0, 0) };
                assert!(row.compute_ns >= counted.0 && row.preempted_ns >= counted.1, "{row:?}");
                // No time is in two parts.
                assert!(row.wall_ns() >= 20_000 + row.wakeup_ns + row.queue_ns, "{row:?}");
            }
        }
    }

    #[test]
    fn impossible_times_are_put_in_order() {
        let now = now_ns();
        let arrival = FrameArrival {
            first_ns: now + 9,
            last_ns: now,
            taken_ns: u64::MAX,
            whole_ns: 5,
            cpu_ns: u64::MAX,
            released_ns: u64::MAX,
        };
        let row = row(Level::Full, &arrival, 0);
        assert_eq!((row.birth_ns, row.blocked_ns), (5, 0));
        assert!(row.paced_ns > 0 && row.leave_ns >= row.enter_ns);
    }
}
