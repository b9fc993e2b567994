// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes between the last pictures that a stage has read.

use std::collections::VecDeque;

use framepath_model::changed_rows::ChangedRows;
use framepath_model::format::Layout;
use framepath_os::memory::pool::Frame;

/// Largest number of steps from picture to picture that are kept: more than a stage's pool has slots.
const MOST_STEPS: usize = 16;

/// Changes between the last pictures that a stage has read, which are numbered from 1.
#[derive(Debug, Default)]
pub(super) struct PictureHistory {
    /// Number of the last picture.
    number: u64,
    /// Pool, sequence number and layout of the last picture.
    last: Option<(u64, u64, Layout)>,
    /// Rows that each of the last pictures has changed, oldest first: those of all pictures from one on whose changes
    /// are known.
    steps: VecDeque<ChangedRows>,
}

impl PictureHistory {
    /// Adds a picture and returns its number.
    pub(super) fn add(&mut self, frame: &Frame) -> u64 {
        self.number += 1;
        let (pool, seq, layout) = (frame.pool_id(), frame.meta().seq, *frame.layout());
        // The changes are those since the frame before, which another hop may have dropped.
        let follows = self.last == Some((pool, seq.wrapping_sub(1), layout));
        match frame.changed_rows().filter(|_| follows) {
            Some(changed) => {
                if self.steps.len() == MOST_STEPS {
                    self.steps.pop_front();
                }
                self.steps.push_back(changed.clone());
            }
            None => self.steps.clear(),
        }
        self.last = Some((pool, seq, layout));
        self.number
    }

    /// Returns the rows in which the last picture may differ from picture `number`; `None` if they are not known.
    pub(super) fn changed_since(&self, number: u64) -> Option<ChangedRows> {
        let steps = usize::try_from(self.number.checked_sub(number)?).ok()?;
        let first = self.steps.len().checked_sub(steps)?;
        let mut changed = ChangedRows::default();
        self.steps.range(first..).for_each(|step| changed.add_all(step));
        Some(changed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use framepath_model::format::PixelFormat;
    use framepath_model::stream::FrameMeta;
    use framepath_os::display::screen_pool::ScreenPool;

    use super::*;

    /// Makes frame `seq`, in which row `seq * 100` has changed, if that is known.
    fn frame(pool: &ScreenPool, seq: u64, is_known: bool) -> Frame {
        let layout = Layout::packed(PixelFormat::Bgr0, 16, 4000).unwrap();
        let row = seq as u32 * 100;
        let mut changed = ChangedRows::default();
        changed.add(row..row + 1);
        let slot = pool.acquire(Duration::ZERO).unwrap();
        slot.freeze(&layout, FrameMeta { seq, ..FrameMeta::default() }, is_known.then_some(changed)).unwrap()
    }

    fn pool() -> ScreenPool {
        ScreenPool::new(16 * 4000 * 4, 4).unwrap()
    }

    #[test]
    fn the_changes_of_all_pictures_behind_one_are_returned() {
        let (pool, mut history) = (pool(), PictureHistory::default());
        let numbers = [0, 1, 2, 3].map(|seq| history.add(&frame(&pool, seq, true)));
        assert_eq!(numbers, [1, 2, 3, 4]);
        let since = |number| history.changed_since(number).map(|changed| changed.bands().to_vec());
        assert_eq!(since(4), Some(vec![]));
        assert_eq!(since(2), Some(vec![200..201, 300..301]));
        assert_eq!(since(1), Some(vec![100..101, 200..201, 300..301]));
        assert_eq!(since(0), None, "nothing is known before the first picture");
        assert_eq!(since(5), None);
    }

    #[test]
    fn a_dropped_frame_and_another_pool_end_the_knowledge() {
        let (first, second, mut history) = (pool(), pool(), PictureHistory::default());
        history.add(&frame(&first, 0, true));
        let before = history.add(&frame(&first, 1, true));
        let gap = history.add(&frame(&first, 3, true));
        assert_eq!(history.changed_since(before), None, "frame 2 is missing");
        history.add(&frame(&first, 4, true));
        assert!(history.changed_since(gap).is_some());
        let other = history.add(&frame(&second, 5, true));
        assert_eq!(history.changed_since(gap), None, "another pool");
        history.add(&frame(&second, 6, false));
        assert_eq!(history.changed_since(other), None, "unknown changes");
    }

    #[test]
    fn old_pictures_are_forgotten() {
        let (pool, mut history) = (pool(), PictureHistory::default());
        let first = history.add(&frame(&pool, 0, true));
        for seq in 1..=MOST_STEPS as u64 {
            history.add(&frame(&pool, seq, true));
            assert!(history.changed_since(first).is_some());
        }
        history.add(&frame(&pool, MOST_STEPS as u64 + 1, true));
        assert_eq!(history.changed_since(first), None);
        assert_eq!(history.steps.len(), MOST_STEPS);
    }
}
