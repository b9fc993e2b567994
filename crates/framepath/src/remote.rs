// SPDX-License-Identifier: MIT OR Apache-2.0
//! Summary of the other ends of a network stream, in the report of a run.

use std::fmt;
use std::ops::Range;

use framepath_model::ledger::{Row, flag};
use framepath_model::shown_time::shown_time;

use crate::report::Report;

/// Part of a report that came from one other end of a network stream: from the sender, or from one of the viewers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteReport {
    /// Number of the viewer at the other end, from 1; 0 if the other end is the sender.
    pub viewer: u64,
    /// Indices in [`Report::hops`] of the hops of the other machine and of those between the machines.
    pub hops: Range<usize>,
    /// Index in [`Report::hops`] of the hop between the machines.
    pub wire: u16,
    /// Number of frames whose rows of both ends are in the report.
    pub frames: u64,
    /// Number of frames without rows of the other end: for a receiver, their ledger begins at its first hop, for a sender it ends at
    /// `send`. With several viewers, only those between the first and the last frame with rows of this viewer.
    pub without: u64,
    /// Largest error of all times that depend on both machines' clocks, nanoseconds; 0 without frames.
    pub error_ns: u64,
    /// Number of frames that arrived before they had left by the clocks, by more than the error. Their way counts as 0.
    pub impossible: u64,
    /// Number of times that the clock of one of the machines jumped during the run: the machine slept.
    pub clock_jumps: u64,
}

impl fmt::Display for RemoteReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RemoteReport { viewer, frames, without, error_ns, impossible, clock_jumps, .. } = self;
        let (end, place) = match viewer {
            0 => ("the sender".to_owned(), "begins at the arrival"),
            number => (format!("viewer {number}"), "ends at `send`"),
        };
        let error = shown_time(*error_ns as f64);
        write!(f, "rows of {end} for {frames} frames; the clocks agree to ±{error}")?;
        if *without > 0 {
            write!(f, "; {without} frames without: their ledger {place}")?;
        }
        if *impossible > 0 {
            write!(f, "; {impossible} frames arrived before they had left, by more than this error")?;
        }
        if *clock_jumps > 0 {
            write!(f, "; a clock jumped {clock_jumps} times, because a machine slept")?;
        }
        Ok(())
    }
}

impl Report {
    /// Returns the text of each hop. That of a hop between two machines has the error of its times.
    pub fn hop_labels(&self) -> Vec<String> {
        let mut labels: Vec<String> = self.hops.iter().map(|hop| hop.text.clone()).collect();
        for remote in &self.remotes {
            if let Some(label) = labels.get_mut(usize::from(remote.wire)) {
                label.push_str(&format!(" ±{}", shown_time(remote.error_ns as f64)));
            }
        }
        labels
    }

    /// Returns the hops of the path that this machine ran.
    pub fn own_hops(&self) -> Range<usize> {
        self.own.clone().unwrap_or(0..self.hops.len())
    }

    /// Returns the other end whose hops include `hop`.
    pub(crate) fn remote_of(&self, hop: u16) -> Option<&RemoteReport> {
        self.remotes.iter().find(|remote| remote.hops.contains(&usize::from(hop)))
    }

    /// Returns true if hop `hop` belongs to another viewer than hop `sink`, so that no frame on the way to `sink` passes it.
    pub(crate) fn is_of_other_viewer(&self, hop: u16, sink: u16) -> bool {
        let viewer = |hop| self.remote_of(hop).map(|remote| remote.viewer).filter(|viewer| *viewer > 0);
        matches!((viewer(hop), viewer(sink)), (Some(of_hop), Some(of_sink)) if of_hop != of_sink)
    }

    /// Returns the other end on whose clock a row's times depend.
    pub(crate) fn clock_of(&self, row: &Row) -> Option<&RemoteReport> {
        self.remote_of(row.hop).filter(|_| row.has(flag::REMOTE))
    }
}
