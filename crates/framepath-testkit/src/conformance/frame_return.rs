// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check that frames return to their pool, which reuses their memory.

use std::collections::HashSet;

use framepath::Level;

use super::parts::{PathRecord, unpoisoned};
use super::way::PathUnderTest;

/// Checks that the frames use no more addresses than the pool, or a link with its own slots, has
/// slots.
pub fn slots_are_reused(way: &PathUnderTest) {
    const FRAMES: u64 = 300;
    for slots in [1, 3, 5] {
        let watch = PathRecord::new(slots);
        let report = watch.run(way, FRAMES, Level::Times);
        assert!(report.error.is_none(), "{:?}", report.error);
        let addresses: HashSet<usize> = unpoisoned(&watch.seen).iter().map(|s| s.address).collect();
        let slots = way.link.own_slots.unwrap_or(slots as usize);
        assert!(addresses.len() <= slots, "{} addresses of {slots} slots", addresses.len());
        assert_eq!(report.frames + report.dropped, FRAMES);
        watch.assert_all_back();
    }
}
