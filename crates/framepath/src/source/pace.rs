// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives frames their time: by absolute deadlines, so that one that comes late
//! does not move those behind it.

use framepath_os::clock::now_ns;
use framepath_os::{signal, stop};

/// The deadlines of a paced source.
pub(crate) struct Pace {
    period_ns: f64,
    /// When the first was given.
    start_ns: Option<u64>,
}

impl Pace {
    /// `hz` a second; `None` for 0, which is flat out.
    pub(crate) fn of_rate(hz: f64) -> Option<Pace> {
        (hz > 0.0).then(|| Pace { period_ns: 1e9 / hz, start_ns: None })
    }

    /// Sleeps until number `seq` is due; `false` if the run is to end before that.
    #[must_use]
    pub(crate) fn wait_for(&mut self, seq: u64) -> bool {
        let start = *self.start_ns.get_or_insert_with(now_ns);
        let due = start + (seq as f64 * self.period_ns) as u64;
        while now_ns() < due && !signal::interrupted() {
            stop::sleep_unless_requested(due);
        }
        now_ns() >= due
    }
}
