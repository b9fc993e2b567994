// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of a recorder's rows for another machine.

use std::fmt::Debug;
use std::sync::Arc;

use framepath_model::ledger::Row;

use super::Recorder;

/// Taker of copies of the rows of all recorders of a run.
pub(crate) trait RowSink: Debug + Send + Sync {
    /// Takes a row.
    fn record(&self, row: &Row);
}

impl Recorder {
    /// Lets `tap` get a copy of each further row.
    pub(crate) fn set_tap(&mut self, tap: Option<Arc<dyn RowSink>>) {
        self.tap = tap;
    }

    /// Gives the row that was written last to the tap.
    #[inline]
    pub(super) fn tap_newest(&self) {
        if let Some(tap) = &self.tap {
            let newest = self.next.checked_sub(1).unwrap_or(self.most - 1);
            tap.record(&self.rows[newest]);
        }
    }
}
