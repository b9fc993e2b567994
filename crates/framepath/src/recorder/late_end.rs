// SPDX-License-Identifier: MIT OR Apache-2.0
//! End of a frame that is known only after its row was written.

use framepath_model::ledger::{Cause, SpanPlace, flag};
use framepath_os::measure::meter::Level;

use super::Recorder;

/// Maximum number of rows to look at. Later rows than these belong to frames of about a second.
const MOST_ROWS: usize = 1024;

impl Recorder {
    /// Moves the end of frame `seq` in hop `hop` to the later time `end_ns`, CLOCK_MONOTONIC nanoseconds. Of the time until then, another
    /// thread has worked for `work`: time, and CPU time. The rest was a deliberate wait for a timer. Does nothing if the row is not among the last [`MOST_ROWS`].
    pub(crate) fn end_later(&mut self, hop: u16, seq: u64, end_ns: u64, work: (u64, u64)) {
        if self.level == Level::Off {
            return;
        }
        let thread = SpanPlace::Thread(self.thread);
        let (newer, older) = self.rows.split_at_mut(self.next);
        let mut rows = newer.iter_mut().rev().chain(older.iter_mut().rev()).take(MOST_ROWS);
        let Some(row) = rows.find(|row| (row.hop, row.seq) == (hop, seq)) else { return };
        let (enter_ns, begin_ns) = (row.enter_ns, row.leave_ns);
        row.leave_ns = end_ns.max(begin_ns);
        let work_ns = if row.has(flag::COUNTED) { work.0.min(row.leave_ns - begin_ns) } else { 0 };
        let cpu_ns = work.1.min(work_ns);
        row.compute_ns += cpu_ns;
        row.preempted_ns += work_ns - cpu_ns;
        row.paced_ns += row.leave_ns - begin_ns - work_ns;
        row.flags |= flag::SPLIT;
        self.spans.push((hop, seq), thread, enter_ns, begin_ns);
        self.spans.push((hop, seq), SpanPlace::Inside(Cause::Paced), begin_ns, end_ns);
    }
}

#[cfg(test)]
mod tests {
    use framepath_model::stream::FrameMeta;
    use framepath_os::time::now_ns;

    use super::*;

    #[test]
    fn the_time_until_a_later_end_is_paced() {
        // Room for three rows, so that the last one overwrites the first.
        let mut recorder = Recorder::new(Level::Times, 0, 3);
        for seq in 0..4 {
            recorder.close(7, &FrameMeta { seq, ..FrameMeta::default() }, flag::LAST);
        }
        let late_ns = now_ns() + 1_000_000;
        for seq in [0, 2, 9] {
            recorder.end_later(7, seq, late_ns, (1000, 900));
        }
        // Never earlier.
        recorder.end_later(7, 3, 0, (1000, 900));
        let recorded = recorder.finish();
        let ends: Vec<_> = recorded.rows.iter().map(|row| (row.seq, row.leave_ns == late_ns)).collect();
        assert_eq!(ends, [(1, false), (2, true), (3, false)]);
        let row = &recorded.rows[1];
        let causes = row.causes();
        assert!(row.paced_ns > 0 && causes[Cause::Paced] == Some(row.paced_ns as f64));
        assert_eq!(recorded.rows[2].paced_ns, 0);
    }

    #[test]
    fn the_work_of_another_thread_is_no_wait() {
        for (level, expected) in [(Level::Times, (0, 0)), (Level::Full, (900, 100))] {
            let mut recorder = Recorder::new(level, 0, 3);
            recorder.close(7, &FrameMeta::default(), flag::LAST);
            let before = *recorder.last_row().unwrap();
            recorder.end_later(7, 0, before.leave_ns + 5000, (1000, 900));
            let row = recorder.finish().rows[0];
            let worked = (row.compute_ns - before.compute_ns, row.preempted_ns - before.preempted_ns);
            assert_eq!(worked, expected);
            assert_eq!(row.wall_ns() - before.wall_ns(), 5000);
            assert_eq!(row.paced_ns, 5000 - expected.0 - expected.1);
        }
    }
}
