// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of a pool's slots that do not have the pixels of the screen.

use framepath_model::changed_rows::ChangedRows;

/// For each slot of a pool, the rows whose pixels are not those of the screen: only these are captured again.
pub(super) struct StaleRows {
    slots: Vec<ChangedRows>,
}

impl StaleRows {
    /// Makes the rows of a pool of `slots` slots that nothing has been captured into.
    pub(super) fn new(slots: u32, height: u32) -> StaleRows {
        StaleRows { slots: vec![ChangedRows::all(height); slots as usize] }
    }

    /// Counts `rows` of the screen as changed since the slots were captured.
    pub(super) fn change(&mut self, rows: &ChangedRows) {
        self.slots.iter_mut().for_each(|stale| stale.add_all(rows));
    }

    /// Returns the rows of slot `number` that are to be captured.
    pub(super) fn of(&self, number: u32) -> &ChangedRows {
        &self.slots[number as usize]
    }

    /// Counts slot `number` as captured, except `rows`, over which something else was drawn.
    pub(super) fn capture(&mut self, number: u32, rows: ChangedRows) {
        self.slots[number as usize] = rows;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_misses_the_changes_behind_its_capture() {
        let rows = |band: std::ops::Range<u32>| {
            let mut rows = ChangedRows::default();
            rows.add(band);
            rows
        };
        let mut stale = StaleRows::new(2, 100);
        assert_eq!((stale.of(0), stale.of(1)), (&rows(0..100), &rows(0..100)));
        stale.capture(0, rows(90..95));
        stale.change(&rows(10..20));
        stale.capture(1, ChangedRows::default());
        stale.change(&rows(50..51));
        assert_eq!(stale.of(0).bands(), [10..20, 50..51, 90..95]);
        assert_eq!(stale.of(1), &rows(50..51));
    }
}
