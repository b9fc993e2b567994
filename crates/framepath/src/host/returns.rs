// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way back of a worker's frames.

use std::sync::Arc;

use framepath_os::crossing::Area;
use framepath_os::pool::{GiveBackWords, Returns};

use super::memory::GrantShare;
use super::vital::Vital;

/// The worker's slots go back by words of the shared area.
pub(super) struct SlotReturns {
    pub(super) area: Arc<Area>,
    pub(super) vital: Arc<Vital>,
}

impl Returns for SlotReturns {
    fn give_back(&self, slot: u32) {
        let area = &self.area;
        if let Some(words) = GiveBackWords::new(area.slot_bell(), area.slot_summary(), area.slot_counts()) {
            words.give_back(slot);
        }
        self.vital.frame_back();
    }
}

/// As [`SlotReturns`], of a pool in granted memory, which counts for as long as the
/// pool or a frame of it is there.
pub(super) struct GrantedReturns {
    pub(super) returns: Arc<SlotReturns>,
    /// Kept until the last frame is gone.
    pub(super) _share: Arc<GrantShare>,
}

impl Returns for GrantedReturns {
    fn give_back(&self, slot: u32) {
        self.returns.give_back(slot);
    }
}
