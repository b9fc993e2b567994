// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order of a path's hops: a line, or a tree where a tee has branches.

/// Tree of a path's hops. Each hop except the source has a predecessor, whose row precedes the hop's own
/// row in the ledger of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopTree {
    /// Index of the predecessor of each hop; `None` for the source.
    before: Vec<Option<u16>>,
}

impl HopTree {
    /// Creates the tree of a path of `hops` hops without branches: each hop's predecessor is the
    /// hop before it.
    pub fn line(hops: usize) -> HopTree {
        HopTree { before: (0..hops as u16).map(|hop| hop.checked_sub(1)).collect() }
    }

    /// Creates a tree from the index of each hop's predecessor. If that index is `None`, or not
    /// smaller than the hop's own, the predecessor is the hop before it in the list. The first hop
    /// has none.
    pub fn new(before: impl IntoIterator<Item = Option<u16>>) -> HopTree {
        let checked =
            |(hop, before): (u16, Option<u16>)| before.filter(|before| *before < hop).or(hop.checked_sub(1));
        HopTree { before: (0..).zip(before).map(checked).collect() }
    }

    /// Returns the number of hops in the tree.
    pub fn len(&self) -> usize {
        self.before.len()
    }

    /// Returns true if the tree has no hops.
    pub fn is_empty(&self) -> bool {
        self.before.is_empty()
    }

    /// Returns the index of the predecessor of `hop`; `None` for the source, and for an index that
    /// is no hop.
    pub fn parent(&self, hop: u16) -> Option<u16> {
        self.before.get(usize::from(hop)).copied().flatten()
    }

    /// Returns the indices of the hops without a successor, in rising order: the ends of the
    /// branches.
    pub fn leaves(&self) -> Vec<u16> {
        let is_end = |hop: &u16| !self.before.contains(&Some(*hop));
        (0..self.len() as u16).filter(is_end).collect()
    }

    /// Returns, for each hop, true if it is on the way of the frames to hop `end`; true for `end`
    /// itself. All are false if `end` is no hop.
    ///
    /// ```
    /// use framepath_model::ledger::HopTree;
    ///
    /// // test ! tee ( queue ! null ) ( null )
    /// let tree = HopTree::new([None, Some(0), Some(0), Some(2), Some(1)]);
    /// assert_eq!(tree.leaves(), [3, 4]);
    /// assert_eq!(tree.way_to(3), [true, false, true, true, false]);
    /// assert_eq!(tree.way_to(4), [true, true, false, false, true]);
    /// ```
    pub fn way_to(&self, end: u16) -> Vec<bool> {
        let mut way = vec![false; self.len()];
        let mut at = Some(end);
        while let Some(hop) = at {
            if let Some(passed) = way.get_mut(usize::from(hop)) {
                *passed = true;
            }
            at = self.parent(hop);
        }
        way
    }
}
