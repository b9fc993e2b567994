// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of a picture that differ from an earlier picture.

use std::ops::Range;

/// Largest number of separate bands. With more, the closest ones become one.
const MOST_BANDS: usize = 4;
/// Number of rows between two bands at and below which they become one: so few rows cost less than a band of
/// their own.
const GAP: u32 = 16;

/// Rows of a picture that may differ from an earlier picture: up to four bands. All other rows are equal.
///
/// ```
/// use framepath_model::changed_rows::ChangedRows;
///
/// let mut changed = ChangedRows::default();
/// changed.add(600..640);
/// changed.add(100..300);
/// changed.add(290..310);
/// assert_eq!(changed.bands(), [100..310, 600..640]);
/// assert_eq!(changed.count(), 250);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedRows {
    /// Bands from top to bottom, each with at least one row, with more than [`GAP`] rows between them.
    bands: Vec<Range<u32>>,
}

impl ChangedRows {
    /// Returns the first `height` rows of a picture as changed.
    pub fn all(height: u32) -> ChangedRows {
        let mut changed = ChangedRows::default();
        changed.add(0..height);
        changed
    }

    /// Returns the bands, from top to bottom, none of them empty.
    pub fn bands(&self) -> &[Range<u32>] {
        &self.bands
    }

    /// Returns the number of rows in the bands.
    pub fn count(&self) -> u32 {
        self.bands.iter().map(|band| band.end - band.start).sum()
    }

    /// True if no row has changed.
    pub fn is_empty(&self) -> bool {
        self.bands.is_empty()
    }

    /// Adds `rows`. Rows between two close bands then count as changed, too.
    pub fn add(&mut self, rows: Range<u32>) {
        if rows.is_empty() {
            return;
        }
        let place = self.bands.partition_point(|band| band.start < rows.start);
        self.bands.insert(place, rows);
        self.join(GAP);
        while self.bands.len() > MOST_BANDS {
            let gaps = self.bands.windows(2).map(|two| two[1].start - two[0].end);
            let smallest = gaps.min().unwrap_or(0);
            self.join(smallest);
        }
    }

    /// Adds all rows of `other`.
    pub fn add_all(&mut self, other: &ChangedRows) {
        other.bands.iter().for_each(|band| self.add(band.clone()));
    }

    /// Joins the neighbours that have at most `gap` rows between them, or that overlap.
    fn join(&mut self, gap: u32) {
        self.bands.dedup_by(|next, band| {
            let are_close = next.start.saturating_sub(band.end) <= gap;
            if are_close {
                band.end = band.end.max(next.end);
            }
            are_close
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bands: &[(u32, u32)]) -> ChangedRows {
        let mut changed = ChangedRows::default();
        bands.iter().for_each(|(start, end)| changed.add(*start..*end));
        changed
    }

    fn bands(changed: &ChangedRows) -> Vec<(u32, u32)> {
        changed.bands().iter().map(|band| (band.start, band.end)).collect()
    }

    #[test]
    fn bands_are_sorted_and_close_ones_joined() {
        let joined = |added: &[(u32, u32)]| bands(&of(added));
        assert_eq!(joined(&[(50, 60), (0, 10), (100, 101)]), [(0, 10), (50, 60), (100, 101)]);
        assert_eq!(joined(&[(10, 20), (36, 40)]), [(10, 40)], "16 rows apart");
        assert_eq!(joined(&[(10, 20), (37, 40)]), [(10, 20), (37, 40)]);
        assert_eq!(joined(&[(10, 90), (20, 30)]), [(10, 90)], "one inside another");
        assert_eq!(joined(&[(20, 30), (10, 90)]), [(10, 90)]);
        assert_eq!(joined(&[(5, 5)]), []);
        assert!(ChangedRows::all(0).is_empty());
    }

    #[test]
    fn there_are_at_most_four_bands() {
        let changed = of(&[(0, 1), (100, 101), (200, 201), (250, 251), (400, 401)]);
        assert_eq!(bands(&changed), [(0, 1), (100, 101), (200, 251), (400, 401)]);
        assert_eq!(changed.count(), 54);
    }

    #[test]
    fn every_added_row_is_in_a_band() {
        // Rows in an arbitrary but fixed order.
        let mut changed = ChangedRows::default();
        for step in 0..500_u32 {
            let row = step * 7919 % 1080;
            changed.add(row..row + 1);
            assert!(changed.bands().len() <= MOST_BANDS);
            for earlier in 0..=step {
                let row = earlier * 7919 % 1080;
                assert!(changed.bands().iter().any(|band| band.contains(&row)), "row {row}");
            }
        }
        let mut both = of(&[(0, 10)]);
        both.add_all(&of(&[(100, 110), (5, 20)]));
        assert_eq!(bands(&both), [(0, 20), (100, 110)]);
    }
}
