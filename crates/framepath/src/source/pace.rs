// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paces frames by absolute deadlines, so that a late frame
//! does not delay those behind it.

use framepath_os::process::signal;
use framepath_os::process::stop;
use framepath_os::time::now_ns;

use crate::out::Out;

/// The deadlines of a paced source.
pub(crate) struct Pace {
    /// Time between two frames, nanoseconds.
    period_ns: f64,
    /// Number and CLOCK_MONOTONIC time (nanoseconds) of the first frame of the schedule; `None` before the first
    /// wait, and from a restart to the next wait.
    start: Option<(u64, u64)>,
}

/// Reason why a wait for a frame's due time ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PaceWait {
    /// The frame is due.
    Now,
    /// A signal or a stop request ends the run before the frame is due.
    Ended,
    /// A request waits for the thread.
    Request,
}

impl Pace {
    /// Makes the deadlines of `hz` frames per second; `None` for 0, which is unpaced.
    pub(crate) fn from_rate(hz: f64) -> Option<Pace> {
        (hz > 0.0).then(|| Pace { period_ns: 1e9 / hz, start: None })
    }

    /// Restarts the schedule: the next frame is due at once.
    pub(crate) fn restart(&mut self) {
        self.start = None;
    }

    /// Sleeps until frame `seq` is due, a signal or a stop request ends the run, or a request arrives for the
    /// thread. The first frame, and the first after a restart, is due at once.
    #[must_use]
    pub(crate) fn wait_for(&mut self, seq: u64, out: &Out<'_>) -> PaceWait {
        let (first, start) = *self.start.get_or_insert_with(|| (seq, now_ns()));
        let due = start + ((seq - first) as f64 * self.period_ns) as u64;
        while now_ns() < due {
            if signal::interrupted() {
                return PaceWait::Ended;
            }
            if out.has_request() {
                return PaceWait::Request;
            }
            stop::sleep_unless(due, || out.has_request());
        }
        PaceWait::Now
    }
}
