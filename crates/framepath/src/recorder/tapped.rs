// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of a recorder's rows for another machine.

use std::sync::Arc;

use super::Recorder;
use crate::row_tap::RowTap;

impl Recorder {
    /// Lets `tap` get a copy of each further row.
    pub(crate) fn set_tap(&mut self, tap: Option<Arc<RowTap>>) {
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
