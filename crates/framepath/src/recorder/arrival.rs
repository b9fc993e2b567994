// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time of a frame from its first packet on the network to the source that hands it on.

use framepath_model::ledger::{Cause, Row, SpanPlace, flag};
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

impl FrameArrival {
    /// Splits the row of the source for this frame into those of the reassembly, of the jitter buffer, and of the source's thread.
    pub(crate) fn split(&self, row: &Row) -> [Row; 3] {
        let at = |ns: u64| ns.clamp(row.enter_ns, row.leave_ns);
        let [first_ns, last_ns, taken_ns, whole_ns, released_ns] =
            [self.first_ns, self.last_ns, self.taken_ns, self.whole_ns, self.released_ns].map(at);
        let counted = |ns: u64| if row.has(flag::COUNTED) { ns } else { 0 };
        let cpu_ns = self.cpu_ns.min(whole_ns - taken_ns);
        let part = Row {
            seq: row.seq,
            birth_ns: row.birth_ns,
            thread: row.thread,
            flags: row.flags & (flag::COUNTED | flag::SPLIT),
            ..Row::default()
        };
        let reassembly = Row {
            enter_ns: row.enter_ns,
            leave_ns: whole_ns,
            blocked_ns: last_ns - first_ns,
            wakeup_ns: taken_ns - last_ns,
            compute_ns: counted(cpu_ns),
            preempted_ns: counted(whole_ns - taken_ns - cpu_ns),
            ..part
        };
        let jitter = Row {
            enter_ns: whole_ns,
            leave_ns: released_ns,
            paced_ns: released_ns - whole_ns,
            flags: part.flags | flag::LINK,
            ..part
        };
        let source = Row {
            enter_ns: released_ns,
            blocked_ns: row.blocked_ns.saturating_sub(reassembly.blocked_ns),
            wakeup_ns: row.wakeup_ns.saturating_sub(reassembly.wakeup_ns),
            compute_ns: row.compute_ns.saturating_sub(reassembly.compute_ns),
            preempted_ns: row.preempted_ns.saturating_sub(reassembly.preempted_ns),
            paced_ns: row.paced_ns.saturating_sub(jitter.paced_ns),
            ..*row
        };
        [reassembly, jitter, source]
    }
}

impl Recorder {
    /// Records that frame `seq` of the source has arrived from the network. The causes of its time are `blocked` (waits for its
    /// packets), `wakeup`, `compute` and `preempted` (reassembly), and `paced` (jitter buffer). The time since the release is
    /// as in [`Recorder::captured`]. Returns the frame's birth; 0 at level `off`. Puts the times of `arrival` in order.
    pub(crate) fn received(&mut self, arrival: &mut FrameArrival, seq: u64, waited_since_ns: u64) -> u64 {
        let released_ns = self.captured(arrival.released_ns, waited_since_ns);
        let Some(before) = &mut self.resumed else { return 0 };
        // Each time is at most the next one, whatever the receiver's clocks are.
        let whole_ns = arrival.whole_ns.min(released_ns);
        let taken_ns = arrival.taken_ns.min(whole_ns);
        let last_ns = arrival.last_ns.min(taken_ns);
        let first_ns = arrival.first_ns.min(last_ns);
        let cpu_ns = arrival.cpu_ns.min(whole_ns - taken_ns);
        *arrival = FrameArrival { first_ns, last_ns, taken_ns, whole_ns, cpu_ns, released_ns };
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

    /// Returns the row of a frame with this arrival, which the thread has waited for since `waited_since_ns`. Puts the arrival in
    /// order.
    fn row(level: Level, arrival: &mut FrameArrival, waited_since_ns: u64) -> Row {
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
        let mut arrival = FrameArrival {
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
                let row = row(level, &mut arrival, waited_since_ns);
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
                let parts = arrival.split(&row);
                let [reassembly, jitter, source] = parts;
                assert_eq!((reassembly.leave_ns, jitter.leave_ns), (at(11_000), at(21_000)));
                assert_eq!((reassembly.blocked_ns, reassembly.wakeup_ns), (7_000, 1_000));
                assert_eq!((reassembly.compute_ns, reassembly.preempted_ns), counted);
                assert_eq!((jitter.paced_ns, source.paced_ns, source.blocked_ns), (10_000, 0, 0));
                assert_eq!((source.enter_ns, source.leave_ns), (at(21_000), row.leave_ns));
                // Each time is in one of the parts.
                let sum = |time: fn(&Row) -> u64| parts.iter().map(time).sum::<u64>();
                let times: [fn(&Row) -> u64; 5] = [
                    Row::wall_ns,
                    |row| row.wakeup_ns,
                    |row| row.queue_ns,
                    |row| row.compute_ns,
                    |row| row.preempted_ns,
                ];
                for time in times {
                    assert_eq!(sum(time), time(&row));
                }
            }
        }
    }

    #[test]
    fn impossible_times_are_put_in_order() {
        let now = now_ns();
        let mut arrival = FrameArrival {
            first_ns: now + 9,
            last_ns: now,
            taken_ns: u64::MAX,
            whole_ns: 5,
            cpu_ns: u64::MAX,
            released_ns: u64::MAX,
        };
        let row = row(Level::Full, &mut arrival, 0);
        assert_eq!((row.birth_ns, row.blocked_ns), (5, 0));
        assert!(row.paced_ns > 0 && row.leave_ns >= row.enter_ns);
    }
}
